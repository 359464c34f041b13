"""The cache of merged verdicts: bounded, with a reverse index from deps to entries.

A change ends exactly the entries that rest on it, at once: their `until` is over. Hits touch
nothing here (they read the connection's own dict), so eviction is first in, first out: a flood of
topics costs others a miss. To take an entry out of all books costs fifty times what ending it does;
so of many that end together a few go with each one that comes, and count for the size till then.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable

from .api import NEVER, Dep
from .decision import Decision

Slot = dict[str, "Entry"]

AT_ONCE = 256
"""Entries that end together and are taken out at once."""
WITH_ONE = 8
"""Entries that are taken out with each one that comes."""


class Entry:
    """One cached decision, and where the connection keeps it.

    It stands while now < `until`, for whoever keeps it: that is NEVER from the moment at which what
    it rests on changes, at which it is evicted, or its connection closed.
    """

    __slots__ = ("decision", "key", "label", "slot", "until")

    def __init__(self, slot: Slot, key: str, label: str, decision: Decision) -> None:
        self.slot = slot
        self.key = key
        self.label = label
        self.decision = decision
        self.until = decision.until


class Cache:
    """All entries of all connections."""

    def __init__(self, size: int) -> None:
        if size < 1:
            raise ValueError(f"the cache needs room for a verdict at least, not {size}")
        self._size = size
        self._entries: OrderedDict[Entry, None] = OrderedDict()
        self._index: dict[Dep, set[Entry]] = {}
        self._ended: list[list[Entry] | set[Entry]] = []

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def deps(self) -> int:
        """How many different deps the index holds."""
        return len(self._index)

    def put(self, slot: Slot, key: str, label: str, decision: Decision) -> None:
        """Keep the decision under slot[key], instead of the one that is there."""
        if self._ended:
            self.clear_out(WITH_ONE)
        old = slot.get(key)
        if old is not None:
            self._drop(old)
        if len(self._entries) >= self._size:
            self._drop(next(iter(self._entries)))
        entry = Entry(slot, key, label, decision)
        slot[key] = entry
        self._entries[entry] = None
        index = self._index
        for dep in decision.deps:
            resting = index.get(dep)
            if resting is None:
                index[dep] = {entry}
            else:
                resting.add(entry)

    def _drop(self, entry: Entry) -> None:
        entry.until = NEVER
        if self._entries.pop(entry, self) is self:
            return
        if entry.slot.get(entry.key) is entry:
            del entry.slot[entry.key]
        for dep in entry.decision.deps:
            resting = self._index.get(dep)
            if resting is not None:
                resting.discard(entry)
                if not resting:
                    del self._index[dep]

    def _end(self, entries: list[Entry] | set[Entry]) -> None:
        """They end now. Nobody else holds the list or set."""
        if len(entries) <= AT_ONCE:
            for entry in entries:
                self._drop(entry)
            return
        for entry in entries:
            entry.until = NEVER
        self._ended.append(entries)

    def clear_out(self, most: int) -> None:
        """Take so many out that have ended."""
        while self._ended and most > 0:
            entries = self._ended[-1]
            while entries and most > 0:
                self._drop(entries.pop())
                most -= 1
            if not entries:
                self._ended.pop()

    def all_deps(self) -> list[Dep]:
        """All that entries rest on."""
        return list(self._index)

    def resting(self, dep: Dep) -> int:
        """How many entries rest on it."""
        return len(self._index.get(dep, ()))

    def invalidate(self, deps: Iterable[Dep], only: Callable[[Entry], bool] | None = None) -> None:
        """End the entries that rest on any of `deps` (and of which `only` is true)."""
        ended: set[Entry] = set()
        for dep in deps:
            resting = self._index.get(dep)
            if resting is None:
                continue
            if only is None:
                del self._index[dep]
            else:
                resting = {entry for entry in resting if only(entry)}
            if len(resting) > len(ended):
                ended, resting = resting, ended
            ended |= resting
        self._end(ended)

    def drop_slots(self, slots: Iterable[Slot]) -> None:
        """End all that a connection has."""
        self._end([entry for slot in slots for entry in slot.values()])

    def clear(self) -> None:
        """End everything."""
        self._end(list(self._entries))
