"""Rows that commands are changing just now: another command that changes one of them waits."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

Row = tuple[str, str]


class RowLocks:
    """Rows by (family, key). `alone` is for work on all of them: it waits for those that are held,
    and nobody gets any before it is done.
    """

    def __init__(self) -> None:
        self._held: dict[Row, asyncio.Future[None]] = {}
        self._alone: asyncio.Future[None] | None = None

    async def take(self, rows: frozenset[Row]) -> bool:
        """Locks the rows; whether it could at once. No row: waits for `alone` only."""
        at_once = True
        while busy := self._busy(rows):
            at_once = False
            await asyncio.wait(busy)
        if rows:
            freed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._held.update(dict.fromkeys(rows, freed))
        return at_once

    def free(self, rows: Iterable[Row]) -> None:
        """They are not held any more."""
        for row in rows:
            freed = self._held.pop(row, None)
            if freed is not None and not freed.done():
                freed.set_result(None)

    async def alone(self) -> None:
        """Returns when nothing is held; ends with `together`."""
        while self._alone is not None:
            await asyncio.wait({self._alone})
        self._alone = asyncio.get_running_loop().create_future()
        try:
            while self._held:
                await asyncio.wait(set(self._held.values()))
        except BaseException:  # whoever wanted it is gone
            self.together()
            raise

    def together(self) -> None:
        """Rows can be held again."""
        alone, self._alone = self._alone, None
        if alone is not None:
            alone.set_result(None)

    def _busy(self, rows: frozenset[Row]) -> set[asyncio.Future[None]]:
        if self._alone is not None:
            return {self._alone}
        return {self._held[row] for row in rows if row in self._held}
