"""`when` in a family's rule: what attributes have to be for the rule to grant anything.

when = { attribute = "time", between = ["07:00", "19:00"], weekdays = ["mon", "fri"] }
when = { attribute = "contract", is = "signed" }          of the client that asks
when = { attribute = "shift", in = ["early", "late"], of = "site" }
when = [{ ... }, { ... }]                                 all of them

What is unknown or over meets no condition. So a condition belongs where it grants, and never where
it takes away.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from sealmq.near import near

from .api import FamilyConfigError, Policy
from .ask import FOREVER, Ask
from .attributes import UnknownAttribute

DAY_MS = 86_400_000
MINUTE_MS = 60_000
WEEKDAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
MOST = 8
"""Conditions of one rule."""
_OF = ("client", "site")
_KEYS = {
    "time": ("attribute", "between", "weekdays"),
    "file": ("attribute", "is", "in", "of"),
}
# 1970-01-01 was a Thursday.
_FIRST_DAY = 3


class Condition(Protocol):
    """One of them. `words`: as it is told to a client and to an operator."""

    @property
    def words(self) -> str: ...

    def met(self, ask: Ask) -> bool:
        """UnknownAttribute."""


@dataclass(frozen=True, slots=True)
class Hours:
    """From `first` until before `last`, in ms since local midnight, on some weekdays (0: Monday).

    With `last` before `first` they end on the day after; the weekday is that on which they begin.
    """

    attribute: str
    first: int
    last: int
    days: frozenset[int]
    words: str

    @property
    def _marks(self) -> tuple[int, ...]:
        """When it may change, in ms since midnight."""
        if len(self.days) == len(WEEKDAYS):
            return self.first, self.last, DAY_MS + self.first, DAY_MS + self.last
        return self.first, self.last, DAY_MS

    def met(self, ask: Ask) -> bool:
        offset, end = _offset(ask.attribute(self.attribute), self.attribute, ask.now_ms)
        day, at = divmod(ask.now_ms + offset, DAY_MS)
        first, last = self.first, self.last
        ask.holds_until(min(end, ask.now_ms - at + min(m for m in self._marks if m > at)))
        today = (day + _FIRST_DAY) % 7
        if first < last:
            return first <= at < last and today in self.days
        if at >= first:
            return today in self.days
        return at < last and (today - 1) % 7 in self.days


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
class When:
    """Conditions that all have to be met; none: always."""

    conditions: tuple[Condition, ...] = ()

    def met(self, ask: Ask) -> bool:
        """Whether they are; the answer to `ask` then rests on what was looked at, and its end."""
        try:
            return all(condition.met(ask) for condition in self.conditions)
        except UnknownAttribute:
            return False

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
    source = config.attributes[name].source
    for word in row:
        if word not in _KEYS[source]:
            words = ", ".join(_KEYS[source][1:])
            raise FamilyConfigError(
                key, f"{word} does not go with {name}", f"its source is {source}: {words}"
            )
    return _hours(row, key, name) if source == "time" else _one_of(row, key, name)


def _hours(row: Mapping[str, Any], key: str, name: str) -> Hours:
    between, weekdays = row.get("between"), row.get("weekdays")
    hint = 'between = ["07:00", "19:00"], weekdays = ["mon", "tue"]; one of them, or both'
    if between is None and weekdays is None:
        raise FamilyConfigError(key, f"{name} is asked for nothing", hint)
    first, last, words = 0, DAY_MS, [name]
    if between is not None:
        if not isinstance(between, list) or len(between) != 2:
            raise FamilyConfigError(key, "between is two times of day", hint)
        first, last = (_time(text, key) for text in between)
        if first == last:
            raise FamilyConfigError(key, "they begin and end at once", "without between: all day")
        words.append(f"between {between[0]} and {between[1]}")
    if first == DAY_MS:
        raise FamilyConfigError(key, "24:00 is where a day ends", "begin at 00:00")
    days = frozenset(range(7))
    if weekdays is not None:
        known = isinstance(weekdays, list) and all(day in WEEKDAYS for day in weekdays)
        if not known or not weekdays:
            raise FamilyConfigError(
                key, f"weekdays is {weekdays!r}", f"some of: {', '.join(WEEKDAYS)}"
            )
        days = frozenset(map(WEEKDAYS.index, weekdays))
        words.append("on " + ", ".join(WEEKDAYS[day] for day in sorted(days)))
    return Hours(name, first, last, days, " ".join(words))


def _time(text: object, key: str) -> int:
    parts = text.split(":") if isinstance(text, str) else []
    if len(parts) == 2 and all(len(p) == 2 and p.isascii() and p.isdecimal() for p in parts):
        hour, minute = map(int, parts)
        if minute < 60 and hour * 60 + minute <= 24 * 60:
            return (hour * 60 + minute) * MINUTE_MS
    raise FamilyConfigError(
        key,
        f"{text!r} is no time of day",
        'two digits each, in quotes: "07:00"; "24:00" ends a day',
    )


def _one_of(row: Mapping[str, Any], key: str, name: str) -> OneOf:
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
    of = row.get("of", "client")
    if of not in _OF:
        raise FamilyConfigError(key, f"of is {of!r}", f"one of: {', '.join(_OF)}")
    shown = " or ".join(map(show, values))
    return OneOf(name, tuple(values), of == "site", f"{name} is {shown}")


def _offset(steps: object, name: str, now_ms: int) -> tuple[int, int]:
    """Local time minus UTC, and when that changes. UnknownAttribute."""
    end = FOREVER
    for begin, offset in reversed(steps if isinstance(steps, list | tuple) else ()):
        if begin <= now_ms:
            return offset, end
        end = begin
    raise UnknownAttribute(name)


def show(value: object) -> str:
    """A value as TOML has it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def time_of_day(steps: object, now_ms: int) -> str:
    """A time attribute's value for a person: "mon 07:00"."""
    offset, _ = _offset(steps, "time", now_ms)
    day, at = divmod(now_ms + offset, DAY_MS)
    return f"{WEEKDAYS[(day + _FIRST_DAY) % 7]} {at // 3_600_000:02}:{at // MINUTE_MS % 60:02}"
