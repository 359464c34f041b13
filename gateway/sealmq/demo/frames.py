"""MQTT packets as they stand in a byte stream, uncut and unjudged (MQTT 3.1.1, section 2.2).

A tap has to hand on and to repeat the very bytes that it saw, so it splits and does not decode.
"""

from __future__ import annotations

from collections.abc import Iterable

from sealmq.mqtt import Decoder, Packet, ProtocolError

PUBLISH = 0x30
CONNECT = 0x10
_MOST = 16 << 20


class FrameError(Exception):
    """The stream is no sequence of MQTT packets."""


class Frames:
    """Bytes in at any chunking, whole packets out."""

    def __init__(self) -> None:
        self._held = bytearray()

    def feed(self, data: bytes) -> list[bytes]:
        """The packets that `data` completes. FrameError: no packet begins so."""
        self._held += data
        out: list[bytes] = []
        start = 0
        while True:
            end = start + _size(self._held, start)
            if end == start or end > len(self._held):
                break
            out.append(bytes(self._held[start:end]))
            start = end
        del self._held[:start]
        return out

    @property
    def rest(self) -> bytes:
        """What is left of a packet that is not complete."""
        return bytes(self._held)


# The whole packet's size; 0 while its length is not known yet.
def _size(data: bytearray, start: int) -> int:
    length = 0
    for i in range(4):
        at = start + 1 + i
        if at >= len(data):
            return 0
        length |= (data[at] & 127) << 7 * i
        if data[at] < 128:
            if length > _MOST:
                raise FrameError(f"a packet of {length} bytes")
            return 2 + i + length
    raise FrameError("a remaining length of more than four bytes")


def decode(frames: Iterable[bytes], to_server: bool) -> list[Packet]:
    """The packets of a stream, as far as it is MQTT."""
    decoder = Decoder(_MOST, "server" if to_server else "client", max_connect=_MOST)
    out: list[Packet] = []
    try:
        for frame in frames:
            out += decoder.feed(frame)
    except ProtocolError:
        pass
    return out


def payload_at(frame: bytes) -> int:
    """Where the payload of a PUBLISH begins (section 3.3)."""
    at = 2
    while frame[at - 1] > 127:
        at += 1
    at += 2 + int.from_bytes(frame[at : at + 2], "big")
    return at + 2 if frame[0] & 6 else at


def flip_bit(frame: bytes) -> bytes:
    """The PUBLISH with one bit of its payload's last quarter changed: ciphertext in every form."""
    start = payload_at(frame)
    at = start + (len(frame) - start) * 3 // 4
    return frame[:at] + bytes((frame[at] ^ 1,)) + frame[at + 1 :]
