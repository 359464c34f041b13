"""Counts over time: stacked bars; beyond a hundred buckets, steps that touch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise

from . import svg, words
from .figures import Column, Series, folded, legend, table
from .markup import Markup, tag
from .scales import Scale, Span, later, linear, of_time

_BARS = 100
# Bars fewer than these would be slabs; the axis goes on beside them.
_LEAST = 16
_HEIGHT = 150.0
_LOW = 64.0
_THIN = 1.5


@dataclass(frozen=True)
class Bucket:
    """A stretch of time and what was counted in it, one number a series."""

    began: datetime
    ended: datetime
    counts: tuple[float, ...]

    @property
    def total(self) -> float:
        return sum(self.counts)


def buckets(rows: Sequence[Mapping[str, object]], keys: Sequence[str]) -> list[Bucket]:
    """Rows with `hour` and `hours` -> buckets in order of time; what has no time is left out."""
    found = []
    for row in rows:
        began = words.instant(str(row.get("hour") or ""))
        if began is None:
            continue
        hours = _number(row.get("hours")) or 1
        counts = tuple(_number(row.get(key)) for key in keys)
        found.append(Bucket(began, later(began, hours), counts))
    return sorted(found, key=lambda bucket: bucket.began)


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) else 0.0


def over_time(
    what: str, each: Sequence[Bucket], series: Sequence[Series], alone: int | None = None
) -> Markup:
    """`what` in words; `alone`: the series that is drawn once more below, on a scale of its own."""
    span = _span(each)
    time = of_time(span)
    names = " and ".join(one.name for one in series)
    label = f"{what}: {names} over time, {_range(each)}, UTC"
    parts = [legend(series) if len(series) > 1 else None]
    last = alone is None
    stack = [bucket.counts for bucket in each]
    parts.append(_panel(label, each, stack, series, (time, span), _HEIGHT, last))
    if alone is not None:
        one = series[alone]
        counts = [(bucket.counts[alone],) for bucket in each]
        if any(count > 0 for (count,) in counts):
            parts.append(tag("p", f"{one.name} alone, on a scale of its own", class_="panel"))
            text = f"{what}: {one.name} alone, {_range(each)}, UTC"
            parts.append(_panel(text, each, counts, [one], (time, span), _LOW, True))
        else:
            parts[-1] = _panel(label, each, stack, series, (time, span), _HEIGHT, True)
    return tag("div", parts, _numbers(what, each, series), class_="times")


def _span(each: Sequence[Bucket]) -> Span:
    first, last = each[0], each[-1]
    span = Span(first.began, last.ended)
    wanted = _LEAST * (first.ended - first.began)
    missing = wanted - (span.ended - span.began)
    if missing.total_seconds() <= 0:
        return span
    hours = missing.total_seconds() / 7200
    return Span(later(span.began, -hours), later(span.ended, hours))


def _range(each: Sequence[Bucket]) -> str:
    return f"{_minute(each[0].began)} to {_minute(each[-1].ended)}"


def _minute(at: datetime) -> str:
    return at.strftime("%Y-%m-%d %H:%M")


def _panel(
    label: str,
    each: Sequence[Bucket],
    stack: Sequence[tuple[float, ...]],
    series: Sequence[Series],
    axis: tuple[Scale, Span],
    height: float,
    last: bool,
) -> Markup:
    time, span = axis
    up = linear(max(sum(counts) for counts in stack), ticks=4 if height > _LOW else 2)
    paths = _bars if len(each) <= _BARS else _steps
    drawn = [
        tag("path", d=path, class_=f"mark {one.colour}")
        for one, path in zip(series, paths(each, stack, span, up, height), strict=True)
        if path
    ]
    room = 52 if last else 18
    return svg.plot(
        "time" if last else "time upper",
        label,
        height + room,
        svg.up(up, height),
        svg.across(time, height, labels=last),
        svg.stretched(height, *drawn),
        _hits(each, series if len(stack[0]) > 1 else (), stack, span, height),
    )


def _bars(
    each: Sequence[Bucket],
    stack: Sequence[tuple[float, ...]],
    span: Span,
    up: Scale,
    height: float,
) -> list[str]:
    """A path of boxes for each series."""
    paths: list[list[str]] = [[] for _ in stack[0]]
    for bucket, counts in zip(each, stack, strict=True):
        left, right = span.place(bucket.began), span.place(bucket.ended)
        gap = (right - left) * 0.1
        x, end = svg.wide(left + gap), svg.wide(right - gap)
        for path, (low, high) in zip(paths, _heights(counts, up, height), strict=True):
            if high < low:
                path.append(f"M{x} {svg.px(low)}V{svg.px(high)}H{end}V{svg.px(low)}Z")
    return ["".join(path) for path in paths]


def _steps(
    each: Sequence[Bucket],
    stack: Sequence[tuple[float, ...]],
    span: Span,
    up: Scale,
    height: float,
) -> list[str]:
    """One outline for each series: boxes that touch would show seams."""
    tops: list[list[str]] = [[] for _ in stack[0]]
    floors: list[list[str]] = [[] for _ in stack[0]]
    ends = [*(bucket.began for bucket in each[1:]), each[-1].ended]
    for bucket, counts, following in zip(each, stack, ends, strict=True):
        left = svg.wide(span.place(bucket.began))
        right = max(svg.wide(span.place(bucket.ended)), left + 1)
        pairs = list(_heights(counts, up, height))
        # Where time is missing between two buckets, nothing was counted.
        if svg.wide(span.place(following)) > right:
            pieces = [(left, right, pairs), (right, svg.wide(span.place(following)), None)]
        else:
            pieces = [(left, right, pairs)]
        for x, end, found in pieces:
            for number, (top, floor) in enumerate(zip(tops, floors, strict=True)):
                low, high = found[number] if found else (height, height)
                top.append(f"L{x} {svg.px(high)}H{end}")
                floor.append(f"L{end} {svg.px(low)}H{x}")
    return [
        "M" + "".join(top)[1:] + "".join(reversed(floor)) + "Z" if _any(stack, number) else ""
        for number, (top, floor) in enumerate(zip(tops, floors, strict=True))
    ]


def _any(stack: Sequence[tuple[float, ...]], number: int) -> bool:
    return any(counts[number] > 0 for counts in stack)


def _heights(counts: tuple[float, ...], up: Scale, height: float) -> list[tuple[float, float]]:
    """(down to its floor, down to its top) of each series; what is not nothing can be seen."""
    edges = [height]
    total = 0.0
    for count in counts:
        total += count
        top = height * (1 - up.place(total))
        edges.append(min(top, edges[-1] - _THIN) if count > 0 else edges[-1])
    return list(pairwise(edges))


def _hits(
    each: Sequence[Bucket],
    series: Sequence[Series],
    stack: Sequence[tuple[float, ...]],
    span: Span,
    height: float,
) -> Markup:
    """What the pointer finds: the numbers of each bucket."""
    found = []
    for bucket, counts in zip(each, stack, strict=True):
        left, right = span.place(bucket.began), span.place(bucket.ended)
        said = [f"{words.count(n)} {one.name}" for one, n in zip(series, counts, strict=False)]
        text = f"{_minute(bucket.began)} UTC: {', '.join(said) or words.count(counts[0])}"
        found.append(
            tag(
                "rect",
                tag("title", text),
                x=svg.percent(left),
                width=svg.percent(right - left),
                height=svg.px(height),
            )
        )
    return tag("g", found, class_="hits")


def _numbers(what: str, each: Sequence[Bucket], series: Sequence[Series]) -> Markup:
    columns = [Column("from (UTC)"), *(Column(one.name, number=True) for one in series)]
    rows = [
        [_minute(bucket.began), *(words.count(count) for count in bucket.counts)] for bucket in each
    ]
    return folded(f"{what}: the numbers", table(columns, rows, what))
