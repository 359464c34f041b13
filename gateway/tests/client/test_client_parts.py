"""The parts below the connection: outbox, bell, inbox, state, randomness, errors."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from client_peer import Peer
from sealmq.client import How, Message
from sealmq.client.bell import Bell
from sealmq.client.cipher import make
from sealmq.client.client import _checked
from sealmq.client.errors import Refused, class_name, connect_refused, refusal
from sealmq.client.inbox import Inbox
from sealmq.client.outbox import Outbox
from sealmq.client.randomness import mono_ms, new_nonce, new_salt
from sealmq.client.state import StateFile
from sealmq.mqtt import build
from sealmq_spec.errors import Denied, SealError, Unsupported
from sealmq_spec.identity import Identity
from sealmq_spec.records import Roots


def test_outbox_resumes_what_is_underway_and_nothing_else() -> None:
    box = Outbox()
    packets = {}
    for ctr, qos in ((3, 1), (4, 2), (5, 2), (6, 1)):
        number = box.ids.take()
        packets[ctr] = number, build.publish("a", b"x", qos, packet_id=number)
        box.add(number, ctr, qos, packets[ctr][1])
    assert box.low() == 3
    assert box.pubacks([packets[4][0]]) == [None], "QoS 2 is not ended by PUBACK"
    assert box.pubcomp(packets[4][0]) is None, "nor by PUBCOMP before PUBREC"
    assert not box.pubrec(packets[3][0]), "QoS 1 knows no PUBREC"
    assert box.pubrec(packets[4][0])
    box.refuse(6)
    out, lost = box.resume(present=True)
    dup = [bytes((packets[c][1][0] | 8,)) + packets[c][1][1:] for c in (3, 5)]
    assert (out, lost) == (dup[0] + build.pubrel(packets[4][0]) + dup[1], [])
    out, lost = box.resume(present=False)
    assert (out, lost) == (dup[0] + dup[1], [4])
    assert box.pubacks([packets[3][0]]) == [3]
    assert (box.low(), len(box)) == (5, 1)
    assert box.pubrec(packets[5][0])
    assert box.low() == 0
    assert box.pubcomp(packets[5][0]) == 5
    assert len(box.ids) == 0


def test_outbox_admits_what_the_window_admits() -> None:
    box = Outbox()
    assert box.admits(1_000_000)
    number = box.ids.take()
    box.add(number, 10, 1, b"\x32")
    assert box.admits(73)
    assert not box.admits(74)


def test_a_bell_wakes_all_who_wait() -> None:
    async def story() -> None:
        bell, seen = Bell(), []
        value = 0

        async def wait(least: int) -> None:
            await bell.until(lambda: value >= least)
            seen.append(least)

        tasks = [asyncio.ensure_future(wait(n)) for n in (0, 1, 2)]
        await asyncio.sleep(0)
        assert seen == [0]
        cancelled = asyncio.ensure_future(wait(9))
        await asyncio.sleep(0)
        cancelled.cancel()
        for value in (1, 2):
            bell.ring()
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            assert seen[-1] == value
        await asyncio.gather(*tasks)

    asyncio.run(story())


def test_inbox_limits_by_number_and_by_bytes() -> None:
    def message(size: int) -> Message:
        return Message("t", bytes(size), "16", "1", 0, How.LIVE)

    inbox = Inbox(2, 10_000, Bell())
    assert inbox.admits(False)
    inbox.add([message(10)])
    assert inbox.admits(False)
    inbox.add([message(10)])
    assert not inbox.admits(False)
    assert inbox.admits(True), "an answer may stand behind it"
    for _ in range(14):
        inbox.add([message(10)])
    assert not inbox.admits(True)
    while inbox:
        inbox.pop(1)
    inbox.add([message(20_000)])
    assert not inbox.admits(False)
    assert inbox.admits(True)
    inbox.add([message(80_000)])
    assert not inbox.admits(True)
    inbox.pop(1)
    inbox.pop(1)
    assert inbox.admits(False)


def provisioned(peer: Peer) -> Identity:
    identity = Identity.from_enrolment(peer.site.enrolment(1883))
    identity.gen, identity.kseq, identity.km = 3, 9, os.urandom(32)
    own: Roots = peer.site.roots[16]
    identity.own = own
    return identity


def test_state_is_replaced_in_one_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    peer = Peer()
    held, path = provisioned(peer), tmp_path / "s"
    state = StateFile(path)
    assert state.open(held) == (0, b"")
    state.save(held, 4, b"n" * 12)
    before = path.read_bytes()
    monkeypatch.setattr("os.rename", lambda *_: (_ for _ in ()).throw(OSError(28, "no space")))
    with pytest.raises(Exception, match="no space"):
        state.save(held, 5, b"n" * 12)
    assert path.read_bytes() == before
    assert sorted(p.name for p in tmp_path.iterdir()) == ["s", "s.lock"]
    state.close()
    fresh = Identity.from_enrolment(peer.site.enrolment(1883))
    assert StateFile(path).open(fresh) == (4, b"n" * 12)
    assert fresh.dump() == held.dump()


def test_salts_never_repeat_and_clocks_only_rise() -> None:
    salts = {new_salt(1, b"") for _ in range(1000)}
    assert len(salts) == 1000
    assert {len(salt) for salt in salts} == {8}
    assert len(new_nonce()) == 16
    assert new_nonce() != new_nonce()
    ticks = [mono_ms() for _ in range(1000)]
    assert ticks == sorted(ticks)


def test_an_unknown_suite_is_a_refusal() -> None:
    with pytest.raises(Unsupported):
        make(7, bytes(32))


def test_refusals_are_of_their_class_and_say_what_is_known() -> None:
    error = refusal("publish", "a", 5, "", "")
    assert isinstance(error, Refused)
    assert isinstance(error, Denied)
    assert isinstance(error, SealError)
    assert str(error) == "publish to a refused (Denied): no reason given"
    assert error.code == 5
    strange = refusal("control", "a", 99, "r", "why")
    assert str(strange) == "command for a refused by rule r: why"
    assert class_name(99) == "class 99"
    assert "(CONNACK 77)" in str(connect_refused(77))


@pytest.mark.parametrize("topic", ["$SYS/x", "!c1", "!x", "@sm1/m/16"])
def test_reserved_topics_are_refused_before_they_are_sent(topic: str) -> None:
    with pytest.raises(Denied) as refused:
        _checked(topic)
    assert refused.value.rule == "labels.publish.reserved"
