"""What a family seals for the mediators alone on publish (GATEWAY.md G1, G2): the broker's copy
lies under a grant that no client holds, with items; readers get m1 without them. Core alone, with
real keys.
"""

from __future__ import annotations

from typing import Any, ClassVar

import pytest

from core_world import TOPIC, Peer, Shell, opened
from families.sealing import Sealing
from mediator_world import HIGH, LOW, NOW_MS, PANEL, SENSOR, SIBLING, World
from reader_scene import Client, Scene, SealCalls, payloads
from sealmq.aead import make
from sealmq.families.api import (
    Ask,
    Duties,
    Duty,
    Family,
    PutTlv,
    SealToGrant,
    SealToLink,
    Verdict,
    allow,
    deny,
)
from sealmq.mediator.core import wrap
from sealmq.mediator.core.effects import Forward
from sealmq.mediator.core.keyring import Keyring
from sealmq.mediator.wills import Fired, seal
from sealmq.mqtt import Publish
from sealmq.order import Order
from sealmq.store import WillRecord
from sealmq_spec.const import (
    CLEAR,
    LIVE,
    OP_GRANT,
    OP_NOTICE,
    QUEUED,
    REF_GRANT,
    REF_LABEL,
    REF_LINK,
    RETAINED,
    TLV_FIRED,
    WILL,
)
from sealmq_spec.envelope import get_m3
from sealmq_spec.errors import NoKey
from sealmq_spec.reader import Message, Reader
from sealmq_spec.tlv import publishers

OWN = SealToGrant("sealing", "mediators")
SPEED = publishers([(40, b"57")])


class Beside(Family):
    """Another family, with an item of its own for all readers."""

    name: ClassVar[str] = "beside"
    rules: ClassVar[dict[str, str]] = {"beside.fine": "Fine."}
    duties: ClassVar[Duties] = {"publish": frozenset({PutTlv})}
    tlvs: ClassVar[frozenset[int]] = frozenset({41, 50})

    def publish(self, ask: Ask) -> Verdict:
        return allow("beside.fine", "fine", duties=(PutTlv(50, b"noted"),))

    def connect(self, ask: Ask) -> Verdict:
        return allow("beside.fine", "fine")

    subscribe = deliver = connect


class Both:
    """A publisher's session, and readers' at the same site: what is forwarded comes back."""

    def __init__(
        self,
        *more: Family,
        grant: bool = True,
        family: type[Sealing] = Sealing,
        **wants: tuple[Duty, ...],
    ) -> None:
        self.world = World()
        if grant:
            self.world.grant("mediators")
        self.family = family(**wants)
        self.family.puts = (OWN,)
        self.scene = Scene(more=[self.family, *more], world=self.world)
        self.scene.ring(lambda rows: None)
        # The publisher's half: another engine, with the family that publishes.
        puts = Sealing()
        puts.puts = (OWN,)
        self.shell = Shell(puts, *[type(one)() for one in more], world=self.world)
        self.shell.site.ring = self.scene.site.ring
        self.peer = opened(self.shell)

    def published(self, payload: bytes = b"x", **how: Any) -> Forward:
        before = len(self.shell.forwards())
        self.peer.send(self.peer.message(payload, **{"tlv": SPEED, **how}))
        (forward,) = self.shell.forwards()[before:]
        return forward

    def arrives(self, forward: Forward, retain: bool = False) -> None:
        self.scene.live(TOPIC, forward.payload, forward.qos, retain)

    def reader(self, number: int = PANEL, clean: bool = True, **more: Any) -> Reads:
        return Reads(self.scene, number, clean, **more)


class Reads:
    """A client that reads everything below machine."""

    def __init__(self, scene: Scene, number: int, clean: bool, **more: Any) -> None:
        self.scene = scene
        self.session = scene.open(number, clean, **more)
        scene.subscribe(self.session, 1, ("machine/#", 2))
        scene.settle()
        self.client = Client(self.session)
        self.reader = Reader(scene.world.identities[number], make, known_tlv=(40, 41, 50))
        self.reader.session = self.peer = scene.peer(self.session)
        if number == PANEL:
            self.reader.add(scene.world.record)

    def one(self) -> tuple[tuple[int, int, int, int], Message]:
        """ref, how, number, epoch of the one that has come, and what the client opens of it."""
        self.client.take()
        packets = [p for p in self.client.told if isinstance(p, Publish)]
        self.client.told.clear()
        (packet,) = packets
        ops = [p for p in self.client.all if isinstance(p, Publish) and p.topic == "!c1"]
        for one in ops:
            op, _ = self.peer.down(one.payload, self.scene.site.now_ms - NOW_MS)
            assert op != OP_GRANT, "no client is told that grant"
        self.client.all.clear()
        got = self.reader.open(packet.topic_raw, bytearray(packet.payload), self.scene.site.now_ms)
        return get_m3(packet.payload)[1:5], got


# --- the broker's copy ---


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_the_brokers_copy_lies_under_the_grant_and_the_label_does_not_open_it(qos: int) -> None:
    both = Both()
    forward = both.published(qos=qos, packet_id=7 if qos else 0)
    assert get_m3(forward.payload)[1:5] == (REF_GRANT, LIVE, 5, 1)
    ring = both.scene.site.ring
    for number, epoch in ((LOW, 3), (HIGH, 1)):
        opener = ring.opener(number, epoch, ring.inst)
        assert opener is not None
        aad = forward.payload[:20] + ring.tail(forward.topic)
        assert opener.open(forward.payload[8:20], forward.payload[20:], aad) is None
    # A reader that has the label's roots and gets it raw holds no such grant.
    reads = both.reader(SIBLING)
    with pytest.raises(NoKey):
        reads.reader.open(forward.topic, bytearray(forward.payload), both.scene.site.now_ms)


def test_each_mediator_asks_with_the_items_and_readers_get_none_of_them() -> None:
    both = Both()
    reads = [both.reader(), both.reader(SIBLING), both.reader(client_id="two")]
    both.arrives(both.published())
    for one in reads:
        head, got = one.one()
        assert head == (REF_LABEL, LIVE, LOW, 3)
        assert (got.payload, got.tlv, got.sender, got.label) == (b"x", {}, SENSOR, LOW)
    assert both.family.found == [({40: b"57"}, ("sealing", "mediators"))] * 3


def test_what_lies_under_the_label_says_so_whatever_its_items_say() -> None:
    """Who has the label's topic key and reaches the broker makes such items."""
    both = Both()
    both.reader()
    m3 = both.scene.m3(TOPIC)
    ring, seen = both.scene.site.ring, wrap.look_m3(both.scene.site.ring, m3)
    inside = wrap.open_m3(ring, seen, TOPIC.encode(), m3)
    forged = wrap.seal_m3(
        ring, ring.labels[LOW], both.scene.site.order, QUEUED, TOPIC.encode(),
        SPEED + inside.body[1:], NOW_MS,
    )  # fmt: skip
    both.scene.engine.opens = True
    both.scene.live(TOPIC, forged)
    assert both.family.found == [({40: b"57"}, None)]


def test_answers_of_messages_with_items_are_kept_from_others_and_the_other_way_round() -> None:
    both = Both()
    both.reader(SIBLING)
    plain = both.scene.m3(TOPIC, b"plain")
    for _ in range(2):
        both.arrives(both.published())
        both.scene.live(TOPIC, both.scene.m3(TOPIC))
    both.scene.live(TOPIC, plain)
    lies = {40: b"57"}, ("sealing", "mediators")
    assert both.family.found == [lies, ({}, None), lies], "without items it is cached"


def test_a_reader_whom_the_items_exclude_gets_nothing_and_others_do() -> None:
    class Judges(Sealing):
        def deliver(self, ask: Ask) -> Verdict:
            slow = ask.grant is None or int(ask.tlv.get(40, b"0")) <= 50
            if slow and ask.who.client == "panel":
                return deny("sealing.back", "too slow")
            return super().deliver(ask)

    both = Both(family=Judges)
    panel, sibling = both.reader(), both.reader(SIBLING)
    both.arrives(both.published(b"slow", tlv=publishers([(40, b"12")])))
    both.arrives(both.published(b"fast", tlv=publishers([(40, b"57")])))
    assert panel.one()[1].payload == b"fast"
    assert len(sibling.client.messages) == 2
    assert both.scene.counts.denied == [("panel", TOPIC, "sealing.back")]


def test_sealed_to_its_link_each_reader_gets_another_m3_without_the_items() -> None:
    both = Both(panel=(SealToLink(),))
    panel, sibling = both.reader(), both.reader(SIBLING)
    both.arrives(both.published())
    head, got = panel.one()
    assert (head, got.payload, got.tlv) == ((REF_LINK, LIVE, PANEL, 0), b"x", {})
    assert sibling.one()[0] == (REF_LABEL, LIVE, LOW, 3)


def test_items_of_another_family_go_on_but_not_those_that_both_declare() -> None:
    both = Both(Beside())
    reads = both.reader(SIBLING)
    both.arrives(both.published(tlv=publishers([(40, b"57"), (41, b"1")])))
    _, got = reads.one()
    assert got.tlv == {50: b"noted"}
    assert both.family.found[0][0] == {40: b"57", 41: b"1", 50: b"noted"}


# --- what cannot be sealed so is not published ---


@pytest.mark.parametrize("holder", [None, PANEL])
def test_without_a_grant_of_the_mediators_own_nothing_is_published(holder: int | None) -> None:
    both = Both(grant=False)
    if holder is not None:
        both.world.grant("mediators", holder)
        both.scene.ring(lambda rows: None)
        both.shell.site.ring = both.scene.site.ring
    both.peer.send(both.peer.message(qos=1, packet_id=7, tlv=SPEED))
    assert both.shell.forwards() == []
    told = [said for op, said in both.peer.told if op == OP_NOTICE]
    assert [said[2] for said in told] == [7 if holder is None else 5]


def test_a_clear_lies_under_nothing() -> None:
    both = Both()
    both.peer.send(both.peer.message(b"", retain=True, kind=CLEAR))
    (forward,) = both.shell.forwards()
    assert forward.payload == b""


# --- kept, retained, queued, wills ---


def test_retained_it_comes_as_that_without_the_items() -> None:
    both = Both()
    forward = both.published(b"kept", retain=True, life=255)
    packet = Publish(TOPIC, TOPIC.encode(), forward.payload, 0, True, False, 0)
    both.scene.broker.retained[TOPIC] = packet
    head, got = both.reader().one()
    assert (head, got.payload, got.tlv) == ((REF_LABEL, RETAINED, LOW, 3), b"kept", {})


@pytest.mark.parametrize("filter", [TOPIC, "$share/g/machine/#"])
@pytest.mark.parametrize("qos", [1, 2])
def test_over_an_own_link_it_comes_without_the_items_and_late_as_queued(
    filter: str, qos: int
) -> None:
    both = Both()
    reads = both.reader(SIBLING, clean=False)
    both.scene.subscribe(reads.session, 2, (filter, 2))
    both.scene.settle()
    forward = both.published(b"kept", qos=qos, packet_id=7, life=255)
    for at, how in ((0, LIVE), (3600, QUEUED)):
        both.scene.passes(at)
        both.scene.own(reads.session, TOPIC, forward.payload, qos, 400 + at, dup=bool(at))
        if at:
            (packet,) = reads.client.messages
            assert get_m3(packet.payload)[1:5] == (REF_LABEL, QUEUED, LOW, 3)
        else:
            head, got = reads.one()
            assert (head[1], got.payload, got.tlv) == (how, b"kept", {})
    assert len(both.family.found) == 2


def test_a_will_lies_under_the_grant_too_with_the_time_at_which_it_fired() -> None:
    both = Both()
    peer = Peer(both.shell, SENSOR, both.world.session(SENSOR, boot=2), client_id="w")
    will = peer.will(TOPIC, b"gone")
    peer.connect(will=will)
    record = peer.session.will
    assert isinstance(record, WillRecord)
    at = both.scene.site.now_ms // 1000
    it = Fired(TOPIC, {40: b"57", TLV_FIRED: at.to_bytes(4, "big")}, ("sealing", "mediators"),
               both.scene.site.now_ms, 60)  # fmt: skip
    m3 = seal(both.shell.site, record, it, both.scene.site.now_ms)
    assert get_m3(m3)[1:5] == (REF_GRANT, WILL, 5, 1)
    reads = both.reader(SIBLING)
    both.scene.live(TOPIC, m3, 1)
    head, got = reads.one()
    assert (head[:2], got.payload, got.tlv) == ((REF_LABEL, WILL), b"gone", {})
    assert both.family.found == [({40: b"57"}, ("sealing", "mediators"))]


# --- keys change ---


def test_after_a_rekey_of_the_label_it_comes_under_the_new_epoch() -> None:
    both = Both()
    forward = both.published(b"kept", retain=True, life=255)

    def change(rows: dict[str, Any]) -> None:
        low = next(row for row in rows["labels"] if row["number"] == LOW)
        low["previous"] = {"epoch": 3, "ek": low["ek"], "handover_end": NOW_MS // 1000}
        low.update(epoch=4, ek="77" * 32)

    both.scene.ring(change)
    both.scene.broker.retained[TOPIC] = Publish(
        TOPIC, TOPIC.encode(), forward.payload, 0, True, False, 0
    )
    reads = Reads(both.scene, SIBLING, True)
    (packet,) = reads.client.messages
    assert get_m3(packet.payload)[1:5] == (REF_LABEL, RETAINED, LOW, 4)
    # Live, of an epoch whose hand-over is over: as queued.
    both.arrives(both.published(b"live"))
    packet = reads.client.messages[-1]
    assert get_m3(packet.payload)[1:5] == (REF_LABEL, QUEUED, LOW, 4)


def test_what_lay_under_a_grant_that_is_over_is_still_read_and_under_one_that_is_gone_is_not() -> (
    None
):
    both = Both()
    forward = both.published()
    older = both.world.grants
    both.world.grants = []
    both.scene.ring(lambda rows: rows.update(older_grants=older))
    reads = both.reader(SIBLING)
    both.arrives(forward)
    assert reads.one()[1].payload == b"x"
    both.scene.ring(lambda rows: None)
    both.arrives(both.published())
    both.scene.ring(lambda rows: None)
    both.arrives(forward)
    assert reads.client.messages == []
    assert {row[2] for row in both.scene.counts.denied} == {"mediator.deliver.nokey"}


def test_a_grant_that_a_client_came_to_hold_opens_nothing_at_the_broker_any_more() -> None:
    both = Both()
    forward = both.published()
    reads = both.reader(SIBLING)
    both.world.holders = [[5, SIBLING]]
    both.scene.ring(lambda rows: None)
    both.arrives(forward)
    assert reads.client.messages == []
    assert both.scene.counts.denied == [("sibling", TOPIC, "mediator.deliver.nokey")]


def test_of_a_family_that_is_not_in_the_order_nothing_is_delivered() -> None:
    both = Both()
    forward = both.published()
    scene = Scene(world=both.world)
    scene.ring(lambda rows: None)
    reads = Reads(scene, SIBLING, True)
    scene.live(TOPIC, forward.payload)
    assert reads.client.messages == []
    assert scene.counts.denied == [("sibling", TOPIC, "mediator.deliver.denied")]


def test_a_message_that_waited_over_new_keys_is_looked_at_again() -> None:
    both = Both()
    forward = both.published(qos=1, packet_id=3)
    slow = both.reader(SIBLING)
    slow.session.writable(False)
    both.arrives(forward)
    both.world.grants = []
    both.scene.ring(lambda rows: None)
    slow.session.writable(True)
    both.scene.collect()
    assert slow.client.messages == []
    assert both.scene.counts.denied[-1][2] == "mediator.deliver.nokey"


# --- what it costs ---


def test_it_is_opened_and_sealed_once_for_all_readers_also_slow_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    both = Both()
    quick = [both.reader(client_id=f"q{n}") for n in range(3)]
    slow = [both.reader(SIBLING, client_id=f"s{n}") for n in range(3)]
    for one in slow:
        one.session.writable(False)
    forward = both.published(qos=1, packet_id=3)
    counted = SealCalls(monkeypatch, "open_m3", "seal_m3", "for_one", "for_holders")
    both.arrives(forward)
    both.scene.passes(20)
    for one in slow:
        one.session.writable(True)
    both.scene.collect()
    assert counted.calls == {"open_m3": 1, "seal_m3": 1, "for_one": 0, "for_holders": 0}
    sent = {p.payload for one in (*quick, *slow) for p in one.client.messages}
    assert len(sent) == 1


def test_a_message_that_needs_none_of_it_is_neither_opened_nor_sealed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    both = Both()
    reads = both.reader(SIBLING)
    counted = SealCalls(monkeypatch, "open_m3", "seal_m3", "for_one", "for_holders")
    m3 = [both.scene.publish(TOPIC, qos=qos) for qos in (0, 1, 2)]
    assert payloads(reads.client.messages) == m3
    assert set(counted.calls.values()) == {0}


def test_the_keyring_opens_under_any_instance() -> None:
    """Of another worker, or of one before."""
    both = Both()
    forward = both.published()
    both.scene.site.ring = Keyring(both.world.site, 77, both.world.snapshot())
    both.scene.site.order = Order(77)
    reads = both.reader(SIBLING)
    both.arrives(forward)
    assert reads.one()[1].payload == b"x"
