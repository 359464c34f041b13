"""Sealed clears that cross to another site (GATEWAY.md G11): out by way of the broker for bridges
alone, and in as an empty retained message, by who may publish there.
"""

from __future__ import annotations

from typing import Any

import pytest

from core_world import Shell, opened
from mediator.core.test_bridged import MOUNTED, NOW, Joined, taken
from mediator.core.test_bridged import reader as reader_at
from mediator.core.test_sealed_to_link import TO_LINK, head_of, reading, scene_of
from mediator_world import LOW, NOW_MS, PANEL, SIBLING, World
from reader_scene import Scene
from sealmq.border.ends import Keeping, Plain
from sealmq.client.cipher import make
from sealmq.mediator.core.keyring import Keyring
from sealmq.mediator.core.message import Message
from sealmq.mediator.core.retained import Retained
from sealmq.mediator.core.wrap import for_broker, look_m3, open_m3, rewrap_for_broker
from sealmq.mqtt import Puback, Publish
from sealmq.order import Order
from sealmq_spec.const import CLEAR, LIVE, QUEUED, REF_LABEL, REF_LINK, RETAINED
from sealmq_spec.envelope import get_m1
from sealmq_spec.errors import Malformed, Stale, Unauthentic
from sealmq_spec.origin import Reader


class Leaving(World):
    """The sensor's label leaves the site, or goes to another label: its sibling is a bridge's or a
    border's client."""

    kind = "gateway"

    def snapshot(self) -> dict[str, Any]:
        found = super().snapshot()
        for client in found["clients"]:
            if client["number"] == SIBLING:
                client["kind"] = self.kind
        return found


class AtBorder(Leaving):
    """A border reads the sensor's label."""

    kind = "border"


@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("world", [Leaving, AtBorder])
def test_a_clear_of_what_is_exported_goes_out_as_it_was_sealed_after_the_empty_message(
    world: type[Leaving],
    qos: int,
) -> None:
    shell = Shell(world=world())
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


def test_a_border_gets_it_as_it_was_sealed_to_the_label_and_opens_it() -> None:
    scene = Scene(world=AtBorder())
    _, border = reading(scene, SIBLING)
    _, panel = reading(scene, PANEL)
    scene.live("t/1", scene.m3("t/1", b"", how=RETAINED, kind=CLEAR), 1)
    (packet,) = border.messages
    assert head_of(packet)[:2] == (REF_LABEL, RETAINED)
    assert panel.messages == []
    ident = scene.world.identities[SIBLING]
    given = packet.topic_raw, bytearray(packet.payload), scene.site.now_ms
    opened = Keeping(ident, make).open(*given)
    assert opened.payload == b""
    assert isinstance(opened.payload, Plain)
    assert get_m1(opened.payload.m1, 0, len(opened.payload.m1))[1] == CLEAR
    with pytest.raises(Malformed, match="class 3"):
        Reader(ident, make).open(*given)


def test_what_another_site_clears_reaches_a_border_that_lets_it_in() -> None:
    world = Joined()
    assert LOW not in world.ring.leaving, "a bridge that brings it gets nothing of it"
    world.border = True
    world.ring = Keyring(world.site, 9, world.snapshot())
    assert LOW in world.ring.leaving
    came = taken(world, world.m1(low=CLEAR, plain=b""), 3)
    given = world.ring, Order(world.ring.inst), world.ring.labels[LOW], came.body, came.start
    m3 = for_broker(*given, None, came.own, RETAINED, MOUNTED, NOW_MS)
    opened = reader_at(world, Keeping).open(MOUNTED, bytearray(m3), NOW_MS)
    assert (opened.payload, opened.topic, opened.sender) == (b"", MOUNTED.decode(), 5)


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
