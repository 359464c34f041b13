"""The MQTT codec: any bytes at any chunking, as a server and as a client hears them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from sealmq.mqtt import (
    Connack,
    Connect,
    Decoder,
    Packet,
    ProtocolError,
    Publish,
    Suback,
    Subscribe,
    Unsubscribe,
    Will,
    build,
)
from sealmq.mqtt.tables import Role

from .target import Draw, Finding, Target

_LIMITS = 200, 16384
_ROLES: tuple[Role, ...] = ("server", "client")


class Fuzz(Target):
    """Only ProtocolError comes out; how the stream was cut changes nothing; memory is bounded."""

    longest: ClassVar[int] = 2048
    words: ClassVar[tuple[bytes, ...]] = (b"\x00\x04MQTT\x04", b"\x10", b"\x82", b"\xa2", b"!s1/")

    def one(self, data: bytes) -> None:
        draw = Draw(data)
        role, first, limit = draw.pick(_ROLES), draw.number() % 2 == 1, draw.pick(_LIMITS)
        size = 1 + draw.number()
        stream = draw.rest()

        def decoder() -> Decoder:
            return Decoder(limit, role, max_connect=limit, connect_first=first)

        whole, fault = self._feed(decoder(), [stream], limit)
        cut = [stream[i : i + size] for i in range(0, len(stream), size)]
        if self._feed(decoder(), cut, limit) != (whole, fault):
            raise Finding(f"in chunks of {size} bytes the stream means something else")
        for packet in whole:
            self._again(packet, role)

    def _feed(
        self, decoder: Decoder, chunks: list[bytes], limit: int
    ) -> tuple[list[Packet], str | None]:
        packets: list[Packet] = []
        for chunk in chunks:
            try:
                packets += decoder.feed(chunk)
            except ProtocolError as error:
                return [*packets, *error.packets], f"{type(error).__name__}: {error}"
            if decoder.buffered > limit + 5:
                raise Finding(f"{decoder.buffered} bytes held, the limit is {limit}")
        return packets, None

    def _again(self, packet: Packet, role: Role) -> None:
        """What was understood can be said again, and means the same."""
        raw = _encoded(packet)
        if raw is None:
            return
        (same,) = Decoder(1 << 20, role, max_connect=1 << 20).feed(raw)
        if isinstance(packet, Connect) and isinstance(same, Connect):
            # Beside the bytes as sent, which may have had a longer length field.
            if _connect(same) != _connect(packet):
                raise Finding("CONNECT is another one after a round")
        elif same != packet:
            raise Finding(f"{type(packet).__name__} is another one after a round")

    def seeds(self) -> Iterator[bytes]:
        will = Will("will/topic", b"gone", 1, True)
        up = [
            build.connect("c", will=will, username="sealmq1", password=b"p" * 54),
            build.connect("c", clean_session=False, keepalive=5),
            build.publish("a/b", b"payload", 1, True, packet_id=7),
            build.publish("a/b", b"x" * 150),
            build.subscribe(3, [("!s1/AAAAAAAAAAAAAAAAAAAAAAAAAA/a/+", 1), ("#", 2)]),
            build.unsubscribe(4, ["a/+"]),
            build.pubrel(7) + build.pubrec(8) + build.pubcomp(9) + build.puback(10),
            build.pingreq() + build.disconnect(),
        ]
        down = [build.connack(True, 0), build.suback(3, [0, 1, 0x80]), build.unsuback(4)]
        yield b"\x00\x01\x01\x40" + b"".join(up)
        for packet in up:
            yield b"\x00\x00\x01\x03" + packet
        for packet in [*down, build.pingresp(), up[2]]:
            yield b"\x01\x00\x01\x05" + packet


def _connect(p: Connect) -> tuple[object, ...]:
    return p.client_id, p.clean_session, p.keepalive, p.will, p.username, p.password


def _encoded(packet: Packet) -> bytes | None:
    if isinstance(packet, Publish):
        p = packet
        return build.publish(p.topic, p.payload, p.qos, p.retain, p.dup, p.packet_id)
    if isinstance(packet, Connect):
        c = packet
        return build.connect(
            c.client_id,
            clean_session=c.clean_session,
            keepalive=c.keepalive,
            will=c.will,
            username=c.username,
            password=c.password,
        )
    if isinstance(packet, Subscribe):
        return build.subscribe(packet.packet_id, packet.filters)
    if isinstance(packet, Unsubscribe):
        return build.unsubscribe(packet.packet_id, packet.filters)
    if isinstance(packet, Suback):
        return build.suback(packet.packet_id, packet.codes)
    if isinstance(packet, Connack):
        return build.connack(packet.session_present, packet.code)
    return None
