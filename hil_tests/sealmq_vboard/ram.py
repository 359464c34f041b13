"""What the host uploads to RAM: where it lies is kept, what it is nobody looks at."""

from __future__ import annotations

from .writing import Refused, Why

_MOST = 1 << 20


class Ram:
    def __init__(self) -> None:
        self._filled: list[tuple[int, int]] = []  # start, end
        self._at = 0
        self._left = 0

    def begin(self, at: int, size: int) -> None:
        if size > _MOST:
            raise Refused(Why.INVALID)
        self._at, self._left = at, size

    def put(self, data: bytes) -> None:
        if len(data) > self._left:
            raise Refused(Why.TOO_MUCH)
        self._filled.append((self._at, self._at + len(data)))
        self._at += len(data)
        self._left -= len(data)

    def holds(self, address: int) -> bool:
        return any(start <= address < end for start, end in self._filled)
