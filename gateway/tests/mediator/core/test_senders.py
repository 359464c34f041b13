"""A family names whose messages a reader gets (OnlyFrom): others' go out in no form. Core alone,
with real keys.
"""

from __future__ import annotations

from typing import Any

import pytest

from families.sealing import Sealing, only_from
from mediator_world import LOW, NOW_MS, PANEL, SENSOR, SIBLING
from reader_scene import Client, Scene, SealCalls, payloads
from sealmq.families.api import Ask, Duty, PutTlv, SealToLink, Verdict
from sealmq.mediator.core.session import Session
from sealmq.mqtt import Puback, Publish, Pubrec
from sealmq.order import Order
from sealmq_spec.const import LIVE, QUEUED, REF_LINK, RETAINED
from sealmq_spec.envelope import get_m3
from sealmq_spec.keys import topic_key
from sealmq_spec.records import Roots

OTHER = "sealing.sender"


def scene_of(*wants: Duty) -> tuple[Scene, Sealing]:
    """The panel's deliveries need these."""
    family = Sealing(panel=wants)
    return Scene(more=[family]), family


def reading(scene: Scene, number: int = PANEL, **more: Any) -> tuple[Session, Client]:
    """A session that reads t/#."""
    session = scene.open(number, **more)
    scene.subscribe(session, 1, ("t/#", 2))
    scene.settle()
    client = Client(session)
    client.take()
    client.told.clear()
    return session, client


def denied(scene: Scene) -> list[str]:
    return [rule for _, _, rule in scene.counts.denied]


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_only_the_named_senders_messages_go_out_and_unchanged(qos: int) -> None:
    scene, family = scene_of(only_from("sensor"))
    _, client = reading(scene)
    _, theirs = reading(scene, SIBLING)
    sent = [scene.publish("t/1", b"%d" % n, qos, by=by) for n, by in enumerate((1, 3, 1, 3, 3))]
    assert payloads(client.messages) == [sent[0], sent[2]]
    assert payloads(theirs.messages) == sent
    assert denied(scene) == [OTHER] * 3
    assert [name for name, _ in scene.counts.delivered].count("panel") == 2
    # Once about each reader, since the verdict is cached.
    assert family.asked == ["live", "live"]


def test_a_message_is_opened_once_for_all_readers_that_need_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    counted = SealCalls(monkeypatch, "open_m3")
    scene, family = scene_of(only_from("sensor"))
    for n in range(3):
        reading(scene, client_id=f"id-{n}")
    reading(scene, SIBLING)
    scene.publish("t/1")
    assert counted.calls == {"open_m3": 1}
    family.wants = {}
    scene.engine.cache.clear()
    scene.publish("t/1")
    assert counted.calls == {"open_m3": 1}


def test_a_sender_that_is_no_client_any_more_is_none_of_them() -> None:
    scene, _ = scene_of(only_from("sensor"))
    _, client = reading(scene)
    m3 = scene.m3("t/1")

    def removed(rows: dict[str, Any]) -> None:
        rows["clients"] = [row for row in rows["clients"] if row["number"] != SENSOR]

    scene.ring(removed)
    scene.live("t/1", m3)
    assert client.messages == []
    assert denied(scene) == [OTHER]


def test_what_is_retained_or_queued_goes_by_its_sender_too() -> None:
    scene, _ = scene_of(only_from("sensor"))
    old: dict[str, Any] = {"at_ms": NOW_MS - 3_600_000, "order": Order(scene.site.order.inst)}
    for by, topic in ((SENSOR, "t/1"), (SIBLING, "t/2")):
        m3 = scene.m3(topic, b"kept", kind=1, by=by, **old)
        scene.broker.retained[topic] = Publish(topic, topic.encode(), m3, 1, True, False, 0)
    session = scene.open()
    client = Client(session)
    scene.subscribe(session, 1, ("t/#", 1))
    scene.settle()
    assert [(p.topic, get_m3(p.payload)[2]) for p in client.messages] == [("t/1", RETAINED)]
    assert denied(scene) == [OTHER]

    kept, client = reading(scene, clean=False, client_id="kept")
    for number, qos, by in ((7, 1, SIBLING), (8, 2, SIBLING), (9, 1, SENSOR)):
        scene.own(kept, "t/3", scene.m3("t/3", b"late", by=by, **old), qos, number)
    assert [(p.packet_id, get_m3(p.payload)[2]) for p in client.messages] == [(9, QUEUED)]
    # Towards the broker what is withheld is acknowledged.
    assert scene.answers == [Puback(7), Pubrec(8)]


def test_of_what_else_a_family_demands_nothing_is_done_for_other_senders_messages() -> None:
    scene, _ = scene_of(only_from("sensor"), SealToLink(), PutTlv(40, b"x"))
    _, client = reading(scene)
    for by in (SENSOR, SIBLING):
        scene.publish("t/1", by=by)
    (packet,) = client.messages
    assert get_m3(packet.payload)[1:3] == (REF_LINK, LIVE)
    assert denied(scene) == [OTHER]


class OfNobodyOnceQueued(Sealing):
    def deliver(self, ask: Ask) -> Verdict:
        self.wants["panel"] = (only_from("nobody" if ask.how == QUEUED else "sensor"), SealToLink())
        return super().deliver(ask)


def test_what_becomes_queued_while_it_is_sealed_is_compared_with_that_answer() -> None:
    """An epoch's hand-over ends between publishing and delivering."""
    family = OfNobodyOnceQueued()
    scene = Scene(more=[family])
    _, client = reading(scene)

    def change(rows: dict[str, Any]) -> None:
        low = next(row for row in rows["labels"] if row["number"] == LOW)
        end = scene.site.now_ms // 1000 + 1
        low["previous"] = {"epoch": 3, "ek": low["ek"], "handover_end": end}
        new = Roots(LOW, 4, 1, bytes(32), bytes(32))
        low.update(epoch=4, ek=topic_key(scene.world.site, 1, LOW, 4, new.r).hex())

    scene.ring(change)
    client.take()
    scene.publish("t/1")
    scene.passes(2)
    scene.live("t/1", scene.m3("t/1", at_ms=NOW_MS))
    assert len(client.messages) == 1
    assert family.asked == ["live", "queued"]
    assert denied(scene) == [OTHER]
