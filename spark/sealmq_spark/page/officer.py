"""The officer's report: who got whose data, for which purpose, and how topics got their labels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from . import matrix, rowplots, timeplots, words
from .figures import Column, Series, code, figure, folded, nothing, sentence, strong, table
from .markup import Markup, named, tag
from .scales import linear
from .traffic import Shown

_NONE = "no purpose asked"


def disclosures(summary: Mapping[str, Any], shown: Shown) -> Markup:
    """By topic and purpose, and each with its reservation."""
    rows = shown.get("disclosures", ())
    if not rows:
        return nothing("No delivery in these logs: nobody got anything that was written down.")
    purposes = shown.get("disclosures_purpose", ())
    topics = shown.get("disclosures_topic", ())
    total = summary["headline"].get("disclosed") or sum(row["count"] for row in rows)
    return tag(
        "div",
        _found(total, purposes),
        tag(
            "div",
            _bars("By purpose", "purpose", purposes, total, _NONE),
            _bars("By topic", "topic", topics, total),
            class_="pair",
        ),
        _heat(shown.get("disclosures_matrix", ())),
        _each(rows),
    )


def _found(total: int, purposes: Sequence[Mapping[str, Any]]) -> Markup:
    parts: list[object] = [strong(words.plural(total, "message")), " reached readers"]
    first = next((row for row in purposes if row.get("purpose")), None)
    if first is None:
        return sentence(*parts, "; no purpose was asked for any of them.")
    share = words.share(first["count"], total)
    parts += [", most of them for ", code(first["purpose"]), f" ({share}). "]
    without = sum(
        row["count"] for row in purposes if not row.get("purpose") and not row.get("others")
    )
    if without:
        parts.append(f"{words.share(without, total)} went out without a purpose.")
    return sentence(*parts)


def _bars(
    title: str, key: str, rows: Sequence[Mapping[str, Any]], total: int, empty: str = "none"
) -> Markup | None:
    if not rows:
        return None
    drawn = [row["count"] for row in rows if not row.get("others")]
    scale = linear(max(drawn, default=1))
    each = [
        rowplots.Row(
            rowplots.name_of(row, key, empty),
            [] if row.get("others") else rowplots.stacked([row["count"]], ["blue"], scale),
            [words.figure(row["count"]), words.share(row["count"], total)],
            tail=bool(row.get("others")),
        )
        for row in rows
    ]
    columns = [Column("messages", True), Column("share", True)]
    return figure(title, rowplots.rows(key, scale, columns, each, title), note="messages delivered")


def _heat(rows: Sequence[Mapping[str, Any]]) -> Markup | None:
    if not rows:
        return None
    topics = list(dict.fromkeys(str(row.get("topic") or "") for row in rows))
    purposes = list(dict.fromkeys(str(row.get("purpose") or "") for row in rows))
    counts = {(row.get("topic") or "", row.get("purpose") or ""): row["count"] for row in rows}
    most = max(counts.values())
    cells = [
        [
            matrix.heat(counts.get((topic, purpose), 0), most, f"{topic}: {purpose or _NONE}")
            for purpose in purposes
        ]
        for topic in topics
    ]
    return figure(
        "Topics and purposes",
        matrix.matrix(
            "topic",
            [named(purpose, 28, _NONE) for purpose in purposes],
            [named(topic) for topic in topics],
            cells,
            "Messages delivered, by topic and purpose",
        ),
        note="messages delivered; the darker, the more (each step is three times as many)",
    )


def _each(rows: Sequence[Mapping[str, Any]]) -> Markup:
    names = ("topic", "purpose", "readers", "under", "first (UTC)", "last (UTC)", "messages")
    columns = [Column(name, name in ("readers", "messages")) for name in names]
    cells = [
        [
            rowplots.name_of(row, "topic"),
            "" if row.get("others") else named(row.get("purpose"), 40, _NONE),
            words.count(row.get("clients")),
            "" if row.get("others") else named(row.get("under"), 40, words.DASH),
            words.when(row.get("first")),
            words.when(row.get("last")),
            words.count(row["count"]),
        ]
        for row in rows
    ]
    text = "Each disclosure, with the reservation that allowed it"
    return folded(text, table(columns, cells, text))


def labelling(summary: Mapping[str, Any], shown: Shown) -> Markup:
    """How topics came to their labels."""
    each = timeplots.buckets(shown.get("labelling_time", ()), ["labelled", "reset"])
    rows = shown.get("labelling", ())
    series = [Series("labelled", "blue"), Series("reset", "orange")]
    if not any(bucket.total for bucket in each) and not rows:
        return nothing("No topic got a label, and none lost one.")
    columns = [Column("at (UTC)"), *(Column(name) for name in ("topic", "what", "label", "by"))]
    cells = [
        [
            words.when(row.get("at"), seconds=True),
            named(row.get("topic")),
            "reset" if row.get("event") == "topic-reset" else "labelled",
            named(row.get("label"), 32, words.DASH),
            named(row.get("client"), 32, words.DASH),
        ]
        for row in rows
        if not row.get("others")
    ]
    number = summary["headline"].get("labelled")
    resets = sum(bucket.counts[1] for bucket in each)
    return tag(
        "div",
        sentence(
            strong(words.plural(number if number is not None else len(cells), "topic")),
            f" got a label at a first publish; {words.plural(resets, 'reset')}.",
        ),
        figure(
            "Labelling over time",
            timeplots.over_time("Labelling", each, series),
            note="topics; times are UTC",
        )
        if any(bucket.total for bucket in each)
        else None,
        folded(f"The newest {words.count(len(cells))} events", table(columns, cells, "Labelling"))
        if cells
        else None,
    )
