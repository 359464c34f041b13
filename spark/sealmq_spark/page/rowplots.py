"""Plots that are tables: a row has a name, its part of the plot, and its numbers.

A name has room to wrap, and who does not see the plot reads the numbers beside it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from . import svg
from .figures import Cell, Column
from .markup import Markup, named, rule, tag
from .scales import Scale
from .words import Number, count


@dataclass(frozen=True)
class Row:
    """`drawn`: shapes at shares of the plot's width. group: a heading above the first of them."""

    name: Markup
    drawn: Sequence[Markup]
    cells: Sequence[Cell]
    group: str = ""
    tail: bool = False


def rows(
    names: str, scale: Scale, columns: Sequence[Column], each: Iterable[Row], label: str
) -> Markup:
    """A table whose second column is the plot; `names`: what its rows are."""
    heads = [
        tag("th", names, scope="col", class_="name"),
        tag("th", svg.axis(scale), class_="drawn", aria_hidden="true"),
        [tag("th", one.head, scope="col", class_=_kind(one)) for one in columns],
    ]
    body: list[Markup] = []
    group = ""
    lines = svg.grid(scale)
    for row in each:
        if row.group and row.group != group:
            group = row.group
            head = tag("th", named(group, 60), scope="rowgroup", colspan=2 + len(columns))
            body.append(tag("tr", head, class_="group"))
        body.append(_row(row, columns, lines))
    return tag(
        "table",
        tag("thead", tag("tr", heads)),
        tag("tbody", body),
        class_=f"rows n{len(columns)}" if len(columns) <= 5 else "rows many",
        aria_label=label,
    )


def _row(row: Row, columns: Sequence[Column], lines: Sequence[Markup]) -> Markup:
    cells = [
        tag("td", cell, class_=_kind(one), data_label=one.label)
        for one, cell in zip(columns, row.cells, strict=True)
    ]
    # With nothing to draw (the rest of a long tail) the lines would mean nothing.
    plot = svg.strip(lines, row.drawn) if row.drawn else None
    return tag(
        "tr",
        tag("th", row.name, scope="row", class_="name"),
        tag("td", plot, class_="drawn", aria_hidden="true"),
        cells,
        class_="tail" if row.tail else None,
    )


def _kind(column: Column) -> str:
    return "side number" if column.number else "side"


def rest(number: Number) -> Markup:
    """The name of what was counted together."""
    return tag("span", f"and {count(number)} more", class_="none")


def name_of(row: Mapping[str, object], key: str, empty: str = "none") -> Markup:
    """A row's name, or how many it stands for."""
    others = row.get("others")
    if isinstance(others, int) and others > 0:
        return rest(others)
    return (rule if key == "rule" else named)(str(row.get(key) or ""), empty=empty)


def stacked(values: Sequence[Number], colours: Sequence[str], scale: Scale) -> list[Markup]:
    """Bars one after the other."""
    found, total = [], 0.0
    for value, colour in zip(values, colours, strict=True):
        if value > 0:
            found.append(svg.bar(scale.place(total), scale.place(total + value), colour))
        total += value
    return found or [svg.bar(0, 0, colours[0])]
