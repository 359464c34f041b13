"""What a reader is sent, in which order and how much of it waits (GATEWAY.md G2)."""

from __future__ import annotations

from reader_scene import PANEL, Client, Scene, payloads
from sealmq.mediator.core.session import Session


def reader(
    scene: Scene, *filters: tuple[str, int], number: int = PANEL, client_id: str = "id"
) -> tuple[Session, Client]:
    """A clean session that has these filters."""
    session = scene.open(number, client_id=client_id)
    scene.subscribe(session, 1, *(filters or (("t/#", 2),)))
    scene.settle()
    client = Client(session)
    client.take()
    client.told.clear()
    return session, client


def test_a_message_goes_out_at_once_and_unchanged() -> None:
    scene = Scene()
    _, client = reader(scene)
    m3 = scene.publish("t/1")
    assert payloads(client.messages) == [m3]
    assert scene.counts.delivered == [("panel", "t/1")]


def test_qos_is_the_lesser_of_published_and_granted() -> None:
    scene = Scene()
    session, client = reader(scene, ("t/#", 1), ("u", 2), ("v", 0))
    for topic in ("t/1", "u", "v"):
        for qos in (0, 1, 2):
            scene.publish(topic, qos=qos)
    got = [(p.topic, p.qos, p.dup, p.retain) for p in client.messages]
    assert [qos for topic, qos, *_ in got if topic == "t/1"] == [0, 1, 1]
    assert [qos for topic, qos, *_ in got if topic == "u"] == [0, 1, 2]
    assert [qos for topic, qos, *_ in got if topic == "v"] == [0, 0, 0]
    assert not any(dup or retain for *_, dup, retain in got)
    assert session.state == "open"
