"""Bad input ends in a clear refusal: one audit record, a notice or a closed connection, and nobody
else notices. Each case is checked by what an honest pair of clients can still do afterwards.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import pytest

from devices import Device, device
from running_site import Site, until
from wire import RawClient, Wire, connect, packet, publish, text

TOPIC = b"machine/1/temperature"
PUBACK = (0x40, b"\0\x01")


@dataclass
class Scene:
    """A running site, an honest publisher and reader, an attacker with a genuine identity."""

    site: Site
    sensor: Device
    monitor: Device
    raw: RawClient
    count: int = 0

    def honest(self) -> None:
        """What is published is read, as before."""
        self.count += 1
        self.sensor.publish("machine/2/temperature", f"honest {self.count}")
        (message,) = self.monitor.receive(1)
        assert message["payload"] == f"honest {self.count}"

    def spare(self) -> RawClient:
        """The attacker's identity in another boot session, so that the open one goes on."""
        made = RawClient(self.site.port, self.site.clients / "m1-temp-sensor" / "sealmq.json")
        for name in ("gen", "own", "km", "kseq"):
            setattr(made.ident, name, getattr(self.raw.ident, name))
        made.session.renew(made.ident)
        return made

    def refusals(self) -> list[dict[str, Any]]:
        """All records of refused packets so far."""
        return [row for row in self.site.audit() if row["event"].endswith("-refused")]

    def one_record(self, act: Callable[[], None], rule: str) -> dict[str, Any]:
        """`act` leads to exactly one record, of this rule, and honest clients go on."""
        before = len(self.refusals())
        act()
        rows = until(f"a record of {rule}", lambda: self.refusals()[before:])
        self.honest()
        rows = self.refusals()[before:]
        assert [row["rule"] for row in rows] == [rule]
        return rows[0]


@pytest.fixture(scope="module")
def scene(shared_site: Site) -> Iterator[Scene]:
    with ExitStack() as stack:
        monitor = stack.enter_context(device(shared_site.enrol("monitor", "monitor"), bits=32))
        sensor = stack.enter_context(device(shared_site.enrol("m2-temp-sensor", "m2-temp")))
        monitor.subscribe("machine/2/temperature")
        raw = RawClient(shared_site.port, shared_site.enrol("m1-temp-sensor", "m1-temp"))
        raw.connect()
        stack.callback(raw.close)
        yield Scene(shared_site, sensor, monitor, raw)


# --- bytes that are no MQTT, or no MQTT of ours ---


@pytest.mark.parametrize(
    ("data", "rule"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", "mqtt.MalformedPacket"),
        (os.urandom(3) and b"\x00\x00", "mqtt.MalformedPacket"),
        (b"\x10\xff\xff\xff\xff\x01", "mqtt.MalformedPacket"),
        (b"\x10\xff\xff\xff\x7f", "mqtt.PacketTooLarge"),
        (b"\x30\x05\x00\x01ahi", "mqtt.MalformedPacket"),
        (b"\xc0\x00", "mqtt.MalformedPacket"),
        (packet(0x10, text(b"MQTT") + b"\x06\x02\0\x3c" + text(b"x")), "mqtt.UnsupportedProtocol"),
        (packet(0x10, text(b"MQTT") + b"\x05\x02\0\x3c" + text(b"x")), "mqtt.MalformedPacket"),
        (packet(0x10, text(b"MQTT") + b"\x04\x03\0\x3c" + text(b"x")), "mqtt.MalformedPacket"),
        (packet(0x10, text(b"MQTT") + b"\x04\x02\0\x3c" + text(b"\xff")), "mqtt.MalformedPacket"),
    ],
)
def test_bytes_before_a_session(scene: Scene, data: bytes, rule: str) -> None:
    def act() -> None:
        wire = Wire(scene.site.port)
        wire.send(data)
        assert wire.closed()

    scene.one_record(act, rule)


def test_every_truncated_connect_is_just_a_closed_connection(scene: Scene) -> None:
    whole = bytes(scene.spare().connect_packet())
    before = len(scene.refusals())
    for n in range(0, len(whole), 7):
        wire = Wire(scene.site.port)
        wire.send(whole[:n])
        wire.close()
    scene.honest()
    assert len(scene.refusals()) == before


# --- who connects ---


def _refused(scene: Scene, made: bytes) -> None:
    wire = Wire(scene.site.port)
    wire.send(made)
    assert wire.read() == (0x20, b"\0\x05")
    assert wire.closed()


def test_no_proof_no_entry(scene: Scene) -> None:
    plain = bytes(connect(b"intruder", b"secret", user=b"admin"))
    scene.one_record(lambda: _refused(scene, plain), "mediator.connect.malformed")


def test_an_unknown_client(scene: Scene) -> None:
    stranger = scene.spare()
    stranger.ident.client = 999
    stranger.session.renew(stranger.ident)
    made = bytes(stranger.connect_packet())
    scene.one_record(lambda: _refused(scene, made), "mediator.connect.denied")


def test_a_wrong_link_key(scene: Scene) -> None:
    thief = scene.spare()
    thief.ident.km = os.urandom(32)
    thief.session.renew(thief.ident)
    made = bytes(thief.connect_packet())
    scene.one_record(lambda: _refused(scene, made), "mediator.connect.unauthentic")


def test_every_flipped_byte_of_a_connect(scene: Scene) -> None:
    whole = bytes(scene.spare().connect_packet())
    before = len(scene.refusals())
    entered = []
    for at in range(len(whole)):
        bent = bytearray(whole)
        bent[at] ^= 0x04
        wire = Wire(scene.site.port)
        wire.send(bytes(bent))
        wire.socket.shutdown(1)
        answer = wire.read()
        if answer is not None and answer[0] == 0x20 and answer[1][1] == 0:
            entered.append(at)
        wire.close()
    assert entered == []
    scene.honest()
    assert len(scene.refusals()) > before


def test_a_replayed_connect_touches_nothing(scene: Scene) -> None:
    other = RawClient(scene.site.port, scene.site.enrol("m1-arm-operator", "m1-arm"))
    other.provision()
    made = bytes(other.connect_packet())
    first = Wire(scene.site.port)
    first.send(made)
    assert first.read() == (0x20, b"\0\0")
    other.wire = first
    other.control(first.read())

    def act() -> None:
        wire = Wire(scene.site.port)
        wire.send(made)
        assert wire.read() == (0x20, b"\0\0")
        welcome = wire.read()
        assert welcome is not None
        assert other.session.down(welcome[1][5:], 0) == (1, 1)
        assert wire.closed()

    scene.one_record(act, "mediator.connect.behind")
    assert other.barrier() == []
    first.close()


# --- what is published ---


def _notice(scene: Scene, made: bytes, code: int, rule: str, verified: bool = False) -> None:
    """Refused with a notice of this class, recorded once, at QoS 1.

    Only a packet whose own tag has verified is named by its counter, and acknowledged so that
    libraries stop sending it. Any other ends the connection.
    """
    ctr = scene.raw.session.ctr if verified else 0

    def act() -> None:
        scene.raw.notices.clear()
        scene.raw.wire.send(made)
        if verified:
            assert scene.raw.barrier() == [PUBACK]
        else:
            while (got := scene.raw.wire.read()) is not None:
                assert scene.raw.control(got)[0] == 3
        assert [n[:4] for n in scene.raw.notices] == [(1, ctr, code, rule)]

    scene.one_record(act, rule)
    if not verified:
        scene.raw.connect()


def test_a_foreign_topic(scene: Scene) -> None:
    topic = b"machine/2/temperature"
    sealed = scene.raw.seal(topic, b"99")
    _notice(scene, publish(topic, sealed, 0x32, 1), 5, "labels.publish.other-label", True)


@pytest.mark.parametrize("topic", [b"$SYS/x", b"!c2", b"@sm1/m/16"])
def test_reserved_topics(scene: Scene, topic: bytes) -> None:
    sealed = scene.raw.seal(topic, b"99")
    _notice(scene, publish(topic, sealed, 0x32, 1), 5, "mediator.publish.denied", True)


def test_an_empty_mqtt_payload(scene: Scene) -> None:
    _notice(scene, publish(TOPIC, b"", 0x33, 1), 1, "mediator.publish.malformed")


def test_a_payload_that_is_no_envelope(scene: Scene) -> None:
    plain = b"twenty-one and a half degrees, in clear, and long enough to be an envelope"
    _notice(scene, publish(TOPIC, plain, 0x32, 1), 1, "mediator.publish.malformed")


@pytest.mark.parametrize("at", [10, 30, -1])
def test_a_changed_payload(scene: Scene, at: int) -> None:
    sealed = bytearray(scene.raw.seal(TOPIC, b"21.5"))
    sealed[at] ^= 1
    _notice(scene, publish(TOPIC, bytes(sealed), 0x32, 1), 2, "mediator.publish.unauthentic")


def test_a_payload_on_another_topic(scene: Scene) -> None:
    sealed = scene.raw.seal(TOPIC, b"21.5")
    made = publish(b"machine/1/temperature2", sealed, 0x32, 1)
    _notice(scene, made, 2, "mediator.publish.unauthentic")


def test_a_replay_at_qos_0_and_a_retransmission_at_qos_1(scene: Scene) -> None:
    first = publish(TOPIC, scene.raw.seal(TOPIC, b"21.5", flags=0), 0x30)
    scene.raw.wire.send(first)
    assert scene.raw.barrier() == []

    def act() -> None:
        scene.raw.notices.clear()
        scene.raw.wire.send(first)
        assert scene.raw.barrier() == []
        # It was delivered: no notice says of it that it was refused.
        assert [n[:3] for n in scene.raw.notices] == [(1, 0, 4)]

    scene.one_record(act, "mediator.publish.replay")
    again = publish(TOPIC, scene.raw.seal(TOPIC, b"21.5"), 0x32, 1)
    for made in (again, again, bytes((again[0] | 8,)) + again[1:]):
        scene.raw.wire.send(made)
        assert scene.raw.acknowledged() == [PUBACK]


def test_an_old_message(scene: Scene) -> None:
    offset = scene.raw.session._offset
    assert offset is not None
    scene.raw.session._offset = offset - 61_000
    sealed = scene.raw.seal(TOPIC, b"21.5")
    scene.raw.session._offset = offset
    _notice(scene, publish(TOPIC, sealed, 0x32, 1), 3, "mediator.publish.stale", True)


@pytest.mark.parametrize("topic", [b"a/+", b"a/#", b"", b"a\x00b", b"\xc3\x28"])
def test_topics_that_mqtt_forbids_end_the_connection(scene: Scene, topic: bytes) -> None:
    def act() -> None:
        scene.raw.wire.send(publish(topic, bytes(100), 0x32, 1))
        assert scene.raw.wire.closed()

    scene.one_record(act, "mqtt.MalformedPacket")
    scene.raw.connect()


def test_a_packet_over_the_limit_ends_the_connection_unread(scene: Scene) -> None:
    def act() -> None:
        head = b"\x32" + b"\xff\xff\xff\x01" + struct.pack(">H", len(TOPIC)) + TOPIC
        scene.raw.wire.send(head)
        assert scene.raw.wire.closed()

    scene.one_record(act, "mqtt.PacketTooLarge")
    scene.raw.connect()


@pytest.mark.parametrize("size", [0, 1 << 20])
def test_empty_and_largest_payloads_pass(scene: Scene, size: int) -> None:
    assert scene.raw.publish(TOPIC, os.urandom(size)) == [PUBACK]
    scene.honest()


def test_one_byte_more_does_not(scene: Scene) -> None:
    sealed = scene.raw.seal(TOPIC, bytes((1 << 20) + 1))
    _notice(scene, publish(TOPIC, sealed, 0x32, 1), 8, "mediator.publish.toolarge", True)


# --- what is subscribed to ---


def _suback(scene: Scene, filters: list[tuple[bytes, int]], rule: str) -> None:
    body = b"\0\x07" + b"".join(text(f) + bytes((q,)) for f, q in filters)

    def act() -> None:
        scene.raw.wire.send(packet(0x82, body))
        assert scene.raw.barrier() == [(0x90, b"\0\x07" + b"\x80" * len(filters))]

    scene.one_record(act, rule)


def test_a_filter_without_token(scene: Scene) -> None:
    _suback(scene, [(b"machine/#", 0)], "mediator.subscribe.malformed")


def test_a_token_for_another_filter_or_qos(scene: Scene) -> None:
    token, _ = scene.raw.session.token("machine/1/temperature", 0)
    _suback(scene, [(token[:-1].encode() + b"X", 0)], "mediator.subscribe.unauthentic")
    _suback(scene, [(token.encode(), 1)], "mediator.subscribe.unauthentic")


def test_control_and_secret_filters(scene: Scene) -> None:
    for filt in ("!c1", "@other/#"):
        token, _ = scene.raw.session.token(filt, 0)
        _suback(scene, [(token.encode(), 0)], "mediator.subscribe.denied")


# --- control packets ---


@pytest.mark.parametrize(
    ("payload", "rule"),
    [
        (b"", "mediator.control.malformed"),
        (b"\x14", "mediator.control.malformed"),
        (b"\x14\x10" + bytes(40), "mediator.control.malformed"),
        (b"\x1a\x10\0\0\x01" + bytes(38), "mediator.control.unauthentic"),
        (b"\x1a\x10" + bytes(41), "mediator.control.denied"),
        (b"\x15\x10" + bytes(40), "mediator.control.malformed"),
    ],
)
def test_control_packets_that_are_none(scene: Scene, payload: bytes, rule: str) -> None:
    def act() -> None:
        scene.raw.wire.send(publish(b"!c1", payload))
        scene.raw.barrier()

    scene.one_record(act, rule)
