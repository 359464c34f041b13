"""Who may do what with whose events: chains of assertions that lead back to the site's policy.

Definition. For a principal w, an action A, and an event e (its type, its owner o, its values, and
who asked at first):

    holds(w, A, e)  if there is an assertion x with
        w among its licensees: by name, by "*", or by "owner" where w is o,
        A among its actions, e of its application and type, and x about the events of o or of all,
        its condition true of e, A and whoever asked at first,
        and either its authorizer is POLICY,
        or, of its authorizer a:   holds(a, A, e), and
            dynamic: holds(a, CHANGE_POLICY, e);
            static:  a could change the policy there when it asserted x, which the command has seen
                     to: x would else not be here.

The least relation of that kind: a cycle of assertions holds nothing. Assertions only add.

A Plan answers it for one type and one owner, or for all owners at once (ALL: what holds for each of
them). What no condition decides it finds once; where conditions do, it keeps just those chains.
Plans are made lazily, for the principals that are asked about, and live until an assertion about
that owner, or one about all, comes or goes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from .actions import CHANGE_POLICY
from .assertions import Assertion
from .events import EventType
from .expressions import Condition
from .names import EVERYBODY, OWNER, POLICY

MOST_LOOKED = 512
"""Assertions that a question may come across, of principals that it has not asked about before."""
MOST_PLANS = 20_000
"""Owners whose plans are kept."""
MOST_NODES = 300_000
"""Principals and actions in all plans together; with more, all are made anew."""
ALL = ""
"""In the place of an owner: each of them."""

Judge = Callable[[Condition, int], bool]
"""Whether a condition is met, for this action."""


_DEEP = 64
"""Links of a chain that are followed one by one; a longer one is looked at as a whole."""
_NO_KEYS: frozenset[Key] = frozenset()
_ANYBODY = "*"
"""In the plan of all owners: whoever is not named there."""


class TooMuch(Exception):
    """More assertions than MOST_LOOKED."""


class _Cycle(Exception):
    """A chain comes upon itself, or is long."""


_Held = Assertion | tuple[Assertion, ...]
_NONE: dict[str, _Held] = {}


class Index:
    """Assertions that count, by the owner that they are about, and by licensee."""

    __slots__ = ("_by",)

    def __init__(self) -> None:
        # One assertion stands for itself: most owners let one principal do something once.
        self._by: dict[str, dict[str, _Held]] = {}

    def put(self, made: Assertion) -> None:
        by = self._by.setdefault(about(made), {})
        for name in made.licensees:
            held = by.get(name)
            if held is None:
                by[name] = made
            else:
                by[name] = (*held, made) if isinstance(held, tuple) else (held, made)

    def take(self, made: Assertion) -> None:
        owner = about(made)
        by = self._by[owner]
        for name in made.licensees:
            held = by[name]
            some = held if isinstance(held, tuple) else (held,)
            left = tuple(one for one in some if one is not made)
            if not left:
                del by[name]
            else:
                by[name] = left if len(left) > 1 else left[0]
        if not by:
            del self._by[owner]

    def licensing(self, owner: str, name: str) -> list[Assertion]:
        """Those that may let `name` do something with events of this owner, or of each (ALL)."""
        own, every = self._by.get(owner, _NONE), self._by.get(EVERYBODY, _NONE)
        some: tuple[_Held | None, ...] = own.get(name), own.get(EVERYBODY)
        if name == owner:
            some = (*some, own.get(OWNER), every.get(name), every.get(EVERYBODY), every.get(OWNER))
        else:
            some = (*some, every.get(name), every.get(EVERYBODY))
        found: list[Assertion] = []
        for held in some:
            if held is None:
                continue
            if isinstance(held, tuple):
                found += held
            else:
                found.append(held)
        return found

    def is_named(self, name: str) -> bool:
        """Whether one about all owners names this licensee."""
        by = self._by.get(EVERYBODY)
        return by is not None and name in by

    def held(self, owner: str, licensee: str) -> tuple[Assertion, ...]:
        """Those about exactly this owner ("*": all) that name exactly this licensee."""
        held = self._by.get(owner, {}).get(licensee, ())
        return held if isinstance(held, tuple) else (held,)

    def licensees(self, owner: str) -> Iterator[str]:
        """Who is named where the events of this owner, or of all, are concerned."""
        yield from self._by.get(owner, ())

    def about(self, owner: str) -> Iterator[Assertion]:
        """Those about this owner ("*": about all), each once."""
        seen = set()
        for held in self._by.get(owner, {}).values():
            for one in held if isinstance(held, tuple) else (held,):
                if id(one) not in seen:
                    seen.add(id(one))
                    yield one

    def owners(self) -> Iterator[str]:
        return iter(self._by)


def about(made: Assertion) -> str:
    """Whose events it is about: "*" for all. Its condition may say it."""
    return made.condition.owner or made.owner if made.owner == EVERYBODY else made.owner


Key = tuple[str, int]
"""A principal and an action."""


_Clause = tuple[Assertion, Condition | None, tuple[Key, ...]]
"""One way to hold: an assertion, its condition (None: always met), and what has to hold besides,
whose nodes are Maybes, too. A plain tuple: one is made for most questions.
"""


class Maybe:
    """Held while conditions say so: any clause is enough. `plain`: no clause needs another node."""

    __slots__ = ("clauses", "key", "plain")

    def __init__(self, key: Key, clauses: tuple[_Clause, ...], plain: bool) -> None:
        self.key, self.clauses, self.plain = key, clauses, plain


Node = bool | Maybe


class _Count:
    """Nodes of all plans that are kept, at most: those of one that was dropped still count."""

    __slots__ = ("nodes",)

    def __init__(self) -> None:
        self.nodes = 0


class Plan:
    """What holds for one type and one owner (ALL: for each owner)."""

    __slots__ = (
        "_count",
        "_index",
        "_looked",
        "_of",
        "_owner",
        "_static",
        "_too_much",
        "_wide",
        "nodes",
        "of_owner",
    )

    def __init__(
        self,
        index: Index,
        of: EventType | None,
        owner: str,
        static: bool,
        wide: Plan | None,
        count: _Count | None = None,
    ) -> None:
        """`wide`: the plan of all owners; what it is sure of holds here as well. `count`: of the
        plans that are kept together with this one.
        """
        self._index, self._of, self._owner, self._static = index, of, owner, static
        self._wide, self._count = wide, count
        self._looked = 0  # by the question that is being answered
        self._too_much = _NO_KEYS
        self.nodes: dict[Key, Node] = {}
        self.of_owner = 0
        """Of all owners' plan: actions that each owner is known to hold, whatever comes."""

    def node(self, name: str, action: int) -> Node:
        """Whether it holds: sure, never, or maybe. TooMuch."""
        key = (name, action) if self._owner else self._key(name, action)
        nodes = self.nodes
        found = nodes.get(key)
        if found is not None:
            return found
        if self._too_much and key in self._too_much:
            raise TooMuch
        self._looked, before = 0, len(nodes)
        try:
            return self._look(key, ())
        except _Cycle:
            return self._solve(key)
        except TooMuch:
            self._too_much |= {key}
            before -= 1
            raise
        finally:
            if self._count is not None:
                self._count.nodes += len(nodes) - before

    def _key(self, name: str, action: int) -> Key:
        """Of all owners' plan: whom nobody names there holds what everybody does. OWNER stands
        there for whoever the owner is.
        """
        if not self._owner and not self._index.is_named(name):
            return _ANYBODY, action
        return name, action

    def holds(self, name: str, action: int, judge: Judge) -> bool:
        """Whether it holds, where `judge` says which conditions are met. TooMuch."""
        node = self.node(name, action)
        return node if isinstance(node, bool) else self.met(node, judge)

    def met(self, node: Maybe, judge: Judge) -> bool:
        """Whether what `node` gave holds, where `judge` says which conditions are met. TooMuch."""
        if not node.plain:
            return bool(self._chain(node.key, judge))
        action = node.key[1]
        for _, condition, _ in node.clauses:
            if condition is None or judge(condition, action):
                return True
        return False

    def weight(self, node: Maybe) -> int:
        """How many clauses a look at whether it is met may come across, besides its conditions."""
        if node.plain:
            return 0
        seen: dict[Key, int] = {}
        left = [node.key]
        while left:
            key = left.pop()
            found = None if key in seen else self.nodes.get(key)
            if isinstance(found, Maybe):
                seen[key] = len(found.clauses)
                left += [need for _, _, needs in found.clauses for need in needs]
        return sum(seen.values())

    def chain(self, name: str, action: int, judge: Judge) -> list[tuple[Key, Assertion]]:
        """Assertions by which it holds, the last link first; empty: it does not. TooMuch."""
        node = self.node(name, action)
        return [] if isinstance(node, bool) else self._chain(node.key, judge)

    def _chain(self, root: Key, judge: Judge) -> list[tuple[Key, Assertion]]:
        clauses = self._reachable(root, judge)
        return _links(root, _least(clauses), clauses)

    def full_chain(self, name: str, action: int, judge: Judge) -> list[tuple[Key, Assertion]]:
        """`chain`, also of what no condition decides. For words; it looks at all again."""
        clauses: dict[Key, list[_Clause]] = {}
        left = [(name, action)]
        while left:
            key = left.pop()
            if key not in clauses:
                clauses[key] = _judged(self._clauses(key), key[1], judge)
                left += [need for _, _, needs in clauses[key] for need in needs]
                if len(clauses) > MOST_LOOKED:
                    raise TooMuch
        return _links((name, action), _least(clauses), clauses)

    def _reachable(self, root: Key, judge: Judge) -> dict[Key, list[_Clause]]:
        """The clauses whose conditions are met, of all Maybes that the root may need."""
        clauses: dict[Key, list[_Clause]] = {}
        left = [root]
        while left:
            key = left.pop()
            if key in clauses or isinstance(node := self.node(*key), bool):
                continue
            clauses[key] = _judged(node.clauses, key[1], judge)
            left += [need for _, _, needs in clauses[key] for need in needs]
        return clauses

    def _clauses(self, key: Key) -> list[_Clause]:
        name, action = key
        of = self._of
        found: list[_Clause] = []
        for made in self._index.licensing(self._owner, name):
            when = made.condition
            if not made.actions & when.actions & action or not _fits(made, of):
                continue
            met = when if when.met is not None else None
            if made.authorizer == POLICY:
                found.append((made, met, ()))
            elif self._static or action == CHANGE_POLICY:
                found.append((made, met, ((made.authorizer, action),)))
            else:
                by = made.authorizer
                found.append((made, met, ((by, action), (by, CHANGE_POLICY))))
        return found

    def _look(self, key: Key, busy: tuple[Key, ...]) -> Node:
        """What is not known yet, by going back along the chains, where none of them comes upon
        itself. _Cycle.
        """
        if key in busy or len(busy) > _DEEP:
            raise _Cycle
        nodes = self.nodes
        if busy and self._is_wide(key):
            nodes[key] = True
            return True
        name, action = key
        of, owner, wide = self._of, self._owner, self._wide
        rights = action if self._static else action | CHANGE_POLICY
        maybe: list[_Clause] = []
        plain = True
        for made in self._index.licensing(owner, name):
            self._looked += 1
            when = made.condition
            if not made.actions & when.actions & action or not _fits(made, of):
                continue
            needs: tuple[Key, ...] = ()
            by = made.authorizer
            # Most often the owner has said it, and may say so: that is known without a look.
            if by != POLICY and (by != owner or wide is None or rights & ~wide.of_owner):
                found = self._needs(by, action, (*busy, key))
                if found is None:
                    continue
                needs = found
            if when.met is None and not needs:
                nodes[key] = True
                return True
            if needs:
                plain = False
            maybe.append((made, when if when.met is not None else None, needs))
        if self._looked > MOST_LOOKED:
            raise TooMuch
        node: Node = Maybe(key, tuple(maybe), plain) if maybe else False
        nodes[key] = node
        return node

    def _needs(self, by: str, action: int, busy: tuple[Key, ...]) -> tuple[Key, ...] | None:
        """What is not sure of what an authorizer has to hold; None: he never does. _Cycle."""
        needs: tuple[Key, ...] = ()
        once = self._static or action == CHANGE_POLICY
        for right in (action,) if once else (action, CHANGE_POLICY):
            need = by, right
            node = self.nodes.get(need)
            if node is None:
                node = self._look(need, busy)
            if node is False:
                return None
            if node is not True:
                needs = (*needs, need)
        return needs

    def _is_wide(self, key: Key) -> bool:
        """Whether it holds for all owners, whatever comes: by name, or because it is the owner."""
        wide, (name, action) = self._wide, key
        if wide is None:
            return False
        if name == self._owner and wide.node(OWNER, action) is True:
            wide.of_owner |= action
            return True
        return wide.node(name, action) is True

    def _solve(self, root: Key) -> Node:
        """All that the root may need, and is not known yet, at once: for where there are cycles."""
        nodes = self.nodes
        clauses: dict[Key, list[_Clause]] = {}
        left, looked = [root], 0
        while left:
            key = left.pop()
            if key in nodes or key in clauses:
                continue
            if key != root and self._is_wide(key):
                nodes[key] = True
                continue
            found = clauses[key] = self._clauses(key)
            looked += len(found) + 1
            if looked > MOST_LOOKED:
                self._too_much |= {root}
                raise TooMuch
            for _, _, needs in found:
                left += needs
        self._settle(clauses)
        return nodes[root]

    def _settle(self, clauses: dict[Key, list[_Clause]]) -> None:
        """Sure is what holds though no condition is met, never what does not though all are."""
        nodes = self.nodes

        def known(clause: _Clause, sure: bool) -> _Clause | None:
            """The clause without the needs that are decided; None: it can hold nothing."""
            made, condition, some = clause
            needs = []
            for need in some:
                node = nodes.get(need)
                if node is None:
                    needs.append(need)
                elif node is False or (sure and node is not True):
                    return None
            return made, condition, tuple(needs)

        def of(sure: bool) -> dict[Key, list[_Clause]]:
            return {
                key: [
                    found
                    for clause in some
                    if not sure or clause[1] is None
                    if (found := known(clause, sure)) is not None
                ]
                for key, some in clauses.items()
            }

        possible = _least(of(sure=False))
        sure = _least(of(sure=True))
        for key in clauses:
            if key in sure:
                nodes[key] = True
            elif key not in possible:
                nodes[key] = False
        for key, some in clauses.items():
            if key in nodes:
                continue
            left: list[_Clause] = []
            for made, condition, needs in some:
                if any(nodes.get(need) is False for need in needs):
                    continue
                unsure = tuple(need for need in needs if nodes.get(need) is not True)
                left.append((made, condition, unsure))
            nodes[key] = Maybe(key, tuple(left), not any(needs for _, _, needs in left))


def _fits(made: Assertion, of: EventType | None) -> bool:
    """Whether it is about events of this type. None: about no event at all."""
    when = made.condition
    app, name = ("", "") if of is None else (of.app, of.name)
    if (
        (made.app and made.app != app)
        or (made.type and made.type != name)
        or (when.app and when.app != app)
        or (when.type and when.type != name)
        or (when.owner and when.owner != made.owner != EVERYBODY)
    ):
        return False
    if of is None:
        return True
    # Where the type asks for signatures, what an owner has not signed counts for nothing.
    return not of.signed or bool(made.signature) or not made.at_ms


def _judged(some: Iterable[_Clause], action: int, judge: Judge) -> list[_Clause]:
    """Those whose conditions are met."""
    return [one for one in some if one[1] is None or judge(one[1], action)]


def _least(clauses: dict[Key, list[_Clause]]) -> dict[Key, _Clause]:
    """The least fixed point: what holds, each by the clause that was found first. Linear. A need
    that has no clauses of its own holds nothing.
    """
    held: dict[Key, _Clause] = {}
    waiting: dict[Key, list[tuple[Key, _Clause]]] = {}
    ready: list[Key] = []
    for key, some in clauses.items():
        for clause in some:
            _, _, needs = clause
            if not needs:
                if key not in held:
                    held[key] = clause
                    ready.append(key)
            else:
                for need in needs:
                    waiting.setdefault(need, []).append((key, clause))
    while ready:
        for key, clause in waiting.get(ready.pop(), ()):
            _, _, needs = clause
            if key not in held and all(need in held for need in needs):
                held[key] = clause
                ready.append(key)
    return held


def _links(
    root: Key, held: dict[Key, _Clause], clauses: dict[Key, list[_Clause]]
) -> list[tuple[Key, Assertion]]:
    if root not in held:
        return []
    out, left, seen = [], [root], set()
    while left:
        key = left.pop(0)
        if key in seen or key not in held:
            continue
        seen.add(key)
        made, _, needs = held[key]
        out.append((key, made))
        left += needs
    return out


class Plans:
    """The plans that are kept, by owner and type."""

    def __init__(self, index: Index) -> None:
        self._index = index
        self.static = False
        self._wide: dict[tuple[str, str] | None, Plan] = {}
        self._by: dict[str, dict[tuple[str, str] | None, Plan]] = {}
        self._count = _Count()

    @property
    def nodes(self) -> int:
        """At most so many are in the plans that are kept."""
        return self._count.nodes

    def of(self, kind: EventType | None, owner: str) -> Plan:
        """The plan of one type (None: of no event), and one owner or ALL."""
        if self._count.nodes > MOST_NODES:
            # A plan that is in use goes on by itself.
            self.clear()
        key = None if kind is None else kind.key
        if not owner:
            wide = self._wide.get(key)
            if wide is None:
                wide = Plan(self._index, kind, ALL, self.static, None, self._count)
                self._wide[key] = wide
            return wide
        by = self._by.get(owner)
        if by is None:
            if len(self._by) >= MOST_PLANS:
                del self._by[next(iter(self._by))]
            by = self._by[owner] = {}
        plan = by.get(key)
        if plan is None:
            wide = self._wide.get(key) or self.of(kind, ALL)
            plan = by[key] = Plan(self._index, kind, owner, self.static, wide, self._count)
        return plan

    def drop(self, owner: str) -> None:
        """An assertion about this owner ("*": about all) has come or gone."""
        if owner == EVERYBODY:
            self.clear()
        else:
            self._by.pop(owner, None)

    def clear(self) -> None:
        """The types are others, or the way of delegation."""
        self._wide.clear()
        self._by.clear()
        self._count.nodes = 0
