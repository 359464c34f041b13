"""Whether any reservation that crosses a filter is wanted: looked for a slice at a time.

What crosses a filter may be all that there is, and nobody is served while one looks. So a search
rests after so many steps, and goes on when it is asked again. A change does not make it begin anew:
it hears of each one that crosses its filter, and looks again only at what that may have made
wanted.
What it says is what a look at everything would say at this moment:

    everything that crosses the filter is still to be looked at, or was and is not wanted,
    or is the witness
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Protocol

from ..filters import crosses, intersect
from .store import Reservation, Source, Wanted

LEFT = 256
"""Changes that wait to be looked at one by one; if there are more, everything is looked at anew."""
_CLOSE = 8
"""As many steps is a look at one that needs a look at others."""
_WHOLE = None


class Searched(Protocol):
    """What a search asks of a store."""

    def get(self, filter: str, source: Source) -> Reservation | None: ...
    def covering(self, filter: str) -> Collection[Reservation]: ...
    def steps(self, filter: str) -> Iterator[Reservation | None]: ...


def meets(store: Searched, filter: str, wanted: Wanted, r: Reservation) -> bool:
    """Whether this one, which crosses the filter, is wanted."""
    kind, purposes = wanted
    if kind == "allows":
        return not purposes.isdisjoint(r.aip)
    if kind == "prohibits":
        return not purposes.isdisjoint(r.pip)
    if kind == "all":
        return True
    if not purposes.isdisjoint(r.aip):
        return False
    part = intersect(r.filter, filter) or filter
    return all(purposes.isdisjoint(other.aip) for other in store.covering(part))


class Search:
    """One search in one store."""

    __slots__ = ("_filter", "_left", "_store", "_wanted", "_ways", "_witness", "turn")

    def __init__(self, store: Searched, filter: str, wanted: Wanted) -> None:
        self._store, self._filter, self._wanted = store, filter, wanted
        # What is to be looked at: filters (_WHOLE), and single reservations by filter and source.
        self._left: dict[tuple[str, Source | None], None]
        # What is being looked at; the last one first.
        self._ways: list[Iterator[Reservation | None]]
        self._witness: Reservation | None = None
        # When somebody last let it go on; its owner counts.
        self.turn = 0
        self._begin()

    def _begin(self) -> None:
        self._left = {(self._filter, _WHOLE): None}
        self._ways = []

    def rest(self) -> None:
        """An answer was given: what the rest of the way would take in memory is let go."""
        if self._ways:
            self._begin()

    @property
    def answer(self) -> bool | None:
        """Whether there is one; None: not known yet."""
        one = self._witness
        if one is not None:
            if self._is_it(one):
                return True
            self._witness = None
        return None if self._left or self._ways else False

    def go_on(self, most: int) -> bool | None:
        """Take some steps at most (a little more for what is dear), and give the answer."""
        while (answer := self.answer) is None and most > 0:
            # The newest first: a change is quickly looked at, however long the way is.
            if self._left:
                (filter, source), _ = self._left.popitem()
                if source:
                    most -= 1
                    self._witness = self._store.get(filter, source)
                else:
                    self._ways.append(self._store.steps(filter))
            else:
                most -= self._walk(most)
        return answer

    def _walk(self, most: int) -> int:
        """Some steps of the last way; how many."""
        close = _CLOSE if self._wanted.kind == "unspoken" else 1
        done = 0
        for r in self._ways[-1]:
            done += 1 if r is None else close
            if r is not None and self._is_it(r):
                self._witness = r
                break
            if done >= most:
                break
        else:
            self._ways.pop()
        return done

    def changed(self, filter: str, source: Source, new: Reservation | None) -> None:
        """A reservation with this filter was put or (None) removed."""
        if not crosses(filter, self._filter):
            return
        if self._wanted.kind == "unspoken":
            # What others that it crosses need may have gone with it.
            self._left[intersect(filter, self._filter) or filter, _WHOLE] = None
        elif new is not None and meets(self._store, self._filter, self._wanted, new):
            self._left[filter, source] = None
        if len(self._left) + len(self._ways) > LEFT:
            self._begin()

    def _is_it(self, r: Reservation) -> bool:
        """Whether this one is wanted, and still there: its steps may show what is gone."""
        return (
            meets(self._store, self._filter, self._wanted, r)
            and self._store.get(r.filter, r.source) is r
        )
