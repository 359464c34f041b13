"""The decisions of `decide.accepts` without its words, of many messages among many sites.

Sites are numbers, in the order of their names; a set of them is a whole number, bit n for site n.
Where links run from an issuer changes only with the links: `Shape`. Who counts changes with the
ratings as well: `Counting`.

A signer counts if its least path to a site is at θ. If no edge of any path from it is below θ it
does, and most signers are such ones, which bits alone show. If one is, then by its weakest link it
does not; by the average, sums decide. They are made only where those that surely count are too few.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from .decide import Rules

_FAR = 1 << 62


def bits(numbers: Iterable[int]) -> int:
    """As a set."""
    found = 0
    for number in numbers:
        found |= 1 << number
    return found


def members(some: int) -> list[int]:
    """Of a set, the lowest first."""
    found = []
    while some:
        lowest = some & -some
        found.append(lowest.bit_length() - 1)
        some ^= lowest
    return found


class Shape:
    """Which way links run from an issuer, as `Oriented` has it, and who stands before whom.
    beside: by site, to whom it is linked; links run both ways.
    """

    def __init__(self, issuer: int, beside: Sequence[int]) -> None:
        self.issuer = issuer
        self.order: list[int] = []
        """Nearest to the issuer first."""
        self.parents: list[list[int]] = [[]] * len(beside)
        self.nearer = [0] * len(beside)
        """The parents, as a set."""
        self.before = [0] * len(beside)
        """All from whom a path leads here."""
        nearer, as_far = 0, 1 << issuer
        while as_far:
            beyond = 0
            for site in members(as_far):
                beyond |= beside[site]
                # Of two as far from the issuer, from the lesser name.
                found = beside[site] & (nearer | as_far & (1 << site) - 1)
                self.nearer[site], self.parents[site] = found, members(found)
                for parent in self.parents[site]:
                    found |= self.before[parent]
                self.before[site] = found
                self.order.append(site)
            nearer |= as_far
            as_far = beyond & ~nearer
        self._back: dict[int, list[int]] = {}

    def back(self, site: int) -> list[int]:
        """The site, and all before it, the farthest from the issuer first."""
        found = self._back.get(site)
        if found is None:
            within = self.before[site] | 1 << site
            found = self._back[site] = [n for n in reversed(self.order) if within >> n & 1]
        return found

    def signed_throughout(self, signers: int, target: int) -> bool:
        """As `Oriented.signed_throughout`."""
        if not signers >> self.issuer & 1:
            return False
        reached = waiting = self.nearer[target] & signers
        while waiting:
            if reached >> self.issuer & 1:
                return True
            last = waiting.bit_length() - 1
            more = self.nearer[last] & signers & ~reached
            reached |= more
            waiting = (waiting ^ 1 << last) | more
        return False


@dataclass(frozen=True, slots=True)
class Rated:
    """What is told, by site: the ratings of its neighbours, and which of them are below θ."""

    of: Sequence[Mapping[int, int]]
    low: Sequence[int]
    any_low: bool


class Counting:
    """Of an issuer's messages, as long as no rating and no link changes."""

    def __init__(self, shape: Shape, rules: Rules, told: Rated) -> None:
        self._shape, self._rules, self._told = shape, rules, told
        self._way, self._signers = rules.way, rules.signers
        # By site, those before it of whom no path has an edge below θ.
        self._sure = shape.before
        if rules.way == "path" and told.any_low:
            self._sure = self._without_doubt()
        self._summed: dict[int, int] = {}

    def _without_doubt(self) -> list[int]:
        shape, low = self._shape, self._told.low
        before, parents, doubtful = shape.before, shape.parents, [0] * len(shape.before)
        for site in shape.order:
            bad, found = low[site], 0
            for parent in parents[site]:
                if bad >> parent & 1:
                    found |= before[parent] | 1 << parent
                else:
                    found |= doubtful[parent]
            doubtful[site] = found
        return [some & ~doubt for some, doubt in zip(before, doubtful, strict=True)]

    def accepts(self, site: int, signers: int, neighbours: int, near: int) -> bool:
        """Whether the site accepts a token that these have signed. neighbours: those that it has
        not blocked; near: of them those that it rates at π."""
        shape, needed = self._shape, self._signers
        if needed > 1 and neighbours >> shape.issuer & 1:
            needed = 1
        if self._way == "path":
            if (signers & self._sure[site]).bit_count() >= needed:
                return True
        elif not shape.before[site]:
            return False  # no links lead to it
        elif self._way == "spki":
            return shape.signed_throughout(signers, site)
        else:
            return (signers & near).bit_count() >= needed
        signers &= shape.before[site]
        if self._rules.measure == "weakest" or signers.bit_count() < needed:
            return False
        return (signers & self._by_sum(site)).bit_count() >= needed

    def _by_sum(self, site: int) -> int:
        """Whose least average is at θ: if the edges' sum, less θ for each of them, is not below 0.
        So one least sum a signer will do, however many edges its path has."""
        found = self._summed.get(site)
        if found is not None:
            return found
        parents, told, accept = self._shape.parents, self._told.of, self._rules.accept
        above = [_FAR] * len(parents)
        above[site] = found = 0
        for here in self._shape.back(site):
            so_far = above[here]
            if so_far >= 0 and here != site:
                found |= 1 << here
            so_far -= accept
            ratings = told[here]
            for parent in parents[here]:
                total = so_far + ratings[parent]
                if total < above[parent]:
                    above[parent] = total
        self._summed[site] = found
        return found
