"""However a connection ends, what came before the end is routed, in order, and only then it ends.

A PUBACK means that a message has been routed (MQTT 3.1.1 section 4.3.2).
"""

from __future__ import annotations

import asyncio
import os
import socket
import struct

import paho.mqtt.client as paho
import pytest

from broker.peers import BrokerProcess, MakePeer, Peer, Raw
from sealmq.broker.stream import MAX_PACKET, Arriving, GuardedReader
from sealmq.mqtt import Decoder, Packet, Puback, Publish, Suback, Will, build

# What one connection sends at once; more than the broker reads at once.
BURST = 300
PAYLOAD = bytes(1000)


def watching(broker: BrokerProcess, peer: MakePeer) -> Peer:
    one = peer(broker)
    assert one.connect(broker.port) == 0
    assert one.subscribe("ends/#", 0) == 0
    return one


def name() -> str:
    return f"sealmq/1/{os.urandom(4).hex()}"


def messages(who: str, qos: int, count: int = BURST) -> list[bytes]:
    """PUBLISH packets of one connection, numbered from 1 on."""
    return [
        build.publish(f"ends/{who}", b"%d " % i + PAYLOAD, qos, packet_id=i if qos else 0)
        for i in range(1, count + 1)
    ]


def number(message: paho.MQTTMessage) -> int:
    return int(message.payload.split()[0])


def routed(watcher: Peer, who: str) -> list[int]:
    """The numbers of those messages of one connection that have been routed by now."""
    mark = f"ends/{name()}"
    watcher.publish(mark, b"", qos=1)
    got: list[int] = []
    while (message := watcher.get()).topic != mark:
        if message.topic == f"ends/{who}":
            got.append(number(message))
    return got


def acknowledged(raw: Raw, count: int) -> int:
    """Read so many PUBACKs, and what else has been read with them."""
    for _ in range(count):
        assert isinstance(raw.get(), Puback)
    return count + sum(isinstance(packet, Puback) for packet in raw.packets)


@pytest.mark.parametrize("farewell", [build.disconnect(), b""], ids=["disconnect", "close"])
def test_short_connections_lose_nothing_of_qos_0(
    broker: BrokerProcess, peer: MakePeer, farewell: bytes
) -> None:
    watcher = watching(broker, peer)
    for count in (1, 2, 20, BURST):
        for _ in range(15):
            who = name()
            raw = Raw(broker, who, clean=True)
            raw.send(b"".join(messages(who, 0, count)) + farewell)
            raw.cut()
            assert [number(watcher.get()) for _ in range(count)] == list(range(1, count + 1))
    assert watcher.nothing_more()


@pytest.mark.parametrize("end", ["disconnect", "close", "reset", "take-over"])
def test_what_was_acknowledged_arrives(broker: BrokerProcess, peer: MakePeer, end: str) -> None:
    watcher = watching(broker, peer)
    for acks in (1, 5, 50, BURST):
        for _ in range(6):
            who = name()
            raw = Raw(broker, who, clean=True)
            raw.send(b"".join(messages(who, 1)))
            acked = acknowledged(raw, acks)
            if end == "disconnect":
                raw.send(build.disconnect())
            elif end == "take-over":
                Raw(broker, who, clean=True).cut()
            elif end == "reset":
                linger = struct.pack("ii", 1, 0)
                raw.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            raw.cut()
            got = routed(watcher, who)
            assert len(got) >= acked
            assert got == list(range(1, len(got) + 1))


@pytest.mark.parametrize(
    "end", [b"", b"\xf0\x00", build.publish(b"$SYS/x", b"")], ids=["close", "broken", "dollar"]
)
def test_the_will_comes_behind_what_was_sent(
    broker: BrokerProcess, peer: MakePeer, end: bytes
) -> None:
    watcher = watching(broker, peer)
    who = name()
    raw = Raw(broker, who, clean=True, will=Will(f"ends/{who}", b"-1", 0, False))
    raw.send(b"".join(messages(who, 0)) + end)
    raw.cut()
    assert [number(watcher.get()) for _ in range(BURST + 1)] == [*range(1, BURST + 1), -1]


def test_a_packet_behind_disconnect_is_none(broker: BrokerProcess, peer: MakePeer) -> None:
    """MQTT-3.14.4-2."""
    watcher = watching(broker, peer)
    who = name()
    raw = Raw(broker, who, clean=True)
    first, second = messages(who, 0, 2)
    raw.send(first + build.disconnect() + second)
    assert raw.sock.recv(100) == b""
    assert routed(watcher, who) == [1]


def test_the_broker_stops_with_connections_open() -> None:
    """A client that reads nothing, one that sends without end, one that is just there."""
    broker = BrokerProcess.start()
    deaf, flooding, idle = (Raw(broker, name()) for _ in range(3))
    deaf.send(build.subscribe(1, [("ends/#", 0)]))
    assert isinstance(deaf.get(), Suback)
    for _ in range(20):
        flooding.send(b"".join(messages("x", 0)))
    assert broker.stop() == 0
    for raw in (deaf, flooding, idle):
        raw.cut()


def test_a_reset_hides_nothing_that_came_before_it() -> None:
    """asyncio's own stream raises the reset before it hands out what it holds."""

    async def run() -> list[Packet]:
        stream = Arriving()
        decoder = Decoder(MAX_PACKET, connect_first=True)
        decoder.feed(build.connect("x"))
        reader = GuardedReader(stream, decoder, b"", [], 0, "x", lambda: None)
        stream.feed_data(b"".join(messages("x", 0)))
        stream.set_exception(ConnectionResetError())
        got: list[Packet] = []
        while (packet := await reader.next()) is not None:
            got.append(packet)
        return got

    got = asyncio.run(run())
    assert len(got) == BURST
    assert all(isinstance(packet, Publish) for packet in got)
