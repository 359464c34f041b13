"""Conditions of assertions: a small total language. No loops, no calls, bounded in every way.

    building == "EECS" && (extTime in ["WORK_DAY", "WORK_NIGHT"] || !retained) && speed < 50

    or       and ("||" and)*
    and      not ("&&" not)*
    not      "!" not | test
    test     value (("==" | "!=" | "<" | "<=" | ">" | ">=") value | "in" list)?
    value    NAME | TEXT | INTEGER | "true" | "false" | contract(TEXT) | "(" or ")"
    list     "[" literal ("," literal)* "]"

It has three values (Kleene's strong logic): what is unknown, over, or of another kind than what it
is compared with makes a test unknown. `!unknown` is unknown, `unknown || true` is true. Only what
is true is met. A bool equals the texts "true" and "false", as KeyNote, which has texts alone, would
say it. Texts are in the order of their code points.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, NamedTuple, Protocol
from weakref import WeakValueDictionary

from sealmq.near import near

from .actions import ALL_ACTIONS, MASKS, action_named

MOST_TEXT = 2048
MOST_DEPTH = 48
MOST_NODES = 192
MOST_NAMES = 24

Value = str | int | bool
Kleene = bool | None


class ConditionError(ValueError):
    """It is no condition: what is wrong, and what would be right."""

    def __init__(self, what: str, hint: str = "") -> None:
        super().__init__(what)
        self.what, self.hint = what, hint


class Facts(Protocol):
    """What a condition asks of an event and of the world outside."""

    def get(self, name: str) -> Value | None:
        """None: nobody knows."""

    def signed(self, address: str) -> Kleene:
        """Whether the other side has signed the contract at this address."""


class Open:
    """A value that is not known yet, and will be: of events to come."""


OPEN = Open()


class OpenFacts(Protocol):
    """What is known of many events at once."""

    def get(self, name: str) -> Value | Open | None: ...

    def signed(self, address: str) -> Kleene | Open: ...


# --- the tree ------------------------------------------------------------------------------------


class Literal_(NamedTuple):
    value: Value


class Name(NamedTuple):
    name: str


class Contract(NamedTuple):
    address: str


class Compare(NamedTuple):
    op: str
    left: Name | Literal_
    right: Name | Literal_


class Among(NamedTuple):
    left: Name | Literal_
    values: tuple[Value, ...]


class Not(NamedTuple):
    of: Node


class All(NamedTuple):
    of: tuple[Node, ...]


class Some(NamedTuple):
    of: tuple[Node, ...]


Node = Literal_ | Name | Contract | Compare | Among | Not | All | Some
Met = Callable[[Facts], Kleene]

_ORDER = ("<", "<=", ">", ">=")
_LEXER = re.compile(
    r"""[ \t\r\n]*(?:
    (?P<text>"(?:[^"\\\x00-\x1f\x7f]|\\["\\])*")
  | (?P<int>-?[0-9]+)
  | (?P<name>[A-Za-z_][A-Za-z0-9._-]*)
  | (?P<op>&&|\|\||==|!=|<=|>=|[!<>()\[\],])
  | (?P<end>\Z)
  )""",
    re.X,
)
_HINTS = {
    "=": "write == for equal",
    "&": "write && for and",
    "|": "write || for or",
    "'": 'texts stand in double quotes: "..."',
    "\u201c": 'texts stand in straight double quotes: "..."',
    '"': r"a text ends with a double quote; \" is a quote in it, and it has no control characters",
}
_AFTER = "conditions that all have to be met are joined by &&: a && b"


class _Token(NamedTuple):
    kind: str
    text: str


def _tokens(text: str) -> Iterator[_Token]:
    at = 0
    while True:
        found = _LEXER.match(text, at)
        if found is None:
            rest = text[at:].lstrip()
            raise ConditionError(
                f"{rest[:20]!r} is nothing that a condition has", _HINTS.get(rest[:1], "")
            )
        kind = found.lastgroup or "end"
        yield _Token(kind, found[kind])
        if kind == "end":
            return
        at = found.end()


class _Parser:
    """By recursive descent; the depth is bounded before it is taken."""

    def __init__(self, text: str) -> None:
        self._left = list(_tokens(text))
        self._at = 0
        self._nodes = 0

    def whole(self) -> Node:
        node = self._some(0)
        if self._next.kind != "end":
            self._unexpected(_AFTER)
        return node

    @property
    def _next(self) -> _Token:
        return self._left[self._at]

    def _take(self, op: str) -> bool:
        if self._next == ("op", op):
            self._at += 1
            return True
        return False

    def _unexpected(self, hint: str = "") -> None:
        token = self._next
        what = "it ends too early" if token.kind == "end" else f"{token.text[:40]!r} stands wrong"
        raise ConditionError(what, hint)

    def _need(self, op: str) -> None:
        if not self._take(op):
            self._unexpected(f"{op} was expected here, or &&")

    def _count(self, depth: int) -> None:
        self._nodes += 1
        if self._nodes > MOST_NODES:
            raise ConditionError(f"more than {MOST_NODES} parts", "two assertions may say it")
        if depth > MOST_DEPTH:
            raise ConditionError(f"more than {MOST_DEPTH} deep", "take parentheses out")

    def _some(self, depth: int) -> Node:
        return self._joined(depth, "||", self._all, Some)

    def _all(self, depth: int) -> Node:
        return self._joined(depth, "&&", self._not, All)

    def _joined(
        self, depth: int, op: str, part: Callable[[int], Node], made: type[All] | type[Some]
    ) -> Node:
        self._count(depth)
        parts = [part(depth + 1)]
        while self._take(op):
            parts.append(part(depth + 1))
        if len(parts) == 1:
            self._nodes -= 1
            return parts[0]
        flat: list[Node] = []
        for one in parts:
            flat += one.of if isinstance(one, made) else (one,)
        return made(tuple(flat))

    def _not(self, depth: int) -> Node:
        self._count(depth)
        if self._take("!"):
            return Not(self._not(depth + 1))
        return self._test(depth)

    def _test(self, depth: int) -> Node:
        left = self._value(depth)
        token = self._next
        if token == ("name", "in"):
            self._at += 1
            return self._among(left)
        if token.kind == "op" and token.text in ("==", "!=", *_ORDER):
            self._at += 1
            right = self._value(depth)
            if not isinstance(left, Name | Literal_) or not isinstance(right, Name | Literal_):
                raise ConditionError(
                    f"{token.text} compares names, texts and numbers", "not parentheses or contract"
                )
            if isinstance(left, Literal_) and isinstance(right, Literal_):
                raise ConditionError("two fixed values are compared", "one of them is a name")
            return _action(Compare(token.text, left, right))
        if isinstance(left, Literal_) and type(left.value) is not bool:
            self._unexpected("a text or number alone is no condition; compare it: name == ...")
        return left

    def _among(self, left: Node) -> Node:
        if not isinstance(left, Name):
            raise ConditionError("`in` has a name before it", 'building in ["EECS", "GGBR"]')
        if not self._take("["):
            self._unexpected('a list follows `in`: building in ["EECS", "GGBR"]')
        values: list[Value] = []
        while True:
            one = self._value(MOST_DEPTH)
            if not isinstance(one, Literal_):
                raise ConditionError("a list has texts, numbers, true and false", "no names")
            values.append(one.value)
            if not self._take(","):
                break
        self._need("]")
        return _action(Among(left, tuple(values)))

    def _value(self, depth: int) -> Node:
        self._count(depth)
        kind, text = self._next
        self._at += kind != "end"
        if kind == "text":
            return Literal_(re.sub(r"\\(.)", r"\1", text[1:-1]))
        if kind == "int":
            if len(text) > 18:
                raise ConditionError(f"{text[:20]} is too long", "numbers have up to 17 digits")
            return Literal_(int(text))
        if kind == "name":
            if text in ("true", "false"):
                return Literal_(text == "true")
            if text == "contract":
                return self._contract()
            if text != "in":
                return Name(text)
        elif text == "(":
            inner = self._some(depth + 1)
            self._need(")")
            return inner
        self._at -= kind != "end"
        self._unexpected()
        raise AssertionError  # unreachable: it has raised

    def _contract(self) -> Node:
        self._need("(")
        kind, text = self._next
        if kind != "text" or text == '""':
            self._unexpected('contract("ADDRESS") names where the text of a contract lies')
        self._at += 1
        self._need(")")
        return Contract(re.sub(r"\\(.)", r"\1", text[1:-1]))


def _action(test: Compare | Among) -> Node:
    """The same, with actions by their one name; ConditionError for one that there is not."""
    if isinstance(test, Among):
        if test.left != Name("action"):
            return test
        return Among(test.left, tuple(_known_action(value) for value in test.values))
    for one, other in ((test.left, test.right), (test.right, test.left)):
        if one == Name("action") and isinstance(other, Literal_):
            known = Literal_(_known_action(other.value))
            left, right = (one, known) if one is test.left else (known, one)
            return Compare(test.op, left, right)
    return test


def _known_action(value: Value) -> str:
    found = action_named(value) if isinstance(value, str) else None
    if found is None:
        raise ConditionError(f"there is no action {value!r}", near(str(value), MASKS))
    return found


# --- words ---------------------------------------------------------------------------------------


def show(node: Node, outer: int = 0) -> str:
    """Its one text, which reads back as the same tree."""
    match node:
        case Literal_(value):
            return _literal(value)
        case Name(name):
            return name
        case Contract(address):
            return f"contract({_literal(address)})"
        case Compare(op, left, right):
            return f"{show(left)} {op} {show(right)}"
        case Among(left, values):
            return f"{show(left)} in [{', '.join(map(_literal, values))}]"
        case Not(of):
            inner = show(of)
            bare = isinstance(of, Name | Contract | Literal_ | Not)
            return f"!{inner}" if bare else f"!({inner})"
        case All(of):
            text = " && ".join(show(one, 2) for one in of)
            return f"({text})" if outer > 2 else text
        case Some(of):
            text = " || ".join(show(one, 1) for one in of)
            return f"({text})" if outer > 1 else text


def _literal(value: Value) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


# --- meaning -------------------------------------------------------------------------------------


def equal(a: Value, b: Value) -> Kleene:
    """Whether they are equal; None: they are of two kinds."""
    if type(a) is type(b):
        return a == b
    if isinstance(a, str) and isinstance(b, bool):
        a, b = b, a
    if isinstance(a, bool) and isinstance(b, str) and b in ("true", "false"):
        return a is (b == "true")
    return None


def compared(op: str, a: Value, b: Value) -> Kleene:
    """What the operator says of two values."""
    if op == "==":
        return equal(a, b)
    if op == "!=":
        same = equal(a, b)
        return None if same is None else not same
    if isinstance(a, str) and isinstance(b, str):
        return a < b if op == "<" else a <= b if op == "<=" else a > b if op == ">" else a >= b
    if type(a) is int and type(b) is int:
        return a < b if op == "<" else a <= b if op == "<=" else a > b if op == ">" else a >= b
    return None


def among(value: Value, values: tuple[Value, ...]) -> Kleene:
    """`in`: equal to one of them."""
    found: Kleene = False
    for one in values:
        same = equal(value, one)
        if same:
            return True
        if same is None:
            found = None
    return found


def compiled(node: Node) -> Met:
    """The condition as a function."""
    match node:
        case Literal_(value):
            fixed = value if isinstance(value, bool) else None
            return lambda facts: fixed
        case Name(name):
            return _truth(name)
        case Contract(address):
            return lambda facts: facts.signed(address)
        case Compare("==", Name(name), Literal_(str() as text)):
            return _equals(name, text)
        case Compare(op, left, right):
            return _compare(op, left, right)
        case Among(Name(name), values):
            return _among(name, values)
        case Not(of):
            return _negated(compiled(of))
        case All(of):
            return _each(tuple(map(compiled, of)))
        case Some(of):
            return _any(tuple(map(compiled, of)))
    raise AssertionError(node)


def _truth(name: str) -> Met:
    def truth(facts: Facts) -> Kleene:
        value = facts.get(name)
        return value if isinstance(value, bool) else None

    return truth


def _equals(name: str, text: str) -> Met:
    def equals(facts: Facts) -> Kleene:
        value = facts.get(name)
        if type(value) is str:
            return value == text
        return None if value is None else equal(value, text)

    return equals


def _compare(op: str, left: Node, right: Node) -> Met:
    def value(of: Node, facts: Facts) -> Value | None:
        return facts.get(of.name) if isinstance(of, Name) else getattr(of, "value", None)

    def compare(facts: Facts) -> Kleene:
        a, b = value(left, facts), value(right, facts)
        return None if a is None or b is None else compared(op, a, b)

    return compare


def _among(name: str, values: tuple[Value, ...]) -> Met:
    def is_among(facts: Facts) -> Kleene:
        value = facts.get(name)
        return None if value is None else among(value, values)

    return is_among


def _negated(of: Met) -> Met:
    def negated(facts: Facts) -> Kleene:
        found = of(facts)
        return None if found is None else not found

    return negated


def _each(of: tuple[Met, ...]) -> Met:
    def each(facts: Facts) -> Kleene:
        found: Kleene = True
        for one in of:
            said = one(facts)
            if said is False:
                return False
            if said is None:
                found = None
        return found

    return each


def _any(of: tuple[Met, ...]) -> Met:
    def any_of(facts: Facts) -> Kleene:
        found: Kleene = False
        for one in of:
            said = one(facts)
            if said:
                return True
            if said is None:
                found = None
        return found

    return any_of


# What a condition may come to, of many events at once: bits.
TRUE, FALSE, UNKNOWN = 1, 2, 4
_BIT: Mapping[Kleene, int] = {True: TRUE, False: FALSE, None: UNKNOWN}
_ANY = TRUE | FALSE | UNKNOWN


def outcomes(node: Node, facts: OpenFacts) -> int:
    """All that it may come to, and perhaps more: parts that rest on one open value are looked at as
    if they rested on two. So only TRUE alone says that it is met whatever comes.
    """
    match node:
        case Literal_(value):
            return _BIT[value if isinstance(value, bool) else None]
        case Name(name):
            named = facts.get(name)
            if isinstance(named, Open):
                return _ANY
            return _BIT[named if isinstance(named, bool) else None]
        case Contract(address):
            signed = facts.signed(address)
            return _ANY if isinstance(signed, Open) else _BIT[signed]
        case Compare(op, left, right):
            a, b = _open_value(left, facts), _open_value(right, facts)
            if a is None or b is None:
                return UNKNOWN
            if isinstance(a, Open) or isinstance(b, Open):
                return _ANY
            return _BIT[compared(op, a, b)]
        case Among(left, values):
            a = _open_value(left, facts)
            if a is None:
                return UNKNOWN
            return _ANY if isinstance(a, Open) else _BIT[among(a, values)]
        case Not(of):
            inner = outcomes(of, facts)
            return (
                (inner & UNKNOWN) | (FALSE if inner & TRUE else 0) | (TRUE if inner & FALSE else 0)
            )
        case All(of):
            return _combined([outcomes(one, facts) for one in of], TRUE, FALSE)
        case Some(of):
            return _combined([outcomes(one, facts) for one in of], FALSE, TRUE)


def _combined(parts: list[int], neutral: int, decides: int) -> int:
    """`decides`: what one part alone decides; `neutral`: what all have to be for the contrary."""
    found = decides if any(part & decides for part in parts) else 0
    if all(part & neutral for part in parts):
        found |= neutral
    others = [part & (neutral | UNKNOWN) for part in parts]
    if all(others) and any(part & UNKNOWN for part in others):
        found |= UNKNOWN
    return found


def _open_value(of: Name | Literal_, facts: OpenFacts) -> Value | Open | None:
    return facts.get(of.name) if isinstance(of, Name) else of.value


# --- a condition ---------------------------------------------------------------------------------

Restricted = Literal["app_domain", "evtType", "owner"]


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Condition:
    """One condition, made by `condition`; equal texts are one object.

    What all of it requires of application, type, owner and action stands in fields of their own
    ("": any), so that an index finds it; `met` is what is left, None if nothing is. `principals`:
    the names that it compares owner, subscriber and sender with. `tests`: how many `met` takes.
    """

    text: str
    node: Node | None
    names: frozenset[str]
    principals: frozenset[str]
    contracts: tuple[str, ...]
    app: str
    type: str
    owner: str
    actions: int
    met: Met | None
    rest: Node | None
    tests: int


REMEMBERED = 256
"""Conditions that were read last, held by nobody else. A compiled one may take 100 KiB."""
shared: WeakValueDictionary[str, Condition] = WeakValueDictionary()


@lru_cache(REMEMBERED)
def condition(text: str) -> Condition:
    """Read one; "" is always met. ConditionError."""
    found = shared.get(text)
    if found is not None:
        return found
    if len(text.encode(errors="surrogatepass")) > MOST_TEXT:
        raise ConditionError(f"more than {MOST_TEXT} bytes", "two assertions may say it")
    if not text.strip():
        return ALWAYS
    made = _made(_Parser(text).whole())
    if made.text != text:
        # Its canonical text is what is kept: the next start has to read it, within the same bounds.
        return condition(made.text)
    return shared.setdefault(text, made)


def _made(node: Node) -> Condition:
    names = frozenset(_names(node))
    if len(names) > MOST_NAMES:
        raise ConditionError(f"more than {MOST_NAMES} names", "two assertions may say it")
    found: dict[str, str] = {}
    actions = ALL_ACTIONS
    rest: list[Node] = []
    for part in node.of if isinstance(node, All) else (node,):
        name, values = _fixed(part)
        if name == "action":
            actions &= sum(MASKS[value] for value in values)
        elif name and len(values) == 1 and found.get(name, values[0]) == values[0]:
            found[name] = values[0]
        else:
            rest.append(part)
    left = None if not rest else rest[0] if len(rest) == 1 else All(tuple(rest))
    return Condition(
        show(node),
        node,
        names,
        frozenset(_principals(node)),
        tuple(dict.fromkeys(_contracts(node))),
        found.get("app_domain", ""),
        found.get("evtType", ""),
        found.get("owner", ""),
        actions,
        None if left is None else compiled(left),
        left,
        0 if left is None else _tests(left),
    )


def _tests(node: Node) -> int:
    """Of values; of a list each costs as much as one alone."""
    match node:
        case Not(of):
            return _tests(of)
        case All(of) | Some(of):
            return sum(map(_tests, of))
        case Among(_, values):
            return len(values)
    return 1


def _fixed(part: Node) -> tuple[str, tuple[str, ...]]:
    """The name and the texts, if it says nothing but that this is one of these."""
    match part:
        case Compare("==", Name(name), Literal_(str() as value)) if value and name in _FIXED:
            return name, (value,)
        case Compare("==", Literal_(str() as value), Name(name)) if value and name in _FIXED:
            return name, (value,)
        case Among(Name(name), values) if name in _FIXED:
            texts = tuple(dict.fromkeys(v for v in values if isinstance(v, str) and v))
            return (name, texts) if len(texts) == len(set(values)) else ("", ())
        case Some(of):
            found = [_fixed(one) for one in of]
            if len({name for name, _ in found}) == 1:
                return found[0][0], tuple(dict.fromkeys(v for _, vs in found for v in vs))
    return "", ()


_FIXED = frozenset({"app_domain", "evtType", "owner", "action"})


def _names(node: Node) -> Iterator[str]:
    match node:
        case Name(name):
            yield name
        case Compare(_, left, right):
            yield from _names(left)
            yield from _names(right)
        case Among(left, _):
            yield from _names(left)
        case Not(of):
            yield from _names(of)
        case All(of) | Some(of):
            for one in of:
                yield from _names(one)


_WHO = (Name("owner"), Name("subscriber"), Name("sender"))


def _principals(node: Node) -> Iterator[str]:
    match node:
        case Compare(_, left, right) if left in _WHO or right in _WHO:
            for side in (left, right):
                if isinstance(side, Literal_) and isinstance(side.value, str):
                    yield side.value
        case Among(left, values) if left in _WHO:
            yield from (value for value in values if isinstance(value, str))
        case Not(of):
            yield from _principals(of)
        case All(of) | Some(of):
            for one in of:
                yield from _principals(one)


def _contracts(node: Node) -> Iterator[str]:
    match node:
        case Contract(address):
            yield address
        case Not(of):
            yield from _contracts(of)
        case All(of) | Some(of):
            for one in of:
                yield from _contracts(one)


ALWAYS = Condition("", None, frozenset(), frozenset(), (), "", "", "", ALL_ACTIONS, None, None, 0)
