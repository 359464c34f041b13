"""What a mediator remembers of retained messages, and what it holds for a slow reader."""

from __future__ import annotations

import pytest

from sealmq.mediator.core.boots import Sent
from sealmq.mediator.core.limits import SLOW_BYTES, SLOW_SURE_BYTES
from sealmq.mediator.core.retained import Retained
from sealmq.mediator.outgoing import Outgoing
from sealmq.mqtt import Publish
from sealmq_spec.errors import Stale

HERE = object()


def sent(done: bool = False, where: object = None) -> Sent:
    made = Sent(1, b"")
    made.done, made.where = done, where
    return made


def test_a_copy_that_was_replaced_does_not_come_back() -> None:
    kept = Retained()
    kept.passed("t", 10, 0)
    kept.came("t", 10, 0)
    kept.came("t", 11, 0)
    with pytest.raises(Stale):
        kept.came("t", 10, 5)
    kept.came("other", 1, 0)


def test_the_oldest_topics_are_forgotten_first() -> None:
    kept = Retained(most=3)
    for n, topic in enumerate("abc"):
        kept.passed(topic, 10 + n, 0)
    kept.passed("a", 20, 0)
    kept.passed("d", 30, 0)
    assert len(kept) == 3
    kept.came("b", 1, 0)  # forgotten
    with pytest.raises(Stale):
        kept.came("a", 1, 0)


def test_an_older_one_does_not_overtake_what_is_done_or_under_way_here() -> None:
    kept = Retained()
    kept.published("t", 1, (100, 1, 5), sent(done=True))
    kept.check("t", 1, (100, 1, 6), HERE)
    kept.check("t", 2, (99, 1, 1), HERE)
    with pytest.raises(Stale):
        kept.check("t", 1, (100, 1, 4), HERE)
    kept.published("t", 1, (100, 1, 7), sent(where=HERE))
    with pytest.raises(Stale):
        kept.check("t", 1, (100, 1, 6), HERE)
    # Under way in a connection that has ended: both come again, in their order.
    kept.check("t", 1, (100, 1, 6), object())


def message(topic: str, payload: bytes, qos: int) -> Publish:
    return Publish(topic, topic.encode(), payload, qos, False, False, qos)


class Reader:
    """A client's socket that takes `room` packets."""

    def __init__(self) -> None:
        self.taken: list[bytes] = []
        self.paused: list[bool] = []
        self.room = 0
        self.out = Outgoing(self.take, self.paused.append)

    def take(self, packet: Publish) -> None:
        self.taken.append(packet.payload)
        self.room -= 1
        if self.room <= 0:
            self.out.slow(True)


def test_a_reader_that_keeps_up_gets_everything_at_once() -> None:
    reader = Reader()
    reader.room = 10**6
    assert reader.out.put(message("t", b"x", 0)) == []
    assert reader.taken == [b"x"]
    assert reader.out.held == 0


def test_the_oldest_of_qos_0_are_dropped_and_qos_1_keeps_its_place() -> None:
    reader = Reader()
    reader.out.slow(True)
    size = SLOW_BYTES // 8
    dropped = reader.out.put(message("s", b"sure", 1))
    for n in range(40):
        dropped += reader.out.put(message(f"t/{n}", b"%d" % (n % 10) * size, 0))
    assert reader.out.held <= SLOW_BYTES + 1000
    assert reader.paused == []
    assert [packet.topic for packet in dropped] == [f"t/{n}" for n in range(len(dropped))]
    assert len(dropped) >= 32
    reader.room = 10**6
    reader.out.slow(False)
    assert reader.taken[0] == b"sure"
    assert len(reader.taken) == 1 + 40 - len(dropped)
    assert reader.out.held == 0


def test_behind_much_of_qos_1_the_broker_waits_and_order_stays() -> None:
    reader = Reader()
    reader.out.slow(True)
    payloads = [b"%02d" % n + bytes(SLOW_SURE_BYTES // 10) for n in range(12)]
    for payload in payloads:
        assert reader.out.put(message("t", payload, 1)) == []
    assert reader.paused == [True]
    while reader.out.held:
        reader.room = 3
        reader.out.slow(False)
    assert reader.paused == [True, False]
    assert reader.taken == payloads


def test_what_waited_for_a_slow_client_waits_for_its_keys_too() -> None:
    reader = Reader()
    reader.out.slow(True)
    reader.out.put(message("t", b"one", 1))
    reader.out.stopped = True
    reader.room = 10**6
    reader.out.slow(False)
    assert reader.taken == []
    reader.out.put(message("t", b"two", 1))
    reader.out.stopped = False
    reader.out.go_on()
    assert reader.taken == [b"one", b"two"]
