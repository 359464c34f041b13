"""Whether the store has every delivery that was counted (`source = "count"`).

Workers write counts each second, so one that is killed takes the last ones with it. A mark in the
store says that a mediator runs, or since when everything is there: after one that did not end in
good order, and in a site that has lost its store, no count is known until its window has passed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from sealmq.families.ask import FOREVER
from sealmq.families.counts import FAMILY, over
from sealmq.families.records import FamilyRecord
from sealmq.site.model import Attribute
from sealmq.store import COUNTING, RUNS, CacheBlob, Store, StoreError


def is_count(record: object) -> bool:
    """Whether nobody but the worker that writes it reads it while it runs."""
    return isinstance(record, FamilyRecord) and record.family == FAMILY


class Counted:
    """Of one run of a mediator. `blind_ms`: before this (Unix ms) something may have gone out that
    no count has.
    """

    def __init__(self, store: Store, wall_ns: Callable[[], int] = time.time_ns) -> None:
        self._store, self._wall_ns = store, wall_ns
        self.blind_ms = 0

    async def begin(self, declared: Iterable[Attribute], closed: bool) -> None:
        """Before any worker. closed: the store may not be the one that it was."""
        mark, now_ms = self._store.cache(COUNTING), self._wall_ns() // 1_000_000
        if closed or mark == RUNS:
            self.blind_ms = now_ms
        elif mark is not None:
            self.blind_ms = int(mark)
        longest = max((attribute.window_ms for attribute in declared), default=0)
        gone = [r for r in self._store.rows(FAMILY) if over(r, longest, now_ms)]
        ended = [FamilyRecord(FAMILY, row.key, None) for row in gone]
        try:
            await self._store.commit([CacheBlob(COUNTING, RUNS), *ended], urgent=True)
        except StoreError:
            # The next run could not tell that this one was there.
            self.blind_ms = FOREVER

    def worker_ended(self) -> int:
        """One begins after another one's end, which took with it what it had counted last: before
        when that may have been.
        """
        self.blind_ms = max(self.blind_ms, self._wall_ns() // 1_000_000)
        return self.blind_ms

    async def end(self, whole: bool) -> None:
        """After all workers. whole: they have written all that they counted."""
        if whole and self.blind_ms < FOREVER:
            mark = str(self.blind_ms).encode() if self.blind_ms else None
            try:
                await self._store.commit([CacheBlob(COUNTING, mark)])
            except StoreError:
                return  # so the next run takes it for one that was killed
