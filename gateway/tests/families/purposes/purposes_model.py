"""The paper's rules once more, as naive as can be: sets, loops, and no code of what is tested.

A filter is the set of topics that it matches, out of a small finite universe. The universe holds a
level that no filter here names and levels enough beyond the deepest filter, so that two filters
behave in it as they do among all topics: then covering is ⊇, crossing is a common topic.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import product

NAMES = ("a", "b", "", "$x")
"""Levels that filters name."""
FRESH = "z"
DEPTH = 3
"""Levels of the deepest filter, its # aside."""


def _topics() -> Iterator[str]:
    for count in range(1, DEPTH + 3):
        for levels in product((*NAMES, FRESH), repeat=count):
            if levels != ("",):
                yield "/".join(levels)


def all_filters() -> list[str]:
    """Every filter over NAMES, + and # of at most DEPTH levels, # not counted."""
    found = ["#"]
    for count in range(1, DEPTH + 1):
        for levels in product((*NAMES, "+"), repeat=count):
            found += ["/".join(levels), "/".join((*levels, "#"))]
    return [filter for filter in found if filter]


UNIVERSE = tuple(_topics())


@cache
def topics(filter: str) -> frozenset[str]:
    """All topics of the universe that the filter matches (MQTT 3.1.1, 4.7)."""
    levels = filter.split("/")
    end = ""
    if levels[-1] == "#":
        levels.pop()
        end = "(/.*)?" if levels else ".*"
    body = "/".join("[^/]*" if level == "+" else re.escape(level) for level in levels)
    regex = re.compile(body + end, re.DOTALL)
    free = filter[0] in "+#"
    return frozenset(
        topic for topic in UNIVERSE if regex.fullmatch(topic) and not (free and topic[0] in "$!@")
    )


def matches(filter: str, topic: str) -> bool:
    return topic in topics(filter)


@cache
def covers(a: str, b: str) -> bool:
    return topics(a) >= topics(b)


@cache
def crosses(a: str, b: str) -> bool:
    return not topics(a).isdisjoint(topics(b))


@dataclass(frozen=True)
class Bound:
    """A reservation, as the model has it."""

    filter: str
    aip: frozenset[str]
    pip: frozenset[str]


@dataclass
class Graph:
    """Purposes: below by name, and by edges."""

    edges: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def ancestors(self, purpose: str) -> set[str]:
        """The purpose and all above it, by looking until nothing new is found."""
        found = {purpose}
        while True:
            more = set(found)
            for one in found:
                more |= {parent for parent, below in self.edges.items() if one in below}
                parts = one.split("/")
                more |= {"/".join(parts[:i]) for i in range(1, len(parts))}
            if more == found:
                return found
            found = more

    def known(self, purpose: str) -> bool:
        named = set(self.edges)
        for below in self.edges.values():
            named |= set(below)
        return not named or any(purpose == n or n.startswith(purpose + "/") for n in named)

    def allows(self, aip: Iterable[str], pip: Iterable[str], ap: str) -> bool:
        ancestors = self.ancestors(ap)
        return any(p in ancestors for p in aip) and not any(p in ancestors for p in pip)


def eip(bound: Iterable[Bound], topic: str) -> tuple[set[str], set[str]] | None:
    """The unions over what matches the topic (IV-D); None when nothing does."""
    aip: set[str] = set()
    pip: set[str] = set()
    found = False
    for one in bound:
        if matches(one.filter, topic):
            found = True
            aip |= one.aip
            pip |= one.pip
    return (aip, pip) if found else None


def compatible(bound: Sequence[Bound], graph: Graph, filter: str, ap: str, strict: bool) -> bool:
    """The paper's filter on subscribe, topic by topic: `ap` ("" for none) suits each of them."""
    for topic in topics(filter):
        both = eip(bound, topic)
        if both is None:
            if strict:
                return False
        elif not ap or not graph.allows(*both, ap):
            return False
    return True


@cache
def speaks(other: Bound, one: Bound, filter: str) -> bool:
    """Whether `other` covers all that `one` and the filter have in common."""
    return topics(other.filter) >= topics(one.filter) & topics(filter)


def fos(bound: Sequence[Bound], graph: Graph, filter: str, ap: str, strict: bool) -> bool:
    """The rule of filter on subscribe: one reservation at least speaks for each whole part.

    Stricter than `compatible` in one point: `a` and `a/+/#` together cover `a/#`, but neither
    alone speaks for all of it.
    """
    crossing = [one for one in bound if crosses(one.filter, filter)]
    if not crossing and not strict:
        return True
    if not ap:
        return False
    above = graph.ancestors(ap)
    for one in crossing:
        if one.pip & above:
            return False
    if strict:
        return any(one.aip & above for one in crossing if covers(one.filter, filter))
    for one in crossing:
        if not any(other.aip & above for other in bound if speaks(other, one, filter)):
            return False
    return True


def hybrid(bound: Sequence[Bound], graph: Graph, filter: str, ap: str, strict: bool) -> bool:
    """Only what can get nothing at all is refused at once (V-C3)."""
    if not ap:
        return not strict
    above = graph.ancestors(ap)
    covering = [one for one in bound if covers(one.filter, filter)]
    crossing = [one for one in bound if crosses(one.filter, filter)]
    if not covering:
        return True
    if any(one.pip & above for one in covering):
        return False
    return any(one.aip & above for one in crossing)


def subscribe(
    mode: str, bound: Sequence[Bound], graph: Graph, filter: str, ap: str, strict: bool
) -> bool:
    """May one subscribe to the filter for `ap` ("" for none)."""
    if strict and not ap:
        return False
    if mode == "fop":
        return True
    rule = fos if mode == "fos" else hybrid
    return rule(bound, graph, filter, ap, strict)


def deliver(
    mode: str,
    bound: Sequence[Bound],
    graph: Graph,
    subs: Iterable[tuple[str, str]],
    topic: str,
    strict: bool,
) -> bool:
    """May one have a message of the topic; `subs` are the own subscriptions: filter and purpose."""
    both = eip(bound, topic)
    if both is None:
        return not strict
    for filter, ap in subs:
        if not ap or not matches(filter, topic) or not graph.allows(*both, ap):
            continue
        if mode != "fos" or subscribe("fos", bound, graph, filter, ap, strict):
            return True
    return False
