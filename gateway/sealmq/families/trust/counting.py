"""The decisions of `decide.accepts` without its words, of many messages among many sites.

Sites are numbers, in the order of their names; a set of them is a whole number, bit n for site n.
Where links run from an issuer changes only with the links: `Shape`. Who counts changes with the
ratings as well: `Counting`.

A signer counts if its least path to a site is at θ. If no edge of any path from it is below θ it
does, and most signers are such ones, which bits alone show. If one is, then by its weakest link it
does not; by the average, sums decide. They are made only where those that surely count are too few.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from .decide import Rules
from .paths import Oriented

_FAR = 1 << 62


def bits(numbers: Sequence[int]) -> int:
    """As a set."""
    return sum(1 << number for number in numbers)


class Shape:
    """Which way links run from an issuer, and who stands before whom."""

    def __init__(self, graph: Oriented, number: Mapping[str, int]) -> None:
        self.issuer = number[graph.issuer]
        self.order = [number[name] for name in graph.order]
        """Nearest to the issuer first."""
        self.others = bits(self.order) & ~(1 << self.issuer)
        """Those to whom links lead from it."""
        self.parents: list[list[int]] = [[] for _ in number]
        self.nearer = [0] * len(number)
        """The parents, as a set."""
        self.before = [0] * len(number)
        """All from whom a path leads here."""
        for name, found in graph.parents.items():
            self.parents[number[name]] = [number[parent] for parent, _ in found]
        for site in self.order:
            self.nearer[site] = before = bits(self.parents[site])
            for parent in self.parents[site]:
                before |= self.before[parent]
            self.before[site] = before
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


class Counting:
    """Of an issuer's messages, as long as no rating and no link changes."""

    def __init__(self, shape: Shape, rules: Rules, told: Rated) -> None:
        self._shape, self._rules, self._told = shape, rules, told
        # By site, those before it of whom some path has an edge below θ.
        self._doubtful = doubtful = [0] * len(shape.before)
        if rules.way == "path":
            for site in shape.order:
                low, found = told.low[site], 0
                for parent in shape.parents[site]:
                    if low >> parent & 1:
                        found |= shape.before[parent] | 1 << parent
                    else:
                        found |= doubtful[parent]
                doubtful[site] = found
        self._summed: dict[int, int] = {}

    def accepts(self, site: int, signers: int, neighbours: int, near: int) -> bool:
        """Whether the site accepts a token that these have signed. neighbours: those that it has
        not blocked; near: of them those that it rates at π."""
        shape, rules = self._shape, self._rules
        if not shape.others >> site & 1:
            return False
        if rules.way == "spki":
            return shape.signed_throughout(signers, site)
        needed = 1 if neighbours >> shape.issuer & 1 else rules.signers
        if rules.way == "neighbour":
            return (signers & near).bit_count() >= needed
        signers &= shape.before[site]
        sure = signers & ~self._doubtful[site]
        if sure.bit_count() >= needed:
            return True
        if rules.measure == "weakest" or signers.bit_count() < needed:
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
