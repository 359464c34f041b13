"""What each stage costs, beside plain MQTT and beside TLS.

Chen and Wilson, Table 5 (differences by stage) and Figures 4 to 7 (CPU, memory, bytes by stage).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from itertools import cycle
from typing import Any

from . import lineplots, papers, rowplots, svg, words
from .figures import Column, Series, aside, figure, folded, legend, sentence, strong, table
from .markup import Markup, named, tag
from .scales import Scale, logarithmic
from .traffic import Shown

_PLAIN = "plain"
_SEALMQ = "sealmq"
_BASES = ("mosquitto", _PLAIN)
_OURS = (("blue", "diamond"), ("teal", "triangle"), ("sky", "circle"))
_TLS = (("orange", "square"), ("amber", "down"))
_OTHERS = (("pink", "circle"), ("sky", "square"), ("amber", "diamond"), ("teal", "down"))
_MOST = 24
_LISTED = 400

Rows = Sequence[Mapping[str, Any]]


def costs(summary: Mapping[str, Any], shown: Shown) -> Markup | None:
    """Every measure of every bench, those with a plain client beside it first."""
    rows = [row for row in shown.get("cost", ()) if row.get("value") is not None]
    rows = sorted(rows, key=_order)
    if not rows:
        return None
    compared = [row for row in rows if row.get("to_plain") is not None]
    keys = {_what(row) for row in compared}
    beside = [row for row in rows if _what(row) in keys]
    rest = [row for row in rows if _what(row) not in keys]
    series = _series(row["variant"] for row in beside)
    return tag(
        "div",
        _found(compared),
        papers.table5(shown.get("paper", ())),
        _ratios(compared, series),
        lineplots.by_size(beside, series),
        [_absolute(unit, beside, series) for unit in _units(beside)],
        aside(
            f"What else was measured: {words.plural(len(rest), 'row')}",
            *(_rest(unit, rest) for unit in _units(rest)),
        )
        if rest
        else None,
        _table(rows),
    )


def _order(row: Mapping[str, Any]) -> tuple[int, int]:
    """The paper's stages first, as a client goes through them; sorting keeps the rest in place."""
    measure = str(row["measure"])
    stages = papers.STAGES
    at = stages.index(measure) if measure in stages else len(stages)
    return 0 if row.get("unit") == "instructions" else 1, at


def _what(row: Mapping[str, Any]) -> tuple[str, str, int]:
    return str(row["measure"]), f"{row.get('unit')} {row.get('key') or ''}", row.get("size") or 0


def _units(rows: Rows) -> list[str]:
    return list(dict.fromkeys(str(row.get("unit") or "") for row in rows))


def _series(variants: Iterable[str]) -> list[Series]:
    """Plain grey, TLS orange, SealMQ blue: the same in every plot."""
    names = sorted(set(variants), key=lambda name: (_rank(name), name))
    looks = {
        0: cycle([("grey", "circle")]),
        1: cycle(_TLS),
        2: cycle(_OURS),
        3: cycle(_OTHERS),
    }
    return [Series(name, *next(looks[_rank(name)])) for name in names]


def _rank(name: str) -> int:
    if name in _BASES:
        return 0
    if name.startswith("tls"):
        return 1
    return 2 if name.startswith(_SEALMQ) else 3


def _stages(rows: Rows) -> list[Mapping[str, Any]]:
    """Of each measure and variant the row of the payload nearest to 64 bytes."""
    best: dict[tuple[str, str, str], Mapping[str, Any]] = {}
    for row in rows:
        measure, unit, size = _what(row)
        key = (measure, unit, str(row["variant"]))
        if key not in best or abs(size - 64) < abs((best[key].get("size") or 0) - 64):
            best[key] = row
    return list(best.values())


def _found(compared: Rows) -> Markup | None:
    said = [
        f"{row['measure']} {words.ratio(row.get('to_plain'))} plain"
        + (f" and {words.ratio(row['to_tls'])} TLS" if row.get("to_tls") is not None else "")
        for row in _stages(compared)
        if row["variant"] == "sealmq-ccm"
        and row["measure"] in ("connect", "subscribe", "receive", "publish")
        and not row.get("key")
    ]
    if not said:
        return None
    return sentence(strong("sealmq-ccm"), " costs, for a payload of 64 bytes: ", "; ".join(said))


def _ratios(compared: Rows, series: Sequence[Series]) -> list[Markup | None]:
    """Clients beside a plain one and one over TLS; gateways beside a broker without any."""
    stages = _stages(compared)
    plain = {_stage(row) for row in stages if row["variant"] == _PLAIN}
    clients = [row for row in stages if _stage(row) in plain]
    gateways = [row for row in stages if _stage(row) not in plain]
    ours = [row for row in clients if str(row["variant"]).startswith(_SEALMQ)]
    return [
        _ratio("Beside plain MQTT", "to_plain", clients, series),
        _ratio("Beside TLS 1.3", "to_tls", ours, series),
        _ratio("Beside a broker without a gateway", "to_plain", gateways, series),
    ]


def _ratio(title: str, key: str, rows: Rows, series: Sequence[Series]) -> Markup | None:
    values = {
        (_stage(row), str(row["variant"])): row[key] for row in rows if row.get(key) is not None
    }
    there = {variant for _, variant in values}
    series = [one for one in series if one.name in there and _rank(one.name)]
    if not series:
        return None
    scale = logarithmic([*values.values(), 1.0], words.ratio)
    one = svg.rule(scale.place(1))
    each = []
    stages = list(dict.fromkeys(stage for stage, _ in values))
    for stage in stages[:_MOST]:
        drawn = [one]
        for variant in series:
            if (stage, variant.name) in values:
                place = scale.place(values[stage, variant.name])
                said = f"{variant.name}: {words.ratio(values[stage, variant.name])}"
                drawn.append(svg.mark(variant.shape, place, variant.colour, title=said))
        cells = [words.ratio(values.get((stage, variant.name))) for variant in series]
        name, unit = stage
        label = tag("span", named(name), tag("small", named(unit)))
        each.append(rowplots.Row(label, drawn, cells))
    columns = [Column(variant.name, True) for variant in series]
    return figure(
        title,
        legend(series),
        rowplots.rows("stage", scale, columns, each, title),
        note="times as much, on a logarithmic scale; the strong line is 1×; payload of 64 bytes"
        + (f"; the first {_MOST} of {len(stages)}" if len(stages) > _MOST else ""),
    )


def _stage(row: Mapping[str, Any]) -> tuple[str, str]:
    key = f", {row['key']}" if row.get("key") else ""
    return str(row["measure"]), f"{row.get('unit') or ''}{key}"


def _absolute(unit: str, rows: Rows, series: Sequence[Series]) -> Markup | None:
    """What a stage costs, variant by variant, with its interval."""
    of_unit = _stages([row for row in rows if str(row.get("unit") or "") == unit])
    if not of_unit:
        return None
    used = [one for one in series if any(row["variant"] == one.name for row in of_unit)]
    scale = _scale(of_unit, unit)
    each = []
    for stage in list(dict.fromkeys(_stage(row) for row in of_unit))[:_MOST]:
        own = {str(row["variant"]): row for row in of_unit if _stage(row) == stage}
        drawn: list[Markup] = []
        for one in used:
            if one.name in own:
                drawn += _dot(own[one.name], one, scale.place, unit)
        cells = [
            words.measured(own[one.name]["value"], unit) if one.name in own else words.DASH
            for one in used
        ]
        row = next(iter(own.values()))
        key = tag("small", named(str(row["key"]))) if row.get("key") else None
        each.append(rowplots.Row(tag("span", named(stage[0]), key), drawn, cells))
    columns = [Column(one.name, True) for one in used]
    title = f"Cost by stage: {words.unit(unit)}"
    return figure(
        title,
        legend(used),
        rowplots.rows("stage", scale, columns, each, title),
        note="one operation, on a logarithmic scale; the line is the interval; payload of 64 bytes",
    )


def _scale(rows: Rows, unit: str) -> Scale:
    names = ("value", "low", "high")
    values = [row[name] for row in rows for name in names if row.get(name) is not None]
    base = 4 if unit.startswith("bytes") else 10
    text = partial(words.measured, of=unit)
    return logarithmic(values, text, zero=min(values) <= 0, base=base)


def _dot(row: Mapping[str, Any], one: Series, place: Any, unit: str) -> list[Markup]:
    found = []
    said = f"{row['variant']}: {words.measured(row['value'], unit)}"
    if row.get("low") is not None and row.get("high") is not None:
        found.append(svg.interval(place(row["low"]), place(row["high"]), one.colour))
        low, high = (words.measured(row[name], unit) for name in ("low", "high"))
        said += f" ({low} to {high})"
    found.append(svg.mark(one.shape, place(row["value"]), one.colour, title=said))
    return found


def _rest(unit: str, rows: Rows) -> Markup:
    """What has no plain client beside it: a line a variant, measure by measure."""
    of_unit = [row for row in rows if str(row.get("unit") or "") == unit]
    drawn = sorted(of_unit, key=lambda row: str(row["measure"]))[:_MOST]
    scale = _scale(drawn, unit)
    each = []
    one = Series("", "blue", "circle")
    for row in drawn:
        of = ", ".join(
            part
            for part in (f"{row['size']} B" if row.get("size") else "", str(row.get("key") or ""))
            if part
        )
        name = tag("span", named(str(row["variant"])), tag("small", named(of)) if of else None)
        cells = [words.measured(row["value"], unit), _range(row, unit)]
        marks = _dot(row, one, scale.place, unit)
        each.append(rowplots.Row(name, marks, cells, group=str(row["measure"])))
    columns = [Column("value", True), Column("interval", True)]
    title = f"What else was measured: {words.unit(unit)}"
    more = f"; the first {_MOST} of {len(of_unit)}" if len(of_unit) > _MOST else ""
    plot = rowplots.rows("variant", scale, columns, each, title)
    return figure(title, plot, note=f"on a logarithmic scale; the line is the interval{more}")


def _range(row: Mapping[str, Any], unit: str) -> str:
    if row.get("low") is None or row.get("high") is None:
        return words.DASH
    return " to ".join(words.measured(row[name], unit) for name in ("low", "high"))


def _table(rows: Rows) -> Markup:
    names = (
        "measure",
        "variant",
        "payload",
        "value",
        "interval",
        "unit",
        "samples",
        "plain",
        "TLS",
    )
    columns = [Column(name, name not in ("measure", "variant", "unit")) for name in names]
    cells = [
        [
            named(_stage(row)[0]),
            named(str(row["variant"])),
            words.size(row.get("size")),
            words.measured(row["value"], str(row.get("unit") or "")),
            _range(row, str(row.get("unit") or "")),
            named(_stage(row)[1]),
            words.count(row.get("n")),
            words.ratio(row.get("to_plain")),
            words.ratio(row.get("to_tls")),
        ]
        for row in rows[:_LISTED]
    ]
    more = f" (the first {_LISTED}; tables/cost has all)" if len(rows) > _LISTED else ""
    text = f"All {words.plural(len(rows), 'row')}{more}"
    return folded(text, table(columns, cells, "Costs"))
