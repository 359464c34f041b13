"""The paper's rules (IV-D, V-C) over one store: may this purpose subscribe there, may it read this.

Pure: what they say depends on the store, the graph, the mode and `strict` alone. `subscribe` and
`whole` say NotYet when the store has to look further.
"""

from __future__ import annotations

from ..values import value
from . import rules
from .dag import Purposes
from .store import Eip, Reservation, Store, Wanted


@value
class Answer:
    """`under`: the reservation that allowed it, if one did."""

    allow: bool
    rule: str
    under: Reservation | None = None


_ANY = Wanted("all")
_LATER = Answer(True, rules.SUBSCRIBE_LATER)
_UNRESERVED = Answer(True, rules.SUBSCRIBE_UNRESERVED)
_POSSIBLE = Answer(True, rules.SUBSCRIBE_POSSIBLE)
_NO_PURPOSE = Answer(False, rules.SUBSCRIBE_NO_PURPOSE)
_PROHIBITED = Answer(False, rules.SUBSCRIBE_PROHIBITED)
_NOT_ALLOWED = Answer(False, rules.SUBSCRIBE_NOT_ALLOWED)
_PARTLY = Answer(False, rules.SUBSCRIBE_PARTLY)
_READ_UNKNOWN = Answer(False, rules.UNKNOWN)
_READ_PROHIBITED = Answer(False, rules.DELIVER_PROHIBITED)
_READ_NOT_ALLOWED = Answer(False, rules.DELIVER_NOT_ALLOWED)


class Judging:
    """One store under one graph, mode and strictness; made anew when a setting changes."""

    def __init__(self, store: Store, purposes: Purposes, mode: str, strict: bool) -> None:
        self.store = store
        self.purposes = purposes
        self.mode = mode
        self.strict = strict

    def subscribe(self, filt: str, ap: str) -> Answer:
        """May a subscription for this purpose ("": for none) have the filter."""
        if not ap and self.strict:
            return _NO_PURPOSE
        if self.mode == "fop":
            return _LATER
        if self.mode == "hybrid":
            return self._hybrid(filt, ap)
        return self.whole(filt, ap)

    def _hybrid(self, filt: str, ap: str) -> Answer:
        """Refuses what no topic of the filter can allow; the rest is judged at each delivery."""
        if not ap:
            return _POSSIBLE
        eip = self.store.eip(filt)
        if not eip.of:
            return _POSSIBLE
        above = self.purposes.above(ap)
        if not above.isdisjoint(eip.pip):
            return _PROHIBITED
        if not above.isdisjoint(eip.aip):
            return _POSSIBLE
        if self.store.any(filt, Wanted("allows", above)):
            return _POSSIBLE
        return _NOT_ALLOWED

    def whole(self, filt: str, ap: str) -> Answer:
        """Filter on subscribe: allowed on every topic of the filter, or not at all (V-C1)."""
        if not ap:
            return _NO_PURPOSE if self.strict or self.store.any(filt, _ANY) else _UNRESERVED
        above = self.purposes.above(ap)
        eip = self.store.eip(filt)
        if not above.isdisjoint(eip.pip):
            return _PROHIBITED
        under = eip.allowing(above)
        if under is None and self.strict:
            # What no reservation covers as a whole has topics in it that nobody has reserved.
            return _NOT_ALLOWED if eip.of else _PARTLY
        if self.store.any(filt, Wanted("prohibits", above)):
            return _PARTLY
        if under is None:
            if not self.store.any(filt, _ANY):
                return _UNRESERVED
            # Each reservation's share of the filter has to be allowed as a whole.
            if self.store.any(filt, Wanted("unspoken", above)):
                return _NOT_ALLOWED if eip.of else _PARTLY
        return Answer(True, rules.SUBSCRIBE_ALLOWED, under)

    def read(self, eip: Eip, ap: str) -> Answer:
        """May a message of a topic with these intended purposes be used for `ap` (IV-A)."""
        if not self.purposes.known(ap):
            return _READ_UNKNOWN
        above = self.purposes.above(ap)
        if not above.isdisjoint(eip.pip):
            return _READ_PROHIBITED
        under = eip.allowing(above)
        return _READ_NOT_ALLOWED if under is None else Answer(True, rules.DELIVER_ALLOWED, under)
