"""Small plots side by side: a measure each, a line a variant, from small payloads to large ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from . import svg, words
from .figures import Series, figure, legend
from .markup import Markup, tag
from .scales import Scale, Tick, logarithmic

_HEIGHT = 170.0
_SIZES = 3

Rows = Sequence[Mapping[str, Any]]


def by_size(rows: Rows, series: Sequence[Series]) -> Markup | None:
    """Value against bytes of payload, both logarithmic, on one scale for measures of one unit."""
    plots = []
    units: dict[str, list[str]] = {}
    for row in rows:
        measures = units.setdefault(str(row.get("unit") or ""), [])
        if row["measure"] not in measures and _many(rows, row):
            measures.append(str(row["measure"]))
    used: list[str] = []
    for unit, measures in units.items():
        own = [r for r in rows if r.get("unit") == unit and r["measure"] in measures]
        sized = [r for r in own if (r.get("size") or 0) > 0 and not r.get("key")]
        if not sized:
            continue
        base = 4 if unit.startswith("bytes") else 10
        used += [str(r["variant"]) for r in sized]
        up = logarithmic(_values(sized), partial(words.measured, of=unit), base=base)
        across = _sizes(sorted({r["size"] for r in sized}))
        for measure in measures:
            of = [r for r in sized if r["measure"] == measure]
            plots.append(_plot(measure, unit, of, series, (across, up)))
    if not plots:
        return None
    return figure(
        "Cost by size of the payload",
        legend([one for one in series if one.name in used]),
        tag("div", plots, class_="small"),
        note="both scales are logarithmic; the numbers are in the table below",
    )


def _many(rows: Rows, of: Mapping[str, Any]) -> bool:
    same = [r for r in rows if r["measure"] == of["measure"] and r.get("unit") == of.get("unit")]
    return len({r.get("size") for r in same if r.get("size")}) >= _SIZES


def _values(rows: Rows) -> list[float]:
    names = ("value", "low", "high")
    return [row[name] for row in rows for name in names if row.get(name) is not None]


def _sizes(sizes: Sequence[int]) -> Scale:
    """A tick at each of a few sizes that were measured, so that none stands between them."""
    plain = logarithmic(sizes)
    low, high = plain.of(min(sizes)), plain.of(max(sizes))
    span = max(high - low, 1e-9)

    def of(value: float) -> float:
        return 0.03 + 0.94 * (plain.of(value) - low) / span

    every = max(1, round(len(sizes) / 4))
    shown = sizes[::every]
    ticks = [
        Tick(of(size), words.size(size).replace("\u00a0", ""), minor=number % 2 == 1)
        for number, size in enumerate(shown)
    ]
    return Scale(tuple(ticks), of)


def _plot(
    measure: str, unit: str, rows: Rows, series: Sequence[Series], scales: tuple[Scale, Scale]
) -> Markup:
    across, up = scales
    lines: list[Markup] = []
    dots: list[Markup] = []
    for one in series:
        own = sorted((r for r in rows if r["variant"] == one.name), key=lambda r: int(r["size"]))
        if not own:
            continue
        points = [(across.place(r["size"]), _down(up, r["value"])) for r in own]
        if len(points) > 1:
            bounds = [
                (across.place(r["size"]), _down(up, r["low"]), _down(up, r["high"]))
                for r in own
                if r.get("low") is not None and r.get("high") is not None
            ]
            if len(bounds) > 1:
                lines.insert(0, svg.band(bounds, one.colour))
            lines.append(svg.line(points, one.colour))
        for row, (x, y) in zip(own, points, strict=True):
            said = f"{one.name}, {words.size(row['size'])}: {words.measured(row['value'], unit)}"
            dots.append(svg.mark(one.shape, x, one.colour, svg.px(y), said))
    label = f"{measure}: {unit} by bytes of payload"
    drawn = svg.plot(
        "sizes",
        label,
        _HEIGHT + 42,
        svg.up(up, _HEIGHT),
        svg.across(across, _HEIGHT),
        svg.stretched(_HEIGHT, *lines),
        dots,
    )
    head = tag("p", tag("strong", measure), f" {unit}", class_="panel")
    return tag("div", head, drawn)


def _down(up: Scale, value: float) -> float:
    return _HEIGHT * (1 - up.place(value))
