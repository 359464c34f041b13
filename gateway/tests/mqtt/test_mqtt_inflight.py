"""Packet ids: never 0, never one in use, typed end; QoS 2: a resent message is not a new one."""

from __future__ import annotations

import pytest

from sealmq.mqtt import PacketIds, PacketIdsExhausted, QoS2Receiver, UsageError


def test_ids_start_at_1_and_rise() -> None:
    ids = PacketIds()
    assert [ids.take() for _ in range(3)] == [1, 2, 3]
    assert len(ids) == 3
    assert 3 in ids
    assert 4 not in ids


def test_a_freed_id_is_not_the_next() -> None:
    ids = PacketIds()
    ids.take()
    assert ids.release(1)
    assert ids.take() == 2


def test_all_65535_then_a_typed_error_then_the_freed_one() -> None:
    ids = PacketIds()
    assert {ids.take() for _ in range(65535)} == set(range(1, 65536))
    with pytest.raises(PacketIdsExhausted, match="65535"):
        ids.take()
    assert ids.release(40_000)
    assert ids.take() == 40_000
    with pytest.raises(PacketIdsExhausted):
        ids.take()


def test_going_round_skips_what_is_in_use() -> None:
    ids = PacketIds()
    for _ in range(65535):
        ids.take()
    for packet_id in (2, 5, 65535):
        ids.release(packet_id)
    assert [ids.take() for _ in range(3)] == [2, 5, 65535]


def test_an_answer_to_nothing_frees_nothing() -> None:
    ids = PacketIds()
    ids.take()
    assert ids.release(1)
    assert not ids.release(1)
    assert not ids.release(0)
    assert len(ids) == 0


def test_claimed_ids_are_skipped() -> None:
    ids = PacketIds()
    for packet_id in (1, 2, 4):
        ids.claim(packet_id)
    assert [ids.take(), ids.take()] == [3, 5]
    for wrong in (0, 65536, -1, 3):
        with pytest.raises(UsageError):
            ids.claim(wrong)


def test_qos2_accepts_an_id_once_until_released() -> None:
    receiver = QoS2Receiver()
    assert receiver.accept(7)
    assert not receiver.accept(7)
    assert 7 in receiver
    assert len(receiver) == 1
    assert receiver.release(7)
    assert not receiver.release(7)
    assert receiver.accept(7)
    receiver.clear()
    assert len(receiver) == 0
    assert receiver.accept(7)


def test_ids_that_are_given_back_together_are_free_and_others_are_not() -> None:
    ids = PacketIds()
    taken = [ids.take() for _ in range(5)]
    ids.release_all([taken[0], taken[3], 60_000])
    assert [one in ids for one in taken] == [False, True, True, False, True]
    assert len(ids) == 3
