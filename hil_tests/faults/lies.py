"""A mediator that promises too early, played by the gate: proof that the verdict can be red."""

from __future__ import annotations

from collections.abc import Callable


class Tamper:
    """What is done to the bytes from a client; `answer` writes to the client."""

    def __init__(self, answer: Callable[[bytes], None]) -> None:
        self._answer = answer

    def passes(self, data: bytes) -> bytes:
        """What goes on."""
        return data


class AckFirst(Tamper):
    """PUBACK comes before the broker, or the disk, has anything (MQTT 3.1.1, 3.3 and 3.4)."""

    def __init__(self, answer: Callable[[bytes], None]) -> None:
        super().__init__(answer)
        self._rest = b""

    def passes(self, data: bytes) -> bytes:
        self._rest += data
        while (size := _size(self._rest)) is not None:
            packet, self._rest = self._rest[:size], self._rest[size:]
            if packet[0] & 0xF6 == 0x32:
                at = 1
                while packet[at] & 0x80:
                    at += 1
                at += 3 + int.from_bytes(packet[at + 1 : at + 3], "big")
                self._answer(b"\x40\x02" + packet[at : at + 2])
        return data


def _size(data: bytes) -> int | None:
    """Length of the first packet, None while it is not whole."""
    size = 0
    for i, byte in enumerate(data[1:5]):
        size |= (byte & 0x7F) << 7 * i
        if not byte & 0x80:
            whole = 2 + i + size
            return whole if len(data) >= whole else None
    return None
