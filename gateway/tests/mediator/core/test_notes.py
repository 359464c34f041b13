"""Conditions that a client says with its subscription, in the filter (a family's `parse`): matched
by the family at each delivery, on what the broker's table does not know. Core alone.
"""

from __future__ import annotations

from typing import ClassVar

import pytest

from mediator_world import SIBLING
from reader_scene import Client, Scene
from sealmq.families.api import (
    Ask,
    AtQos,
    Duties,
    Family,
    Follow,
    Parsed,
    Question,
    Verdict,
    allow,
    deny,
)
from sealmq.mediator.core.session import Session
from sealmq.mqtt import Puback, Publish, Pubrec

HEAD = "!AT/"


class Where(Family):
    """`!AT/LEVEL/FILTER`: messages on topics whose last level is at least LEVEL, and all others
    that are subscribed to without it. The notes do not hold the filter.
    """

    name: ClassVar[str] = "where"
    rules: ClassVar[dict[str, str]] = {"where.yes": "Met.", "where.no": "Met by none."}
    parses: ClassVar[frozenset[Question]] = frozenset({"subscribe"})
    duties: ClassVar[Duties] = {
        "subscribe": frozenset({Follow}),
        "deliver": frozenset({AtQos}),
    }

    def parse(self, question: Question, topic: str) -> Parsed | None:
        if not topic.startswith(HEAD):
            return None
        least, _, filt = topic.removeprefix(HEAD).partition("/")
        return Parsed(filt, {"least": int(least)})

    def connect(self, ask: Ask) -> Verdict:
        return allow("where.yes", "met")

    publish = connect

    def subscribe(self, ask: Ask) -> Verdict:
        return allow("where.yes", "met", duties=(Follow(),))

    def deliver(self, ask: Ask) -> Verdict:
        last = int(ask.topic.rpartition("/")[2])
        wants = [s.qos for s in ask.subs if s.notes.get("where", {}).get("least", 0) <= last]
        if not wants:
            return deny("where.no", "none")
        return allow("where.yes", "met", duties=(AtQos(max(wants)),))


def reading(scene: Scene, *filters: tuple[str, int], clean: bool = True) -> tuple[Session, Client]:
    session = scene.open(SIBLING, clean)
    scene.subscribe(session, 1, *filters)
    scene.settle()
    client = Client(session)
    assert client.acks == [("suback", 1, tuple(qos for _, qos in filters))]
    client.told.clear()
    return session, client


def qos_of(client: Client) -> list[tuple[str, int]]:
    found = [(p.topic, p.qos) for p in client.messages]
    client.told.clear()
    return found


def test_a_message_comes_once_with_the_greatest_qos_of_the_subscriptions_that_want_it() -> None:
    scene = Scene(more=[Where()])
    session, client = reading(scene, ("!AT/10/t/#", 0), ("!AT/20/t/#", 1), ("!AT/30/t/#", 2))
    assert list(scene.broker.live) == ["t/#"], "one at the broker"
    for level in (5, 10, 20, 30):
        scene.publish(f"t/{level}", qos=2)
    assert qos_of(client) == [("t/10", 0), ("t/20", 1), ("t/30", 2)]
    assert scene.counts.denied == [("sibling", "t/5", "where.no")]
    scene.publish("t/30", qos=1)
    assert qos_of(client) == [("t/30", 1)], "never more than it was published with"
    # What the answers rest on: each subscription that comes or goes.
    scene.unsubscribe(session, 2, "!AT/10/t/#")
    scene.unsubscribe(session, 3, "!AT/30/t/#")
    scene.settle()
    client.told.clear()
    for level in (10, 30):
        scene.publish(f"t/{level}", qos=2)
    assert qos_of(client) == [("t/30", 1)]
    assert list(scene.broker.live) == ["t/#"]
    scene.unsubscribe(session, 4, "!AT/20/t/#")
    scene.settle()
    assert scene.broker.live == {}


def test_leaving_one_filter_leaves_no_other_with_which_the_same_was_said() -> None:
    scene = Scene(more=[Where()])
    session, client = reading(scene, ("!AT/10/t/#", 1), ("!AT/10/u/#", 1))
    scene.unsubscribe(session, 2, "!AT/10/t/#")
    scene.settle()
    client.told.clear()
    scene.publish("t/10")
    scene.publish("u/10")
    assert qos_of(client) == [("u/10", 0)]


@pytest.mark.parametrize("qos", [1, 2])
def test_a_kept_session_gets_it_with_qos_0_and_the_broker_its_answer(qos: int) -> None:
    scene = Scene(more=[Where()])
    session, client = reading(scene, ("!AT/10/t/#", 0), ("!AT/20/t/#", 2), clean=False)
    scene.own(session, "t/10", scene.m3("t/10"), qos, 400)
    (packet,) = client.messages
    assert (packet.qos, packet.packet_id) == (0, 0)
    assert scene.answers == [Puback(400) if qos == 1 else Pubrec(400)]
    client.told.clear()
    scene.own(session, "t/20", scene.m3("t/20"), qos, 401)
    (packet,) = client.messages
    assert (packet.qos, packet.packet_id) == (qos, 401)


def test_between_1_and_2_a_kept_session_has_the_brokers_qos() -> None:
    scene = Scene(more=[Where()])
    session, client = reading(scene, ("!AT/10/t/#", 1), ("!AT/20/t/#", 2), clean=False)
    scene.own(session, "t/10", scene.m3("t/10"), 2, 400)
    (packet,) = client.messages
    assert (packet.qos, packet.packet_id, scene.answers) == (2, 400, [])


def test_what_is_retained_goes_by_it_too() -> None:
    scene = Scene(more=[Where()])
    for level in (5, 20):
        m3 = scene.m3(f"t/{level}", kind=1)
        topic = f"t/{level}"
        scene.broker.retained[topic] = Publish(topic, topic.encode(), m3, 2, True, False, 0)
    session = scene.open(SIBLING)
    scene.subscribe(session, 1, ("!AT/10/t/#", 1))
    scene.settle()
    assert [(p.topic, p.qos) for p in Client(session).messages] == [("t/20", 1)]
