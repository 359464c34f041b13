"""MQTT 5, its packets and properties, as a mediator takes them of a client, and the other way."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, ClassVar, Protocol, cast

from sealmq.client.speech import V5
from sealmq.mediator.core import reasons
from sealmq.mediator.core.five import Five
from sealmq.mediator.core.limits import ALIASES, MAX_CONNECT_BODY, MAX_PACKET
from sealmq.mediator.core.site import Site
from sealmq.mqtt import Packet, ProtocolError, Publish, Subscribe, Will, build
from sealmq.mqtt import five as v5
from sealmq.mqtt import five_client as v5c

from .target import Draw, Finding, Target

_LIMIT = max(MAX_PACKET + 4, MAX_CONNECT_BODY) + 5
_HELLO = v5c.connect("c", username="sealmq1", password=b"p" * 54)


class _Decodes(Protocol):
    def feed(self, data: bytes) -> Any: ...


class Fuzz(Target):
    """Only ProtocolError comes out; how the stream was cut changes nothing; an alias has a topic
    that was named; what ends a connection has a reason code.
    """

    longest: ClassVar[int] = 2048
    words: ClassVar[tuple[bytes, ...]] = (
        b"\x00\x04MQTT\x05", b"\x10", b"\x82", b"\xa2", b"\x23\x00\x01", b"\x26\x00\x01a\x00\x01b",
        b"\x0b\x07", b"\x21\x00\x02", b"\x27\x00\x00\x50\x00", b"\x22\x00\x05", b"\x02\0\0\0\x09",
    )  # fmt: skip

    def one(self, data: bytes) -> None:
        draw = Draw(data)
        at_mediator = draw.number() % 2 == 0
        size = 1 + draw.number()
        stream = draw.rest()
        make: Callable[[], _Decodes] = (
            (lambda: Five(cast(Site, None))) if at_mediator else (lambda: V5.decoder(MAX_PACKET))
        )
        whole, fault = self._feed(make(), [stream])
        cut = [stream[i : i + size] for i in range(0, len(stream), size)]
        if self._feed(make(), cut) != (whole, fault):
            raise Finding(f"in chunks of {size} bytes the stream means something else")
        for packet in whole:
            self._look(packet)

    def _feed(self, decoder: _Decodes, chunks: list[bytes]) -> tuple[list[Packet], str | None]:
        packets: list[Packet] = []
        for chunk in chunks:
            try:
                packets += decoder.feed(chunk)
            except ProtocolError as error:
                if not 0x80 <= reasons.fault(error) <= 0xA2:
                    raise Finding(f"no reason code for {type(error).__name__}") from None
                return [*packets, *error.packets], f"{type(error).__name__}: {error}"
            if isinstance(decoder, Five):
                if decoder.buffered > _LIMIT:
                    raise Finding(f"{decoder.buffered} bytes held")
                if len(vars(vars(decoder)["_decoder"])["_aliases"]._topics) > ALIASES:
                    raise Finding("aliases without end")
        return packets, None

    def _look(self, packet: Packet) -> None:
        if isinstance(packet, Publish):
            if not packet.topic or packet.topic.encode() != packet.topic_raw:
                raise Finding("a message without its topic")
            if bool(packet.qos) != bool(packet.packet_id):
                raise Finding("a packet id without a QoS, or the other way round")
        elif isinstance(packet, Subscribe) and len(packet.wishes) != len(packet.filters):
            raise Finding("a filter without its options")

    def seeds(self) -> Iterator[bytes]:
        said = {
            v5.SESSION_EXPIRY: 9, v5.RECEIVE_MAX: 2, v5.MAX_PACKET: 20_480, v5.ALIAS_MAX: 5,
            v5.PROBLEM_INFO: 0,
        }  # fmt: skip
        will = Will("will/topic", b"gone", 1, True)
        hello = v5c.connect("c", will=will, username="u", password=b"p", properties=said)
        up = [
            v5c.subscribe(7, [("!s1/" + "t" * 26 + "/a/+", 2)], {v5.SUBSCRIPTION_ID: (7,)}),
            v5c.unsubscribe(8, ["a/+", "#"]),
            v5.publish("a/b", b"payload", 2, True, True, 9, {v5.ALIAS: 1}),
            v5.publish("", b"payload", 0, False, False, 0, {v5.ALIAS: 1}),
            v5.publish("a", b"p", 1, False, False, 3, {v5.USER: [("a", "b")], v5.EXPIRY: 1}),
            build.puback(9), v5.ack("PUBREC", 9, 0x87, {v5.REASON: "r"}), build.pubrel(9),
            build.pubcomp(9), build.pingreq(), v5.disconnect(4, {v5.SESSION_EXPIRY: 0}),
        ]  # fmt: skip
        down = [
            v5.publish("a", b"p", 1, True, True, 4, {v5.SUBSCRIPTION_ID: (1, 300), v5.EXPIRY: 9}),
            v5.ack("PUBACK", 1, 0x87, {v5.REASON: "r"}), v5.suback(4, [1, 0x87]),
            v5.unsuback(5, [0, 0x11]), build.pingresp(), v5.disconnect(0x8E, {v5.REASON: "r"}),
        ]  # fmt: skip
        for chunk in (b"\0", b"\x06"):
            for packet in up:
                yield b"\0" + chunk + _HELLO + packet
            yield b"\0" + chunk + hello + b"".join(up)
            begin = v5.connack(True, 0, {v5.RECEIVE_MAX: 9})
            for packet in down:
                yield b"\1" + chunk + begin + packet
            yield b"\1" + chunk + b"\x20\x02\0\x01"
