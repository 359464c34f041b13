"""What stands round a plot: its title, what its colours mean, the numbers in a table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from . import svg
from .markup import Markup, cut, named, plain, tag
from .words import count

Cell = str | Markup
_HEAD = 24


@dataclass(frozen=True)
class Series:
    """One of the things that a plot compares. `colour`: a class of style.css."""

    name: str
    colour: str
    shape: str = "bar"


@dataclass(frozen=True)
class Column:
    """A table's column. number: to the right, in figures of one width."""

    name: str
    number: bool = False

    @property
    def head(self) -> Markup:
        return named(self.name, _HEAD)

    @property
    def label(self) -> str:
        """Where the head of the table is not shown, it stands before each cell."""
        return cut(plain(self.name), _HEAD)


def figure(title: str, *body: object, note: object = None, kind: str = "") -> Markup:
    """A plot with its title; note: units, and how to read it."""
    head = [tag("span", title, class_="title"), tag("span", note, class_="note") if note else None]
    return tag("figure", tag("figcaption", head), body, class_=kind or None)


def legend(series: Iterable[Series]) -> Markup:
    """What the colours and shapes mean; names from outside are cut."""
    items = [tag("li", svg.key(one.shape, one.colour), named(one.name, 40)) for one in series]
    return tag("ul", items, class_="legend")


def table(columns: Sequence[Column], rows: Iterable[Sequence[Cell]], label: str) -> Markup:
    """Numbers and words, nothing drawn. At little width each row becomes a card of lines."""
    heads = [tag("th", one.head, scope="col", class_=_kind(one)) for one in columns]
    body = []
    for row in rows:
        cells = [
            tag("td", cell, class_=_kind(one), data_label=one.label)
            for one, cell in zip(columns, row, strict=True)
        ]
        body.append(tag("tr", cells))
    return tag(
        "table",
        tag("thead", tag("tr", heads)),
        tag("tbody", body),
        class_="data",
        aria_label=label,
    )


def folded(summary: str, content: Markup) -> Markup:
    """What only some want to read: opened by hand, not printed while it is closed."""
    box = tag("div", content, class_="scroll", tabindex="0", role="region", aria_label=summary)
    return tag("details", tag("summary", summary), box)


def aside(summary: str, *plots: Markup) -> Markup:
    """Plots that only some want to see."""
    return tag("details", tag("summary", summary), plots)


def nothing(text: str) -> Markup:
    """In the place of a plot that would be empty."""
    return tag("p", text, class_="nothing")


def _kind(column: Column) -> str | None:
    return "number" if column.number else None


def listed(summary: Mapping[str, Any], table: str, rows: Sequence[object]) -> str:
    """Whether a bounded list is all of its table; "" if it is."""
    number = (summary.get("tables") or {}).get(table) or 0
    if number <= len(rows):
        return ""
    return f"; {count(len(rows))} of {count(number)}: tables/{table} has all"


def sentence(*parts: object) -> Markup:
    """The finding of a section, above its plots."""
    return tag("p", parts, class_="lead")


def strong(text: str) -> Markup:
    return tag("strong", text)


def code(text: str | None) -> Markup:
    """A name within a sentence."""
    return tag("span", text if isinstance(text, Markup) else named(text, 48), class_="code")


__all__ = [
    "Cell",
    "Column",
    "Series",
    "aside",
    "code",
    "figure",
    "folded",
    "legend",
    "listed",
    "nothing",
    "sentence",
    "strong",
    "table",
]
