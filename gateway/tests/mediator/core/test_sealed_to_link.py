"""What a family demands of a delivery: m3 sealed to the reader's link, items for this reader
(GATEWAY.md G2). Core alone, with real keys.
"""

from __future__ import annotations

from typing import Any

import pytest

from families.sealing import Sealing
from mediator_world import LOW, NOW_MS, PANEL, SENSOR, SIBLING, World
from reader_scene import Client, Scene, SealCalls, payloads
from sealmq.aead import make
from sealmq.families.api import Duty, PutTlv, SealToLink
from sealmq.mediator.core.session import Session
from sealmq.mediator.core.wrap import seal_m3
from sealmq.mqtt import Puback, Publish, Pubrec
from sealmq.order import Order
from sealmq_spec.const import (
    LIVE,
    M3_HEAD,
    QUEUED,
    REF_LABEL,
    REF_LINK,
    RETAINED,
    TLV_FIRED,
    UNTIMED,
    WILL,
)
from sealmq_spec.envelope import get_m3, put_m1
from sealmq_spec.errors import NoKey, Replay, Unauthentic
from sealmq_spec.keys import topic_key
from sealmq_spec.reader import Message, Reader
from sealmq_spec.records import Roots
from sealmq_spec.tlv import pack

TO_LINK = (SealToLink(),)


def scene_of(world: World | None = None, **wants: tuple[Duty, ...]) -> tuple[Scene, Sealing]:
    family = Sealing(**wants)
    return Scene(more=[family], world=world), family


def reading(
    scene: Scene, number: int = PANEL, clean: bool = True, qos: int = 2, **more: Any
) -> tuple[Session, Client]:
    """A session that reads t/#."""
    session = scene.open(number, clean, **more)
    scene.subscribe(session, 1, ("t/#", qos))
    scene.settle()
    client = Client(session)
    client.take()
    client.told.clear()
    return session, client


def reader_of(scene: Scene, session: Session) -> Reader:
    """What the client opens with in this connection."""
    number = session.client.number
    made = Reader(scene.world.identities[number], make, known_tlv=(40,))
    made.session = scene.peer(session)
    if number == PANEL:
        made.add(scene.world.record)
    return made


def opened(
    scene: Scene, session: Session, packet: Publish, reader: Reader | None = None
) -> Message:
    reader = reader or reader_of(scene, session)
    return reader.open(packet.topic_raw, bytearray(packet.payload), scene.site.now_ms)


def head_of(packet: Publish) -> tuple[int, int, int, int]:
    """ref, how, number and epoch of an m3."""
    return get_m3(packet.payload)[1:5]


@pytest.mark.parametrize(
    ("number", "suite", "link_suite"),
    [(PANEL, 1, 1), (SIBLING, 1, 1), (PANEL, 1, 2), (PANEL, 2, 1)],
)
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_reader_opens_what_is_sealed_to_its_link(
    number: int, suite: int, link_suite: int, qos: int
) -> None:
    scene, _ = scene_of(World(suite, link_suite=link_suite), panel=TO_LINK, sibling=TO_LINK)
    session, client = reading(scene, number)
    scene.publish("t/1", b"for you", qos)
    (packet,) = client.messages
    assert head_of(packet) == (REF_LINK, LIVE, number, 0)
    assert get_m3(packet.payload)[0] == link_suite
    assert packet.qos == qos
    got = opened(scene, session, packet)
    assert (got.payload, got.label, got.sender, got.how, got.tlv) == (
        b"for you",
        LOW,
        SENSOR,
        LIVE,
        {},
    )
    assert scene.counts.delivered == [(session.client.name, "t/1")]


def test_nobody_else_with_the_labels_keys_opens_it() -> None:
    scene, _ = scene_of(sibling=TO_LINK)
    session, client = reading(scene, SIBLING)
    other, _ = reading(scene, SENSOR)
    again, _ = reading(scene, SIBLING, client_id="another")
    scene.publish("t/1")
    (packet,) = client.messages
    with pytest.raises(NoKey):
        opened(scene, other, packet)
    forged = bytearray(packet.payload)
    forged[2:5] = SENSOR.to_bytes(3, "big")
    with pytest.raises(Unauthentic):
        opened(scene, other, packet._replace(payload=bytes(forged)))
    forged[1] &= ~(7 << 2)  # as if it were sealed to the label
    forged[2:8] = LOW.to_bytes(3, "big") + (3).to_bytes(3, "big")
    with pytest.raises(Unauthentic):
        opened(scene, other, packet._replace(payload=bytes(forged)))
    with pytest.raises(Unauthentic):
        opened(scene, again, packet)
    assert opened(scene, session, packet).payload == b"21.5"


def test_readers_of_whom_no_family_demands_it_get_the_message_unchanged() -> None:
    scene, _ = scene_of(panel=TO_LINK)
    _, client = reading(scene)
    _, theirs = reading(scene, SIBLING)
    m3 = [scene.publish("t/1", qos=qos) for qos in (0, 1, 2)]
    assert payloads(theirs.messages) == m3
    assert [head_of(p)[0] for p in client.messages] == [REF_LINK] * 3
    assert scene.counts.denied == []


def test_a_message_is_opened_once_for_all_readers_and_not_at_all_where_nobody_demands_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scene, family = scene_of()
    clients = [reading(scene, client_id=f"id-{n}")[1] for n in range(3)]
    counted = SealCalls(monkeypatch, "open_m3", "look_m3", "for_one")
    scene.publish("t/1", qos=1)
    # The first look at the clear header is kept for all messages of that label.
    assert counted.calls == {"open_m3": 0, "look_m3": 1, "for_one": 0}
    family.wants = {"panel": TO_LINK}
    scene.engine.cache.clear()
    counted.calls = dict.fromkeys(counted.calls, 0)
    scene.publish("t/1", qos=1)
    assert counted.calls == {"open_m3": 1, "look_m3": 1, "for_one": 3}
    assert len({m3 for client in clients for m3 in payloads(client.messages)}) == 4


def test_no_number_seals_twice_for_one_link() -> None:
    """Two connections of one boot session have one key, and a redelivery is sealed anew."""
    scene, _ = scene_of(panel=TO_LINK)
    session, client = reading(scene, clean=False)
    clean, _ = reading(scene, client_id="other")
    clean.link = session.link
    theirs = Client(clean)
    seen = []
    for n in range(20):
        m3 = scene.publish("t/1", b"%d" % n, 1)
        scene.own(session, "t/1", m3, 1, 400 + n)
        scene.own(session, "t/1", m3, 1, 400 + n, dup=True)
        scene.site.now_ms += n % 2
    for packet in (*client.messages, *theirs.messages):
        assert head_of(packet)[0] == REF_LINK
        seen.append(packet.payload[8:M3_HEAD])
    assert len(seen) == 60
    assert len(set(seen)) == 60


@pytest.mark.parametrize("qos", [1, 2])
def test_what_comes_again_in_a_new_connection_is_sealed_to_that(qos: int) -> None:
    scene, _ = scene_of(panel=TO_LINK)
    session, client = reading(scene, clean=False)
    m3 = scene.m3("t/1", b"once")
    scene.own(session, "t/1", m3, qos, 400)
    (first,) = client.messages
    reader = reader_of(scene, session)
    assert opened(scene, session, first, reader).payload == b"once"
    session.lost("cut")
    scene.collect()

    later, client = reading(scene, clean=False)
    scene.own(later, "t/1", m3, qos, 400, dup=True)
    (again,) = client.messages
    assert (again.dup, again.packet_id, head_of(again)[0]) == (True, 400, REF_LINK)
    with pytest.raises(Unauthentic):
        opened(scene, later, first)
    assert opened(scene, later, again).payload == b"once"
    reader.session = scene.peer(later)
    with pytest.raises(Replay):
        opened(scene, later, again, reader)


def test_a_connection_goes_on_whose_link_root_has_ended() -> None:
    """The first delivery is sealed after a newer generation was confirmed."""
    scene, _ = scene_of(panel=TO_LINK)
    session, client = reading(scene)

    def confirmed(rows: dict[str, Any]) -> None:
        for row in rows["clients"]:
            if row["number"] == PANEL:
                row["links"] = [{**row["links"][0], "gen": 2, "km": bytes(32).hex()}]

    scene.ring(confirmed)
    scene.publish("t/1")
    (packet,) = client.messages
    assert opened(scene, session, packet).payload == b"21.5"


def test_retained_and_queued_messages_are_sealed_with_their_how() -> None:
    scene, family = scene_of(panel=TO_LINK)
    old: dict[str, Any] = {"at_ms": NOW_MS - 3_600_000, "order": Order(scene.site.order.inst)}
    m3 = scene.m3("t/1", b"kept", kind=1, **old)
    scene.broker.retained["t/1"] = Publish("t/1", b"t/1", m3, 1, True, False, 0)
    session = scene.open()
    client = Client(session)
    scene.subscribe(session, 1, ("t/#", 1))
    scene.settle()
    (packet,) = client.messages
    assert (packet.retain, head_of(packet)) == (True, (REF_LINK, RETAINED, PANEL, 0))
    assert opened(scene, session, packet).how == RETAINED

    kept, client = reading(scene, clean=False, client_id="kept")
    late = scene.m3("t/2", b"late", **old)
    scene.own(kept, "t/2", late, 1, 9)
    (packet,) = client.messages
    assert head_of(packet) == (REF_LINK, QUEUED, PANEL, 0)
    assert opened(scene, kept, packet).payload == b"late"
    assert "queued" in family.asked


def test_a_will_keeps_the_time_at_which_it_fired() -> None:
    scene, _ = scene_of(panel=(*TO_LINK, PutTlv(40, b"x")))
    session, client = reading(scene)
    ring, sender = scene.site.ring, scene.senders[SENSOR]
    body = bytearray(27 + 16)
    put_m1(body, 0, 1, WILL | UNTIMED, 3, SENSOR, sender.boot, sender.salt, 5, 0, 255)
    inner = pack([(TLV_FIRED, (scene.site.now_ms // 1000).to_bytes(4, "big"))]) + bytes(body)
    m3 = seal_m3(ring, ring.labels[LOW], scene.site.order, WILL, b"t/1", inner, scene.site.now_ms)
    scene.live("t/1", m3, 1)
    (packet,) = client.messages
    assert head_of(packet) == (REF_LINK, WILL, PANEL, 0)
    link = session.link.delivery
    aad = packet.payload[:M3_HEAD] + ring.tail(b"t/1")
    plain = link.open(packet.payload[8:M3_HEAD], packet.payload[M3_HEAD:], aad)
    at = (scene.site.now_ms // 1000).to_bytes(4, "big")
    items = [(TLV_FIRED, at), (40, b"x"), (0x83, LOW.to_bytes(3, "big"))]
    assert plain is not None
    assert sorted(plain[1 : 1 + plain[0]]) == sorted(pack(items)[1:])


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_what_cannot_be_opened_is_withheld_and_counted(qos: int) -> None:
    scene, _ = scene_of(panel=TO_LINK)
    session, client = reading(scene, clean=False)
    m3 = bytearray(scene.m3("t/1"))
    m3[-1] ^= 1
    scene.own(session, "t/1", bytes(m3), qos, 7)
    assert client.messages == []
    assert scene.counts.denied == [("panel", "t/1", "mediator.deliver.unauthentic")]
    assert scene.counts.delivered == []
    assert scene.answers == [[], [Puback(7)], [Pubrec(7)]][qos]


# --- items ---


def test_an_item_for_one_reader_goes_to_that_reader_alone() -> None:
    scene, _ = scene_of(panel=(PutTlv(40, b"noted"),))
    session, client = reading(scene)
    _, theirs = reading(scene, SIBLING)
    m3 = scene.publish("t/1", qos=1)
    (packet,) = client.messages
    assert head_of(packet) == (REF_LABEL, LIVE, LOW, 3)
    assert opened(scene, session, packet).tlv == {40: b"noted"}
    assert payloads(theirs.messages) == [m3]


def test_items_go_with_what_is_sealed_to_the_link() -> None:
    scene, _ = scene_of(panel=(*TO_LINK, PutTlv(0x80 | 40, b"must"), PutTlv(41, b"may")))
    session, client = reading(scene)
    scene.publish("t/1")
    (packet,) = client.messages
    assert head_of(packet)[0] == REF_LINK
    assert opened(scene, session, packet).tlv == {0x80 | 40: b"must", 41: b"may"}


def test_more_items_than_a_block_holds_are_not_delivered() -> None:
    scene, _ = scene_of(panel=tuple(PutTlv(32 + n, bytes(255)) for n in range(70)))
    _, client = reading(scene)
    scene.publish("t/1")
    assert client.messages == []
    assert scene.counts.denied == [("panel", "t/1", "mediator.deliver.toolarge")]


# --- epochs ---


@pytest.mark.parametrize("keeps_back", ["", "queued"])
def test_a_message_of_an_epoch_whose_hand_over_ended_is_judged_and_sealed_as_queued(
    keeps_back: str,
) -> None:
    """A fresh s2 lies after the end of the hand-over: readers refuse it live."""
    scene, family = scene_of(panel=TO_LINK)
    family.keeps_back = keeps_back
    session, client = reading(scene)
    world = scene.world

    def change(rows: dict[str, Any]) -> None:
        low = next(row for row in rows["labels"] if row["number"] == LOW)
        end = scene.site.now_ms // 1000 + 1
        low["previous"] = {"epoch": 3, "ek": low["ek"], "handover_end": end}
        new = Roots(LOW, 4, 1, bytes(32), bytes(32))
        low.update(epoch=4, ek=topic_key(world.site, 1, LOW, 4, new.r).hex())

    scene.ring(change)
    client.take()
    before = scene.m3("t/1")
    scene.live("t/1", before)
    scene.passes(2)
    scene.live("t/1", scene.m3("t/1", at_ms=NOW_MS))
    heads = [head_of(packet) for packet in client.messages]
    in_time, too_late = (REF_LINK, LIVE, PANEL, 0), (REF_LINK, QUEUED, PANEL, 0)
    assert heads == ([in_time] if keeps_back else [in_time, too_late])
    assert family.asked[-1] == "queued"
    denied = [("panel", "t/1", "sealing.back")] if keeps_back else []
    assert scene.counts.denied == denied
    assert session.state == "open"
