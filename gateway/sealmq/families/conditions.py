"""`when` in a family's rule: what attributes have to be for the rule to grant anything.

when = { attribute = "time", between = ["07:00", "19:00"], weekdays = ["mon", "fri"] }
when = { attribute = "contract", is = "signed" }          of the client that asks
when = { attribute = "shift", in = ["early", "late"], of = "site" }
when = { attribute = "day", is = "WORK_DAY" }             of a calendar
when = { attribute = "read", below = 10 }                 a count, of the client that asks
when = [{ ... }, { ... }]                                 all of them

What is unknown or over meets no condition. So a condition belongs where it grants, and never where
it takes away.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from sealmq.near import near

from . import hours
from .api import AttributePolicy, FamilyConfigError, Policy
from .ask import Ask
from .attributes import UnknownAttribute
from .hours import Hours, local_time

MOST = 8
"""Conditions of one rule."""
_OF = ("client", "site")
_KEYS = {
    "time": ("attribute", "between", "weekdays"),
    "file": ("attribute", "is", "in", "of"),
    "calendar": ("attribute", "is", "in"),
    "client": ("attribute", "is", "in"),
    "events": ("attribute", "is", "in"),
    "count": ("attribute", "below"),
}


class Condition(Protocol):
    """One of them. `words`: as it is told to a client and to an operator."""

    @property
    def words(self) -> str: ...

    def met(self, ask: Ask) -> bool:
        """UnknownAttribute."""


@dataclass(frozen=True, slots=True)
class During:
    """It is within these hours."""

    attribute: str
    hours: Hours
    words: str

    def met(self, ask: Ask) -> bool:
        local = local_time(ask.attribute(self.attribute), ask.now_ms)
        if local is None:
            raise UnknownAttribute(self.attribute)
        met, until = self.hours.look(local)
        ask.holds_until(until)
        return met


@dataclass(frozen=True, slots=True)
class OneOf:
    """The attribute is one of these values: of the client that asks, or of the site."""

    attribute: str
    values: tuple[Any, ...]
    site: bool
    words: str

    def met(self, ask: Ask) -> bool:
        found = ask.attribute(self.attribute, "" if self.site else ask.who.client)
        return any(found == value and type(found) is type(value) for value in self.values)


@dataclass(frozen=True, slots=True)
class Below:
    """The client that asks has got fewer messages than this within the window of a count."""

    attribute: str
    most: int
    words: str

    def met(self, ask: Ask) -> bool:
        return int(ask.attribute(self.attribute, ask.who.client)) < self.most


@dataclass(frozen=True, slots=True)
class When:
    """Conditions that all have to be met; none: always."""

    conditions: tuple[Condition, ...] = ()

    def met(self, ask: Ask) -> bool:
        """Whether they are; the answer to `ask` then rests on what was looked at, and its end."""
        try:
            return all(condition.met(ask) for condition in self.conditions)
        except UnknownAttribute:
            return False

    def met_for(self, ask: Ask, senders: Iterable[str]) -> bool:
        """`met`, for messages of these alone: those of others use up nothing of a count."""
        if not any(isinstance(condition, Below) for condition in self.conditions):
            return self.met(ask)
        try:
            for sender in senders:
                ask.one_sender = sender
                if not self.met(ask):
                    return False
            return True
        finally:
            ask.one_sender = ""

    @property
    def words(self) -> str:
        """For a person: "" for always."""
        return " and ".join(condition.words for condition in self.conditions)


def parse(value: object, key: str, config: Policy) -> When:
    """The `when` that stands at `key` of a family's settings. FamilyConfigError."""
    rows = value if isinstance(value, list) else [value]
    if not 0 < len(rows) <= MOST:
        raise FamilyConfigError(
            key, f"{len(rows)} conditions", f"1 to {MOST}, or leave `when` out: it is for always"
        )
    return When(tuple(_condition(row, key, config) for row in rows))


def _condition(row: object, key: str, config: Policy) -> Condition:
    if not isinstance(row, Mapping):
        raise FamilyConfigError(
            key,
            f"a condition is a table, this is {row!r}",
            'when = { attribute = "time", between = ["07:00", "19:00"] }',
        )
    name = row.get("attribute")
    if not isinstance(name, str) or name not in config.attributes:
        what = "a condition names an attribute" if name is None else f"there is no attribute {name}"
        hint = f'{near(str(name), config.attributes)}; [attributes.NAME] source = "time" makes one'
        raise FamilyConfigError(key, what, hint)
    declared = config.attributes[name]
    source = declared.source
    if declared.of in ("owner", "pair"):
        raise FamilyConfigError(
            key,
            f"{name} is of {'an owner' if declared.of == 'owner' else 'a pair'}",
            "`when` asks about the client that asks, or about the site",
        )
    for word in row:
        if word not in _KEYS[source]:
            words = ", ".join(_KEYS[source][1:])
            raise FamilyConfigError(
                key, f"{word} does not go with {name}", f"its source is {source}: {words}"
            )
    if source == "time":
        return _during(row, key, name)
    if source == "count":
        return _below(row, key, name)
    return _one_of(row, key, name, declared)


def _during(row: Mapping[str, Any], key: str, name: str) -> During:
    between, weekdays = row.get("between"), row.get("weekdays")
    try:
        found = hours.parse(between, weekdays)
    except hours.BadHours as error:
        what = str(error)
        if between is None and weekdays is None:
            what = f"{name} is asked for nothing"
        raise FamilyConfigError(key, what, error.hint) from None
    words = [name]
    if isinstance(between, list):
        words.append(f"between {between[0]} and {between[1]}")
    if weekdays is not None:
        words.append(f"on {hours.days(found)}")
    return During(name, found, " ".join(words))


def _below(row: Mapping[str, Any], key: str, name: str) -> Below:
    most = row.get("below")
    if type(most) is not int or most < 1:
        raise FamilyConfigError(key, f"below is {most!r}", "a number from 1 on: below = 10")
    return Below(name, most, f"{name} is below {most}")


def _one_of(row: Mapping[str, Any], key: str, name: str, declared: AttributePolicy) -> OneOf:
    if ("is" in row) == ("in" in row):
        raise FamilyConfigError(
            key, f"what {name} has to be is said once", 'is = "signed", or in = ["early", "late"]'
        )
    values = [row["is"]] if "is" in row else row["in"]
    good = isinstance(values, list) and all(isinstance(v, bool | int | str) for v in values)
    if not good or not values:
        raise FamilyConfigError(
            key, f"{name} cannot be {values!r}", "texts in quotes, numbers, true or false"
        )
    of = row.get("of", "site" if declared.of == "site" else "client")
    if of not in _OF:
        raise FamilyConfigError(key, f"of is {of!r}", f"one of: {', '.join(_OF)}")
    if declared.of and (of == "site") != (declared.of == "site"):
        raise FamilyConfigError(
            key, f"{name} is not of the {of}", f"it is declared as of = {declared.of!r}"
        )
    for value in values:
        if declared.names and value not in declared.names:
            raise FamilyConfigError(
                key, f"{name} is never {value!r}", near(str(value), declared.names)
            )
    shown = " or ".join(map(show, values))
    return OneOf(name, tuple(values), of == "site", f"{name} is {shown}")


def show(value: object) -> str:
    """A value as TOML has it."""
    return str(value).lower() if isinstance(value, bool) else str(value)
