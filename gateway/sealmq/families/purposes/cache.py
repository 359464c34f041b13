"""The cache: a store that remembers what it was asked; a change ends exactly what it reaches.

The paper (V-D) throws everything away at each change and leaves the finer way to others; this is
it. Topics and filters that were asked about stand in a trie of their own, with a topic's EIP. A
changed reservation crosses some of them: these are forgotten, and their deps end the verdicts that
rest on them. It holds at most `size` of them, and twice as many nodes. The oldest make room, and
their deps are handed out as `forgotten` (or with the next change, whichever comes first). When too
many of those wait, new ones get no place of their own, as very long and very deep ones never do:
they rest on store.ALL, which any change ends.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Collection, Iterator, Sequence
from typing import ClassVar

from ..api import Dep
from .store import ALL, MAX_LEVELS, Eip, Reservation, Sets, Source, Store
from .trie import Trie

SIZE = 100_000
LONG = 256
"""Characters of what gets a place of its own."""
DIFFERENT = 64
"""How many different sets a filter may have to be counted; with more it is looked at anew."""


class _Asked:
    """A topic or filter that was asked about; its EIP, or how often each set crosses it."""

    __slots__ = ("eip", "filter", "sets")
    source = ""

    def __init__(self, filter: str) -> None:
        self.filter = filter
        self.eip: Eip | None = None
        self.sets: dict[Sets, int] | None = None

    def counted(self, old: Reservation | None, new: Reservation | None) -> bool:
        """A reservation that crosses it changed; False: there was nothing to count in."""
        self.eip = None
        sets = self.sets
        if sets is None:
            return False
        if old is not None:
            left = sets.get((old.aip, old.pip), 0) - 1
            if left:
                sets[old.aip, old.pip] = left
            else:
                del sets[old.aip, old.pip]
        if new is not None:
            sets[new.aip, new.pip] = sets.get((new.aip, new.pip), 0) + 1
        if len(sets) > DIFFERENT:
            self.sets = None
        return self.sets is not None

    @property
    def dep(self) -> Dep:
        return _dep(self.filter)


def _dep(filter: str) -> Dep:
    return ("purposes", filter)


class Cache:
    """Wraps a store; all changes must come through here."""

    cached: ClassVar[bool] = True

    def __init__(self, store: Store, size: int = SIZE) -> None:
        if size < 1:
            raise ValueError(f"the cache needs room for a topic at least, not {size}")
        self._store = store
        self._size = size
        # By name, in the order in which they came; and by level, to find what a change crosses.
        self._asked: OrderedDict[str, _Asked] = OrderedDict()
        self._trie: Trie[_Asked] = Trie()
        self._evicted: list[str] = []
        self._coarse = False

    def put(self, reservation: Reservation) -> Sequence[Dep]:
        if not self._asked:
            # As at start-up, with all there are: nothing is to be counted.
            self._store.put(reservation)
            return [*self.forgotten(), *self._all()]
        old = self._store.get(reservation.filter, reservation.source)
        self._store.put(reservation)
        return self._reached(reservation.filter, old, reservation)

    def remove(self, filter: str, source: Source) -> Sequence[Dep]:
        old = self._store.get(filter, source)
        if old is None:
            return ()
        self._store.remove(filter, source)
        return self._reached(filter, old, None)

    def _reached(
        self, filter: str, old: Reservation | None, new: Reservation | None
    ) -> Sequence[Dep]:
        """What was asked and crosses the filter ends, and what had no place.

        A filter's counted sets follow the change, the rest is forgotten.
        """
        crossed = list(self._trie.crossing(filter))
        gone = [asked for asked in crossed if not asked.counted(old, new)]
        if len(gone) * 2 > len(self._asked):
            for asked in gone:
                del self._asked[asked.filter]
            self._trie = Trie()
            for asked in self._asked.values():
                self._trie.put(asked)
        else:
            for asked in gone:
                self._forget(asked.filter)
        return [*(asked.dep for asked in crossed), *self.forgotten(), *self._all()]

    def _all(self) -> Sequence[Dep]:
        coarse, self._coarse = self._coarse, False
        return (ALL,) if coarse else ()

    def _forget(self, filter: str) -> None:
        del self._asked[filter]
        self._trie.remove(filter, "")

    def forgotten(self) -> Sequence[Dep]:
        evicted, self._evicted = self._evicted, []
        return [_dep(filter) for filter in evicted]

    def rest_on(self, filter: str) -> Dep:
        asked = self._note(filter)
        if asked is not None:
            return asked.dep
        self._coarse = True
        return ALL

    def _note(self, filter: str) -> _Asked | None:
        """Its place, made if there is room; None: there is none."""
        asked = self._asked.get(filter)
        if asked is not None:
            return asked
        if len(filter) > LONG or filter.count("/") >= MAX_LEVELS or "\0" in filter:
            return None
        while len(self._asked) >= self._size or self._trie.nodes >= 2 * self._size:
            if len(self._evicted) >= self._size:
                return None
            oldest = next(iter(self._asked))
            self._forget(oldest)
            self._evicted.append(oldest)
        asked = self._asked[filter] = _Asked(filter)
        self._trie.put(asked)
        return asked

    def eip(self, topic: str) -> Eip:
        asked = self._asked.get(topic)
        if asked is None:
            return self._store.eip(topic)
        if asked.eip is None:
            asked.eip = self._store.eip(topic)
        return asked.eip

    def sets(self, filter: str) -> Collection[Sets]:
        asked = self._asked.get(filter)
        if asked is None:
            return self._store.sets(filter)
        if asked.sets is None:
            counts: Counter[Sets] = Counter()
            for r in self._store.crossing(filter):
                counts[r.aip, r.pip] += 1
            if len(counts) > DIFFERENT:
                return counts.keys()
            asked.sets = dict(counts)
        return asked.sets.keys()

    @property
    def asked(self) -> int:
        """How many topics and filters have a place."""
        return len(self._asked)

    def get(self, filter: str, source: Source) -> Reservation | None:
        return self._store.get(filter, source)

    def matching(self, topic: str) -> Sequence[Reservation]:
        return self._store.matching(topic)

    def covering(self, filter: str) -> Sequence[Reservation]:
        return self._store.covering(filter)

    def crossing(self, filter: str) -> Iterator[Reservation]:
        return self._store.crossing(filter)

    def wild(self, by: str) -> int:
        return self._store.wild(by)

    def __len__(self) -> int:
        return len(self._store)

    def __iter__(self) -> Iterator[Reservation]:
        return iter(self._store)
