"""The cache of merged verdicts: bounded, with a reverse index from deps to entries.

A change deletes exactly the entries that rest on it. Hits touch nothing here (they read the
connection's own dict), so eviction is first in, first out: a flood of topics costs others a miss.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable

from .api import Dep
from .decision import Decision

Slot = dict[str, "Entry"]


class Entry:
    """One cached decision, and where the connection keeps it."""

    __slots__ = ("decision", "deps", "key", "label", "slot", "until")

    def __init__(self, slot: Slot, key: str, label: str, decision: Decision) -> None:
        self.slot = slot
        self.key = key
        self.label = label
        self.decision = decision
        self.until = decision.until
        self.deps = decision.deps


class Cache:
    """All entries of all connections."""

    def __init__(self, size: int) -> None:
        if size < 1:
            raise ValueError(f"the cache needs room for a verdict at least, not {size}")
        self._size = size
        self._entries: OrderedDict[Entry, None] = OrderedDict()
        self._index: dict[Dep, set[Entry]] = {}

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def deps(self) -> int:
        """How many different deps the index holds."""
        return len(self._index)

    def put(self, slot: Slot, key: str, label: str, decision: Decision) -> None:
        """Keep the decision under slot[key], instead of the one that is there."""
        old = slot.get(key)
        if old is not None:
            self.drop(old)
        if len(self._entries) >= self._size:
            self.drop(next(iter(self._entries)))
        entry = Entry(slot, key, label, decision)
        slot[key] = entry
        self._entries[entry] = None
        for dep in entry.deps:
            self._index.setdefault(dep, set()).add(entry)

    def drop(self, entry: Entry) -> None:
        """Forget one entry."""
        if self._entries.pop(entry, self) is self:
            return
        if entry.slot.get(entry.key) is entry:
            del entry.slot[entry.key]
        for dep in entry.deps:
            resting = self._index[dep]
            resting.discard(entry)
            if not resting:
                del self._index[dep]

    def resting(self, dep: Dep) -> int:
        """How many entries rest on it."""
        return len(self._index.get(dep, ()))

    def invalidate(self, deps: Iterable[Dep], only: Callable[[Entry], bool] | None = None) -> int:
        """Drop the entries that rest on any of `deps` (and of which `only` is true)."""
        count = 0
        for dep in deps:
            for entry in list(self._index.get(dep, ())):
                if only is None or only(entry):
                    self.drop(entry)
                    count += 1
        return count

    def drop_slots(self, slots: Iterable[Slot]) -> None:
        """Forget all that a connection has."""
        for slot in slots:
            for entry in list(slot.values()):
                self.drop(entry)

    def clear(self) -> None:
        """Forget everything."""
        for entry in list(self._entries):
            self.drop(entry)
