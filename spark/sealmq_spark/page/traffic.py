"""What the gateway decided: over time, by rule, label and client; what it refused; who changed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from . import rowplots, svg, timeplots, words
from .figures import Column, Series, code, figure, legend, listed, nothing, sentence, strong
from .markup import Markup, named, rule, tag
from .scales import linear, logarithmic

Shown = Mapping[str, Sequence[Mapping[str, Any]]]

ALLOWED = Series("allowed", "blue", "circle")
DENIED = Series("denied", "orange", "diamond")
CLASSES = (
    Series("forged", "orange"),
    Series("old keys", "blue"),
    Series("replayed", "pink"),
    Series("too old", "amber"),
    Series("malformed", "grey"),
)
# Lists over time leave out what a clock that was not set has dated.
_TIMELESS = nothing("None of these records has a plausible time.")
_BARS = (Series("allowed", "blue"), Series("denied", "orange"))


def decisions(summary: Mapping[str, Any], shown: Shown) -> Markup | None:
    """Allowed and denied."""
    each = timeplots.buckets(shown.get("decisions_time", ()), ["allowed", "denied"])
    if not each and not shown.get("decisions_client"):
        return None
    rules = shown.get("decisions_denied", ())
    return tag(
        "div",
        _found(summary["headline"], rules),
        figure(
            "Decisions over time",
            timeplots.over_time("Decisions", each, _BARS, alone=1),
            note=f"a bar is {_length(each[0])}; times are UTC",
        )
        if each
        else _TIMELESS,
        tag(
            "div",
            figure("Denied, by rule", _denied(rules), note="how often each rule denied")
            if rules
            else None,
            _both("By client", "client", shown),
            _both("By the topic's label", "label", shown, "no label in the record"),
            _both("By question", "question", shown),
            class_="pair",
        ),
    )


def _found(headline: Mapping[str, Any], rules: Sequence[Mapping[str, Any]]) -> Markup:
    allowed, denied = headline.get("allowed") or 0, headline.get("denied") or 0
    parts: list[object] = [
        strong(words.plural(allowed + denied, "decision")),
        f": {words.share(allowed, allowed + denied)} allowed, {words.count(denied)} denied. ",
    ]
    first = next((row for row in rules if not row.get("others") and row.get("rule")), None)
    if first:
        share = words.share(first["denied"], denied)
        parts += ["The rule that denied most is ", code(rule(first["rule"], 48)), f" ({share})."]
    return sentence(*parts)


def _length(bucket: timeplots.Bucket) -> str:
    hours = (bucket.ended - bucket.began).total_seconds() / 3600
    return "an hour" if hours == 1 else words.duration(hours * 3_600_000)


def _denied(rules: Sequence[Mapping[str, Any]]) -> Markup:
    scale = linear(max(row["denied"] for row in rules if not row.get("others")) if rules else 1)
    each = [
        rowplots.Row(
            rowplots.name_of(row, "rule", "no rule"),
            [] if row.get("others") else rowplots.stacked([row["denied"]], ["orange"], scale),
            [words.figure(row["denied"])],
            tail=bool(row.get("others")),
        )
        for row in rules
    ]
    return rowplots.rows("rule", scale, [Column("denied", True)], each, "Denied, by rule")


def _both(title: str, key: str, shown: Shown, empty: str = "none") -> Markup | None:
    rows = shown.get(f"decisions_{key}", ())
    found = [row for row in rows if row.get("allowed") or row.get("denied")]
    if not found:
        return None
    values = [row.get(name) or 0 for row in found for name in ("allowed", "denied")]
    scale = logarithmic(values)
    each = []
    for row in found:
        tail = bool(row.get("others"))
        drawn = [
            svg.mark(one.shape, scale.place(row[one.name]), one.colour)
            for one in (ALLOWED, DENIED)
            if row.get(one.name)
        ]
        cells = [words.figure(row.get("allowed") or 0), words.figure(row.get("denied") or 0)]
        name = rowplots.name_of(row, key, empty)
        each.append(rowplots.Row(name, [] if tail else drawn, cells, tail=tail))
    columns = [Column("allowed", True), Column("denied", True)]
    return figure(
        title,
        legend([ALLOWED, DENIED]),
        rowplots.rows(key, scale, columns, each, title),
        note="decisions, on a logarithmic scale; no mark: none",
    )


def unenforced(summary: Mapping[str, Any], shown: Shown) -> Markup | None:
    """What policy denied and `enforce = false` let through."""
    rows = shown.get("unenforced", ())
    if not rows:
        return None
    total = sum(row["count"] for row in rows)
    scale = linear(max((row["count"] for row in rows if not row.get("others")), default=1))
    each = []
    for row in rows:
        tail = bool(row.get("others"))
        name = tag(
            "span",
            rowplots.name_of(row, "topic"),
            None
            if tail
            else tag("small", named(row.get("client"), 48), ", ", rule(row.get("rule"))),
        )
        drawn = [] if tail else rowplots.stacked([row["count"]], ["orange"], scale)
        cells = ["" if tail else named(row.get("question"), 24), words.figure(row["count"])]
        each.append(rowplots.Row(name, drawn, cells, tail=tail))
    columns = [Column("question"), Column("let through", True)]
    return tag(
        "div",
        sentence(
            strong(words.plural(total, "decision")),
            " that policy denied passed, because [policy] enforce is false.",
        ),
        figure(
            "Denied, and let through",
            rowplots.rows("topic, client, rule", scale, columns, each, "Unenforced"),
            note="how often",
        ),
    )


def refusals(summary: Mapping[str, Any], shown: Shown) -> Markup | None:
    """Replays and forgeries."""
    headline = summary["headline"]
    named_classes = [(one, headline.get(one.name.replace(" ", "_")) or 0) for one in CLASSES]
    rows = shown.get("refusals_time", ())
    if not rows and not shown.get("refusals"):
        return None
    others = sorted({str(row.get("class")) for row in rows} - {one.name for one in CLASSES})
    series = [*CLASSES, *(Series(name, "sky") for name in others[:1])]
    each = timeplots.buckets(_by_class(rows, shown), [one.name for one in series])
    there = [
        number for number in range(len(series)) if any(bucket.counts[number] for bucket in each)
    ]
    each = [
        timeplots.Bucket(b.began, b.ended, tuple(b.counts[number] for number in there))
        for b in each
    ]
    drawn = [series[number] for number in there]
    said = ", ".join(f"{words.count(n)} {one.name}" for one, n in named_classes if n)
    return tag(
        "div",
        sentence(
            strong("Refused"),
            f": {said}. Nobody forges or replays by mistake; old keys are those of an enrolment "
            "from before the client's keys were rotated.",
        ),
        figure(
            "Refused packets over time",
            timeplots.over_time("Refused packets", each, drawn),
            note="by what was wrong with them; times are UTC",
        )
        if drawn
        else _TIMELESS,
        _refused(shown.get("refusals", ()), {one.name: one.colour for one in series}),
    )


def _by_class(rows: Sequence[Mapping[str, Any]], shown: Shown) -> list[dict[str, object]]:
    """One row a bucket, also where nothing was refused while decisions were made."""
    found: dict[str, dict[str, object]] = {}
    for row in shown.get("decisions_time", ()):
        found[str(row.get("hour"))] = {"hour": row.get("hour"), "hours": row.get("hours")}
    for row in rows:
        one = found.setdefault(
            str(row.get("hour")), {"hour": row.get("hour"), "hours": row.get("hours")}
        )
        one[str(row.get("class"))] = row.get("count")
    return list(found.values())


def _refused(rows: Sequence[Mapping[str, Any]], colours: Mapping[str, str]) -> Markup | None:
    if not rows:
        return None
    scale = linear(max(row["count"] for row in rows))
    each = []
    for row in rows:
        tail = bool(row.get("others"))
        colour = colours.get(str(row.get("class")), "grey")
        name = tag(
            "span",
            rowplots.name_of(row, "client", "not known by name"),
            None if tail else tag("small", rule(row.get("rule"), 48, "")),
        )
        drawn = [] if tail else rowplots.stacked([row["count"]], [colour], scale)
        cells = ["" if tail else named(row.get("class"), 24), words.figure(row["count"])]
        each.append(rowplots.Row(name, drawn, cells, tail=tail))
    columns = [Column("class"), Column("refused", True)]
    return figure(
        "Who sent them",
        rowplots.rows("client and rule", scale, columns, each, "Refused, by client"),
        note="packets refused, by client and rule",
    )


def changed(summary: Mapping[str, Any], shown: Shown) -> Markup | None:
    """Clients beside their own history."""
    rows = shown.get("changed", ())
    if not rows:
        return None
    values = [v for row in rows for v in (row.get("count") or 0, row.get("usual") or 0)]
    scale = logarithmic(values, zero=True)
    then, usual = Series("in that hour", "orange", "diamond"), Series("usually", "grey", "circle")
    each = []
    for row in rows:
        if row.get("others"):
            each.append(rowplots.Row(rowplots.rest(row["others"]), [], ["", "", ""], tail=True))
            continue
        a, b = scale.place(row.get("usual") or 0), scale.place(row.get("count") or 0)
        drawn = [
            svg.interval(min(a, b), max(a, b), "grey"),
            svg.mark(usual.shape, a, usual.colour),
            svg.mark(then.shape, b, then.colour),
        ]
        name = tag(
            "span",
            named(row.get("client")),
            tag("small", f"{row.get('measure')}, {words.when(row.get('hour'))}{_long(row)}"),
        )
        z = row.get("z")
        sign = "" if z is None else f"{'+' if z > 0 else '−'}{words.short(abs(z))}"
        usually = words.short(row.get("usual"))
        cells = [usually, words.short(row.get("count")), sign]
        each.append(rowplots.Row(name, drawn, cells))
    columns = [Column("usually", True), Column("then", True), Column("z", True)]
    number = summary["headline"].get("changed") or len(rows)
    return tag(
        "div",
        sentence(
            strong(words.plural(number, "client")),
            " did far more or far less in some hour than they usually do.",
        ),
        figure(
            "Unusual hours",
            legend([usual, then]),
            rowplots.rows("client", scale, columns, each, "Clients that changed"),
            note="messages or refusals an hour, on a logarithmic scale; z: the distance from the"
            " client's own median, in robust standard deviations; hours are UTC"
            + listed(summary, "changed", rows),
        ),
    )


def _long(row: Mapping[str, Any]) -> str:
    hours = row.get("hours") or 1
    return f", for {words.count(hours)} hours" if hours > 1 else ""
