"""A key generator that rekeys, and all that follows from old keys and its public values.

Roots and pads are symbols, a public value z is their XOR: the attacker computes pads from every
root it has, and solves the linear equations that all public values make. That is every attack by
XOR and by the hash as a black box, not a guess at one.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass

# {label: labels directly below it}, without cycles
Order = dict[int, set[int]]
# What a pad is made from besides the source's root: (target, its epoch, kid).
Pad = Callable[[int, int, int], Hashable]


def paper(n: int, epoch: int, kid: int) -> Hashable:
    """Chen and Wilson 4.3: H(n‖k_l)."""
    return (n,)


def with_epoch(n: int, epoch: int, kid: int) -> Hashable:
    """The half repair: the epoch, but no kid."""
    return (n, epoch)


def ours(n: int, epoch: int, kid: int) -> Hashable:
    """SPEC.md 2."""
    return (n, epoch, kid)


@dataclass(frozen=True)
class Root:
    """One drawn root: two are the same only if they were drawn at once."""

    label: int
    drawn: int


@dataclass(frozen=True)
class PadOf:
    """The pad that a root gives for an input."""

    root: Root
    of: Hashable


def closure(order: Order) -> dict[int, set[int]]:
    """All labels strictly below each."""
    below: dict[int, set[int]] = {}

    def down(label: int) -> set[int]:
        if label not in below:
            below[label] = set(order[label]).union(*(down(low) for low in order[label]))
        return below[label]

    for label in order:
        down(label)
    return below


class Kg:
    """One hierarchy: roots, epochs, and every z that was ever public."""

    def __init__(self, order: Order, pad: Pad) -> None:
        self.order = {label: set(low) for label, low in order.items()}
        self.below = closure(order)
        self.pad = pad
        self._draw = itertools.count()
        self._kid = itertools.count()
        self.epoch = dict.fromkeys(order, 0)
        self.root: dict[int, Root] = {}
        # (the root hidden, the pad that hides it)
        self.public: set[tuple[Root, PadOf]] = set()
        self.rekey(set(order))

    def downset(self, label: int) -> set[int]:
        """The label and everything below it."""
        return self.below[label] | {label}

    def held(self, label: int) -> set[Root]:
        """What a client at a label has today."""
        return {self.root[n] for n in self.downset(label)}

    def rekey(self, labels: set[int]) -> set[Root]:
        """New epochs: new roots, derivations from and to them, back-links. Gives the new roots."""
        old = {n: self.root[n] for n in labels if n in self.root}
        for n in sorted(labels):
            self.epoch[n] += 1
            self.root[n] = Root(n, next(self._draw))
        for top, low in self.below.items():
            for n in low if top in labels else low & labels:
                self._publish(self.root[n], n, self.epoch[n], self.root[top])
        for n, root in old.items():
            self._publish(root, n, self.epoch[n] - 1, self.root[n])
        return {self.root[n] for n in labels}

    def _publish(self, hidden: Root, n: int, epoch: int, source: Root) -> None:
        self.public.add((hidden, PadOf(source, self.pad(n, epoch, next(self._kid)))))

    def revoke(self, label: int) -> set[Root]:
        """A client leaves (GATEWAY.md G7)."""
        return self.rekey(self.downset(label))

    def join(self, upper: int, lower: int) -> None:
        """The order gains an edge: derivations for all pairs that this brings."""
        before = self.below
        self.order[upper].add(lower)
        self.below = closure(self.order)
        for top, low in self.below.items():
            for n in low - before[top]:
                self._publish(self.root[n], n, self.epoch[n], self.root[top])

    def cut(self, upper: int, lower: int) -> set[Root]:
        """The order loses an edge (GATEWAY.md G7)."""
        at_and_below = self.downset(lower)
        self.order[upper].remove(lower)
        self.below = closure(self.order)
        return self.rekey(at_and_below - self.below[upper])

    def backup(self) -> dict[str, object]:
        """What a restore brings back; what was public stays public."""
        return copy.deepcopy({"epoch": self.epoch, "root": self.root})

    def restore(self, state: dict[str, object]) -> None:
        """An older state. Numbers are drawn on: two draws never give the same root or kid."""
        self.__dict__.update(copy.deepcopy(state))


def opened(kg: Kg, had: Iterable[Root]) -> set[Root]:
    """Every root that follows from those and all public values."""
    known = set(had)
    while True:
        found = _solve(kg.public, known)
        if found == known:
            return known
        known = found


def _solve(public: set[tuple[Root, PadOf]], known: set[Root]) -> set[Root]:
    """One round: pads of known roots are numbers now; which roots do the equations give?"""
    bit: dict[Hashable, int] = {}

    def vector(*symbols: Hashable) -> int:
        out = 0
        for symbol in symbols:
            if isinstance(symbol, PadOf) and symbol.root in known:
                continue
            if symbol not in known:
                out ^= 1 << bit.setdefault(symbol, len(bit))
        return out

    # Echelon form: the leading bit of each row stands in no other row.
    rows: dict[int, int] = {}
    for equation in sorted({vector(hidden, pad) for hidden, pad in public}):
        row = equation
        for lead, other in rows.items():
            if row >> lead & 1:
                row ^= other
        if not row:
            continue
        lead = row.bit_length() - 1
        for at, other in rows.items():
            if other >> lead & 1:
                rows[at] = other ^ row
        rows[lead] = row
    single = {row for row in rows.values() if row & (row - 1) == 0}
    return known | {s for s, at in bit.items() if isinstance(s, Root) and 1 << at in single}
