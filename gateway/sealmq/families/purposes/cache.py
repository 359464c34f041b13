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

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import ClassVar

from ..api import Dep, NotYet
from .search import Search
from .store import ALL, MAX_LEVELS, SETTINGS, Eip, Reservation, Source, Store, Wanted
from .trie import Trie

SIZE = 100_000
LONG = 256
"""Characters of what gets a place of its own."""
SLICE = 500
"""Steps that a search takes at a time: about a millisecond."""
KNOWN = 16
"""Searches of one filter whose answers are kept: for so many purposes."""
LOOSE = 64
"""Searches that are under way, or have no place where their answer is kept."""
MANY = 1000
"""Topics and filters that a change reaches and that end one by one, in some milliseconds; if it
reaches more, all do."""
WITH_ONE = 4
"""Topics and filters of before that are let go with each new one."""
STALE = 1000
"""Slices of others after which one that nobody lets go on makes room."""


class _Asked:
    """A topic or filter that was asked about: its EIP, and what is known of those that cross it."""

    __slots__ = ("dep", "eip", "filter", "searches")
    source = ""

    def __init__(self, filter: str) -> None:
        self.filter = filter
        self.dep = _dep(filter)
        self.eip: Eip | None = None
        self.searches: dict[Wanted, Search] | None = None

    def changed(self, filter: str, source: Source, new: Reservation | None) -> bool:
        """A reservation that crosses it has; False: nothing is left that is worth its place."""
        self.eip = None
        for search in () if self.searches is None else self.searches.values():
            search.changed(filter, source, new)
        return self.searches is not None

    def keep(self, wanted: Wanted, search: Search) -> None:
        """Its answer, from now on along with each change."""
        if self.searches is None:
            self.searches = {}
        elif len(self.searches) >= KNOWN and wanted not in self.searches:
            del self.searches[next(iter(self.searches))]
        self.searches[wanted] = search


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
        # Of those that were asked about: what has searches. And what is let go a little at a time.
        self._searched: dict[str, None] = {}
        self._old: list[tuple[OrderedDict[str, _Asked], Trie[_Asked]]] = []
        # Whoever was let go on last is the last.
        self._loose: OrderedDict[tuple[str, Wanted], Search] = OrderedDict()
        self._turn = 0

    def put(self, reservation: Reservation) -> Sequence[Dep]:
        self._store.put(reservation)
        return self._reached(reservation.filter, reservation.source, reservation)

    def remove(self, filter: str, source: Source) -> Sequence[Dep]:
        if self._store.get(filter, source) is None:
            return ()
        self._store.remove(filter, source)
        return self._reached(filter, source, None)

    def _reached(self, filter: str, source: Source, new: Reservation | None) -> Sequence[Dep]:
        """What was asked and crosses the filter ends, and what had no place.

        Searches follow the change, the rest is forgotten.
        """
        for search in self._loose.values():
            search.changed(filter, source, new)
        if not self._asked:
            # As at start-up, with all there are.
            return [*self.forgotten(), *self._all()]
        crossed = list(islice(self._trie.crossing(filter), MANY + 1))
        if len(crossed) > MANY:
            return self._very_many(filter, source, new)
        for asked in crossed:
            if not asked.changed(filter, source, new):
                self._forget(asked.filter)
        return [*(asked.dep for asked in crossed), *self.forgotten(), *self._all()]

    def _very_many(self, filter: str, source: Source, new: Reservation | None) -> Sequence[Dep]:
        """Everything that was asked ends: to name it would take long. Searches stay."""
        self._old.append((self._asked, self._trie))
        searched = [self._asked[name] for name in self._searched]
        self._asked, self._trie = OrderedDict(), Trie()
        self._evicted, self._coarse = [], False
        for asked in searched:
            asked.changed(filter, source, new)
            self._asked[asked.filter] = asked
            self._trie.put(asked)
        return (SETTINGS,)

    def _clear_out(self) -> None:
        """A little of what ended with everything else: all of it at once would take long."""
        asked, trie = self._old[-1]
        for _ in range(min(WITH_ONE, len(asked))):
            trie.remove(asked.popitem()[0], "")
        if not asked:
            self._old.pop()

    def _all(self) -> Sequence[Dep]:
        coarse, self._coarse = self._coarse, False
        return (ALL,) if coarse else ()

    def _forget(self, filter: str) -> None:
        del self._asked[filter]
        self._searched.pop(filter, None)
        self._trie.remove(filter, "")

    def forgotten(self) -> Sequence[Dep]:
        evicted, self._evicted = self._evicted, []
        return [_dep(filter) for filter in evicted]

    def rest_on(self, filter: str) -> Dep:
        asked = self._asked.get(filter) or self._note(filter)
        if asked is not None:
            return asked.dep
        self._coarse = True
        return ALL

    def _note(self, filter: str) -> _Asked | None:
        """A place for it; None: there is no room."""
        if len(filter) > LONG or filter.count("/") >= MAX_LEVELS or "\0" in filter:
            return None
        if self._old:
            self._clear_out()
        while len(self._asked) >= self._size or self._trie.nodes >= 2 * self._size:
            if len(self._evicted) >= self._size:
                return None
            oldest = next(iter(self._asked))
            self._forget(oldest)
            self._evicted.append(oldest)
        asked = self._asked[filter] = _Asked(filter)
        self._trie.put(asked)
        return asked

    def eip(self, filter: str) -> Eip:
        asked = self._asked.get(filter)
        if asked is None:
            return self._store.eip(filter)
        eip = asked.eip
        if eip is None:
            eip = asked.eip = self._store.eip(filter)
        return eip

    def may(self, wanted: Wanted) -> bool:
        return self._store.may(wanted)

    def any(self, filter: str, wanted: Wanted) -> bool:
        """Store.any. Looks at SLICE reservations at most; NotYet: ask again for the next ones.

        What was looked at is not looked at again, whoever asks and whatever changes meanwhile.
        """
        if not self._store.may(wanted):
            return False
        asked, key = self._asked.get(filter), (filter, wanted)
        search = self._loose.get(key)
        if search is None and asked is not None and asked.searches is not None:
            search = asked.searches.get(wanted)
        if search is None:
            search = Search(self._store, filter, wanted)
        answer = search.answer
        if answer is None:
            self._turn += 1
            search.turn = self._turn
            answer = search.go_on(SLICE)
        if answer is None:
            self._rest(key, search)
            raise NotYet(filter)
        search.rest()
        if asked is not None:
            self._loose.pop(key, None)
            asked.keep(wanted, search)
            self._searched[filter] = None
        elif self._room(key):
            self._loose[key] = search
        return answer

    def _rest(self, key: tuple[str, Wanted], search: Search) -> None:
        """It goes on when it is asked for again, or begins anew then if there is no room."""
        if key in self._loose or self._room(key):
            self._loose[key] = search
            self._loose.move_to_end(key)

    def _room(self, key: tuple[str, Wanted]) -> bool:
        """Makes room; those that somebody may still want stay, so that some come to their end."""
        if key not in self._loose and len(self._loose) >= LOOSE:
            oldest, search = next(iter(self._loose.items()))
            if search.answer is None and self._turn - search.turn <= STALE:
                return False
            del self._loose[oldest]
            search.rest()
        return True

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

    def steps(self, filter: str) -> Iterator[Reservation | None]:
        return self._store.steps(filter)

    def wild(self, by: str) -> int:
        return self._store.wild(by)

    def __len__(self) -> int:
        return len(self._store)

    def __iter__(self) -> Iterator[Reservation]:
        return iter(self._store)
