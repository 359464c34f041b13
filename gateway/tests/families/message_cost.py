"""ORDER COUNT: so many messages of QoS 0 through a mediator's core, real keys: in from their
publisher, out to one reader. Run under valgrind by test_message_cost.py; prints how many came.
"""

from __future__ import annotations

import sys

import reader_scene
from mediator_world import sealed
from reader_scene import PANEL, SENSOR, Client, Scene
from sealmq.families.records import TopicLabel
from sealmq.families.registry import load
from sealmq.mediator.core.fan_out import fan_out
from sealmq.mqtt import Publish

TOPIC = "t/sensor"
FIRST = 50
_POLICIES = {
    "labels": "",
    "labels,owners": """
[policy]
order = ["labels", "owners"]
[families.owners.types.T]
app = "A"
topic = "t/{user}"
owner = "user"
[[families.owners.policy]]
authorizer = "POLICY"
licensees = ["*"]
owner = "*"
actions = ["PUBLISH", "SUBSCRIBE", "RECEIVE"]
""",
    "labels,purposes": """
[policy]
order = ["labels", "purposes"]
[families.purposes]
mode = "hybrid"
[families.purposes.tree]
service = []
[families.purposes.reserve]
"t/#" = { aip = ["service"] }
[families.purposes.presubscribe]
panel = { "t/#" = "service" }
""",
}


def main(order: str, count: int) -> None:
    reader_scene.POLICY += _POLICIES[order]
    scene = Scene(more=load(order.split(","))[1:])
    scene.apply([TopicLabel(TOPIC, "low", "sensor", 0)])
    reading, sending = scene.open(PANEL), scene.open(SENSOR)
    scene.subscribe(reading, 1, ("t/#", 0))
    scene.settle()
    peer, topic = scene.peer(sending), TOPIC.encode()
    # What clients do is made before, as often in each run.
    made = [
        (sealed(peer, TOPIC, b"21.5", 0, 0, 255), scene.m3(TOPIC, b"%d" % n)) for n in range(1300)
    ]
    Client(reading).take()
    for m2, m3 in made[: FIRST + count]:
        sending.receive(Publish(TOPIC, topic, m2, 0, False, False, 0))
        scene.settle()
        fan_out(scene.site, scene.outboxes, Publish(TOPIC, topic, m3, 0, False, False, 0))
        scene.collect()
        reading.out[:] = []
    assert not scene.audited
    assert not scene.counts.denied
    print(len(scene.counts.delivered))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
