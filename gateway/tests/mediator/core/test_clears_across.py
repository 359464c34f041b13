"""Sealed clears that cross to another site (GATEWAY.md G11): out by way of the broker for bridges
alone, and in as an empty retained message, by who may publish there.
"""

from __future__ import annotations

from typing import Any

import pytest

from core_world import Shell, opened
from mediator.core.test_bridged import NOW, Joined, taken
from mediator.core.test_sealed_to_link import TO_LINK, head_of, reading, scene_of
from mediator_world import PANEL, SIBLING, World
from sealmq.mediator.core.message import Message
from sealmq.mediator.core.retained import Retained
from sealmq.mediator.core.wrap import look_m3, open_m3, rewrap_for_broker
from sealmq.mqtt import Puback, Publish
from sealmq.order import Order
from sealmq_spec.const import CLEAR, LIVE, QUEUED, REF_LINK, RETAINED
from sealmq_spec.errors import Malformed, Stale, Unauthentic


class Leaving(World):
    """The sensor's label leaves the site: its sibling is a bridge's client."""

    def snapshot(self) -> dict[str, Any]:
        found = super().snapshot()
        for client in found["clients"]:
            if client["number"] == SIBLING:
                client["kind"] = "gateway"
        return found


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_clear_of_what_is_exported_goes_out_as_it_was_sealed_after_the_empty_message(
    qos: int,
) -> None:
    shell = Shell(world=Leaving())
    peer = opened(shell)
    peer.send(peer.message(b"", retain=True, kind=CLEAR, qos=qos, packet_id=7 if qos else 0))
    empty, across = shell.forwards()
    assert (empty.sent, empty.payload, empty.retain) == (None, b"", True)
    assert (across.retain, across.qos, across.topic) == (False, qos, empty.topic)
    ring = shell.world.ring
    seen = look_m3(ring, across.payload)
    inside = open_m3(ring, seen, across.topic, across.payload)
    assert (seen.how, inside.kind, inside.ctr) == (RETAINED, CLEAR, 1)
    if qos == 1:
        assert peer.got == [], "the broker has not answered for either"
        shell.accept(across)
        assert peer.take() == [Puback(7)]


def test_of_a_label_that_stays_only_the_empty_message_goes_out() -> None:
    shell = Shell()
    peer = opened(shell)
    peer.send(peer.message(b"", retain=True, kind=CLEAR, qos=1, packet_id=7))
    assert [f.payload for f in shell.forwards()] == [b""]


def test_a_bridge_alone_gets_it() -> None:
    scene, _ = scene_of(Leaving(), sibling=TO_LINK)
    _, bridge = reading(scene, SIBLING)
    _, panel = reading(scene, PANEL)
    m3 = scene.m3("t/1", b"", how=RETAINED, kind=CLEAR)
    scene.live("t/1", m3, 1)
    (packet,) = bridge.messages
    assert head_of(packet)[:2] == (REF_LINK, RETAINED)
    scene.live("t/1", scene.m3("t/1", b"after"), 1)
    assert len(panel.messages) == 1, "what came after, and nothing of the clear"
    assert scene.counts.denied == []
    retained = Publish("t/1", b"t/1", m3, 1, True, False, 0)
    with pytest.raises(Malformed, match="how retained from the broker"):
        Message(scene.site, retained)


@pytest.mark.parametrize("kind", [LIVE, RETAINED, CLEAR])
def test_nothing_else_comes_from_the_broker_as_a_retained_one_was_sealed(kind: int) -> None:
    """A broker that gives back what was sealed for one reader, or a clear as retained."""
    scene, _ = scene_of(Leaving(), sibling=TO_LINK)
    _, bridge = reading(scene, SIBLING)
    _, panel = reading(scene, PANEL)
    m3 = scene.m3("t/1", b"" if kind == CLEAR else b"1", how=RETAINED, kind=kind)
    if kind == CLEAR:
        scene.live("t/1", m3[:-1] + bytes((m3[-1] ^ 1,)), 1)
    else:
        scene.live("t/1", m3, 1)
    assert (bridge.messages, panel.messages) == ([], [])


def test_it_is_published_again_after_the_broker_was_lost() -> None:
    world = Leaving()
    shell = Shell(world=world)
    peer = opened(shell)
    peer.send(peer.message(b"", retain=True, kind=CLEAR, qos=1, packet_id=7))
    across = shell.forwards()[1]
    seen = look_m3(world.ring, across.payload)
    inside = open_m3(world.ring, seen, across.topic, across.payload)
    given = world.ring, Order(world.ring.inst), seen, inside
    again = rewrap_for_broker(*given, RETAINED, across.topic, shell.site.now_ms + 1000)
    assert look_m3(world.ring, again).how == RETAINED
    for how, later_ms in ((QUEUED, 1000), (RETAINED, 61_000)):
        with pytest.raises((Malformed, Stale)):
            rewrap_for_broker(*given, how, across.topic, shell.site.now_ms + later_ms)


def test_what_a_bridge_brings_as_a_clear_is_judged() -> None:
    world = Joined()
    clear = world.m1(low=CLEAR, plain=b"")
    assert taken(world, clear, 3).kind == CLEAR
    for m1, flags, error in (
        (clear, 2, Malformed),
        (world.m1(low=CLEAR, plain=b"x"), 3, Malformed),
        (world.m1(low=CLEAR, plain=b"", t=NOW - 61), 3, Stale),
    ):
        with pytest.raises(error):
            taken(world, m1, flags)
    with pytest.raises(Unauthentic):
        taken(world, world.m1(low=CLEAR, plain=b"", epoch=world.high.epoch), 3, number=PANEL)


def test_an_older_one_of_its_sender_takes_nothing_away_and_a_border_s_senders_may_differ() -> None:
    kept = Retained()
    topic, border = "@north/border/a/t", 9
    kept.published(topic, border, (100, 5, 10))
    kept.check(topic, border, (80, 5, 11), passed=True)
    kept.check(topic, border, (101, 4, 3), passed=True)
    kept.check(topic, border + 1, (80, 1, 1), passed=True)
    with pytest.raises(Stale):
        kept.check(topic, border, (99, 5, 9), passed=True)
