"""What rules allow, as a trie of levels: a verdict looks at the paths that its topic takes.

%c and %l are no levels of the trie but edges of their own, as + is: a topic with a level "%c" never
takes the edge. Who may stands where a pattern ends; patterns of several rules share their path.
Patterns that are about some senders' messages (`from`) have a trie of their own: of these all count
that fit, of the others one is enough. Recursion is bounded by the levels of a pattern
(settings.MOST_LEVELS), a look by the patterns. Patterns below @PEER/ are tries of their own: no
wildcard leads there, and none from there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from ..api import Ask, Dep, Who
from ..conditions import When
from ..filters import levels
from .settings import CLIENT, LABEL, NAME, SEALED, WHOM, Rule

_WILD = frozenset("+#/")

Grant = Dep
"""("allowlist", one of settings.WHAT, pattern, what it is allowed by, name): what an allow rests
on, and that a delivery is sealed. If it is about some senders' messages alone, their names follow,
as one text: whoever looks it up goes through no list. If it is sealed for a group, that follows.
"""
_BETWEEN = ","


def senders(grant: Grant) -> list[str]:
    """Whose messages it is about; none: everybody's."""
    return grant[5].split(_BETWEEN) if len(grant) > 5 else []


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

    def all_to(self, who: Who) -> list[Grant]:
        """All by which it is allowed to that client."""
        found = (
            self.everybody,
            self.clients.get(who.client),
            self.labels.get(who.label),
            self.kinds.get(who.kind),
        )
        return [grant for grant in found if grant is not None]

    def put(self, grant: Grant) -> None:
        """Of several groups with one pattern, the first by its name."""
        by, name = grant[3:5]
        if by == "everybody":
            self.everybody = min(self.everybody or grant, grant)
        else:
            found: dict[str, Grant] = getattr(self, by)
            found[name] = min(found.get(name, grant), grant)


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
        """By what it is allowed all of the topic or filter (its levels) now, whoever sends: a grant
        that alone is enough."""
        for when, side in self._sides.items():
            grant = side.covering(ask.who, path)
            if grant is not None and when.met(ask):
                return grant
        return None

    def covering_some(self, ask: Ask, path: Sequence[str]) -> list[Grant]:
        """By what it is allowed some senders' messages on the topic now: all such grants."""
        found = []
        for when, side in self._sides.items():
            grants = side.covering_some(ask.who, path)
            if grants and when.met_for(ask, (name for one in grants for name in senders(one))):
                found += grants
        return found

    def crossing(self, ask: Ask, path: Sequence[str]) -> Grant | None:
        """By what it is allowed some topic now that the filter matches, or some of its messages."""
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
        self._own, self._peers = (_Node(), _Node()), (_Node(), _Node())

    def take(self, rules: Sequence[Rule]) -> list[Dep]:
        """These from now on. Gives what no longer holds: allows whose grant is gone, and denies of
        what a new grant may reach."""
        before, self._grants = self._grants, frozenset(_grants(self._verb, rules))
        self._own, self._peers = (_Node(), _Node()), (_Node(), _Node())
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
        path = levels(grant[2])
        node = self._of(path)[len(grant) > 5]
        last = path.pop() if path[-1] == "#" else ""
        for level in path:
            node = node.after(level)
        if last:
            node.rest = ends = node.rest or _Ends()
        else:
            node.here = ends = node.here or _Ends()
        ends.put(grant)

    def _of(self, path: Sequence[str]) -> tuple[_Node, _Node]:
        """The tries of patterns for everybody's messages, and for some senders'."""
        return self._peers if path[0][:1] == "@" else self._own

    def covering(self, who: Who, path: Sequence[str]) -> Grant | None:
        """As Verb's, while the condition is met."""
        return _covering(self._of(path)[0], who, path, 0, _Ends.to)

    def covering_some(self, who: Who, path: Sequence[str]) -> list[Grant]:
        """As Verb's, while the condition is met."""
        found: list[Grant] = []

        def collect(ends: _Ends, who: Who) -> None:
            found.extend(ends.all_to(who))

        _covering(self._of(path)[1], who, path, 0, collect)
        return found

    def crossing(self, who: Who, path: Sequence[str]) -> Grant | None:
        """As Verb's, while the condition is met."""
        all_, some = self._of(path)
        return _crossing(all_, who, path, 0) or _crossing(some, who, path, 0)


class Groups(Side):
    """What is sealed for groups."""

    def of(self, who: Who, path: Sequence[str]) -> Grant | None:
        """By which group's pattern the topic is sealed for the client: of several groups the first
        by its name."""
        if not self._grants:
            return None
        return min(self.covering_some(who, path), key=lambda grant: grant[5], default=None)


def _grants(verb: str, rules: Sequence[Rule]) -> Iterator[Grant]:
    # Where a pattern ends there is one grant for each whom it is about.
    some: dict[Grant, set[str]] = {}
    for rule in rules:
        group = (rule.sealed_for,) if verb == SEALED and rule.sealed_for else ()
        for written in rule.what()[verb]:
            pattern = _SAME.get(written, written)
            for by, name in _whom(rule):
                grant: Grant = (NAME, verb, pattern, by, name)
                if verb == "read" and rule.senders:
                    some.setdefault(grant, set()).update(rule.senders)
                else:
                    yield (*grant, *group)
    for grant, names in some.items():
        yield (*grant, _BETWEEN.join(sorted(names)))


def _whom(rule: Rule) -> Iterator[tuple[str, str]]:
    if rule.everybody:
        yield "everybody", ""
    for by in WHOM:
        for name in getattr(rule, by):
            yield by, name


# They match the same topics, since none is empty.
_SAME = {"+/#": "#", "/+/#": "/#"}
_Take = Callable[[_Ends, Who], Grant | None]


# `take` is asked wherever a pattern ends that fits; the first grant that it gives ends the search.
def _covering(node: _Node, who: Who, path: Sequence[str], at: int, take: _Take) -> Grant | None:
    if node.rest is not None:
        grant = take(node.rest, who)
        if grant is not None:
            return grant
    if at == len(path):
        return None if node.here is None else take(node.here, who)
    level = path[at]
    if level == "#":
        return None
    at += 1
    below = node.below.get(level)
    grant = None if below is None else _covering(below, who, path, at, take)
    if grant is None and node.one is not None:
        grant = _covering(node.one, who, path, at, take)
    if grant is None and node.client is not None and level == who.client and fits(level):
        grant = _covering(node.client, who, path, at, take)
    if grant is None and node.label is not None and level == who.label and fits(level):
        grant = _covering(node.label, who, path, at, take)
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
