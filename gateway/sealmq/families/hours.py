"""Hours of the week by the clocks of a zone: what they say, and whether they are now."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

DAY_MS = 86_400_000
MINUTE_MS = 60_000
WEEKDAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
# 1970-01-01 was a Thursday.
_FIRST_DAY = 3
_FOREVER = 1 << 62
_HINT = 'between = ["07:00", "19:00"], weekdays = ["mon", "tue"]; one of them, or both'


class BadHours(ValueError):
    """What is said of hours cannot be. `hint`: what could."""

    def __init__(self, what: str, hint: str) -> None:
        super().__init__(what)
        self.hint = hint


class Local(NamedTuple):
    """Local time. `day`: since 1970-01-01; `at`: ms since its midnight; `until` (Unix ms): when its
    difference from UTC changes; `now` in Unix ms.
    """

    day: int
    at: int
    until: int
    now: int

    @property
    def weekday(self) -> int:
        """0: Monday."""
        return (self.day + _FIRST_DAY) % 7

    @property
    def words(self) -> str:
        """For a person: "mon 07:00"."""
        return f"{WEEKDAYS[self.weekday]} {self.at // 3_600_000:02}:{self.at // MINUTE_MS % 60:02}"


class Hours(NamedTuple):
    """From `first` until before `last`, in ms since local midnight, on some weekdays (0: Monday).

    With `last` before `first` they end on the day after; the weekday is that on which they begin.
    """

    first: int
    last: int
    days: frozenset[int]

    @property
    def _marks(self) -> tuple[int, ...]:
        """When it may change, in ms since midnight."""
        if len(self.days) == len(WEEKDAYS):
            return self.first, self.last, DAY_MS + self.first, DAY_MS + self.last
        return self.first, self.last, DAY_MS

    def look(self, local: Local) -> tuple[bool, int]:
        """Whether they are now; and the Unix ms until when that holds."""
        at, first, last = local.at, self.first, self.last
        until = min(local.until, local.now - at + min(m for m in self._marks if m > at))
        if first < last:
            return first <= at < last and local.weekday in self.days, until
        if at >= first:
            return local.weekday in self.days, until
        return at < last and (local.weekday - 1) % 7 in self.days, until


class Named(NamedTuple):
    """Hours with names, the first that fits counts; `other` is for the rest."""

    hours: tuple[tuple[str, Hours], ...]
    other: str

    @property
    def names(self) -> tuple[str, ...]:
        """All values that there can be."""
        return (*dict.fromkeys(name for name, _ in self.hours), self.other)

    def look(self, local: Local) -> tuple[str, int]:
        """The name now; and the Unix ms until when it holds."""
        end = local.until
        for name, hours in self.hours:
            fits, until = hours.look(local)
            end = min(end, until)
            if fits:
                return name, end
        return self.other, end


def local_time(steps: object, now_ms: int) -> Local | None:
    """By what the source of a zone tells: rows [from when, local time minus UTC], the oldest first.
    None: they do not reach.
    """
    end = _FOREVER
    for begin, offset in reversed(steps if isinstance(steps, list | tuple) else ()):
        if begin <= now_ms:
            day, at = divmod(now_ms + offset, DAY_MS)
            return Local(day, at, end, now_ms)
        end = begin
    return None


def parse(between: object, weekdays: object) -> Hours:
    """As settings say them; None: they do not. BadHours."""
    if between is None and weekdays is None:
        raise BadHours("neither between nor weekdays", _HINT)
    first, last = 0, DAY_MS
    if between is not None:
        if not isinstance(between, list) or len(between) != 2:
            raise BadHours("between is two times of day", _HINT)
        first, last = map(_time, between)
        if first == last:
            raise BadHours("they begin and end at once", "without between: all day")
    if first == DAY_MS:
        raise BadHours("24:00 is where a day ends", "begin at 00:00")
    if weekdays is None:
        return Hours(first, last, frozenset(range(7)))
    known = isinstance(weekdays, list) and all(day in WEEKDAYS for day in weekdays)
    if not known or not weekdays:
        raise BadHours(f"weekdays is {weekdays!r}", f"some of: {', '.join(WEEKDAYS)}")
    return Hours(first, last, frozenset(map(WEEKDAYS.index, _texts(weekdays))))


def days(of: Hours) -> str:
    """Their weekdays."""
    return ", ".join(WEEKDAYS[day] for day in sorted(of.days))


def _texts(found: object) -> Iterable[str]:
    return [str(one) for one in found] if isinstance(found, list) else ()


def _time(text: object) -> int:
    parts = text.split(":") if isinstance(text, str) else []
    if len(parts) == 2 and all(len(p) == 2 and p.isascii() and p.isdecimal() for p in parts):
        hour, minute = map(int, parts)
        if minute < 60 and hour * 60 + minute <= 24 * 60:
            return (hour * 60 + minute) * MINUTE_MS
    raise BadHours(
        f"{text!r} is no time of day", 'two digits each, in quotes: "07:00"; "24:00" ends a day'
    )
