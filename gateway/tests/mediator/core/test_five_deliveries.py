"""What a reader of MQTT 5 is sent: within its bounds, with its identifiers, and as long as the
publisher has sealed. Readers of 3.1.1 beside it get the bytes that they always got.
"""

from __future__ import annotations

from typing import Any

import pytest

from families.gate import opened, shut
from mediator_world import NOW_MS, SIBLING
from reader_scene import Client, Scene
from sealmq.mediator.core.five import EXPIRED, PACKET, Five
from sealmq.mediator.core.session import Session
from sealmq.mqtt import Connect, FilterWishes, Pubacks, Publish, build, five_client
from sealmq.mqtt import Subscribe as SubscribePacket
from sealmq.mqtt import five as v5


class Reader5:
    """An open session of MQTT 5, whose CONNECT has said this."""

    def __init__(self, scene: Scene, said: v5.Properties = v5.NONE) -> None:
        self.scene, self.five = scene, Five(scene.site)
        [connect] = self.five.feed(five_client.connect("id", properties=said))
        assert isinstance(connect, Connect)
        wishes = connect.wishes
        self.session: Session = scene.open(wire=self.five.wire, receive_max=wishes.receive_max)
        aliases = said.get(v5.ALIAS_MAX, 0)
        self.decoder = five_client.ServerDecoder5(1 << 24, aliases=aliases)
        self.decoder.feed(build.packet(0x20, b"\0\0\0"))
        self.sizes: list[int] = []

    def subscribe(self, *filters: str, qos: int = 1, **wishes: Any) -> None:
        texts = tuple((self.scene.peer(self.session).token(f, qos)[0], qos) for f in filters)
        packet = SubscribePacket(3, texts, (FilterWishes(**wishes),) * len(texts))
        self.session.receive(packet)
        self.scene.settle()

    def take(self) -> list[v5.Publish5]:
        """The messages that have come since, with their topics."""
        out, self.session.out[:] = list(self.session.out), []
        self.sizes = [len(one) for one in out]
        came = self.decoder.feed(b"".join(out))
        return [one for one in came if isinstance(one, v5.Publish5) and one.topic != "!c1"]


def test_no_more_are_under_way_than_the_client_s_receive_maximum() -> None:
    scene = Scene()
    reader = Reader5(scene, {v5.RECEIVE_MAX: 2})
    reader.subscribe("t/#")
    sent = [scene.publish("t/1", b"%d" % n, qos=1) for n in range(4)]
    came = reader.take()
    assert [one.payload for one in came] == sent[:2]
    scene.receive(reader.session, Pubacks((came[0].packet_id,)))
    assert [one.payload for one in reader.take()] == sent[2:3]
    other = scene.open(SIBLING)
    scene.subscribe(other, 1, ("t/#", 1))
    scene.settle()
    scene.publish("t/1", b"x", qos=1)
    assert len(Client(other).messages) == 1, "another reader is not held up"


def test_what_is_larger_than_the_client_takes_is_not_sent_and_is_counted() -> None:
    scene = Scene()
    most = 18_000
    reader = Reader5(scene, {v5.MAX_PACKET: most})
    reader.subscribe("t/#")
    reader.take()
    # One of each size around the bound; m3 adds what it adds.
    room = most - len(scene.m3("t/1", b""))
    for size in range(room - 40, room + 10):
        scene.publish("t/1", bytes(size))
    came = reader.take()
    assert max(reader.sizes) <= most
    assert max(reader.sizes) > most - 8, "what fits is sent"
    rows = [row for row in scene.counts.denied if row[2] == PACKET]
    assert len(rows) == 50 - len(came) > 0
    assert set(rows) == {("panel", "t/1", PACKET)}


@pytest.mark.parametrize("five_first", [True, False])
def test_aliases_are_of_one_reader_and_bounded(five_first: bool) -> None:
    scene = Scene()
    if five_first:
        reader, other = Reader5(scene, {v5.ALIAS_MAX: 1}), scene.open(SIBLING)
    else:
        other, reader = scene.open(SIBLING), Reader5(scene, {v5.ALIAS_MAX: 1})
    reader.subscribe("t/#", qos=1)
    scene.subscribe(other, 1, ("t/#", 1))
    scene.settle()
    client = Client(other)
    client.take()
    reader.take()
    topic = "t/a-long-name"
    expected = []
    for qos in (0, 1, 0):
        for name in (topic, "t/2"):
            expected.append((name, scene.publish(name, qos=qos)))
    came = reader.take()
    assert [(one.topic, one.payload) for one in came] == expected
    assert [one.properties.get(v5.ALIAS) for one in came] == [1, None] * 3
    assert reader.sizes[2] < reader.sizes[0] - len(topic) + 3, "the name goes once"
    assert [(one.topic, one.payload) for one in client.messages] == expected


def test_a_message_has_the_identifiers_of_all_subscriptions_that_match() -> None:
    scene = Scene()
    reader = Reader5(scene)
    reader.subscribe("t/#", identifier=7)
    reader.subscribe("t/1", "u/+", identifier=300)
    reader.subscribe("u/#")
    reader.take()
    for topic, expected in (("t/1", [7, 300]), ("t/2", [7]), ("u/1", [300]), ("u/1/2", None)):
        for qos in (0, 1):
            scene.publish(topic, qos=qos)
            [came] = reader.take()
            assert came.properties.get(v5.SUBSCRIPTION_ID) == expected, topic
    reader.subscribe("t/1", identifier=8)
    scene.publish("t/1")
    [came] = reader.take()
    assert sorted(came.properties[v5.SUBSCRIPTION_ID]) == [7, 8], "the newest of a filter counts"


@pytest.mark.parametrize(
    ("retained", "again", "expected"), [(0, True, 2), (1, True, 1), (2, True, 0), (2, False, 0)]
)
def test_what_is_retained_comes_as_often_as_it_is_wanted(
    retained: int, again: bool, expected: int
) -> None:
    scene = Scene()
    reader = Reader5(scene)
    scene.publish("t/1", qos=1, retain=True)
    came = 0
    for _ in range(1 + again):
        reader.subscribe("t/#", retained=retained)
        came += len(reader.take())
    assert came == expected
    # Live messages do not wait for what is not fetched.
    scene.passes(40)
    scene.publish("t/2", qos=1)
    assert len(reader.take()) == 1


def test_what_is_left_of_a_message_s_life_is_what_its_publisher_has_sealed() -> None:
    scene = Scene()
    m3 = scene.m3("t/1", kind=1, life=10)
    scene.broker.retained["t/1"] = Publish("t/1", b"t/1", m3, 1, True, False, 0)
    for passed, left in ((24, 1000), (900, 100)):
        scene.passes(passed)
        reader = Reader5(scene)
        reader.subscribe("t/#")
        [came] = reader.take()
        assert came.properties == {v5.EXPIRY: left}
    scene.passes(100)
    late = Reader5(scene)
    late.subscribe("t/#")
    assert late.take() == []
    assert ("panel", "t/1", EXPIRED) in scene.counts.denied
    assert scene.site.now_ms == NOW_MS + 1_024_000
    # A live message was opened for nobody, so nothing is said of it.
    scene.publish("t/2")
    [came] = late.take()
    assert came.properties == {}


def test_a_kept_session_s_message_that_is_too_large_is_answered_to_the_broker() -> None:
    scene = Scene()
    five = Five(scene.site)
    five.feed(five_client.connect("id", properties={v5.MAX_PACKET: 17_408, v5.SESSION_EXPIRY: 9}))
    session = scene.open(clean=False, wire=five.wire)
    scene.subscribe(session, 1, ("t/#", 1))
    scene.settle()
    scene.own(session, "t/1", scene.m3("t/1", bytes(17_408)), 1, 9)
    assert [build.puback(9)] == [build.puback(one.packet_id) for one in scene.answers]  # type: ignore[union-attr]


def test_a_kept_session_that_comes_back_has_its_identifiers_also_of_what_was_paused() -> None:
    scene = Scene(gate=True)
    five = Five(scene.site)
    five.feed(five_client.connect("id", properties={v5.SESSION_EXPIRY: 9}))
    session = scene.open(clean=False, wire=five.wire)
    text = scene.peer(session).token("!AP/t/%23{bill}", 1)[0]
    session.receive(SubscribePacket(3, ((text, 1),), (FilterWishes(identifier=7),)))
    scene.settle()
    [row] = scene.rows.values()
    assert (row.at, row.identifier) == ("t/#", 7)
    scene.apply(shut("bill"))
    scene.settle()
    [paused] = scene.rows.values()
    assert (paused.at, paused.identifier) == ("", 7)
    scene.apply(opened("bill"))
    scene.settle()
    later = Reader5(scene)
    later.session = scene.open(clean=False, wire=later.five.wire, rows=(row,))
    scene.settle()
    scene.own(later.session, "t/1", scene.m3("t/1"), 1, 9)
    [came] = later.take()
    assert came.properties[v5.SUBSCRIPTION_ID] == [7]
