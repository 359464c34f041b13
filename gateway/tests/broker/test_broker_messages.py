"""What crosses the embedded broker: large payloads, QoS, retained, sessions, reserved topics."""

from __future__ import annotations

import os
import socket

import pytest

from broker.peers import WAIT_S, BrokerProcess, MakePeer, until
from sealmq.mqtt import Connack, Decoder, Packet, Pubcomp, Publish, Pubrec, Suback, Will, build

MIB = 1024 * 1024


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_payloads_from_empty_to_one_mebibyte_cross(
    broker: BrokerProcess, peer: MakePeer, qos: int
) -> None:
    one = peer(broker)
    assert one.connect(broker.port) == 0
    assert one.subscribe(f"size/{qos}", qos) == qos
    for size in (0, 1, 127, 128, 16384, 65536, MIB, MIB + 20_000):
        payload = os.urandom(size)
        one.publish(f"size/{qos}", payload, qos)
        got = one.get()
        assert (got.topic, got.qos, got.retain) == (f"size/{qos}", qos, False)
        assert got.payload == payload


def test_a_packet_over_the_limit_ends_its_connection_only(
    broker: BrokerProcess, peer: MakePeer
) -> None:
    other = peer(broker)
    assert other.connect(broker.port) == 0
    assert other.subscribe("over/#", 0) == 0
    one = peer(broker)
    assert one.connect(broker.port) == 0
    one.client.publish("over/limit", bytes(2 * MIB + 1))
    one.lost.get(timeout=WAIT_S)
    assert other.nothing_more()


@pytest.mark.parametrize("published", [0, 1, 2])
@pytest.mark.parametrize("granted", [0, 1, 2])
def test_a_message_comes_at_the_lower_qos(
    broker: BrokerProcess, peer: MakePeer, published: int, granted: int
) -> None:
    one = peer(broker)
    assert one.connect(broker.port) == 0
    assert one.subscribe(f"qos/{published}/{granted}", granted) == granted
    one.publish(f"qos/{published}/{granted}", b"x", published)
    assert one.get().qos == min(published, granted)


def test_overlapping_filters_bring_one_copy_at_the_highest_qos(
    broker: BrokerProcess, peer: MakePeer
) -> None:
    one = peer(broker)
    assert one.connect(broker.port) == 0
    for topic_filter, qos in (("over/+/x", 0), ("over/lap/x", 2), ("over/#", 1)):
        assert one.subscribe(topic_filter, qos) == qos
    one.publish("over/lap/x", b"x", 2)
    assert one.get().qos == 2
    assert one.nothing_more()


def test_retained_is_kept_replaced_cleared_and_only_for_who_asks(
    broker: BrokerProcess, peer: MakePeer
) -> None:
    one = peer(broker)
    assert one.connect(broker.port) == 0
    assert one.subscribe("@sm1/z/#", 1) == 1
    for payload in (b"old", b"new"):
        one.publish("@sm1/z/16/17", payload, retain=True)
        got = one.get()
        assert (got.payload, got.retain) == (payload, False)
    late = peer(broker)
    # amqtt by itself sends a newcomer what is retained for the filters of all others.
    assert late.connect(broker.port) == 0
    assert late.nothing_more()
    assert late.subscribe("@sm1/z/16/17", 1) == 1
    got = late.get()
    assert (got.topic, got.payload, got.retain, got.qos) == ("@sm1/z/16/17", b"new", True, 1)
    one.publish("@sm1/z/16/17", b"", retain=True)
    assert (one.get().payload, late.get().payload) == (b"", b"")
    last = peer(broker)
    assert last.connect(broker.port) == 0
    assert last.subscribe("@sm1/z/16/17", 1) == 1
    assert last.nothing_more()


def test_a_persistent_session_gets_what_came_meanwhile_once_and_not_as_retained(
    broker: BrokerProcess, peer: MakePeer
) -> None:
    away = peer(broker, "sealmq/1/away", clean=False)
    assert away.connect(broker.port) == 0
    assert not away.present
    assert away.subscribe("away/#", 1) == 1
    away.close()
    one = peer(broker)
    assert one.connect(broker.port) == 0
    for qos in (0, 1):
        for number in range(100):
            one.publish("away/x", b"%d" % number, qos)
    back = peer(broker, "sealmq/1/away", clean=False)
    assert back.connect(broker.port) == 0
    assert back.present
    for number in range(100):
        got = back.get()
        assert (got.payload, got.retain, got.qos) == (b"%d" % number, False, 1)
    assert back.nothing_more()


class Raw:
    """A mediator's connection, packet by packet."""

    def __init__(self, broker: BrokerProcess, name: str, *, clean: bool = False) -> None:
        self.sock = socket.create_connection(("127.0.0.1", broker.port), WAIT_S)
        self.decoder = Decoder(2 * MIB, "client")
        self.packets: list[Packet] = []
        self.send(
            build.connect(
                name,
                clean_session=clean,
                username=broker.credentials.user,
                password=broker.credentials.password.encode(),
            )
        )
        connack = self.get()
        assert isinstance(connack, Connack)
        assert connack.code == 0

    def send(self, packet: bytes) -> None:
        self.sock.sendall(packet)

    def get(self) -> Packet:
        while not self.packets:
            chunk = self.sock.recv(65536)
            assert chunk, "the broker closed the connection"
            self.packets += self.decoder.feed(chunk)
        return self.packets.pop(0)

    def cut(self) -> None:
        """Go away without DISCONNECT."""
        self.sock.close()


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


def test_the_broker_itself_publishes_nothing(broker: BrokerProcess, peer: MakePeer) -> None:
    one = peer(broker)
    assert one.connect(broker.port) == 0
    for topic_filter in ("$SYS/#", "$SYS/broker/version", "#", "+/#"):
        assert one.subscribe(topic_filter, 0) in (0, 0x80)
    one.publish("only/this", b"", 0)
    assert one.get().topic == "only/this"


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
    with open(f"/proc/{broker.process.pid}/status") as file:
        [line] = [line for line in file if line.startswith("VmRSS")]
    assert int(line.split()[1]) < 200 * 1024, line
    assert one.nothing_more()
    raw.cut()
