"""The paper's encoding (section "Policy encoding and matching"), for comparison: `encoding =
"paper"`.

Every attribute has one alias in the whole site, and with the probability `decoys` a second one. A
customer's conjunction is expanded to the anonymity length and becomes BF_t and an auxiliary filter
BF_i for each place, which has all but one; a policy's conjunction becomes BF_a and its mask BF_m.
BF_a lies in BF_t if a & (m | t) == a, and which attributes those are say the BF_i in which it lies.
What that gives away is in leakage.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from . import bloom
from .bloom import BITS, HASHES, Filter
from .words import Atom, Dnf, Have

MASKS = 2
"""Random strings in a mask."""


class Conjunct(NamedTuple):
    """A policy's conjunction: BF_a, and its mask BF_m."""

    a: Filter
    m: Filter

    def within(self, t: Filter) -> bool:
        """Whether it is included, its mask left out of account (Definition 7)."""
        return self.a & (self.m | t) == self.a


class Held(NamedTuple):
    """A customer's conjunction: BF_t, and BF_1 to BF_n, of which BF_i lacks place n - i + 1."""

    t: Filter
    each: tuple[Filter, ...]


class Encoder:
    """One key, and one table of aliases, for all customers and policies."""

    def __init__(
        self,
        root: bytes,
        *,
        decoys: float = 0.5,
        length: int = 8,
        bits: int = BITS,
        hashes: int = HASHES,
    ) -> None:
        """decoys: the paper's p. length: the anonymity length."""
        self._root, self._decoys, self._length = root, decoys, length
        self._bits, self._hashes = bits, hashes
        self._key = bloom.prf(root, b"sealmq blinded 1 paper")

    def aliases(self, atom: Atom) -> list[bytes]:
        """What stands for an attribute: its alias, and perhaps a second one (Algorithm 1)."""
        drawn = bloom.prf(self._root, b"alias", atom.element)
        chance = int.from_bytes(drawn[:4], "big") / (1 << 32)
        second = bloom.prf(self._root, b"decoy", atom.element)
        return [drawn, second] if chance < self._decoys else [drawn]

    def conjunct(self, atoms: Sequence[Atom], salt: bytes) -> Conjunct:
        """salt: another one for each conjunction; it draws the mask."""
        if not atoms:
            raise ValueError("an empty conjunction")
        masks = [bloom.prf(self._root, b"mask", salt, bytes((n,))) for n in range(MASKS)]
        own = [alias for atom in atoms for alias in self.aliases(atom)]
        return Conjunct(self._of(own + masks), self._of(masks))

    def policy(self, dnf: Dnf, salt: bytes) -> list[Conjunct]:
        """Each of its conjunctions."""
        if not dnf:
            raise ValueError("a policy without conjunctions")
        return [self.conjunct(c, salt + n.to_bytes(4, "big")) for n, c in enumerate(dnf)]

    def held(self, atoms: Sequence[Atom], salt: bytes) -> Held:
        """A conjunction of a customer: the atoms that hold, then fillers up to the anonymity
        length, all of them last.
        """
        places = [alias for atom in atoms for alias in self.aliases(atom)]
        fillers = range(max(self._length - len(places), 0))
        places += [bloom.prf(self._root, b"filler", salt, bytes((n,))) for n in fillers]
        n = len(places)

        def drawn(i: int) -> bytes:
            return bloom.prf(self._root, b"random", salt, i.to_bytes(4, "big"))

        each = []
        for i in range(1, n + 1):
            left = places[: n - i] + places[n - i + 1 :]
            each.append(self._of([*left, drawn(i)]))
        # One random string if no filler is there (Definition 6, BF_t, step 3).
        return Held(self._of(places if fillers else [*places, drawn(0)]), tuple(each))

    def of_atoms(self, atoms: Sequence[Atom]) -> Filter:
        """The bits that these attributes set, wherever they are encoded."""
        return self._of([alias for atom in atoms for alias in self.aliases(atom)])

    def _of(self, elements: Sequence[bytes]) -> Filter:
        return bloom.of_set(self._key, elements, self._bits, self._hashes)


def indices(rule: Conjunct, held: Held) -> str | None:
    """b of Definition 7: a 1 at each place of the customer's conjunction that the policy's asks
    for; None: it is not included. BF_t is what step 2 means, where BF_i is printed.
    """
    if not rule.within(held.t):
        return None
    n = len(held.each)
    ones = [True] * n
    for i, without in enumerate(held.each, 1):
        if rule.within(without):
            ones[n - i] = False
    return "".join("1" if one else "0" for one in ones)


def matches(rules: Sequence[Conjunct], helds: Sequence[Held]) -> bool:
    """Whether one conjunction of the policy is included in one of the customer's."""
    return any(rule.within(held.t) for held in helds for rule in rules)


def atoms_of(have: Have) -> list[Atom]:
    """The equalities that a customer's conjunction consists of."""
    return sorted(Atom(name, "=", (value,)) for name, value in have.items())
