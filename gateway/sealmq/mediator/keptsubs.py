"""The subscriptions of one connection's session in the store, where the broker keeps the session
(SPEC.md 4.2): what was granted is on disk before the client hears of it, and comes back at CONNECT.

Everything that must not overtake a commit goes through `then`, in one order; a clean session has
nothing to wait for. The event loop never waits for the disk.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, TypeVar

from sealmq.mqtt import Subscribe, Unsubscribe
from sealmq.store import KeptSub, KeptSubGone, StoreError, StoreRecord
from sealmq_spec.errors import TooLarge

from .channel import Work
from .core.limits import SUBSCRIPTIONS

if TYPE_CHECKING:
    from .connection import Connection

# Commits of one connection that may be under way: the disk may be slow, and others wait for it too.
_PENDING = 16

P = TypeVar("P", Subscribe, Unsubscribe)
Then = Callable[[], None]
Granted = tuple[str, int, str]
"""A filter as it stood behind the token, the QoS granted, the filter at the broker."""


class KeptSubs:
    """`begin` it for a session that the broker keeps; else nothing is stored."""

    def __init__(self, conn: Connection) -> None:
        self._conn = conn
        self._kept = False
        # What is stored, or will be when the commits under way are done.
        self._rows: dict[str, KeptSub] = {}
        self._pending = 0
        self._room = asyncio.Event()

    def begin(self, rows: Iterable[KeptSub]) -> None:
        """The broker keeps this session; `rows` are in the store."""
        self._kept = True
        self._rows = {row.filter: row for row in rows}

    @property
    def rows(self) -> list[KeptSub]:
        """Those of a session that came back."""
        return list(self._rows.values())

    def at(self, filt: str) -> str:
        """Where the store says, or is about to, that it stands at the broker; "" for nowhere."""
        row = self._rows.get(filt)
        return row.at if row is not None else ""

    def check(self, filt: str) -> None:
        """TooLarge when the session has no room for one more filter."""
        if self._kept and len(self._rows) >= SUBSCRIPTIONS and filt not in self._rows:
            raise TooLarge(f"{SUBSCRIPTIONS} subscriptions in one session; no more are kept")

    def granted(self, subs: Sequence[Granted], then: Then) -> None:
        """The broker has them."""
        if not self._kept:
            then()
            return
        key = self._conn.client.number, self._conn.client_id
        self._put([KeptSub(*key, filt, qos, at) for filt, qos, at in subs], then)

    def left(self, filters: Iterable[str], then: Then) -> None:
        """The client has left them."""
        rows = [self._rows.pop(filt) for filt in filters if filt in self._rows]
        self._after([KeptSubGone(row.client, row.client_id, row.filter) for row in rows], then)

    def paused(self, filt: str, then: Then) -> None:
        """It is about to go from the broker, by `then`, and may come back."""
        row = self._rows.get(filt)
        rows = [] if row is None else [KeptSub(row.client, row.client_id, filt, row.qos, "")]
        self._put(rows, then)

    def ordered(self, then: Then) -> None:
        """Behind what waits for the disk already."""
        self._after([], then)

    def paced(self, handle: Callable[[P], None], packet: P) -> Work:
        """Handles a packet that may need a commit, once there are not too many under way."""
        if self._pending < _PENDING:
            handle(packet)
            return None
        return self._later(handle, packet)

    async def _later(self, handle: Callable[[P], None], packet: P) -> None:
        while self._pending >= _PENDING:
            self._room.clear()
            await self._room.wait()
        if self._conn.state == "open":
            handle(packet)

    def _put(self, rows: list[KeptSub], then: Then) -> None:
        new = [row for row in rows if self._rows.get(row.filter) != row]
        self._rows.update((row.filter, row) for row in new)
        self._after(new, then)

    def _after(self, records: Sequence[StoreRecord], then: Then) -> None:
        if not records and not self._pending:
            then()
            return
        self._pending += 1
        self._conn.spawn(self._commit(records, then))

    async def _commit(self, records: Sequence[StoreRecord], then: Then) -> None:
        conn = self._conn
        try:
            await conn.hub.store.commit(records)
        except StoreError as error:
            # The client was told nothing: it subscribes again when it is back.
            if conn.state == "open":
                name = conn.client.name
                conn.hub.audit.write("store-unavailable", client=name, reason=str(error)[:500])
            conn.stop("its subscriptions cannot be stored")
        finally:
            self._pending -= 1
            self._room.set()
        if conn.state == "open":
            then()
