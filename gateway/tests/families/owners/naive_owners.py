"""Owner policies by their definition: a set of (principal, action) pairs that grows until nothing
is added, for one event at a time. Conditions are trees with an evaluator of their own. Shares no
code with the family.
"""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, field
from typing import Any

ACTIONS = ("PUBLISH", "SUBSCRIBE", "RECEIVE", "CHANGE_POLICY", "EMERGENCY")
CLIENTS = ("ann", "bob", "cat", "dan")
PLACES = ("x", "y", "z")
ADDRESSES = ("urn:one", "urn:two")
# Of the site's attributes: whom they are of.
EXTERNALS = {"extSite": "site", "extSub": "subscriber", "extOwn": "owner", "extPair": "pair"}
TEXTS = ("x", "y", "true", "ann", "bob")
Tree = tuple[Any, ...]


@dataclass(frozen=True)
class Kind:
    app: str
    name: str
    first: str
    owner: str  # "user", "sender" or "attribute:whose"
    control: str
    sealed: bool = False

    def topic(self, user: str, place: str, number: int) -> str:
        return f"{self.first}/{user}/{place}/{number}"


KINDS = (
    Kind("A", "T0", "t0", "user", "receive"),
    Kind("A", "T1", "t1", "user", "both"),
    Kind("A", "T2", "t2", "user", "subscribe"),
    Kind("B", "T3", "t3", "user", "receive", True),
    Kind("B", "T4", "t4", "sender", "receive"),
    Kind("B", "T5", "t5", "sender", "both"),
    Kind("B", "T6", "t6", "user", "none"),
    Kind("B", "T7", "t7", "attribute:whose", "receive", True),
)


@dataclass(frozen=True)
class Said:
    by: str  # "POLICY" or a client
    to: tuple[str, ...]
    owner: str
    app: str
    kind: str
    actions: tuple[str, ...]
    when: Tree | None


@dataclass
class Event:
    kind: Kind
    user: str
    place: str
    number: int
    sender: str
    sealed: dict[str, Any] = field(default_factory=dict)
    retained: bool | None = None
    qos: int | None = None

    @property
    def owner(self) -> str:
        if self.kind.owner == "user":
            return self.user
        if self.kind.owner == "sender":
            return self.sender
        whose = self.sealed.get("whose", "")
        return whose if isinstance(whose, str) else ""


@dataclass
class World:
    said: dict[str, Said] = field(default_factory=dict)
    dynamic: bool = True
    values: dict[tuple[str, str, str], Any] = field(default_factory=dict)
    """By attribute, owner and subscriber, "" where it is of none."""
    signed: set[tuple[str, str]] = field(default_factory=set)
    glass: set[tuple[str, str]] = field(default_factory=set)

    # Conditions

    def value(self, name: str, event: Event, action: str, who: str) -> Any:
        known: dict[str, Any] = {
            "user": event.user, "place": event.place, "number": event.number, "action": action,
            "owner": event.owner or None, "subscriber": who, "sender": event.sender or None,
            "app_domain": event.kind.app, "evtType": event.kind.name, "qos": event.qos,
            "retained": event.retained,
        }  # fmt: skip
        if name in known:
            return known[name]
        if name in EXTERNALS:
            of = EXTERNALS[name]
            owner = event.owner if of in ("owner", "pair") else ""
            return self.values.get((name, owner, who if of in ("subscriber", "pair") else ""))
        return event.sealed.get(name) if event.kind.sealed else None

    def true(self, tree: Tree, event: Event, action: str, who: str) -> bool | None:
        what, *rest = tree
        if what == "const":
            return bool(rest[0])
        if what == "name":
            got = self.value(rest[0], event, action, who)
            return got if got is True or got is False else None
        if what == "contract":
            return (who, rest[0]) in self.signed
        if what in ("and", "or"):
            parts: list[bool | None] = [self.true(part, event, action, who) for part in rest]
            stop = bool(what == "or")
            if any(part is stop for part in parts):
                return stop
            return None if None in parts else not stop
        if what == "not":
            got = self.true(rest[0], event, action, who)
            return None if got is None else not got
        if what == "in":
            one = self.value(rest[0], event, action, who)
            found = [None if one is None else same(one, other) for other in rest[1]]
            return True if True in found else None if None in found else False
        left, right = (
            self.value(side[1], event, action, who) if side[0] == "name" else side[1]
            for side in rest
        )
        if left is None or right is None:
            return None
        if what in ("==", "!="):
            got = same(left, right)
            return got if got is None or what == "==" else not got
        if {type(left), type(right)} not in ({int}, {str}):
            return None
        answer: bool = {"<": left < right, "<=": left <= right, ">": left > right,
                        ">=": left >= right}[what]  # fmt: skip
        return answer

    # Who may what

    def pairs(self, event: Event, who: str, all_who: tuple[str, ...]) -> set[tuple[str, str]]:
        held: set[tuple[str, str]] = set()
        everybody = {who, *all_who, *(said.by for said in self.said.values())} - {"POLICY"}
        while True:
            more = set(held)
            for said in self.said.values():
                if said.owner not in ("*", event.owner):
                    continue
                if said.app not in ("", event.kind.app) or said.kind not in ("", event.kind.name):
                    continue
                for action in said.actions:
                    if said.when is not None and not self.true(said.when, event, action, who):
                        continue
                    if said.by != "POLICY":
                        if (said.by, action) not in held:
                            continue
                        if self.dynamic and (said.by, "CHANGE_POLICY") not in held:
                            continue
                    for name in said.to:
                        for one in everybody if name == "*" else (name,):
                            more.add((event.owner if one == "owner" else one, action))
            if more == held:
                return held
            held = more

    def holds(self, who: str, action: str, event: Event) -> bool:
        return bool(event.owner) and (who, action) in self.pairs(event, who, CLIENTS)

    def receives(self, who: str, event: Event) -> bool:
        control = event.kind.control
        if not event.owner:
            return False
        if control == "none":
            return True
        held = self.pairs(event, who, CLIENTS)
        if (control == "subscribe" or (who, "RECEIVE") in held) and (
            control == "receive" or (who, "SUBSCRIBE") in held
        ):
            return True
        return (event.owner, who) in self.glass and (who, "EMERGENCY") in held


def same(a: Any, b: Any) -> bool | None:
    if isinstance(a, bool) != isinstance(b, bool):
        flag, other = (a, b) if isinstance(a, bool) else (b, a)
        if not isinstance(other, str):
            return None
        return bool(flag) if other == "true" else not flag if other == "false" else None
    return bool(a == b) if type(a) is type(b) else None


# --- drawing -------------------------------------------------------------------------------------


NAMES = ("user", "place", "number", "owner", "subscriber", "sender", "app_domain", "evtType",
         "action", "qos", "retained", "speed", "flag", "whose", *EXTERNALS)  # fmt: skip


def literal(draw: random.Random, name: str) -> Any:
    if name in ("owner", "subscriber", "sender", "user", "whose"):
        return draw.choice(CLIENTS)
    fixed = {"app_domain": ("A", "B"), "evtType": ("T0", "T1", "T3"), "action": ACTIONS,
             "place": PLACES}.get(name)  # fmt: skip
    if fixed:
        return draw.choice(fixed)
    return draw.choice((*TEXTS, 0, 1, 2, -3, True, False))


def tree(draw: random.Random, depth: int = 0) -> Tree:
    kind = draw.random()
    if depth < 3 and kind < 0.45:
        what = draw.choice(("and", "or"))
        return (what, *(tree(draw, depth + 1) for _ in range(draw.randint(2, 3))))
    if depth < 3 and kind < 0.55:
        return ("not", tree(draw, depth + 1))
    if kind < 0.6:
        return ("contract", draw.choice(ADDRESSES))
    if kind < 0.64:
        return ("const", draw.choice((True, False)))
    name = draw.choice(NAMES)
    if kind < 0.7:
        return ("name", draw.choice(("flag", "retained", "extSub", "extPair")))
    if kind < 0.78:
        return ("in", name, tuple(literal(draw, name) for _ in range(draw.randint(1, 3))))
    op = "==" if kind < 0.9 or name == "action" else draw.choice(("!=", "<", "<=", ">", ">="))
    if kind > 0.96 and name != "action":
        other = draw.choice([n for n in NAMES if n != "action"])
        return (op, ("name", name), ("name", other))
    sides = [("name", name), ("lit", literal(draw, name))]
    return (op, *(sides if draw.random() < 0.8 or op != "==" else reversed(sides)))


def text(of: Tree) -> str:
    """As a person might write it, with more parentheses than there must be."""
    what, *rest = of
    if what == "const":
        return "true" if rest[0] else "false"
    if what == "name":
        return str(rest[0])
    if what == "lit":
        value = rest[0]
        if isinstance(value, bool):
            return "true" if value else "false"
        return f'"{value}"' if isinstance(value, str) else str(value)
    if what == "contract":
        return f'contract("{rest[0]}")'
    if what in ("and", "or"):
        return (" && " if what == "and" else " || ").join(f"({text(part)})" for part in rest)
    if what == "not":
        return f"!({text(rest[0])})"
    if what == "in":
        return f"{rest[0]} in [{', '.join(text(('lit', value)) for value in rest[1])}]"
    return f"{text(rest[0])} {what} {text(rest[1])}"


def names(of: Tree) -> set[str]:
    """What a condition asks for."""
    what, *rest = of
    if what in ("name", "in"):
        return {rest[0]}
    return set().union(*(names(part) for part in rest if isinstance(part, tuple)))


def json_bytes(value: Any) -> bytes:
    return json.dumps(value).encode()


def said(draw: random.Random) -> Said:
    by = draw.choice(("POLICY", "POLICY", *CLIENTS))
    to = tuple(draw.sample((*CLIENTS, "*", "owner"), draw.choice((1, 1, 1, 2))))
    owner = draw.choice(("*", "*", *CLIENTS)) if by == "POLICY" else draw.choice(("*", *CLIENTS))
    kind = draw.choice((None, None, *KINDS))
    actions = ACTIONS if draw.random() < 0.5 else tuple(draw.sample(ACTIONS, draw.randint(1, 3)))
    when = tree(draw) if draw.random() < 0.45 else None
    while when is not None and len(text(when)) > 400:  # there is a bound
        when = tree(draw, 1)
    app = kind.app if kind and draw.random() < 0.8 else ""
    return Said(by, to, owner, app, kind.name if kind else "", actions, when)


def event(draw: random.Random) -> Event:
    kind = draw.choice(KINDS)
    sealed: dict[str, Any] = {}
    if kind.sealed:
        for name, values in (("speed", (0, 1, 2)), ("flag", (True, False)), ("whose", CLIENTS)):
            if draw.random() < 0.7:
                sealed[name] = draw.choice(values)
    user, place = draw.choice((*CLIENTS, "zoe")), draw.choice(PLACES)
    return Event(kind, user, place, draw.choice((0, 1)), draw.choice(CLIENTS), sealed)
