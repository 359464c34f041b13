"""The embedded broker packet by packet: redelivery, faults, silence, bounds in memory."""

from __future__ import annotations

import os
import socket

import pytest

from broker.peers import WAIT_S, BrokerProcess, MakePeer, Raw, resident_mib, until
from sealmq.mqtt import Pubcomp, Publish, Pubrec, Suback, Will, build

MIB = 1024 * 1024


def test_what_was_not_acknowledged_comes_again_with_its_own_id(
    broker: BrokerProcess, peer: MakePeer
) -> None:
    """MQTT-4.4.0-1, for QoS 1, and for QoS 2 before and behind PUBREC."""
    raw = Raw(broker, "sealmq/1/forgetful")
    raw.send(build.subscribe(1, [("again/#", 2)]))
    assert isinstance(raw.get(), Suback)
    one = peer(broker)
    assert one.connect(broker.port) == 0
    for payload, qos in ((b"one", 1), (b"two", 2), (b"three", 2)):
        one.publish("again/x", payload, qos)
    first = [raw.get() for _ in range(3)]
    assert all(isinstance(packet, Publish) and not packet.dup for packet in first)
    ids = [packet.packet_id for packet in first if isinstance(packet, Publish)]
    assert len(set(ids)) == 3
    raw.send(build.pubrec(ids[2]))
    assert raw.get().packet_id == ids[2]  # type: ignore[union-attr]  # PUBREL
    raw.cut()

    raw = Raw(broker, "sealmq/1/forgetful")
    again = [raw.get() for _ in range(3)]
    assert [p.packet_id for p in again] == ids  # type: ignore[union-attr]
    assert [type(p).__name__ for p in again] == ["Publish", "Publish", "Pubrel"]
    assert all(p.dup for p in again if isinstance(p, Publish))
    raw.send(build.puback(ids[0]) + build.pubrec(ids[1]) + build.pubcomp(ids[2]))
    assert type(raw.get()).__name__ == "Pubrel"
    raw.send(build.pubcomp(ids[1]))
    raw.send(build.disconnect())
    raw.cut()

    raw = Raw(broker, "sealmq/1/forgetful")
    one.publish("again/x", b"next", 1)
    got = raw.get()
    assert isinstance(got, Publish)
    assert (got.payload, got.dup) == (b"next", False)


def test_a_qos_2_publish_over_two_connections_is_delivered_once(
    broker: BrokerProcess, peer: MakePeer
) -> None:
    """MQTT-4.3.3-2: PUBREL may come over the next connection, and may come twice."""
    one = peer(broker)
    assert one.connect(broker.port) == 0
    assert one.subscribe("once/#", 0) == 0
    raw = Raw(broker, "sealmq/1/twice")
    raw.send(build.publish("once/x", b"payload", 2, packet_id=7))
    assert raw.get() == Pubrec(7)
    raw.cut()
    raw = Raw(broker, "sealmq/1/twice")
    for _ in range(2):
        raw.send(build.pubrel(7))
        assert raw.get() == Pubcomp(7)
    assert one.get().payload == b"payload"
    assert one.nothing_more()


@pytest.mark.parametrize(
    "packet",
    [
        build.publish(b"$SYS/broker/uptime", b"x"),
        build.publish(b"a/#", b"x"),
        build.publish(b"a/+/b", b"x"),
        b"\x30\x03\x00\x01\xff",
        b"\x36\x05\x00\x01a\x00\x01",
        b"\xf0\x00",
        b"\x82\x02\x00\x01",
    ],
    ids=["dollar", "hash", "plus", "utf8", "qos3", "reserved", "no-filter"],
)
def test_what_a_mediator_never_sends_ends_its_connection_only(
    broker: BrokerProcess, peer: MakePeer, packet: bytes
) -> None:
    """amqtt goes on behind these, some with its place in the stream lost."""
    watcher = peer(broker)
    assert watcher.connect(broker.port) == 0
    assert watcher.subscribe("#", 0) == 0
    raw = Raw(broker, f"sealmq/1/{os.urandom(3).hex()}", clean=True)
    raw.send(packet + build.publish("a/b", b"behind it"))
    assert raw.sock.recv(100) == b""
    watcher.publish("last", b"", 0)
    assert watcher.get().topic == "last"


def test_a_silent_client_is_ended_and_its_will_published(
    broker: BrokerProcess, peer: MakePeer
) -> None:
    """MQTT 3.1.1 section 3.1.2.10. amqtt keeps it for ever."""
    watcher = peer(broker)
    assert watcher.connect(broker.port) == 0
    assert watcher.subscribe("will/#", 1) == 1
    silent = Raw.__new__(Raw)
    silent.sock = socket.create_connection(("127.0.0.1", broker.port), WAIT_S)
    will = Will("will/silent", b"gone", 1, False)
    user, password = broker.credentials.user, broker.credentials.password.encode()
    silent.send(
        build.connect("sealmq/1/s", keepalive=1, will=will, username=user, password=password)
    )
    assert watcher.get().payload == b"gone"
    assert silent.sock.recv(100) == build.connack(False, 0)
    assert silent.sock.recv(100) == b""


def test_a_subscriber_that_does_not_read_costs_a_bounded_memory(
    broker: BrokerProcess, peer: MakePeer
) -> None:
    """What waits for it is limited to 32 MiB; the others go on."""
    raw = Raw(broker, "sealmq/1/deaf", clean=True)
    raw.send(build.subscribe(1, [("flood/#", 0)]))
    assert isinstance(raw.get(), Suback)
    one = peer(broker)
    assert one.connect(broker.port) == 0
    for _ in range(96):
        one.publish("flood/x", bytes(MIB), 1)
    until(lambda: "sealmq/1/deaf does not read" in broker.log(), "the dropped messages in the log")
    assert resident_mib(broker) < 200
    assert one.nothing_more()
    raw.cut()


def test_a_publisher_that_floods_costs_a_bounded_memory(broker: BrokerProcess) -> None:
    raw = Raw(broker, "sealmq/1/flooding", clean=True)
    before = resident_mib(broker)
    thousand = build.publish("flood/nobody", bytes(64)) * 1000
    most = 0.0
    for _ in range(60):
        raw.send(thousand)
        most = max(most, resident_mib(broker))
    raw.send(build.pingreq())
    assert type(raw.get()).__name__ == "Pingresp"
    assert most < before + 12
    raw.cut()
