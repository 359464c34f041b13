"""The officer's report: who got whose data, what policy says of it, how topics got their labels."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from . import matrix, rowplots, timeplots, words
from .figures import Column, Series, code, figure, folded, sentence, strong, table
from .markup import Markup, named, tag
from .scales import linear
from .traffic import Shown

_BY = "disclosures_by_"


def _none(field: str) -> str:
    return f"no {field}"


def disclosures(summary: Mapping[str, Any], shown: Shown) -> Markup | None:
    """By topic, by what policy families say in each field of theirs, and each."""
    rows = shown.get("disclosures", ())
    if not rows:
        return None
    by = _by_field(shown)
    field = next(iter(by), "")
    topics = shown.get("disclosures_topic", ())
    total = summary["headline"].get("disclosed") or sum(row["count"] for row in rows)
    return tag(
        "div",
        _found(total, field, by.get(field, ())),
        tag(
            "div",
            *(_bars(f"By {name}", name, said, total, _none(name)) for name, said in by.items()),
            _bars("By topic", "topic", topics, total),
            class_="pair",
        ),
        _heat(field, shown.get("disclosures_matrix", ())),
        _each(by, rows),
    )


def _found(total: int, field: str, rows: Sequence[Mapping[str, Any]]) -> Markup:
    parts: list[object] = [strong(words.plural(total, "message")), " reached readers"]
    if not field:
        return sentence(*parts, "; no policy said more of any of them.")
    first = next(row for row in rows if row.get(field))
    share = words.share(first["count"], total)
    parts += [f"; the most frequent {field} is ", code(first[field]), f" ({share}). "]
    without = sum(row["count"] for row in rows if not row.get(field) and not row.get("others"))
    if without:
        parts.append(f"{words.share(without, total)} went out without {field}.")
    return sentence(*parts)


def _by_field(shown: Shown) -> dict[str, Sequence[Mapping[str, Any]]]:
    """Of each field of a policy family's in which anything is said, the most frequent values."""
    lists = {key.removeprefix(_BY): rows for key, rows in shown.items() if key.startswith(_BY)}
    return {name: rows for name, rows in lists.items() if any(row.get(name) for row in rows)}


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
            [words.figure(row["count"]), words.part(row["count"], total)],
            tail=bool(row.get("others")),
        )
        for row in rows
    ]
    columns = [Column("messages", True), Column("share", True)]
    return figure(title, rowplots.rows(key, scale, columns, each, title), note="messages delivered")


def _heat(field: str, rows: Sequence[Mapping[str, Any]]) -> Markup | None:
    if not rows:
        return None
    topics = list(dict.fromkeys(str(row.get("topic") or "") for row in rows))
    values = list(dict.fromkeys(str(row.get(field) or "") for row in rows))
    counts = {(row.get("topic") or "", row.get(field) or ""): row["count"] for row in rows}
    most = max(counts.values())
    cells = [
        [
            matrix.heat(counts.get((topic, value), 0), most, f"{topic}: {value or _none(field)}")
            for value in values
        ]
        for topic in topics
    ]
    return figure(
        f"Topics, by {field}",
        matrix.matrix(
            "topic",
            [named(value, 28, _none(field)) for value in values],
            [named(topic) for topic in topics],
            cells,
            f"Messages delivered, by topic and {field}",
        ),
        note="messages delivered; the darker, the more (each step is three times as many)",
    )


def _each(fields: Iterable[str], rows: Sequence[Mapping[str, Any]]) -> Markup:
    names = ("topic", *fields, "readers", "first (UTC)", "last (UTC)", "messages")
    columns = [Column(name, name in ("readers", "messages")) for name in names]
    cells = [
        [
            rowplots.name_of(row, "topic"),
            *(
                "" if row.get("others") else named(row.get(name), 40, _none(name))
                for name in fields
            ),
            words.count(row.get("clients")),
            words.when(row.get("first")),
            words.when(row.get("last")),
            words.count(row["count"]),
        ]
        for row in rows
    ]
    text = "Each disclosure, with what policy says of it"
    return folded(text, table(columns, cells, text))


def labelling(summary: Mapping[str, Any], shown: Shown) -> Markup | None:
    """How topics came to their labels."""
    each = timeplots.buckets(shown.get("labelling_time", ()), ["labelled", "reset"])
    rows = shown.get("labelling", ())
    series = [Series("labelled", "blue"), Series("reset", "orange")]
    if not any(bucket.total for bucket in each) and not rows:
        return None
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
