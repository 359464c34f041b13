"""What rules allow, as a trie of levels: a verdict looks at the paths that its topic takes.

%c and %l are no levels of the trie but edges of their own, as + is: a topic with a level "%c" never
takes the edge. Who may stands where a pattern ends; patterns of several rules share their path.
Recursion is bounded by the levels of a pattern (settings.MOST_LEVELS), a look by the patterns.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..api import Ask, Dep, Who
from ..conditions import When
from ..filters import levels
from .settings import CLIENT, LABEL, NAME, Rule

_WILD = frozenset("+#/")

Grant = Dep
"""("allowlist", one of settings.WHAT, pattern, what it is allowed by, name): what an allow rests
on, and that a delivery is sealed."""


def fits(name: str) -> bool:
    """Whether a name may stand for %c or %l: with / it would be several levels, with + or # it
    would be a wildcard in what the client asks for (CVE-2017-7650)."""
    return bool(name) and _WILD.isdisjoint(name)


class _Ends:
    """To whom the pattern that ends here is allowed."""

    __slots__ = ("clients", "everybody", "kinds", "labels")

    def __init__(self) -> None:
        self.everybody: Grant | None = None
        self.clients: dict[str, Grant] = {}
        self.labels: dict[str, Grant] = {}
        self.kinds: dict[str, Grant] = {}

    def to(self, who: Who) -> Grant | None:
        return (
            self.everybody
            or self.clients.get(who.client)
            or self.labels.get(who.label)
            or self.kinds.get(who.kind)
        )

    def put(self, grant: Grant) -> None:
        _, _, _, by, name = grant
        if by == "everybody":
            self.everybody = grant
        else:
            found: dict[str, Grant] = getattr(self, by)
            found[name] = grant


class _Node:
    """After some levels: `here` a pattern ends, `rest` one ends with #; `one`, `client` and `label`
    are what follows +, %c and %l."""

    __slots__ = ("below", "client", "here", "label", "one", "rest")

    def __init__(self) -> None:
        self.below: dict[str, _Node] = {}
        self.one: _Node | None = None
        self.client: _Node | None = None
        self.label: _Node | None = None
        self.here: _Ends | None = None
        self.rest: _Ends | None = None

    def after(self, level: str) -> _Node:
        """What follows a pattern's level, made where it is missing."""
        if level == "+":
            self.one = found = self.one or _Node()
        elif level == CLIENT:
            self.client = found = self.client or _Node()
        elif level == LABEL:
            self.label = found = self.label or _Node()
        else:
            found = self.below.setdefault(level, _Node())
        return found


class Verb:
    """What rules say of one verb, publish or read: those without a condition, and then those with
    each."""

    def __init__(self, verb: str) -> None:
        self._verb = verb
        self._sides: dict[When, Side] = {}

    def take(self, rules: Sequence[Rule]) -> list[Dep]:
        """These from now on. Gives what no longer holds."""
        before = self._sides
        whens = dict.fromkeys((When(), *(rule.when for rule in rules)))
        self._sides = {when: before.get(when, Side(self._verb)) for when in whens}
        gone = [dep for when in before.keys() - whens.keys() for dep in before[when].take(())]
        for when, side in self._sides.items():
            gone += side.take([rule for rule in rules if rule.when == when])
        return gone

    def denied(self, path: Sequence[str]) -> tuple[Dep, ...]:
        """What the deny of a topic or filter rests on: what may come to be allowed there. What
        conditions were looked at it rests on anyway."""
        if path[0] == "+":
            return (_wild(self._verb),)
        return (_below(self._verb, path[0]), _anywhere(self._verb))

    def covering(self, ask: Ask, path: Sequence[str]) -> Grant | None:
        """By what it is allowed all of the topic or filter (its levels) now: a grant that alone is
        enough."""
        for when, side in self._sides.items():
            grant = side.covering(ask.who, path)
            if grant is not None and when.met(ask):
                return grant
        return None

    def crossing(self, ask: Ask, path: Sequence[str]) -> Grant | None:
        """By what it is allowed some topic now that the filter matches."""
        for when, side in self._sides.items():
            grant = side.crossing(ask.who, path)
            if grant is not None and when.met(ask):
                return grant
        return None

    def unmet(self, who: Who, path: Sequence[str]) -> str:
        """Of what is denied: the condition of a rule that would allow some of it, or ""."""
        found = (when.words for when, side in self._sides.items() if side.crossing(who, path))
        return next(found, "")


def _anywhere(verb: str) -> Dep:
    return (NAME, verb, "anywhere")


def _wild(verb: str) -> Dep:
    return (NAME, verb, "wild")


def _below(verb: str, first: str) -> Dep:
    return (NAME, verb, "below", first)


class Side:
    """What rules of one condition say of one verb of settings.WHAT."""

    def __init__(self, verb: str) -> None:
        self._verb = verb
        self._grants: frozenset[Grant] = frozenset()
        self._root = _Node()

    def take(self, rules: Sequence[Rule]) -> list[Dep]:
        """These from now on. Gives what no longer holds: allows whose grant is gone, and denies of
        what a new grant may reach."""
        before, self._grants = self._grants, frozenset(_grants(self._verb, rules))
        self._root = _Node()
        for grant in self._grants:
            self._put(grant)
        gone: dict[Dep, None] = dict.fromkeys(before - self._grants)
        for grant in self._grants - before:
            first = levels(grant[2])[0]
            wild = first in ("+", CLIENT, LABEL)
            gone[_anywhere(self._verb) if wild else _below(self._verb, first)] = None
            gone[_wild(self._verb)] = None
        return list(gone)

    def _put(self, grant: Grant) -> None:
        node = self._root
        path = levels(grant[2])
        last = path.pop() if path[-1] == "#" else ""
        for level in path:
            node = node.after(level)
        if last:
            node.rest = ends = node.rest or _Ends()
        else:
            node.here = ends = node.here or _Ends()
        ends.put(grant)

    def covering(self, who: Who, path: Sequence[str]) -> Grant | None:
        """As Verb's, while the condition is met."""
        return _covering(self._root, who, path, 0)

    def crossing(self, who: Who, path: Sequence[str]) -> Grant | None:
        """As Verb's, while the condition is met."""
        return _crossing(self._root, who, path, 0)


def _grants(verb: str, rules: Sequence[Rule]) -> Iterator[Grant]:
    for rule in rules:
        for pattern in rule.what()[verb]:
            if rule.everybody:
                yield (NAME, verb, pattern, "everybody", "")
            for by in ("clients", "labels", "kinds"):
                for name in getattr(rule, by):
                    yield (NAME, verb, pattern, by, name)


def _covering(node: _Node, who: Who, path: Sequence[str], at: int) -> Grant | None:
    if node.rest is not None:
        grant = node.rest.to(who)
        if grant is not None:
            return grant
    if at == len(path):
        return None if node.here is None else node.here.to(who)
    level = path[at]
    if level == "#":
        return None
    at += 1
    below = node.below.get(level)
    grant = None if below is None else _covering(below, who, path, at)
    if grant is None and node.one is not None:
        grant = _covering(node.one, who, path, at)
    if grant is None and node.client is not None and level == who.client and fits(level):
        grant = _covering(node.client, who, path, at)
    if grant is None and node.label is not None and level == who.label and fits(level):
        grant = _covering(node.label, who, path, at)
    return grant


def _crossing(node: _Node, who: Who, path: Sequence[str], at: int) -> Grant | None:
    if node.rest is not None:
        grant = node.rest.to(who)
        if grant is not None:
            return grant
    if (at == len(path) or path[at] == "#") and node.here is not None:
        grant = node.here.to(who)
        if grant is not None:
            return grant
    if at == len(path):
        return None
    for below in _meeting(node, who, path[at]):
        grant = _crossing(below, who, path, at if path[at] == "#" else at + 1)
        if grant is not None:
            return grant
    return None


def _meeting(node: _Node, who: Who, level: str) -> Iterator[_Node]:
    """What follows the patterns' levels that have a name in common with a filter's level."""
    if level in ("+", "#"):
        yield from node.below.values()
    elif level in node.below:
        yield node.below[level]
    if node.one is not None:
        yield node.one
    for own, name in ((node.client, who.client), (node.label, who.label)):
        if own is not None and level in ("+", "#", name) and fits(name):
            yield own
