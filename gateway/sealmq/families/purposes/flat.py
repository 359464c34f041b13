"""The flat store: a dict, and each question looks at every reservation (the paper's "flat")."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar

from sealmq_spec.topics import matches

from ..api import Dep
from ..filters import covers, crosses
from .search import meets
from .store import ALL, Eip, Reservation, Source, Wanted, Wild, check_depth, is_wild


class Flat:
    """Fast to change, slow to ask. Keeps no books."""

    cached: ClassVar[bool] = False

    def __init__(self) -> None:
        self._all: dict[tuple[str, Source], Reservation] = {}
        self._wild = Wild()

    def put(self, reservation: Reservation) -> Sequence[Dep]:
        check_depth(reservation.filter)
        self.remove(reservation.filter, reservation.source)
        self._all[reservation.filter, reservation.source] = reservation
        self._wild.came(reservation)
        return (ALL,)

    def remove(self, filter: str, source: Source) -> Sequence[Dep]:
        gone = self._all.pop((filter, source), None)
        if gone is not None:
            self._wild.went(gone)
        return (ALL,)

    def get(self, filter: str, source: Source) -> Reservation | None:
        return self._all.get((filter, source))

    def matching(self, topic: str) -> Sequence[Reservation]:
        return [r for r in self._all.values() if matches(r.filter, topic)]

    def covering(self, filter: str) -> Sequence[Reservation]:
        return [r for r in self._all.values() if covers(r.filter, filter)]

    def crossing(self, filter: str) -> Iterator[Reservation]:
        return (r for r in self._all.values() if crosses(r.filter, filter))

    def steps(self, filter: str) -> Iterator[Reservation | None]:
        kept = (self._all.get(key) for key in list(self._all))
        return (r if r is not None and crosses(r.filter, filter) else None for r in kept)

    def may(self, wanted: Wanted) -> bool:
        return True

    def any(self, filter: str, wanted: Wanted) -> bool:
        return any(meets(self, filter, wanted, r) for r in self.crossing(filter))

    def eip(self, filter: str) -> Eip:
        return Eip(self.covering(filter) if is_wild(filter) else self.matching(filter))

    def rest_on(self, filter: str) -> Dep:
        return ALL

    def forgotten(self) -> Sequence[Dep]:
        return ()

    def wild(self, by: str) -> int:
        return self._wild.of(by)

    def __len__(self) -> int:
        return len(self._all)

    def __iter__(self) -> Iterator[Reservation]:
        return iter(self._all.values())
