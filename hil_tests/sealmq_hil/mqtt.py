"""MQTT 3.1.1 as far as a tap needs it: packets cut out of a stream, and a few made."""

from __future__ import annotations

import struct

CONNECT, CONNACK, PUBLISH, PUBACK, SUBSCRIBE, SUBACK, PINGREQ = (
    0x10,
    0x20,
    0x30,
    0x40,
    0x80,
    0x90,
    0xC0,
)
_LONGEST = 4


class NotMqtt(ValueError):
    """The bytes are no packet."""


class Stream:
    """Bytes in, whole packets out."""

    def __init__(self) -> None:
        self._held = b""

    def feed(self, data: bytes) -> list[tuple[int, bytes, bytes]]:
        """(first byte, body, whole packet) of those that are complete. NotMqtt."""
        self._held += data
        packets = []
        while (size := self._size()) is not None:
            head, end = size
            whole, self._held = self._held[:end], self._held[end:]
            packets.append((whole[0], whole[head:], whole))
        return packets

    def _size(self) -> tuple[int, int] | None:
        """Length of the header and of the whole first packet, or None while it is not whole."""
        size = 0
        for n, byte in enumerate(self._held[1 : 1 + _LONGEST]):
            size |= (byte & 127) << 7 * n
            if byte < 128:
                end = n + 2 + size
                return (n + 2, end) if len(self._held) >= end else None
        if len(self._held) > _LONGEST:
            raise NotMqtt("a length of five bytes")
        return None


def string(body: bytes, at: int) -> tuple[bytes, int]:
    """The string at `at`, and where it ends. NotMqtt."""
    if at + 2 > len(body):
        raise NotMqtt("a string without a length")
    end = at + 2 + int.from_bytes(body[at : at + 2], "big")
    if end > len(body):
        raise NotMqtt("a string that is cut off")
    return body[at + 2 : end], end


def published(first: int, body: bytes) -> tuple[bytes, int, bytes]:
    """(topic, packet id or 0, payload) of a PUBLISH. NotMqtt."""
    topic, at = string(body, 0)
    if not first & 6:
        return topic, 0, body[at:]
    return topic, int.from_bytes(body[at : at + 2], "big"), body[at + 2 :]


def text(raw: bytes) -> bytes:
    """With its two bytes of length."""
    return struct.pack(">H", len(raw)) + raw


def packet(first: int, body: bytes) -> bytes:
    """Header and body."""
    n, length = len(body), bytearray()
    while True:
        n, digit = n >> 7, n & 127
        length.append(digit | (128 if n else 0))
        if not n:
            return bytes((first,)) + bytes(length) + body
