"""How many commands a client may send: each costs a row, a flush to the disk and an audit line.

A token bucket for each client. The clock is passed in; the memory is bounded.
"""

from __future__ import annotations

from collections import OrderedDict

BURST = 200
A_SECOND = 20
CLIENTS = 16_384
"""Clients that are remembered: one that is forgotten before its bucket is full again needs so many
others with a command in the last BURST / A_SECOND seconds."""


class Pace:
    """Each client may send `burst` commands at once, and later on one every so many ms."""

    __slots__ = ("_every_ms", "_full_at", "_room_ms")

    def __init__(self, burst: int = BURST, every_ms: int = 1000 // A_SECOND) -> None:
        self._every_ms, self._room_ms = every_ms, burst * every_ms
        # When a client's bucket is full again; whoever took from it last is the last.
        self._full_at: OrderedDict[str, int] = OrderedDict()

    def take(self, client: str, now_ms: int) -> int:
        """Take one token: 0; or the milliseconds until there is one, and nothing is taken."""
        # A clock that was set back must not leave a client waiting for the old time.
        full_at = min(max(self._full_at.get(client, 0), now_ms), now_ms + self._room_ms)
        wait = full_at + self._every_ms - (now_ms + self._room_ms)
        self._full_at[client] = full_at if wait > 0 else full_at + self._every_ms
        self._full_at.move_to_end(client)
        if len(self._full_at) > CLIENTS:
            self._full_at.popitem(last=False)
        return max(wait, 0)

    def __len__(self) -> int:
        return len(self._full_at)
