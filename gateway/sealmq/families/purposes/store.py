"""Reservations and where they are kept: one interface, three stores (the paper's section V-D).

    flat    a dict, and a loop over all of them for each question; for comparison
    tree    a trie of topic levels: a question looks only where an answer can be
    cache   a tree that remembers what it was asked, and says exactly which answers a change ends

A store holds what counts now, nothing else: a reservation that does not count at the moment (its
topic has another label) is removed and put back by the family. One reservation for each filter
and source ("client", "site"); the next one overwrites. Filters are checked by the caller
(sealmq_spec.topics.check_filter) and have no `$share/` in front.

How verdicts are cached (for the family):

    deps=(SETTINGS, store.rest_on(topic_or_filter), ...)
                                    in every verdict for which the store was read
    until=FOREVER if store.cached else NEVER        flat and tree keep no books: all rests on ALL

    put(), remove()    give the deps of all verdicts that the change reaches; SETTINGS if these are
                       very many
    forgotten()        gives deps whose books were closed to make room; hand them to the engine
                       once a second (Family.tick)

What `put`, `remove` and `forgotten` give has to reach the engine (Family.apply, configure, tick),
else stale verdicts stay. No iterator of a store but `steps` may be used further after a change.

Cost: a question about a topic visits each path of the trie that matches a beginning of it: at
most the number of reservations with `+` that match it, plus one. So whoever may reserve may slow
down their own topics in proportion to the reservations with wildcards that they hold; `wild(by)`
counts these for the family's limit, and MAX_LEVELS bounds the depth. `crossing` grows with what it
gives, and a filter that begins with + visits each first level there is; so ask `eip` first,
then `any`: the cache looks a slice at a time, and only once (search.py).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import ClassVar, Literal, NamedTuple, Protocol

from ..api import Dep

MAX_LEVELS = 32
"""Levels of a filter that can be reserved: two filters that begin alike make a node for each."""

Source = Literal["client", "site"]


class Wanted(NamedTuple):
    """What `Store.any` looks for. `purposes`: those of which a set has to have one.

    all         any reservation
    allows      one whose AIP has one of them
    prohibits   one whose PIP has one of them
    unspoken    one whose AIP has none, nor has that of any other that covers all of it that lies
                below the filter
    """

    kind: Literal["all", "allows", "prohibits", "unspoken"]
    purposes: frozenset[str] = frozenset()


SETTINGS: Dep = ("purposes.settings",)
"""What every verdict rests on."""

ALL: Dep = ("purposes",)
"""What a verdict rests on when there was no room for a dep of its own: any change ends it."""


class TooDeep(ValueError):
    """A reservation's filter has more than MAX_LEVELS levels."""


class Reservation:
    """A filter's intended purposes: who bound them to it, and under which label (or "").

    Frugal: six pointers, and sets that all reservations with the same purposes share. Never
    changes.
    """

    __slots__ = ("aip", "by", "filter", "label", "pip", "source")

    def __init__(
        self,
        filter: str,
        aip: Iterable[str],
        pip: Iterable[str],
        by: str = "",
        label: str = "",
        source: Source = "client",
    ) -> None:
        self.filter = filter
        self.aip = shared(frozenset(aip))
        self.pip = shared(frozenset(pip))
        self.by = _same(by)
        self.label = _same(label)
        self.source: Source = source

    def __repr__(self) -> str:
        sets = f"{{{','.join(sorted(self.aip))}|{','.join(sorted(self.pip))}}}"
        return f"<{self.source} {self.filter} {sets} by {self.by!r} as {self.label!r}>"


class Eip:
    """Effective intended purposes of a topic (IV-D): the unions, and the reservations they are of.
    Of a filter: what holds for all of its topics.

    No reservations: nothing is bound to the topic (strict denies, open allows).
    """

    __slots__ = ("aip", "of", "pip")

    def __init__(self, of: Sequence[Reservation]) -> None:
        self.of = tuple(of)
        if len(self.of) == 1:
            self.aip, self.pip = self.of[0].aip, self.of[0].pip
            return
        self.aip = shared(NOTHING.union(*(r.aip for r in self.of)))
        self.pip = shared(NOTHING.union(*(r.pip for r in self.of)))

    def __bool__(self) -> bool:
        return bool(self.of)

    def allowing(self, purposes: frozenset[str]) -> Reservation | None:
        """One that allows any of these."""
        for r in self.of:
            if not purposes.isdisjoint(r.aip):
                return r
        return None


class Store(Protocol):
    """What the family may ask of any store. Sequences come in no particular order."""

    cached: ClassVar[bool]
    """Whether verdicts that rest on this store's deps may be cached."""

    def put(self, reservation: Reservation) -> Sequence[Dep]:
        """Keep it instead of the one with this filter and source. TooDeep."""
        ...

    def remove(self, filter: str, source: Source) -> Sequence[Dep]:
        """Forget it; nothing happens if it is not there."""
        ...

    def get(self, filter: str, source: Source) -> Reservation | None:
        """The reservation of exactly this filter."""
        ...

    def matching(self, topic: str) -> Sequence[Reservation]:
        """Those whose filter matches the topic."""
        ...

    def covering(self, filter: str) -> Sequence[Reservation]:
        """Those whose filter matches every topic that this one matches."""
        ...

    def crossing(self, filter: str) -> Iterator[Reservation]:
        """Those that share a topic with it: as they are found, so that one may stop early."""
        ...

    def steps(self, filter: str) -> Iterator[Reservation | None]:
        """`crossing` a step at a time, None for one that finds nothing; may rest (trie.py)."""
        ...

    def may(self, wanted: Wanted) -> bool:
        """Whether one of all may be wanted; False is sure, and quickly said."""
        ...

    def any(self, filter: str, wanted: Wanted) -> bool:
        """Whether one of `crossing` is wanted. NotYet after a slice of it, if the store is one that
        rests: then ask again.
        """
        ...

    def eip(self, filter: str) -> Eip:
        """The union over all that match the topic, or cover the filter."""
        ...

    def rest_on(self, filter: str) -> Dep:
        """What a verdict about this topic or filter rests on. Call it for each verdict anew."""
        ...

    def forgotten(self) -> Sequence[Dep]:
        """Deps that are no longer kept track of: verdicts that rest on them have to go now."""
        ...

    def wild(self, by: str) -> int:
        """How many reservations with a wildcard this client holds."""
        ...

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[Reservation]: ...


# A site has few different sets and names, and many reservations. Bounded: clients choose them.
SHARED = 4096
FEW = 64
"""Different sets that are counted."""
NOTHING: frozenset[str] = frozenset()
_sets: dict[frozenset[str], frozenset[str]] = {}
_names: dict[str, str] = {}


def shared(purposes: frozenset[str]) -> frozenset[str]:
    """The one set of these purposes, so that a million reservations do not hold a million."""
    if not purposes:
        return NOTHING
    if len(_sets) >= SHARED:
        _sets.clear()
    return _sets.setdefault(purposes, purposes)


def _same(name: str) -> str:
    if len(_names) >= SHARED:
        _names.clear()
    return _names.setdefault(name, name)


class Wild:
    """How many reservations with a wildcard each client holds."""

    def __init__(self) -> None:
        self._by: Counter[str] = Counter()

    def came(self, reservation: Reservation) -> None:
        if is_wild(reservation.filter) and reservation.source == "client":
            self._by[reservation.by] += 1

    def went(self, reservation: Reservation) -> None:
        if is_wild(reservation.filter) and reservation.source == "client":
            self._by[reservation.by] -= 1
            if not self._by[reservation.by]:
                del self._by[reservation.by]

    def of(self, by: str) -> int:
        return self._by.get(by, 0)


class Occurring:
    """Which sets occur, as long as these are few: what nobody has is not searched for."""

    def __init__(self) -> None:
        self._aips: dict[frozenset[str], int] = {}
        self._pips: dict[frozenset[str], int] = {}
        self._few = True

    def came(self, reservation: Reservation) -> None:
        if not self._few:
            return
        self._aips[reservation.aip] = self._aips.get(reservation.aip, 0) + 1
        self._pips[reservation.pip] = self._pips.get(reservation.pip, 0) + 1
        if len(self._aips) > FEW or len(self._pips) > FEW:
            # From now on nothing is known: what was not counted cannot be taken off.
            self._few = False
            self._aips, self._pips = {}, {}

    def went(self, reservation: Reservation) -> None:
        if not self._few:
            return
        for counts, one in (self._aips, reservation.aip), (self._pips, reservation.pip):
            if counts[one] > 1:
                counts[one] -= 1
            else:
                del counts[one]

    def may(self, wanted: Wanted) -> bool:
        """Whether there may be one that is wanted, wherever it is; False is sure."""
        if not self._few:
            return True
        if wanted.kind == "allows":
            return any(not wanted.purposes.isdisjoint(aip) for aip in self._aips)
        if wanted.kind == "prohibits":
            return any(not wanted.purposes.isdisjoint(pip) for pip in self._pips)
        return bool(self._aips)


def in_order(reservation: Reservation) -> tuple[str, str]:
    """The order in which reservations are shown."""
    return reservation.filter, reservation.source


def is_wild(filter: str) -> bool:
    return "+" in filter or "#" in filter


def check_depth(filter: str) -> None:
    """TooDeep. (A NUL, which no filter has, would be taken for the end of one.)"""
    if "\0" in filter:
        raise ValueError(f"a filter has no NUL: {filter!r}")
    if filter.count("/") >= MAX_LEVELS:
        raise TooDeep(f"a filter to reserve has at most {MAX_LEVELS} levels")
