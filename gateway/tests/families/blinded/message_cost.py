"""ORDER COUNT: so many messages of QoS 0 through a mediator's core, real keys: in from their
publisher, out to one reader. Run under valgrind by test_blinded_cost.py; prints how many came.

`labels`: alone. `carried`: each message has an item for mediators, and lies for them alone at the
broker, under a family that lets everybody have everything. `blinded`: the same, matched.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import ClassVar

import reader_scene
from mediator_world import LOW, World, sealed
from reader_scene import PANEL, SENSOR, Client, Scene
from sealmq.families.api import (
    Ask,
    Duties,
    Family,
    PutTlv,
    SealToGrant,
    TopicLabel,
    Verdict,
    allow,
)
from sealmq.families.blinded import coded, kg_part
from sealmq.families.blinded.family import Blinded
from sealmq.mediator.core.fan_out import fan_out
from sealmq.mediator.core.wrap import for_holders, look_m3, open_m3
from sealmq.mqtt import Publish
from sealmq_spec.const import LIVE
from sealmq_spec.tlv import pack

TOPIC = "t/sensor"
FIRST = 50
ID = bytes.fromhex("00000000000000aa")
KEPT = f"""
[customers.panel]
has = ["a = 1 & b = 63"]
wants = ["c = 1"]
[types.t]
has = ["c = 1"]
[policies.t]
let = [{", ".join(f'"a = 1 & b = {n}"' for n in range(64))}]
[[events]]
id = "{ID.hex()}"
client = "sensor"
topic = "t"
"""


class Carried(Family):
    """An item, sealed for mediators, by which nothing is judged."""

    name: ClassVar[str] = "carried"
    rules: ClassVar[Mapping[str, str]] = {"carried.all": "Everything."}
    tlvs: ClassVar[frozenset[int]] = frozenset({coded.TLV})
    few: ClassVar[frozenset[int]] = frozenset({coded.TLV})
    duties: ClassVar[Duties] = {"publish": frozenset({PutTlv, SealToGrant})}

    def connect(self, ask: Ask) -> Verdict:
        return allow("carried.all", "")

    subscribe = deliver = connect

    def publish(self, ask: Ask) -> Verdict:
        duties = (PutTlv(coded.TLV, ask.tlv[coded.TLV]), SealToGrant("carried", coded.GRANT))
        return allow("carried.all", "", duties=duties)


def main(order: str, count: int) -> None:
    families: dict[str, list[Family]] = {"carried": [Carried()], "blinded": [Blinded()]}
    more = families.get(order, [])
    if order == "blinded":
        reader_scene.POLICY += '[policy]\norder = ["labels", "blinded"]\n'
    world = World()
    if more:
        world.grant(coded.GRANT)
        world.grants[0]["family"] = order
        world.ring = type(world.ring)(world.site, 9, world.snapshot())
    scene = Scene(more=more, world=world)
    if order == "blinded":
        kept = kg_part.take(scene.config, b"", KEPT.encode(), bytes)
        scene.engine.take_told({"blinded": dict(kg_part.rows(scene.config, kept))})
    scene.apply([TopicLabel(TOPIC, "low", "sensor", 0)])
    reading, sending = scene.open(PANEL), scene.open(SENSOR)
    scene.subscribe(reading, 1, ("t/#", 0))
    scene.settle()
    peer, topic, items = scene.peer(sending), TOPIC.encode(), {coded.TLV: ID} if more else {}
    block = pack(sorted(items.items()))
    ring, label = scene.site.ring, scene.site.ring.labels[LOW]
    made = []
    # What clients do is made before, as often in each run.
    for n in range(1300):
        m2, m3 = sealed(peer, TOPIC, b"21.5", 0, 0, 255, tlv=block), scene.m3(TOPIC, b"%d" % n)
        if more:
            body = _opened(scene, m3)
            grant = ring.grants[order, coded.GRANT]
            now_ms = scene.site.now_ms
            m3 = for_holders(ring, scene.site.order, label, body, items, grant, LIVE, topic, now_ms)
        made.append((m2, m3))
    Client(reading).take()
    for m2, m3 in made[: FIRST + count]:
        sending.receive(Publish(TOPIC, topic, m2, 0, False, False, 0))
        scene.settle()
        fan_out(scene.site, scene.outboxes, Publish(TOPIC, topic, m3, 0, False, False, 0))
        scene.collect()
        reading.out[:] = []
    assert not scene.audited, scene.audited
    assert not scene.counts.denied, scene.counts.denied
    print(len(scene.counts.delivered))


def _opened(scene: Scene, m3: bytes) -> bytes:
    """Its m1."""
    inside = open_m3(scene.site.ring, look_m3(scene.site.ring, m3), TOPIC.encode(), m3)
    return inside.body[inside.start :]


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
