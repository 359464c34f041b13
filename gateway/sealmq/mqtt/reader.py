"""The fields of one packet's body in their order, and the texts for what is wrong with a field.

No field may be read past the end that the remaining length set, and no byte may be left over.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from .errors import MalformedPacket
from .text import filter_fault, string_fault, topic_fault

T = TypeVar("T")

FILTERS = 4096
"""The most topic filters of one packet; no client needs as many, and each takes memory."""


def short(kind: str, name: str, needed: int, left: int) -> str:
    return f"{kind}: {name} needs {needed} bytes, {left} are left; remaining length is too small"


def zero_id(kind: str) -> str:
    return f"{kind}: packet id 0; it is 1 to 65535 [MQTT-2.3.1-1]"


def not_utf8(kind: str, name: str, error: UnicodeDecodeError) -> MalformedPacket:
    """Position and reason only: the bytes may be a secret in the wrong field."""
    return MalformedPacket(
        f"{kind}: {name} is not UTF-8 at byte {error.start} ({error.reason}); "
        "text is well-formed UTF-8 without surrogates [MQTT-1.5.3-1]"
    )


class Reader:
    """Reads data[body:stop] field by field; every method moves past what it returns."""

    __slots__ = ("_data", "_pos", "_stop", "kind")

    def __init__(self, kind: str, data: bytes, body: int, stop: int) -> None:
        self.kind = kind
        self._data = data
        self._pos = body
        self._stop = stop

    def fault(self, text: str) -> MalformedPacket:
        return MalformedPacket(f"{self.kind}: {text}")

    def more(self) -> bool:
        return self._pos < self._stop

    def _take(self, name: str, size: int) -> int:
        """The offset of the next `size` bytes, which are then behind us."""
        pos = self._pos
        if pos + size > self._stop:
            raise MalformedPacket(short(self.kind, name, size, self._stop - pos))
        self._pos = pos + size
        return pos

    def byte(self, name: str) -> int:
        return self._data[self._take(name, 1)]

    def number(self, name: str) -> int:
        pos = self._take(name, 2)
        return self._data[pos] << 8 | self._data[pos + 1]

    def binary(self, name: str) -> bytes:
        size = self.number(name)
        pos = self._take(name, size)
        return self._data[pos : pos + size]

    def take(self, name: str, size: int) -> bytes:
        """So many, whatever they mean."""
        pos = self._take(name, size)
        return self._data[pos : pos + size]

    def rest(self) -> bytes:
        """All that is left."""
        return self.take("the rest", self._stop - self._pos)

    def any_text(self, name: str) -> str:
        try:
            return self.binary(name).decode()
        except UnicodeDecodeError as error:
            raise not_utf8(self.kind, name, error) from None

    def text(self, name: str) -> str:
        text = self.any_text(name)
        fault = string_fault(text)
        if fault:
            raise self.fault(f"{name} holds {fault}")
        return text

    def topic(self, name: str) -> str:
        text = self.any_text(name)
        fault = topic_fault(text)
        if fault:
            raise self.fault(f"{name} {fault}")
        return text

    def filter(self) -> str:
        text = self.any_text("topic filter")
        fault = filter_fault(text)
        if fault:
            raise self.fault(f"topic filter {fault}")
        return text

    def filters(self, one: Callable[[], T]) -> tuple[T, ...]:
        """All that are left, each by `one`; there is one at least."""
        found: list[T] = []
        while self.more():
            if len(found) == FILTERS:
                raise self.fault(f"more than {FILTERS} topic filters")
            found.append(one())
        if not found:
            raise self.fault("no topic filter; there is at least one [MQTT-3.8.3-3, -3.10.3-2]")
        return tuple(found)

    def packet_id(self) -> int:
        packet_id = self.number("packet id")
        if not packet_id:
            raise MalformedPacket(zero_id(self.kind))
        return packet_id

    def end(self) -> None:
        if self._pos != self._stop:
            extra = self._stop - self._pos
            raise self.fault(f"{extra} bytes follow the last field; nothing does [section 3]")
