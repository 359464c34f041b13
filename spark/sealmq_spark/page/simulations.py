"""Simulated sites that rate each other: precision, recall and what of the good arrives, over the
rounds. A row of small plots for each kind of malice, a line for each rule.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from . import svg, words
from .figures import Column, Series, code, figure, folded, legend, sentence, strong, table
from .markup import Markup, cut, named, plain, tag
from .scales import Scale, Tick
from .traffic import Shown

_HEIGHT = 130.0
_FIGURES = {
    "precision": "of what is withheld, bad",
    "recall": "of what is bad, withheld",
    "good": "of what is good, delivered",
}
_RULES = (
    Series("average", "blue", "circle"),
    Series("weakest", "orange", "square"),
    Series("two-signers", "teal", "diamond"),
    Series("neighbour", "pink", "triangle"),
    Series("spki", "grey", "down"),
)
_KINDS = (
    "honest", "bad-clients", "malicious", "on-off", "colluding", "bending", "bad-mouthing", "mixed",
)  # fmt: skip
_UP = Scale(tuple(Tick(n / 4, f"{25 * n} %", minor=n % 2 == 1) for n in range(5)), float)

Rows = Sequence[Mapping[str, Any]]


def simulations(summary: Mapping[str, Any], shown: Shown) -> Markup | None:
    """Of the plan that was simulated last."""
    every = shown.get("simulations") or []
    if not every:
        return None
    plan = max(every, key=lambda row: (str(row["at"]), str(row["plan"])))["plan"]
    rows = [row for row in every if row["plan"] == plan]
    last = max(int(row["round"]) for row in rows)
    across = _rounds(last)
    kinds = sorted({str(row["kind"]) for row in rows}, key=_rank)
    runs = sum(int(row["runs"]) for row in rows if row["round"] == last)
    others = len({row["plan"] for row in every}) - 1
    lead = sentence(
        strong(words.count(runs)), " runs of ", strong(words.count(rows[0]["sites"])),
        f" sites each, {last} rounds; plan ", code(str(plan)),
        f"; {others} other plans are in the table" if others else "",
    )  # fmt: skip
    used = [one for one in _RULES if any(row["rule"] == one.name for row in rows)]
    plots = [
        _of_kind(kind, [r for r in rows if r["kind"] == kind], used, across)
        for kind in kinds
        if used
    ]
    return tag(
        "div", lead, legend(used), plots, folded("Figures of the last round", _table(rows, last))
    )


def _rank(kind: str) -> tuple[int, str]:
    return (_KINDS.index(kind) if kind in _KINDS else len(_KINDS), kind)


def _rounds(last: int) -> Scale:
    span = max(last - 1, 1)
    every = max(1, round(last / 4))
    ticks = [Tick((n - 1) / span, words.count(n)) for n in range(1, last + 1, every)]
    return Scale(tuple(ticks), lambda value: (value - 1) / span)


def _of_kind(kind: str, rows: Rows, rules: Sequence[Series], across: Scale) -> Markup:
    plots = [
        _plot(kind, name, said, rows, rules, across)
        for name, said in _FIGURES.items()
        if any(row[f"{name}_mean"] is not None for row in rows)
    ]
    note = f"mean of the runs by round; the band has 80{words.GAP}% of those of {rules[0].name}"
    return figure(cut(plain(kind), 40), tag("div", plots, class_="small"), note=note)


def _plot(
    kind: str, name: str, said: str, rows: Rows, rules: Sequence[Series], across: Scale
) -> Markup:
    lines: list[Markup] = []
    marks: list[Markup] = []
    for one in rules:
        own = sorted(
            (r for r in rows if r["rule"] == one.name and r[f"{name}_mean"] is not None),
            key=lambda r: int(r["round"]),
        )
        if not own:
            continue
        points = [(across.place(r["round"]), _down(r[f"{name}_mean"])) for r in own]
        if len(own) > 1:
            bounds = [
                (across.place(r["round"]), _down(r[f"{name}_p10"]), _down(r[f"{name}_p90"]))
                for r in own
            ]
            if one is rules[0]:  # of more of them nobody could tell which is whose
                lines.insert(0, svg.band(bounds, one.colour))
            lines.append(svg.line(points, one.colour))
        x, y = points[-1]
        title = f"{one.name}, round {own[-1]['round']}: {_share(own[-1][f'{name}_mean'])}"
        marks.append(svg.mark(one.shape, x, one.colour, svg.px(y), title))
    drawn = svg.plot(
        "sizes",
        f"{cut(plain(kind), 40)}: {name} by round, {said}",
        _HEIGHT + 42,
        svg.up(_UP, _HEIGHT),
        svg.across(across, _HEIGHT),
        svg.stretched(_HEIGHT, *lines),
        marks,
    )
    return tag("div", tag("p", tag("strong", name), f" {said}", class_="panel"), drawn)


def _down(share: float) -> float:
    return _HEIGHT * (1 - min(1.0, max(0.0, share)))


def _share(value: float | None) -> str:
    return words.DASH if value is None else f"{100 * value:.1f}{words.GAP}%"


def _table(rows: Rows, last: int) -> Markup:
    names = [Column("kind"), Column("rule"), Column("runs", True)]
    names += [Column(name, True) for name in _FIGURES]
    cells = [
        [
            named(row["kind"]), named(row["rule"]), words.count(row["runs"]),
            *(_share(row[f"{name}_mean"]) for name in _FIGURES),
        ]
        for row in sorted(rows, key=lambda r: (_rank(str(r["kind"])), str(r["rule"])))
        if row["round"] == last
    ]  # fmt: skip
    return table(names, cells, "Figures of the last round")
