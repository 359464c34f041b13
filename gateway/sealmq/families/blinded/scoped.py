"""The encoding by default: a key for each event type, customer and epoch.

The paper has one alias for each attribute, everywhere: whoever compares two customers' filters, or
the same one's under two types, links what they have in common. Here no two filters under different
keys have anything to do with each other; what the mediator can compare is what it has to match. So
masks and auxiliary filters are left out, which hide nothing and give away which positions are whose
(leakage.py measures both). Fillers are encoding strings and stand last: each rule has at least
SHORTEST elements, and each set is filled up to MOST_ONES bits, so that neither tells how much is
written.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from . import bloom
from .bloom import CAPACITY, MOST_ONES, Filter
from .words import Atom, Dnf, Have, asked, holding

SHORTEST = 8
"""Elements of a rule, fillers counted: a shorter one is not told from one of as many."""
MOST_MET = CAPACITY - SHORTEST
"""What a conjunction of somebody's may have of what one policy asks about."""


class TooFull(ValueError):
    """A conjunction has more of what the policy asks about than a filter holds."""


def key_of(root: bytes, kind: bytes, customer: str, *epochs: bytes) -> bytes:
    """The key of an event type, a customer and their epochs."""
    return bloom.prf(root, b"sealmq blinded 1 scope", kind, customer.encode(), *epochs)


def way(key: bytes, name: bytes) -> bytes:
    """The key of one direction: what the customer has is not compared with what the event has."""
    return bloom.prf(key, b"way", name)


def rules(key: bytes, dnf: Dnf) -> list[Filter]:
    """A filter for each conjunction, in an order that says nothing."""
    if not dnf or not all(dnf):
        raise ValueError("a policy without conjunctions, or with an empty one")
    made = []
    for atoms in dnf:
        fillers = [b"f" + bytes((n,)) for n in range(SHORTEST - len(atoms))]
        made.append(bloom.of_set(key, [*(atom.element for atom in atoms), *fillers]))
    return _mixed(key, made)


def sets(key: bytes, had: Sequence[Have], dnf: Dnf) -> list[Filter]:
    """A filter for each conjunction of what somebody has, of what that policy asks about. TooFull.

    What nobody asks about is in none: it could match nothing, and would be there to be guessed.
    """
    wanted = asked(dnf)
    return _mixed(key, [_set(key, at, holding(wanted, have)) for at, have in enumerate(had)])


def _set(key: bytes, at: int, met: Sequence[Atom]) -> Filter:
    if len(met) > MOST_MET:
        raise TooFull(f"{len(met)} attributes of one conjunction are asked for; {MOST_MET} fit")
    elements = [atom.element for atom in met]
    made = bloom.of_set(key, [*elements, *(b"f" + bytes((n,)) for n in range(SHORTEST - 1))])
    # The rest by chance: that every set has as many bits tells nothing of how much is in it.
    made = bloom.filled(key, b"d" + at.to_bytes(4, "big"), made)
    if made.bit_count() > MOST_ONES:
        raise TooFull("by chance a filter has too many bits; the same once more draws another")
    return made


def _mixed(key: bytes, made: Iterable[Filter]) -> list[Filter]:
    return sorted(made, key=lambda one: bloom.prf(key, b"order", bloom.to_bytes(one)))
