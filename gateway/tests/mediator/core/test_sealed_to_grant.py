"""What a family has sealed for those who hold a grant (GATEWAY.md G2): one m3 for all of them, and
op 8 before it in each connection. Core alone, with real keys.
"""

from __future__ import annotations

from typing import Any

import pytest

from families.sealing import Sealing
from mediator_world import LOW, NOW_MS, PANEL, SENSOR, SIBLING, World
from reader_scene import Client, Scene, SealCalls, payloads
from sealmq.aead import make
from sealmq.families.api import Duty, PutTlv, SealToGrant
from sealmq.mediator.core.session import Session
from sealmq.mqtt import Puback, Publish, Pubrec
from sealmq.order import Order
from sealmq_spec.const import (
    LIVE,
    M3_HEAD,
    OP_GRANT,
    OP_RECORD,
    QUEUED,
    REF_GRANT,
    REF_LABEL,
    RETAINED,
)
from sealmq_spec.envelope import get_m3
from sealmq_spec.errors import NoKey, Replay, Stale, Unauthentic, WrongEpoch
from sealmq_spec.keys import topic_key
from sealmq_spec.reader import Message, Reader
from sealmq_spec.records import Roots

CREW, STAFF = SealToGrant("sealing", "crew"), SealToGrant("sealing", "staff")
TO_CREW: tuple[Duty, ...] = (CREW,)


class Reads:
    """A client of an open session that reads t/#: it takes what came in the order in which it came.
    `grants`: bodies of op 8, after op.
    """

    def __init__(self, scene: Scene, number: int = PANEL, clean: bool = True, **more: Any) -> None:
        self.scene = scene
        self.session: Session = scene.open(number, clean, **more)
        scene.subscribe(self.session, 1, ("t/#", 2))
        scene.settle()
        self._client = Client(self.session)
        self.peer = scene.peer(self.session)
        self.reader = Reader(scene.world.identities[number], make, known_tlv=(40,))
        self.reader.session = self.peer
        self.grants: list[bytes] = []
        self.take()

    def take(self) -> list[Publish]:
        """Messages that have come since; grants and records before them are taken."""
        self._client.take()
        came, self._client.all = self._client.all, []
        found = []
        for packet in came:
            if not isinstance(packet, Publish):
                continue
            if packet.topic != "!c1":
                found.append(packet)
                continue
            op, what = self.peer.down(packet.payload, self.scene.site.now_ms - NOW_MS)
            if op == OP_RECORD:
                self.reader.add(what)
            elif op == OP_GRANT:
                self.grants.append(what)
                self.reader.add_grant(what)
        return found

    def one(self) -> Publish:
        (packet,) = self.take()
        return packet

    def opens(self, packet: Publish) -> Message:
        return self.reader.open(packet.topic_raw, bytearray(packet.payload), self.scene.site.now_ms)


def scene_of(world: World | None = None, **wants: tuple[Duty, ...]) -> tuple[Scene, Sealing]:
    """A site in which panel and sibling hold `crew`."""
    world, family = world or World(), Sealing(**wants)
    if not world.grants:
        world.grant("crew", PANEL, SIBLING)
    scene = Scene(more=[family], world=world)
    scene.ring(lambda rows: None)
    return scene, family


def head_of(packet: Publish) -> tuple[int, int, int, int]:
    """ref, how, number and epoch of an m3."""
    return get_m3(packet.payload)[1:5]


@pytest.mark.parametrize("number", [PANEL, SIBLING])
@pytest.mark.parametrize(("suite", "label_suite"), [(1, 1), (2, 1), (1, 2)])
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_reader_that_holds_the_grant_opens_what_is_sealed_to_it(
    number: int, suite: int, label_suite: int, qos: int
) -> None:
    world = World(label_suite)
    world.grant("crew", number, suite=suite)
    scene, _ = scene_of(world, panel=TO_CREW, sibling=TO_CREW)
    reads = Reads(scene, number)
    assert reads.grants == []
    scene.publish("t/1", b"for the crew", qos)
    packet = reads.one()
    assert (head_of(packet), get_m3(packet.payload)[0]) == ((REF_GRANT, LIVE, 5, 1), suite)
    assert packet.qos == qos
    got = reads.opens(packet)
    assert (got.payload, got.label, got.sender, got.how, got.tlv) == (
        b"for the crew", LOW, SENSOR, LIVE, {},
    )  # fmt: skip
    assert scene.counts.delivered == [(reads.session.client.name, "t/1")]
    assert len(reads.grants) == 1


def test_a_message_is_opened_and_sealed_once_for_all_who_hold_the_grant(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scene, _ = scene_of(panel=TO_CREW, sibling=TO_CREW)
    readers = [Reads(scene, client_id=f"id-{n}") for n in range(3)] + [Reads(scene, SIBLING)]
    plain = Reads(scene, SENSOR)
    counted = SealCalls(monkeypatch, "open_m3", "for_one", "for_holders")
    m3 = scene.publish("t/1", b"21.5", 1)
    packets = [reads.one() for reads in readers]
    assert counted.calls == {"open_m3": 1, "for_one": 0, "for_holders": 1}
    assert len({packet.payload for packet in packets}) == 1
    for reads, packet in zip(readers, packets, strict=True):
        assert reads.opens(packet).payload == b"21.5"
        assert len(reads.grants) == 1
    assert plain.one().payload == m3
    assert plain.grants == []


def test_who_holds_no_grant_and_has_the_labels_keys_does_not_open_it() -> None:
    world = World()
    world.grant("crew", PANEL)
    world.grant("staff", SIBLING)
    scene, _ = scene_of(world, panel=TO_CREW, sibling=(STAFF,))
    holder, other = Reads(scene), Reads(scene, SIBLING)
    scene.publish("t/1")
    packet, theirs = holder.one(), other.one()
    with pytest.raises(NoKey):
        other.opens(packet)
    forged = bytearray(packet.payload)
    forged[2:5] = theirs.payload[2:5]  # as if it were for those who hold the other grant
    with pytest.raises(Unauthentic):
        other.opens(packet._replace(payload=bytes(forged)))
    forged[1] &= ~(7 << 2)  # as if it were sealed to the label
    forged[2:8] = LOW.to_bytes(3, "big") + (3).to_bytes(3, "big")
    with pytest.raises(Unauthentic):
        other.opens(packet._replace(payload=bytes(forged)))
    assert holder.opens(packet).payload == other.opens(theirs).payload == b"21.5"


@pytest.mark.parametrize("duty", [CREW, SealToGrant("sealing", "nobody's")])
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_to_who_holds_no_such_grant_nothing_is_delivered_and_it_is_counted(
    duty: Duty, qos: int
) -> None:
    """Whatever the family demands: who holds it the key generator has said."""
    world = World()
    world.grant("crew", PANEL)
    scene, _ = scene_of(world, sibling=(duty,))
    reads = Reads(scene, SIBLING, clean=False)
    scene.own(reads.session, "t/1", scene.m3("t/1"), qos, 7)
    assert reads.take() == []
    assert reads.grants == []
    assert scene.counts.denied == [("sibling", "t/1", "mediator.deliver.nokey")]
    assert scene.counts.delivered == []
    assert scene.answers == [[], [Puback(7)], [Pubrec(7)]][qos]


def test_what_cannot_be_opened_is_withheld_and_counted() -> None:
    scene, _ = scene_of(panel=TO_CREW)
    reads = Reads(scene, clean=False)
    m3 = bytearray(scene.m3("t/1"))
    m3[-1] ^= 1
    scene.own(reads.session, "t/1", bytes(m3), 1, 7)
    assert reads.take() == []
    assert scene.counts.denied == [("panel", "t/1", "mediator.deliver.unauthentic")]
    assert scene.answers == [Puback(7)]


# --- epochs and ends ---


def test_who_lost_the_grant_is_told_its_end_and_opens_nothing_that_comes_later() -> None:
    scene, family = scene_of(panel=TO_CREW, sibling=TO_CREW)
    stays, leaves = Reads(scene), Reads(scene, SIBLING)
    scene.publish("t/1", b"before")
    first = stays.one()
    assert leaves.opens(leaves.one()).payload == b"before"
    scene.passes(3)
    scene.world.grant("crew", PANEL, epoch=2)
    scene.ring(lambda rows: None)
    leaves.take()
    now = scene.site.now_ms // 1000
    assert [int.from_bytes(told[7:11], "big") for told in leaves.grants] == [0, now]
    assert stays.grants[1:] == [], "the next message brings the new epoch"
    # The family has not heard of it.
    scene.publish("t/1", b"meanwhile")
    assert leaves.take() == []
    assert scene.counts.denied == [("sibling", "t/1", "mediator.deliver.nokey")]
    family.wants = {"panel": TO_CREW}
    scene.engine.cache.clear()
    scene.publish("t/1", b"after")
    meanwhile, after = stays.take()
    assert head_of(after) == (REF_GRANT, LIVE, 5, 2)
    assert (stays.opens(meanwhile).payload, stays.opens(after).payload) == (b"meanwhile", b"after")
    for packet in (meanwhile, after):
        with pytest.raises(NoKey):
            leaves.opens(packet)
    with pytest.raises(WrongEpoch):
        stays.opens(first)


def test_a_clients_own_end_of_a_grant_refuses_what_is_sealed_from_then_on() -> None:
    scene, _ = scene_of(panel=TO_CREW, sibling=TO_CREW)
    stays, leaves = Reads(scene), Reads(scene, SIBLING)
    scene.publish("t/1", b"before")
    assert [len(reads.take()) for reads in (stays, leaves)] == [1, 1]
    # Taken out, and a key generator that would have kept the key all the same.
    [row] = scene.world.grants
    scene.world.holders = [[row["number"], PANEL]]
    scene.ring(lambda rows: None)
    leaves.take()
    scene.publish("t/1", b"after")
    with pytest.raises(Stale):
        leaves.opens(stays.one())


def test_who_comes_back_is_told_the_new_epoch() -> None:
    scene, _ = scene_of(panel=TO_CREW, sibling=TO_CREW)
    reads = Reads(scene, SIBLING)
    scene.publish("t/1")
    reads.opens(reads.one())
    for holders, epoch in (((PANEL,), 2), ((PANEL, SIBLING), 2)):
        scene.world.grant("crew", *holders, epoch=epoch)
        scene.ring(lambda rows: None)
    scene.publish("t/1", b"again")
    assert reads.opens(reads.one()).payload == b"again"
    assert [told[3:6] for told in reads.grants] == [b"\0\0\1", b"\0\0\1", b"\0\0\2"]


def test_new_keys_that_do_not_concern_the_grant_tell_it_to_nobody_again() -> None:
    scene, _ = scene_of(panel=TO_CREW)
    reads = Reads(scene)
    for n in range(3):
        scene.publish("t/1", b"%d" % n)
        assert reads.opens(reads.one()).payload == b"%d" % n
        scene.ring(lambda rows: None)
    assert len(reads.grants) == 1


def test_a_client_that_gave_a_grant_up_for_others_is_told_it_again() -> None:
    """It keeps 64, and gives up the one that was told first."""
    world = World()
    for n in range(66):
        world.grant(f"g{n}", PANEL)
    scene, family = scene_of(world)
    reads = Reads(scene)

    def comes(n: int) -> None:
        family.wants = {"panel": (SealToGrant("sealing", f"g{n}"),)}
        scene.engine.cache.clear()
        scene.publish("t/1", b"%d" % n)
        assert reads.opens(reads.one()).payload == b"%d" % n

    for n in range(64):
        comes(n)
    comes(0)
    assert len(reads.grants) == 64
    comes(64)  # the client gives up 0
    comes(1)
    assert len(reads.grants) == 65
    comes(0)  # and now 1
    comes(2)  # which it has not given up
    assert len(reads.grants) == 66
    comes(1)
    assert len(reads.grants) == 67
    for n in range(66):
        comes(n)


def test_grants_that_ended_count_among_those_that_a_client_keeps() -> None:
    world = World()
    for n in range(65):
        world.grant(f"g{n}", PANEL)
    scene, family = scene_of(world)
    reads = Reads(scene)

    def comes(n: int) -> None:
        family.wants = {"panel": (SealToGrant("sealing", f"g{n}"),)}
        scene.engine.cache.clear()
        scene.publish("t/1", b"%d" % n)
        assert reads.opens(reads.one()).payload == b"%d" % n

    comes(0)
    for n in range(1, 64):
        comes(n)
    world.grant("g63", SENSOR, epoch=2)
    scene.ring(lambda rows: None)
    comes(64)  # the client gives up 0, since it keeps the one that ended
    comes(0)
    comes(1)


# --- sealed again ---


@pytest.mark.parametrize("qos", [1, 2])
def test_what_comes_again_in_another_connection_is_sealed_again(qos: int) -> None:
    scene, _ = scene_of(panel=TO_CREW)
    reads = Reads(scene, clean=False)
    m3 = scene.m3("t/1", b"once")
    scene.own(reads.session, "t/1", m3, qos, 400)
    first = reads.one()
    assert reads.opens(first).payload == b"once"
    reads.session.lost("cut")
    scene.collect()

    later = Reads(scene, clean=False)
    scene.own(later.session, "t/1", m3, qos, 400, dup=True)
    again = later.one()
    assert (again.dup, again.packet_id, head_of(again)[0]) == (True, 400, REF_GRANT)
    assert again.payload[8:M3_HEAD] != first.payload[8:M3_HEAD]
    assert len(later.grants) == 1, "a connection begins without grants"
    assert later.opens(again).payload == b"once"
    reads.reader.session = later.peer
    for told in later.grants:
        reads.reader.add_grant(told)
    with pytest.raises(Replay):
        reads.opens(again)


def test_what_was_queued_before_a_new_epoch_is_sealed_under_it() -> None:
    scene, _ = scene_of(panel=TO_CREW, sibling=TO_CREW)
    late: dict[str, Any] = {"at_ms": NOW_MS - 3_600_000, "order": Order(scene.site.order.inst)}
    m3 = scene.m3("t/1", b"late", **late)
    reads = Reads(scene, clean=False)
    scene.own(reads.session, "t/1", scene.m3("t/1", b"now"), 1, 8)
    reads.opens(reads.one())
    scene.world.grant("crew", PANEL, epoch=2)
    scene.ring(lambda rows: None)
    scene.own(reads.session, "t/1", m3, 1, 9)
    packet = reads.one()
    assert head_of(packet) == (REF_GRANT, QUEUED, 5, 2)
    assert reads.opens(packet).payload == b"late"


def test_what_waited_in_an_outbox_over_a_new_epoch_is_sealed_under_it() -> None:
    scene, _ = scene_of(panel=TO_CREW, sibling=TO_CREW)
    quick, slow = Reads(scene, SIBLING), Reads(scene)
    slow.session.writable(False)
    scene.publish("t/1", b"x", 1)
    old = quick.one()
    assert quick.opens(old).payload == b"x"
    scene.world.grant("crew", PANEL, epoch=2)
    scene.ring(lambda rows: None)
    slow.session.writable(True)
    scene.collect()
    packet = slow.one()
    assert head_of(packet)[2:] == (5, 2)
    assert packet.payload[8:M3_HEAD] != old.payload[8:M3_HEAD]
    assert slow.opens(packet).payload == b"x"


def test_a_reader_that_is_late_gets_it_with_a_fresh_time() -> None:
    scene, _ = scene_of(panel=TO_CREW, sibling=TO_CREW)
    quick, slow, slower = Reads(scene, SIBLING), Reads(scene), Reads(scene, client_id="slower")
    for reads in (slow, slower):
        reads.session.writable(False)
    scene.publish("t/1", b"x", 1)
    first = quick.one()
    for reads, seconds, same in ((slow, 50, True), (slower, 60, False)):
        scene.passes(seconds)
        reads.session.writable(True)
        scene.collect()
        packet = reads.one()
        assert (packet.payload == first.payload) is same
        assert reads.opens(packet).payload == b"x"


def test_no_number_seals_two_messages_for_one_grant() -> None:
    scene, _ = scene_of(panel=TO_CREW)
    kept, other = Reads(scene, clean=False), Reads(scene, client_id="other")
    seen: dict[bytes, bytes] = {}
    for n in range(20):
        m3 = scene.publish("t/1", b"%d" % n, 1)
        scene.own(kept.session, "t/1", m3, 1, 400 + n)
        scene.own(kept.session, "t/1", m3, 1, 400 + n, dup=True)
        for packet in (*kept.take(), *other.take()):
            assert head_of(packet)[0] == REF_GRANT
            nonce = packet.payload[8:M3_HEAD]
            assert seen.setdefault(nonce, packet.payload) == packet.payload
        scene.site.now_ms += n % 2
    assert len(seen) == 60


def test_retained_messages_are_sealed_as_that() -> None:
    scene, _ = scene_of(panel=TO_CREW)
    old: dict[str, Any] = {"at_ms": NOW_MS - 3_600_000, "order": Order(scene.site.order.inst)}
    m3 = scene.m3("t/1", b"kept", kind=1, **old)
    scene.broker.retained["t/1"] = Publish("t/1", b"t/1", m3, 1, True, False, 0)
    session = scene.open()
    assert session.state == "open"
    reads = Reads(scene)
    packets = [p for p in reads._client.told if isinstance(p, Publish)]
    (packet,) = packets
    assert (packet.retain, head_of(packet)) == (True, (REF_GRANT, RETAINED, 5, 1))
    assert reads.opens(packet).how == RETAINED


def test_readers_of_other_items_get_another_m3() -> None:
    scene, _ = scene_of(panel=(CREW, PutTlv(40, b"noted")), sibling=TO_CREW)
    readers = [Reads(scene), Reads(scene, client_id="two"), Reads(scene, SIBLING)]
    scene.publish("t/1")
    packets = [reads.one() for reads in readers]
    assert packets[0].payload == packets[1].payload != packets[2].payload
    got = [reads.opens(packet).tlv for reads, packet in zip(readers, packets, strict=True)]
    assert got == [{40: b"noted"}, {40: b"noted"}, {}]


def test_readers_of_whom_no_family_demands_it_get_the_message_unchanged() -> None:
    scene, _ = scene_of(panel=TO_CREW)
    holder, other = Reads(scene), Reads(scene, SIBLING)
    m3 = [scene.publish("t/1", qos=qos) for qos in (0, 1, 2)]
    assert payloads(other.take()) == m3
    assert other.grants == []
    assert [head_of(packet)[0] for packet in holder.take()] == [REF_GRANT] * 3
    assert scene.counts.denied == []
    assert head_of(Publish("t/1", b"t/1", m3[0], 0, False, False, 0))[0] == REF_LABEL


def test_a_message_of_an_epoch_whose_hand_over_ended_is_judged_and_sealed_as_queued() -> None:
    """Two readers, the one before the end and the other after it: not one m3 for both."""
    scene, family = scene_of(panel=TO_CREW, sibling=TO_CREW)
    world = scene.world
    quick, slow = Reads(scene), Reads(scene, client_id="slow")

    def change(rows: dict[str, Any]) -> None:
        low = next(row for row in rows["labels"] if row["number"] == LOW)
        end = scene.site.now_ms // 1000 + 1
        low["previous"] = {"epoch": 3, "ek": low["ek"], "handover_end": end}
        new = Roots(LOW, 4, 1, bytes(32), bytes(32))
        low.update(epoch=4, ek=topic_key(world.site, 1, LOW, 4, new.r).hex())

    scene.ring(change)
    slow.session.writable(False)
    scene.live("t/1", scene.m3("t/1"))
    scene.passes(2)
    slow.session.writable(True)
    scene.collect()
    assert head_of(quick.one())[:2] == (REF_GRANT, LIVE)
    assert head_of(slow.one())[:2] == (REF_GRANT, QUEUED)
    assert family.asked[-1] == "queued"
