"""A token bucket for each client, or whoever asks. The clock is passed in; the memory is bounded by
who there is."""

from __future__ import annotations

from collections.abc import Hashable


class Buckets:
    """Each client may take `burst` at once and one more every `every_ms`."""

    __slots__ = ("_burst", "_every_ms", "_full_at")

    def __init__(self, burst: int, every_ms: int) -> None:
        self._burst, self._every_ms = burst, every_ms
        # client -> when its bucket is full again, which says all there is to say about it
        self._full_at: dict[Hashable, int] = {}

    def take(self, client: Hashable, now_ms: int) -> bool:
        """Take one token; False when there is none."""
        full_at = max(self._full_at.get(client, 0), now_ms)
        # A clock that was set back must not leave a client waiting for the old time.
        full_at = min(full_at, now_ms + self._burst * self._every_ms)
        if full_at + self._every_ms > now_ms + self._burst * self._every_ms:
            self._full_at[client] = full_at
            return False
        self._full_at[client] = full_at + self._every_ms
        return True
