"""What the boards did: what passed where, how long the stages took, where the power was cut."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from . import matrix, rowplots, svg, words
from .figures import Cell, Column, Series, figure, folded, legend, listed, sentence, strong
from .markup import Markup, named, tag
from .scales import linear, logarithmic
from .traffic import Shown

_BOARDS = 12
_OUTCOMES = ("passed", "failed", "skipped")
_MEDIAN = Series("median", "blue", "circle")
_P95 = Series("95 of 100 within", "pink", "triangle")
_P99 = Series("99 of 100 within", "orange", "diamond")
_QUANTILES = (("median", _MEDIAN), ("p95", _P95), ("p99", _P99))


def behaviours(summary: Mapping[str, Any], shown: Shown) -> Markup | None:
    """Boards and behaviours, a matrix a commit, the newest first."""
    rows = shown.get("behaviours", ())
    if not rows:
        return None
    headline = summary["headline"]
    commits = list(dict.fromkeys(str(row.get("commit") or "") for row in rows))
    parts = [strong(words.plural(headline.get("passed") or 0, "verdict") + " passed")]
    failed, skipped = headline.get("failed") or 0, headline.get("skipped") or 0
    made = [_commit(commit, [r for r in rows if r.get("commit") == commit]) for commit in commits]
    return tag(
        "div",
        sentence(*parts, f", {words.count(failed)} failed, {words.count(skipped)} skipped."),
        made[0],
        [
            folded(f"Commit {_short(commit)}", one)
            for commit, one in zip(commits[1:], made[1:], strict=True)
        ],
    )


def _short(commit: str) -> str:
    head, dirty, _ = commit.partition("-dirty")
    return head[:10] + dirty


def _commit(commit: str, rows: Sequence[Mapping[str, Any]]) -> Markup:
    boards = sorted(
        {(str(row.get("kind")), str(row.get("board"))) for row in rows},
        key=lambda one: (-sum(r["failed"] for r in rows if r.get("board") == one[1]), one),
    )
    left, boards = len(boards) - _BOARDS, sorted(boards[:_BOARDS])
    names = list(dict.fromkeys(str(row.get("behaviour")) for row in rows))
    of = {(r.get("kind"), r.get("board"), r.get("behaviour")): r for r in rows}
    cells = []
    for name in names:
        line = []
        for kind, board in boards:
            row = of.get((kind, board, name), {})
            passed, failed, skipped = (row.get(key) or 0 for key in _OUTCOMES)
            took = row.get("ms")
            line.append(matrix.verdict(passed, failed, skipped, took, f"{name} on {board}"))
        cells.append(line)
    more = f"; {words.plural(left, 'board')} with fewer failures left out" if left > 0 else ""
    return figure(
        f"Behaviours by board, commit {_short(commit)}",
        _signs(),
        matrix.matrix(
            "behaviour",
            [tag("span", named(board, 24), tag("small", kind)) for kind, board in boards],
            [named(name, 40) for name in names],
            cells,
            f"Behaviours by board at {_short(commit)}",
        ),
        note=f"and how long they took (median){more}",
    )


def _signs() -> Markup:
    signs = (("passed", "✓"), ("failed", "✗"), ("mixed", "±"), ("skipped", "○"))
    return tag(
        "ul",
        [
            tag("li", tag("span", sign, class_=f"cell {kind}", aria_hidden="true"), said)
            for kind, sign in signs
            for said in ("passed and failed" if kind == "mixed" else kind,)
        ],
        class_="legend",
    )


def stages(summary: Mapping[str, Any], shown: Shown) -> Markup | None:
    """How long each stage takes."""
    rows = [row for row in shown.get("stages", ()) if row.get("median") is not None]
    if not rows:
        return None
    names = [f"{key}{end}" for key, _ in _QUANTILES for end in ("", "_low", "_high")]
    values = [row[name] for row in rows for name in names if row.get(name) is not None]
    scale = logarithmic(values, words.duration, zero=any(value <= 0 for value in values))
    each = []
    for row in rows:
        drawn: list[Markup] = []
        for key, one in reversed(_QUANTILES):
            drawn += _quantile(row, key, one, scale.place)
        name = tag("span", named(row.get("stage")), tag("small", _moved(row)))
        cells = [_between(row, key) for key, _ in _QUANTILES]
        group = f"{row.get('behaviour')} ({row.get('kind')})"
        each.append(rowplots.Row(name, drawn, [*cells, words.figure(row.get("n"))], group=group))
    columns = [Column(name, True) for name in ("median", "p95", "p99", "samples")]
    virtual = any(row.get("kind") == "virtual" for row in rows)
    warning = " Times of virtual boards say nothing about silicon." if virtual else ""
    return tag(
        "div",
        figure(
            "How long the stages take",
            legend([one for _, one in _QUANTILES]),
            rowplots.rows("stage", scale, columns, each, "Stages"),
            note="what passed, on a logarithmic scale; the lines are 95 % intervals (bootstrap)"
            f"{listed(summary, 'stages', rows)}.{warning}",
        ),
    )


def _quantile(row: Mapping[str, Any], key: str, one: Series, place: Any) -> list[Markup]:
    value, low, high = (row.get(f"{key}{end}") for end in ("", "_low", "_high"))
    if value is None:
        return []
    found = []
    if low is not None and high is not None:
        found.append(svg.interval(place(low), place(high), one.colour, key == "median"))
    said = f"{one.name}: {words.duration(value)}"
    return [*found, svg.mark(one.shape, place(value), one.colour, title=said)]


def _between(row: Mapping[str, Any], key: str) -> Cell:
    low, high = row.get(f"{key}_low"), row.get(f"{key}_high")
    value = words.duration(row.get(key))
    if low is None or high is None:
        return value
    return tag("span", value, tag("small", f"{words.duration(low)} to {words.duration(high)}"))


def _moved(row: Mapping[str, Any]) -> str:
    parts = []
    if row.get("bytes"):
        parts.append(f"{words.size(row['bytes'])} moved")
    if row.get("heap"):
        parts.append(f"{words.size(row['heap'])} heap free")
    return ", ".join(parts)


def flaky(summary: Mapping[str, Any], shown: Shown) -> Markup | None:
    """What both passed and failed on one commit."""
    rows = shown.get("flaky", ())
    if not rows:
        return None
    scale = linear(1, lambda value: words.share(value, 1))
    each = [
        rowplots.Row(
            tag(
                "span",
                named(row.get("behaviour")),
                tag("small", f"commit {_short(str(row.get('commit')))}"),
            ),
            rowplots.stacked([row.get("share") or 0], ["orange"], scale),
            [words.count(row.get("failed")), words.count(row.get("passed"))],
        )
        for row in rows
    ]
    columns = [Column("failed", True), Column("passed", True)]
    return figure(
        "Flaky behaviours",
        rowplots.rows("behaviour", scale, columns, each, "Flaky behaviours"),
        note="the share of verdicts that failed, of those on one commit"
        + listed(summary, "flaky", rows),
    )


def cuts(summary: Mapping[str, Any], shown: Shown) -> Markup | None:
    """Where the power was cut, and what came of it."""
    rows = shown.get("cuts", ())
    if not rows:
        return None
    total = sum(row["cuts"] for row in rows)
    inside = sum(row.get("inside") or 0 for row in rows)
    failed = sum(row.get("failed") or 0 for row in rows)
    series = [Series("in the middle of a change", "orange"), Series("between two changes", "blue")]
    scale = linear(max(row["cuts"] for row in rows))
    each = []
    for row in rows:
        within = row.get("inside") or 0
        values = [within, row["cuts"] - within]
        name = tag(
            "span",
            named(row.get("cut_partition"), empty="no partition"),
            tag("small", named(row.get("cut_op"), empty="")),
        )
        numbers = [row.get(key) or 0 for key in ("cuts", "inside", "changes", "failed")]
        drawn = rowplots.stacked(values, [one.colour for one in series], scale)
        group = str(row.get("behaviour") or "")
        each.append(rowplots.Row(name, drawn, [words.figure(n) for n in numbers], group=group))
    columns = [Column(name, True) for name in ("cuts", "inside", "changes", "failed")]
    return tag(
        "div",
        sentence(
            strong(words.plural(total, "power cut")),
            f", {words.share(inside, total)} of them in the middle of a change of the flash; "
            f"after {words.count(failed)} of them something failed.",
        ),
        figure(
            "Where the power was cut",
            legend(series),
            rowplots.rows("partition and change", scale, columns, each, "Power cuts"),
            note="by the partition and the change of the flash that they fell on; changes: how many"
            " different ones of a start" + listed(summary, "cuts", rows),
        ),
        _coverage(shown.get("coverage", ())),
    )


def _coverage(rows: Sequence[Mapping[str, Any]]) -> Markup | None:
    if not rows:
        return None
    scale = linear(1, lambda value: words.share(value, 1))
    each = [
        rowplots.Row(
            named(row.get("behaviour")),
            rowplots.stacked([row.get("share") or 0], ["blue"], scale),
            [
                words.share(row.get("cut") or 0, row.get("possible") or 0),
                f"{words.count(row.get('cut'))} of {words.count(row.get('possible'))}",
            ],
        )
        for row in rows
    ]
    columns = [Column("share", True), Column("changes cut", True)]
    return figure(
        "How much of what can be cut was cut",
        rowplots.rows("behaviour", scale, columns, each, "Coverage of power cuts"),
        note="different changes of a start at which the power went, of all that it makes (virtual"
        " boards)",
    )
