"""What makes `sealmq report` end with 1: regressions, and nonces that were used twice. And what
weakens all else that it says: gaps in the logs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from . import rowplots, svg, words
from .figures import Cell, Column, figure, folded, listed, sentence, strong, table
from .markup import Markup, named, tag
from .scales import logarithmic
from .traffic import Shown

# What the event means for who relies on the figures below.
_GAPS = {
    "log-lost": "the disk was full, or in trouble",
    "log-recovered": "killed; what it had counted in its last minute is gone, too",
    "log-fault": "not as the contract has it: a defect",
    "journal-dropped": "a file of the journal, not saved by the broker, could not be read or kept",
}


def gaps(_: Mapping[str, Any], shown: Shown) -> Markup | None:
    """What the logs themselves say is missing; None: nothing."""
    rows = shown.get("gaps", ())
    if not rows:
        return None
    names = ("missing", "times", "first (UTC)", "last (UTC)")
    each = [
        [
            rowplots.rest(row["others"]) if row.get("others") else _missing(row),
            words.count(row.get("times")),
            words.when(row.get("first")),
            words.when(row.get("last")),
        ]
        for row in rows
    ]
    text = "What is missing"
    columns = [Column(name, name == "times") for name in names]
    return tag(
        "div",
        sentence(
            strong("The logs are not whole"),
            ", by their own account: what is missing is in none of the figures on this page.",
        ),
        figure(text, table(columns, each, text)),
    )


def _missing(row: Mapping[str, Any]) -> Markup:
    event = str(row.get("event") or "")
    why = tag("small", named(row.get("role"), 40), ", ", event, ": ", _GAPS.get(event, ""))
    return tag("span", words.count(row.get("count")), " ", named(row.get("what"), 40, ""), " ", why)


def nonces(summary: Mapping[str, Any], shown: Shown) -> Markup | None:
    """Pairs of key and nonce."""
    rows = shown.get("nonces", ())
    if not rows:
        return None
    headline = summary["headline"]
    twice = headline.get("nonces_repeated") or 0
    number = words.plural(headline.get("nonces") or 0, "pair")
    each = [
        [
            named(row.get("key"), 40),
            named(row.get("layer"), 24, words.DASH),
            words.count(row.get("pairs")),
            words.count(row.get("distinct")),
            _alarm(row.get("repeated") or 0),
        ]
        for row in rows
    ]
    names = ("key", "layer", "collected", "distinct", "used twice")
    columns = [Column(name, place > 1) for place, name in enumerate(names)]
    found = "none was used twice." if not twice else f"{words.count(twice)} came with two contents."
    text = "By key"
    made = table(columns, each, text)
    more = listed(summary, "nonces", rows)
    return tag(
        "div",
        sentence(strong(f"{number} of key and nonce"), ": ", found),
        _reused(summary, shown.get("reused", ())),
        figure(text, made, note=f"pairs{more}")
        if twice or len(rows) <= 8
        else folded(f"{text}{more}", made),
    )


def _reused(summary: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> Markup | None:
    if not rows:
        return None
    names = ("nonce", "key", "layer", "board", "runs", "contents", "first (UTC)", "last (UTC)")
    each = [
        [
            tag("code", named(row.get("nonce"), 40)),
            named(row.get("key"), 40),
            named(row.get("layer"), 24, words.DASH),
            named(row.get("board"), 24, words.DASH),
            named(row.get("runs"), 40),
            _alarm(row.get("contents") or 0),
            words.when(row.get("first"), seconds=True),
            words.when(row.get("last"), seconds=True),
        ]
        for row in rows
    ]
    text = "Nonces that sealed more than one content"
    columns = [Column(name, name == "contents") for name in names]
    more = listed(summary, "reused", rows)
    return figure(text, table(columns, each, text), note=f"the oldest first{more}")


def _alarm(number: int) -> Cell:
    return tag("span", words.count(number), class_="alarm") if number else "0"


def regressions(summary: Mapping[str, Any], shown: Shown) -> Markup | None:
    """This run beside the last comparable one."""
    rows = shown.get("regressions", ())
    if not rows:
        return None
    slower = [row for row in rows if row.get("ratio") is not None]
    scale = logarithmic([*(row["ratio"] for row in slower), 1.0, 2.0], words.ratio)
    each = []
    for row in rows:
        drawn = [svg.rule(scale.place(1))]
        if row.get("ratio") is not None:
            low, high = sorted((scale.place(1), scale.place(row["ratio"])))
            drawn += [svg.interval(low, high, "orange")]
            drawn += [svg.mark("diamond", scale.place(row["ratio"]), "orange")]
        else:
            drawn = []
        name = tag(
            "span",
            named(row.get("subject")),
            tag("small", named(row.get("part"), 60, "")),
        )
        cells = [
            named(row.get("what"), 24),
            words.short(row.get("before")),
            words.short(row.get("now")),
            words.ratio(row.get("ratio")),
        ]
        group = "the rig" if row.get("source") == "rig" else "benches"
        each.append(rowplots.Row(name, drawn, cells, group=group))
    columns = [Column(name, name != "what") for name in ("what", "before", "now", "ratio")]
    return tag(
        "div",
        sentence(
            strong(words.plural(summary["headline"].get("regressions") or len(rows), "regression")),
            ", beyond the noise, against the last comparable run.",
        ),
        figure(
            "What became worse",
            rowplots.rows("behaviour or measure", scale, columns, each, "Regressions"),
            note="now to before; the strong line is 1×; fails: shares of the verdicts"
            + listed(summary, "regressions", rows),
        ),
    )
