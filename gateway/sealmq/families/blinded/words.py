"""Attributes and policies, as they are written.

    type = company & service = datamining          a conjunction
    temperature >= 18 & period in {Q1, Q2}         comparisons, of whole numbers
    service != billing                             not: only who has a service has another one

A policy is a DNF: a list of conjunctions, one of which must hold. What somebody or something has is
a list of conjunctions of `=` alone, of which one must do. An atom is an element of a filter by its
canonical text: so `!=` is an attribute of its own, as the paper has it, and each comparison is one,
the half-line or interval that it names: who is in it has the element. Nothing is known of an
attribute that is not there: no atom about it holds.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

MOST_ATOMS = 32
"""Of a conjunction."""
MOST_CONJUNCTIONS = 1024
MOST_VALUES = 64
"""Of one `in {...}`."""
MOST_LENGTH = 256
"""Characters of a name or a value."""
ACTION = "action"
"""The attribute that says what is done. Nobody has it by himself: the gateway adds it."""
RECEIVE, PUBLISH = "receive", "publish"

_NAME = r"[A-Za-z_][A-Za-z0-9_.-]*"
_VALUE = r'"(?:[^"\\]|\\.)*"|[^\s&{}|,"=<>!]+'
# White space is given back nowhere (`*+`): a long run of it would else be tried over and over.
_ATOM = re.compile(
    rf"\s*+(?P<name>{_NAME})(?:\s*+(?P<op>!=|<=|>=|=|<|>)\s*+(?P<value>{_VALUE})"
    rf"|\s++in\s++(?P<low>-?[0-9]{{1,64}})\.\.(?P<high>-?[0-9]{{1,64}})"
    rf"|\s++in\s++\{{(?P<set>[^{{}}]*)\}})\s*+(?P<end>&|\Z)"
)
_ITEM = re.compile(rf"\s*({_VALUE})\s*(,|\Z)")
_NUMBER = re.compile(r"-?(0|[1-9][0-9]{0,17})\Z")

Have = Mapping[str, str]
"""A conjunction of what somebody has: name to value."""


class BadWords(ValueError):
    """What is written says nothing, or too much. `hint` says what is meant to stand there."""

    def __init__(self, what: str, hint: str = "") -> None:
        super().__init__(what)
        self.hint = hint or "as in: type = company & service = datamining"


class Atom(NamedTuple):
    """One proposition. `op`: = != < <= > >= in (a range, two numbers) or among (a set)."""

    name: str
    op: str
    values: tuple[str, ...]

    @property
    def text(self) -> str:
        """Its canonical text."""
        if self.op == "in":
            return f"{self.name} in {self.values[0]}..{self.values[1]}"
        shown = [json.dumps(value) for value in self.values]
        if self.op == "among":
            return f"{self.name} in {{{', '.join(shown)}}}"
        return f"{self.name} {self.op} {shown[0]}"

    @property
    def element(self) -> bytes:
        """What stands for it in a filter, before it is blinded."""
        return b"a" + self.text.encode()

    def holds(self, have: Have) -> bool:
        """Whether it holds of who has that."""
        value = have.get(self.name)
        if value is None:
            return False
        if self.op == "=":
            return value == self.values[0]
        if self.op == "!=":
            return value != self.values[0]
        if self.op == "among":
            return value in self.values
        number = as_number(value)
        if number is None:
            return False
        first = int(self.values[0])
        if self.op == "in":
            return first <= number <= int(self.values[1])
        if self.op == "<":
            return number < first
        if self.op == "<=":
            return number <= first
        return number > first if self.op == ">" else number >= first


Conjunction = tuple[Atom, ...]
Dnf = tuple[Conjunction, ...]


def as_number(value: str) -> int | None:
    """A whole number in its one form; None: a text."""
    return int(value) if _NUMBER.match(value) and value != "-0" else None


def policy(texts: object) -> Dnf:
    """A DNF: a list of conjunctions. BadWords; one that is empty, too, for it would let in all."""
    if isinstance(texts, str):
        texts = [texts]
    if not isinstance(texts, list) or not texts or not all(isinstance(t, str) for t in texts):
        raise BadWords("a policy is a list of conjunctions, one at least")
    if len(texts) > MOST_CONJUNCTIONS:
        raise BadWords(f"{len(texts)} conjunctions; at most {MOST_CONJUNCTIONS} are taken")
    return tuple(dict.fromkeys(conjunction(text) for text in texts))


def having(texts: object) -> tuple[Have, ...]:
    """What somebody has: conjunctions of `=`, each name once. BadWords."""
    return tuple(_had(conjunction) for conjunction in policy(texts))


def _had(atoms: Conjunction) -> Have:
    found: dict[str, str] = {}
    for atom in atoms:
        if atom.op != "=":
            raise BadWords(f"{atom.name} has a value, and is not compared: {atom.name} = VALUE")
        if atom.name == ACTION:
            raise BadWords("action is what is done, and nobody's attribute")
        if found.get(atom.name, atom.values[0]) != atom.values[0]:
            raise BadWords(
                f"{atom.name} has two values", "a conjunction of its own for each of them"
            )
        found[atom.name] = atom.values[0]
    return found


def conjunction(text: str) -> Conjunction:
    """Atoms in canonical order, each once. BadWords."""
    atoms: dict[Atom, None] = {}
    at = 0
    while True:
        found = _ATOM.match(text, at)
        if found is None:
            shown = text[at : at + 40].strip()
            raise BadWords(f"{shown!r} is no attribute" if shown else "a conjunction is empty")
        atoms[_atom(found)] = None
        at = found.end()
        if not found["end"]:
            break
    if len(atoms) > MOST_ATOMS:
        raise BadWords(f"{len(atoms)} attributes in a conjunction; at most {MOST_ATOMS} are taken")
    return tuple(sorted(atoms))


def _atom(found: re.Match[str]) -> Atom:
    name = _bounded(found["name"])
    if found["low"] is not None:
        low, high = int(found["low"]), int(found["high"])
        if as_number(str(low)) is None or as_number(str(high)) is None or low > high:
            raise BadWords(f"{name} in {low}..{high} holds of no number")
        return Atom(name, "in", (str(low), str(high)))
    if found["set"] is not None:
        return Atom(name, "among", _members(name, found["set"]))
    op, value = found["op"], _plain(found["value"])
    if op not in ("=", "!=") and as_number(value) is None:
        raise BadWords(f"{name} {op} {value}: only whole numbers are compared")
    return Atom(name, op, (value,))


def _members(name: str, text: str) -> tuple[str, ...]:
    values: set[str] = set()
    at = 0
    while True:
        found = _ITEM.match(text, at)
        if found is None:
            raise BadWords(f"{name} in {{{text}}}: values stand between commas")
        values.add(_plain(found[1]))
        at = found.end()
        if not found[2]:
            break
    if len(values) > MOST_VALUES:
        raise BadWords(f"{name} in ...: {len(values)} values; at most {MOST_VALUES} are taken")
    return tuple(sorted(values))


def _plain(text: str) -> str:
    if not text.startswith('"'):
        return _bounded(text)
    try:
        value = json.loads(text)
        value.encode()
    except ValueError:
        raise BadWords(f"{text} is no text in quotes") from None
    return _bounded(value)


def _bounded(text: str) -> str:
    if not 0 < len(text) <= MOST_LENGTH:
        raise BadWords(f"a name or value has 1 to {MOST_LENGTH} characters")
    return text


def asked(dnf: Iterable[Conjunction]) -> frozenset[Atom]:
    """All that a policy asks about."""
    return frozenset(atom for atoms in dnf for atom in atoms)


def holding(atoms: Iterable[Atom], have: Have) -> list[Atom]:
    """Those that hold, in their order."""
    return sorted(atom for atom in atoms if atom.holds(have))
