"""The tree store: a trie of topic levels; what a question costs does not grow with their number."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar

from ..api import Dep
from .search import meets
from .store import ALL, Eip, Occurring, Reservation, Source, Wanted, Wild, check_depth
from .trie import Trie


class Tree:
    """Keeps no books of what it was asked (see cache.Cache)."""

    cached: ClassVar[bool] = False

    def __init__(self) -> None:
        self._all: Trie[Reservation] = Trie()
        self._wild = Wild()
        self._occurring = Occurring()

    def put(self, reservation: Reservation) -> Sequence[Dep]:
        check_depth(reservation.filter)
        gone = self._all.put(reservation)
        if gone is not None:
            self._wild.went(gone)
            self._occurring.went(gone)
        self._wild.came(reservation)
        self._occurring.came(reservation)
        return (ALL,)

    def remove(self, filter: str, source: Source) -> Sequence[Dep]:
        gone = self._all.remove(filter, source)
        if gone is not None:
            self._wild.went(gone)
            self._occurring.went(gone)
        return (ALL,)

    def get(self, filter: str, source: Source) -> Reservation | None:
        return self._all.get(filter, source)

    def matching(self, topic: str) -> Sequence[Reservation]:
        return self._all.covering(topic)

    def covering(self, filter: str) -> Sequence[Reservation]:
        return self._all.covering(filter)

    def crossing(self, filter: str) -> Iterator[Reservation]:
        return self._all.crossing(filter)

    def steps(self, filter: str) -> Iterator[Reservation | None]:
        return self._all.steps(filter)

    def may(self, wanted: Wanted) -> bool:
        return self._occurring.may(wanted)

    def any(self, filter: str, wanted: Wanted) -> bool:
        return any(meets(self, filter, wanted, r) for r in self.crossing(filter))

    def eip(self, filter: str) -> Eip:
        return Eip(self._all.covering(filter))

    def rest_on(self, filter: str) -> Dep:
        return ALL

    def forgotten(self) -> Sequence[Dep]:
        return ()

    def wild(self, by: str) -> int:
        return self._wild.of(by)

    def __len__(self) -> int:
        return len(self._all)

    def __iter__(self) -> Iterator[Reservation]:
        return iter(self._all)
