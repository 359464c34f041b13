"""The nonce of mediators and key generators (SPEC.md 5, point 4): inst, ms, seq; (ms, seq) strictly
rises.

The caller passes the clock's milliseconds in; a clock that goes back, or stands still, changes
nothing about uniqueness.
"""

from __future__ import annotations

from sealmq_spec.const import U24


class Order:
    """Numbers of one process.

    `inst` (u24) comes from the key generator and is never issued twice.
    """

    __slots__ = ("_prefix", "inst", "ms", "seq")

    def __init__(self, inst: int) -> None:
        if not 0 < inst <= U24:
            raise ValueError(f"inst {inst} is not in 1 to {U24}")
        self.inst = inst
        self.ms = 0
        self.seq = 0
        self._prefix = inst.to_bytes(3, "big")

    def next(self, clock_ms: int) -> tuple[int, int]:
        """The next (ms, seq), for a clock at `clock_ms` (Unix time in milliseconds)."""
        self.next_bytes(clock_ms)
        return self.ms, self.seq

    def next_bytes(self, clock_ms: int) -> bytes:
        """The next 12 bytes: u24 inst, u48 ms, u24 seq."""
        if clock_ms > self.ms:
            self.ms, self.seq = clock_ms, 0
        elif self.seq < U24:
            self.seq += 1
        else:
            self.ms, self.seq = self.ms + 1, 0
        return self._prefix + (self.ms << 24 | self.seq).to_bytes(9, "big")
