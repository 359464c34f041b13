"""From values to places: linear, logarithmic, of time. A place is a share of the plot, 0 to 1."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial

from .words import Number, short

_HOUR = 3600
_DAY = 24 * _HOUR
# Steps of the axis of time: seconds; from a month on, months.
_SECONDS = (_HOUR, 2 * _HOUR, 3 * _HOUR, 6 * _HOUR, 12 * _HOUR, _DAY, 2 * _DAY, 7 * _DAY, 14 * _DAY)
_MONTHS = (1, 2, 3, 6, 12, 24, 60, 120, 600)
# 1970-01-05 was a Monday: weeks begin there.
_MONDAY = 4 * _DAY
# The share of a logarithmic axis that lies before its first decade, where 0 has a place.
_ZERO = 0.12


@dataclass(frozen=True)
class Tick:
    """A place on an axis. `below`: a second line. `minor`: left out where there is little room."""

    place: float
    text: str
    below: str = ""
    minor: bool = False


@dataclass(frozen=True)
class Scale:
    """`ticks` in order; `place` of a value, kept within the plot."""

    ticks: tuple[Tick, ...]
    of: Callable[[float], float]

    def place(self, value: Number) -> float:
        return min(1.0, max(0.0, self.of(float(value))))


def linear(top: Number, text: Callable[[Number], str] = short, ticks: int = 4) -> Scale:
    """From 0 to a round number at or above `top`."""
    top = float(top) if math.isfinite(top) and top > 0 else 1.0
    step = _round_step(top / ticks)
    # Counts have no halves.
    if text is short and top <= ticks:
        step = 1.0
    end = math.ceil(top / step - 1e-9) * step
    number = round(end / step)
    found = tuple(
        # The ends keep their numbers, and every other one between them where that comes out even.
        Tick(i / number, text(i * step), minor=0 < i < number and (number % 2 == 1 or i % 2 == 1))
        for i in range(number + 1)
    )
    return Scale(found, lambda value: value / end)


def _round_step(raw: float) -> float:
    power = 10.0 ** math.floor(math.log10(raw))
    return next(power * m for m in (1, 2, 2.5, 5, 10) if power * m >= raw * (1 - 1e-9))


def logarithmic(
    values: Iterable[Number],
    text: Callable[[Number], str] = short,
    most: int = 7,
    zero: bool = False,
    base: int = 10,
) -> Scale:
    """Whole decades round `values`; where that is but one or two, 2 and 5 have ticks as well.

    zero: a place of its own at the left end for what is not above 0. base: 4 for bytes, whose
    round numbers are powers of two.
    """
    good = [float(value) for value in values if math.isfinite(value) and value > 0]
    low, high = (min(good), max(good)) if good else (1.0, float(base))
    first, last = math.floor(math.log(low, base) + 1e-9), math.ceil(math.log(high, base) - 1e-9)
    last = max(last, first + 1)
    span = last - first
    room = _ZERO if zero else 0.0

    def of(value: float) -> float:
        return room + (1 - room) * (math.log(value, base) - first) / span if value > 0 else 0.0

    if span <= 2 and base == 10:
        marks = [10.0**e * m for e in range(first, last) for m in (1, 2, 5)] + [10.0**last]
        lesser = {value for value in marks if f"{value:e}"[0] != "1"}
    else:
        every = math.ceil(span / (most - 1))
        # 1 is among them, with its number, wherever it lies within.
        powers = [e for e in range(first, last + 1) if e % every == 0]
        marks = [float(base) ** e for e in powers]
        odd = {float(base) ** e for e in powers if e // every % 2}
        lesser = odd if len(marks) > 4 else set()
    ticks = [Tick(of(v), text(v), minor=v in lesser) for v in marks]
    return Scale(tuple([Tick(0.0, "0"), *ticks] if zero else ticks), of)


@dataclass(frozen=True)
class Span:
    """A stretch of time that an axis shows."""

    began: datetime
    ended: datetime

    @property
    def seconds(self) -> float:
        return max(1.0, (self.ended - self.began).total_seconds())

    def place(self, at: datetime) -> float:
        return min(1.0, max(0.0, (at - self.began).total_seconds() / self.seconds))


def of_time(span: Span, most: int = 8) -> Scale:
    """Ticks at whole hours, days, weeks, months or years of UTC."""
    times, label, lesser = _times(span, most)
    ticks = []
    day_before = ""
    for at in times:
        text, below = label(at)
        # Noon, where midnight stands as well.
        minor = lesser(at) and len(times) > 2
        # The day stands where it is new, and never under a tick that may be left out.
        shown = below if below != day_before and not minor else ""
        day_before = shown or day_before
        ticks.append(Tick(span.place(at), text, shown, minor))
    return Scale(tuple(ticks), lambda seconds: seconds / span.seconds)


_Times = tuple[list[datetime], Callable[[datetime], tuple[str, str]], Callable[[datetime], bool]]


def _times(span: Span, most: int) -> _Times:
    for step in _SECONDS:
        if span.seconds / step <= most:
            base = _MONDAY if step % (7 * _DAY) == 0 else 0
            first = math.ceil((span.began.timestamp() - base) / step) * step + base
            number = int((span.ended.timestamp() - first) // step) + 1
            times = [datetime.fromtimestamp(first + i * step, UTC) for i in range(number)]
            odd = partial(_odd, step=step, base=base)
            return times, _hour_label if step < _DAY else _day_label, odd
    for months in _MONTHS:
        if span.seconds / (months * 30.4 * _DAY) <= most:
            return _of_months(span, months), _month_label, partial(_odd_month, step=months)
    return [span.began, span.ended], _month_label, lambda _: False


def _odd(at: datetime, step: int, base: int) -> bool:
    return (at.timestamp() - base) // step % 2 == 1


def _odd_month(at: datetime, step: int) -> bool:
    return (at.year * 12 + at.month - 1) // step % 2 == 1


def _of_months(span: Span, step: int) -> list[datetime]:
    found: list[datetime] = []
    number = span.began.year * 12 + span.began.month - 1
    number -= number % step
    while True:
        year, month = divmod(number, 12)
        if year > span.ended.year:
            return found
        at = datetime(year, month + 1, 1, tzinfo=UTC)
        if span.began <= at <= span.ended:
            found.append(at)
        number += step


def _hour_label(at: datetime) -> tuple[str, str]:
    return at.strftime("%H:%M"), _day(at)


def _day_label(at: datetime) -> tuple[str, str]:
    return _day(at), str(at.year)


def _month_label(at: datetime) -> tuple[str, str]:
    return at.strftime("%b"), str(at.year)


def _day(at: datetime) -> str:
    return f"{at.day} {at.strftime('%b')}"


def later(at: datetime, hours: Number) -> datetime:
    """`hours` after `at`, or the end of time."""
    try:
        return at + timedelta(hours=hours)
    except OverflowError:
        return datetime.max.replace(tzinfo=UTC)
