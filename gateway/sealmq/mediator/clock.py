"""The gateway's time, without steps: the wall clock as the monotonic one carries it on.

Messages are judged by time on both sides (SPEC.md 6), so a step of the wall clock in the middle of
connections would refuse whatever is sent. It is seen here first; connections end, and begin anew
with the new time.
"""

from __future__ import annotations

import time
from collections.abc import Callable

# Between two calls of `look` an NTP daemon slews the clock by far less.
STEP_MS = 5_000


class Clock:
    """Unix time, which steps only by `take`. wall, mono: nanoseconds."""

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
        """Takes the wall clock's time over, steps included."""
        self._offset = self._wall() - self._mono()
