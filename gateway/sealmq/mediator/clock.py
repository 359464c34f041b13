"""The gateway's time, without steps: the wall clock as the monotonic one carries it on.

Messages are judged by time on both sides (SPEC.md 6), so a step of the wall clock in the middle of
connections would refuse whatever is sent. It is seen here first; connections end, and begin anew
with the new time.
"""

from __future__ import annotations

import time
from collections.abc import Callable

# What an NTP daemon slews stays far below that, between two looks.
STEP_MS = 5_000


class Clock:
    """Unix time that only `take` lets step. wall, mono: nanoseconds."""

    def __init__(
        self,
        wall: Callable[[], int] = time.time_ns,
        mono: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._wall, self._mono = wall, mono
        self._offset = wall() - mono()

    def now_ms(self) -> int:
        """Unix milliseconds."""
        return (self._mono() + self._offset) // 1_000_000

    def look(self) -> int:
        """About once a second: by how many ms the wall clock has stepped, 0 if it has not.

        Small differences are followed.
        """
        drift = self._wall() - self._mono() - self._offset
        if abs(drift) >= STEP_MS * 1_000_000:
            return drift // 1_000_000
        self._offset += drift
        return 0

    def take(self) -> None:
        """The wall clock is right."""
        self._offset = self._wall() - self._mono()
