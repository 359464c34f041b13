"""Table 5 of Chen and Wilson beside ours: how much more a stage costs, by what it is held to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from . import rowplots, svg, words
from .figures import Column, Series, figure, legend
from .markup import Markup, named
from .scales import logarithmic

_OURS = Series("measured here", "blue", "diamond")
_PAPER = Series("in the paper", "grey", "circle")
STAGES = ("connect", "subscribe", "receive", "publish")
_KINDS = {
    "instructions": ("How much more a stage costs", "instructions of the client"),
    "wire": ("How much more a stage sends", "bytes that the client sends"),
    "heap": ("How much more heap it takes", "bytes of heap that will do"),
}


def table5(rows: Sequence[Mapping[str, Any]]) -> list[Markup]:
    """A plot for each kind of figure that the paper has, and that was measured here as well."""
    there = [row for row in rows if row.get("percent") is not None]
    kinds = sorted({str(row.get("what") or "instructions") for row in there})
    return [
        _of(kind, [row for row in there if (row.get("what") or "instructions") == kind])
        for kind in kinds
    ]


def _of(kind: str, there: Sequence[Mapping[str, Any]]) -> Markup:
    """For the payload nearest to 64 bytes: on a device most messages are small."""
    size = min((row.get("size") or 0 for row in there), key=lambda one: (abs(one - 64), one))
    there = [row for row in there if (row.get("size") or 0) == size]
    there = sorted(there, key=lambda row: (str(row.get("comparison")), _rank(row)))
    percents = [row[key] for row in there for key in ("percent", "paper") if _fits(row.get(key))]
    scale = logarithmic([*(_times(percent) for percent in percents), 1.0], words.ratio)
    each = []
    for row in there:
        drawn = [svg.rule(scale.place(1))]
        for key, one in (("paper", _PAPER), ("percent", _OURS)):
            if _fits(row.get(key)):
                said = f"{one.name}: {_sign(row[key])}"
                place = scale.place(_times(row[key]))
                drawn.append(svg.mark(one.shape, place, one.colour, title=said))
        cells = [_sign(row["percent"]), _sign(row.get("paper"))]
        group = str(row.get("comparison") or "")
        each.append(rowplots.Row(named(row.get("stage")), drawn, cells, group=group))
    columns = [Column(_OURS.name, True), Column(_PAPER.name, True)]
    title, said = _KINDS.get(kind, (f"How much more: {kind}", kind))
    return figure(
        title,
        legend([_OURS, _PAPER]),
        rowplots.rows("stage", scale, columns, each, title),
        note=f"the paper's Table 5 (CPU of a container with Java, 1 MiB) and here: {said}, {size}"
        f"{words.GAP}B of payload; on a logarithmic scale, +100{words.GAP}% being 2×",
    )


def _rank(row: Mapping[str, Any]) -> int:
    stage = str(row.get("stage"))
    return STAGES.index(stage) if stage in STAGES else len(STAGES)


def _fits(percent: float | None) -> bool:
    return percent is not None and percent > -100


def _times(percent: float) -> float:
    return 1 + percent / 100


def _sign(percent: float | None) -> str:
    if percent is None:
        return words.DASH
    sign = "+" if percent > 0 else "−" if percent < 0 else "±"
    return f"{sign}{words.short(abs(percent))}{words.GAP}%"
