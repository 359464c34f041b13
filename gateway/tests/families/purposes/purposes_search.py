"""What Store.any should say, by looking at everything; and asking for it until it says so."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from families.purposes import purposes_model as model
from sealmq.families.api import NotYet
from sealmq.families.purposes.store import Reservation, Store, Wanted

SETS = [frozenset(some) for some in ("p", "q", "ps")]
WANTED = [
    Wanted("all"),
    *(Wanted(kind, some) for kind in ("allows", "prohibits", "unspoken") for some in SETS),
]


def meets(held: Sequence[Reservation], filt: str, wanted: Wanted, r: Reservation) -> bool:
    """Whether this one, which crosses the filter, is wanted."""
    if wanted.kind == "all":
        return True
    if wanted.kind == "prohibits":
        return bool(wanted.purposes & r.pip)
    if wanted.kind == "allows":
        return bool(wanted.purposes & r.aip)
    part = model.topics(r.filter) & model.topics(filt)
    over = (other for other in held if model.topics(other.filter) >= part)
    return not any(wanted.purposes & other.aip for other in (r, *over))


def there(held: Sequence[Reservation], filt: str, wanted: Wanted) -> bool:
    """What Store.any says, of stores that hold these."""
    crossing = (r for r in held if model.crosses(r.filter, filt))
    return any(meets(held, filt, wanted, r) for r in crossing)


def found(
    store: Store, filt: str, wanted: Wanted, meanwhile: Callable[[], object] = lambda: None
) -> bool:
    """What the store says in the end."""
    while True:
        try:
            return store.any(filt, wanted)
        except NotYet:
            meanwhile()
