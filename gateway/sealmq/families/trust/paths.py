"""The least trustworthy path from a signer of a token to the site that judges it (Chen, Vidalis and
Yang, III-D).

The graph has the rating of b by b' on the edge (b, b'). Links run both ways, messages of an issuer
run away from it: so for each issuer a link keeps the direction from the site that is nearer to the
issuer (of two as near, from the lesser name). What is left has no circle, and each path of it is
simple.

A path's rating is the average of its edges, or its weakest edge. The least average is found for
each number of edges: the path with the least sum is not always the one with the least average, so
one sum for a site, as Bellman and Ford keep it, may rate too high. Sums are compared undivided.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Literal

Measure = Literal["average", "weakest"]
Edges = Mapping[tuple[str, str], int]
"""trust(b, b') by (b, b'), in 1/10,000: what b' thinks of b."""
MOST_SHOWN = 16
"""Paths that are listed."""


@dataclass(frozen=True, slots=True)
class Least:
    """The least trustworthy path from a signer: total / edges is its rating, exactly."""

    total: int
    edges: int

    def reaches(self, threshold: int) -> bool:
        """Whether the rating is at least that."""
        return self.total >= threshold * self.edges

    def below(self, other: Least) -> bool:
        return self.total * other.edges < other.total * self.edges

    @property
    def rating(self) -> float:
        """Of 1, for people."""
        return self.total / self.edges / 10_000


class Oriented:
    """The graph of ratings for one issuer."""

    def __init__(self, edges: Edges, issuer: str) -> None:
        self.issuer = issuer
        self.distance = distances(edges, issuer)
        self.parents: dict[str, list[tuple[str, int]]] = {}
        self.children: dict[str, list[tuple[str, int]]] = {}
        for (a, b), rating in sorted(edges.items()):
            if self._runs(a, b):
                self.parents.setdefault(b, []).append((a, rating))
                self.children.setdefault(a, []).append((b, rating))
        self.order = sorted(self.distance, key=lambda site: (self.distance[site], site))
        """Nearest to the issuer first."""

    def _runs(self, a: str, b: str) -> bool:
        if a not in self.distance or b not in self.distance:
            return False
        return (self.distance[a], a) < (self.distance[b], b)

    def least(self, target: str, measure: Measure) -> dict[str, Least]:
        """Of each site from which a path leads to the target."""
        if measure == "weakest":
            return {site: Least(worst, 1) for site, worst in self._weakest(target).items()}
        found: dict[str, Least] = {}
        for site, sums in self.sums(target).items():
            for edges, total in sums.items():
                one = Least(total, edges)
                if site not in found or one.below(found[site]):
                    found[site] = one
        return found

    def sums(self, target: str) -> dict[str, dict[int, int]]:
        """Of each site the least sum of a path to the target for each number of edges."""
        found: dict[str, dict[int, int]] = {target: {0: 0}}
        for site in self._towards(target):
            for edges, total in found.get(site, {}).items():
                for parent, rating in self.parents.get(site, ()):
                    sums = found.setdefault(parent, {})
                    sums[edges + 1] = min(sums.get(edges + 1, total + rating), total + rating)
        del found[target]
        return found

    def _weakest(self, target: str) -> dict[str, int]:
        found = {target: 1 << 62}
        for site in self._towards(target):
            for parent, rating in self.parents.get(site, ()) if site in found else ():
                found[parent] = min(found.get(parent, rating), found[site], rating)
        del found[target]
        return found

    def _towards(self, target: str) -> Sequence[str]:
        """The target, and then what is nearer to the issuer, the farthest first."""
        if target not in self.distance:
            return (target,)
        return self.order[self.order.index(target) :: -1]

    def paths(self, source: str, target: str) -> Iterator[tuple[str, ...]]:
        """All of them, which may be many."""
        if source == target:
            return
        found = self._leading_to(target)
        waiting: deque[tuple[str, ...]] = deque([(source,)])
        while waiting:
            path = waiting.popleft()
            for child, _ in self.children.get(path[-1], ()):
                if child == target:
                    yield (*path, child)
                elif child in found:
                    waiting.append((*path, child))

    def least_paths(self, source: str, target: str, measure: Measure) -> Iterator[tuple[str, ...]]:
        """All whose rating is the least: each step leads to one, so the first few cost little."""
        if measure == "weakest":
            weakest = self._weakest(target)
            if source in weakest:
                yield from self._at_weakest((source,), target, weakest, weakest[source])
            return
        sums = self.sums(target)
        rated = [Least(total, edges) for edges, total in sums.get(source, {}).items()]
        for one in rated:
            if not any(other.below(one) for other in rated):
                yield from self._at_sum((source,), target, sums, one.edges, one.total)

    def _at_sum(
        self, path: tuple[str, ...], target: str, sums: Mapping[str, Mapping[int, int]],
        edges: int, total: int,
    ) -> Iterator[tuple[str, ...]]:  # fmt: skip
        for child, rating in self.children.get(path[-1], ()):
            if child == target and (edges, total) == (1, rating):
                yield (*path, child)
            elif sums.get(child, {}).get(edges - 1) == total - rating:
                yield from self._at_sum((*path, child), target, sums, edges - 1, total - rating)

    def _at_weakest(
        self, path: tuple[str, ...], target: str, weakest: Mapping[str, int], worst: int
    ) -> Iterator[tuple[str, ...]]:
        """worst: what an edge still to come has to be; 0 or more, or -1 once one was."""
        for child, rating in self.children.get(path[-1], ()):
            met = worst < 0 or rating == worst
            if child == target:
                if met:
                    yield (*path, child)
            elif child in weakest and (met or weakest[child] == worst):
                yield from self._at_weakest((*path, child), target, weakest, -1 if met else worst)

    def _leading_to(self, target: str) -> set[str]:
        found = {target}
        for site in self._towards(target):
            if site in found:
                found.update(parent for parent, _ in self.parents.get(site, ()))
        return found

    def signed_throughout(self, signers: frozenset[str], target: str) -> bool:
        """Whether a path leads from the issuer to the target of which every member has signed."""
        if self.issuer not in signers:
            return False
        reached = {self.issuer}
        for site in self.order:
            if site in reached and site != target:
                for child, _ in self.children.get(site, ()):
                    if child in signers or child == target:
                        reached.add(child)
        return target in reached and target != self.issuer


def distances(edges: Edges, source: str) -> dict[str, int]:
    """Links from the source to each site, whichever way they run."""
    beside: dict[str, set[str]] = {}
    for a, b in edges:
        beside.setdefault(a, set()).add(b)
        beside.setdefault(b, set()).add(a)
    found, waiting = {source: 0}, deque([source])
    while waiting:
        site = waiting.popleft()
        for other in beside.get(site, ()):
            if other not in found:
                found[other] = found[site] + 1
                waiting.append(other)
    return found


def measured(edges: Edges, path: Sequence[str], measure: Measure) -> Least:
    """Of one path."""
    ratings = [edges[pair] for pair in pairwise(path)]
    if measure == "weakest":
        return Least(min(ratings), 1)
    return Least(sum(ratings), len(ratings))


def without(edges: Edges, blocked: Iterable[str]) -> Edges:
    """The graph without the edges of blocked sites."""
    gone = frozenset(blocked)
    return {pair: rating for pair, rating in edges.items() if gone.isdisjoint(pair)}


@dataclass(slots=True)
class Vector:
    """The same as `Oriented.sums`, by exchange between neighbours alone: a distance vector, kept
    per number of edges. Of one site, for one issuer; made anew when a rating has changed.

    parents: those of its neighbours that are nearer to the issuer, with its rating of each.
    """

    me: str
    parents: Mapping[str, int]
    sums: dict[str, dict[int, int]] = field(default_factory=dict)
    """By signer, of paths from it to this site."""

    def hear(self, parent: str, told: Mapping[str, Mapping[int, int]]) -> bool:
        """What a parent says of itself; whether that changes anything here. Nobody else is heard,
        so nothing goes in circles."""
        rating = self.parents.get(parent)
        if rating is None:
            return False
        changed = self._better(parent, 1, rating)
        for signer, sums in told.items():
            for edges, total in sums.items():
                changed |= self._better(signer, edges + 1, total + rating)
        return changed

    def _better(self, signer: str, edges: int, total: int) -> bool:
        if signer == self.me:
            return False
        sums = self.sums.setdefault(signer, {})
        if total >= sums.get(edges, total + 1):
            return False
        sums[edges] = total
        return True
