"""What the page shows of the tables: few rows each, whatever the tables hold.

Lists of plain dicts, in the order in which they are shown. What is left out of a list of the most
frequent is its last row, which has `others` (how many) and "" for a name. Times are text, UTC.

Spark takes long to plan a query, however small: the lists of one table are one pass over it, each
list becomes one row with a text (JSON), and so all lists are one query.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from .contracts import of_families
from .measures.columns import summed
from .rules import Sql, literal

Rows = list[dict[str, Any]]

BUCKETS = 400
"""Points of a plot over time, at most."""
_LENGTHS = (1, 2, 3, 4, 6, 12, 24, 48, 72, 168, 336, 672, 2_016, 8_064)
_TIME = "yyyy-MM-dd'T'HH:mm:ss'Z'"
_HOUR_MS = 3_600_000
_COMMITS = 3
_EXAMPLES = 3
_HOUR = "hour"
_COUNT = {"count": "count"}
_INFINITE = "CAST('Infinity' AS double)"
_ADAPTIVE = "spark.sql.adaptive.enabled"


@dataclass(frozen=True)
class Span:
    """What of the audit log is plotted over time, in ms: records of clocks that were set."""

    began: int | None
    ended: int | None

    @property
    def hours(self) -> int:
        """The length of a bucket: the shortest of which BUCKETS are enough."""
        span = ((self.ended or 0) - (self.began or 0)) // _HOUR_MS
        return next((each for each in _LENGTHS if span // each + 2 <= BUCKETS), _LENGTHS[-1])


@dataclass(frozen=True)
class List:
    """The groups of `by` with most of a table's sums: `limit` of them, and one row for the rest.
    By time: all buckets of _HOUR, oldest first. nameless: the group "" of a list by one column is
    none of the rest."""

    name: str
    by: tuple[str, ...]
    limit: int = 0
    nameless: bool = False

    @property
    def timed(self) -> bool:
        return _HOUR in self.by


def shown(
    tables: Mapping[str, DataFrame],
    logs: Mapping[str, DataFrame],
    quarantine: DataFrame,
    rows: Mapping[str, int],
    span: Span,
    sites: Mapping[str, str],
) -> dict[str, Rows]:
    """All lists of the page. tables: with by_rule and by_client, which stand for decisions. rows:
    of each and of `quarantine`; empty ones cost nothing. sites: their names, by number."""
    there = {name: frame for name, frame in tables.items() if rows.get(name)}
    if len(sites) > 1:
        there = {name: _with_site(frame, sites) for name, frame in there.items()}
    sums = [*_traffic(there, span), *_officer(there, span)]
    lists = [*_rows_of_traffic(there), *_rig(there, logs["hil"])]
    if rows.get("quarantine"):
        sums.append(Sums(quarantine, _COUNT, (List("quarantine", ("reason",), 20),)))
        lists.append(_examples(quarantine, 20))
    found = _collected(sums, lists, span)
    examples = {row["reason"]: row["examples"] for row in found.pop("examples", [])}
    found["quarantine"] = [
        {**row, "examples": examples.get(row["reason"], [])} for row in found.get("quarantine", [])
    ]
    if disclosed := there.get("disclosures"):
        found |= _matrix(disclosed, found, span)
    return {name: found.get(name, []) for name in NAMES}


NAMES = (
    "decisions_time", "decisions_denied", "decisions_label", "decisions_client",
    "decisions_question",
    "disclosures", "disclosures_topic", *(f"disclosures_by_{name}" for name in of_families()),
    "disclosures_matrix",
    "labelling_time", "labelling", "refusals_time", "refusals", "unenforced", "changed", "gaps",
    "cost", "paper", "stages", "behaviours", "flaky", "cuts", "coverage", "nonces", "reused",
    "regressions", "simulations", "quarantine",
)  # fmt: skip


def _with_site(frame: DataFrame, sites: Mapping[str, str]) -> DataFrame:
    """Clients, topics, labels and processes are a site's own: where there are several, its name
    stands before them."""
    if "site" not in frame.columns:
        return frame
    names = [name for name in ("client", "topic", "label", "role") if name in frame.columns]
    pairs = [F.lit(text) for pair in sites.items() for text in pair]
    site = F.coalesce(F.create_map(*pairs)[F.col("site")], F.col("site"))
    whole: dict[str, Column] = {
        name: F.when(F.col(name) == "", "").otherwise(F.concat_ws(": ", site, name))
        for name in names
    }
    return frame.withColumns(whole)


@dataclass(frozen=True)
class Sums:
    """Several lists of one table. more: aggregates of the groups of its first list; the rest of
    them has null."""

    frame: DataFrame
    sums: Mapping[str, Sql]
    lists: tuple[List, ...]
    more: Mapping[str, Sql] | None = None


def _traffic(tables: Mapping[str, DataFrame], span: Span) -> list[Sums]:
    found = []
    if (decided := tables.get("by_rule")) and (clients := tables.get("by_client")):
        sums = {"allowed": "IF(allowed, count, 0)", "denied": "IF(allowed, 0, count)"}
        most = (List(f"decisions_{name}", (name,), 20) for name in ("label", "question"))
        timed = List("decisions_time", (_HOUR,))
        found.append(Sums(_dated(decided, "hour", span), sums, (timed, *most)))
        found.append(Sums(clients, sums, (List("decisions_client", ("client",), 15),)))
        # What a rule allowed must not decide whether it is among those that denied most.
        denied = decided.where("NOT allowed")
        found.append(Sums(denied, {"denied": "count"}, (List("decisions_denied", ("rule",), 20),)))
    if refused := tables.get("refusals"):
        lists = (
            List("refusals", ("client", "class", "rule"), 20),
            List("refusals_time", (_HOUR, "class")),
        )
        found.append(Sums(_dated(refused, "hour", span), _COUNT, lists))
    if let := tables.get("unenforced"):
        by = ("question", "rule", "client", "topic")
        found.append(Sums(let, _COUNT, (List("unenforced", by, 20),)))
    if missing := tables.get("gaps"):
        more = {"times": "count(*)", "first": "min(at)", "last": "max(at)"}
        found.append(Sums(missing, _COUNT, (List("gaps", ("event", "what", "role"), 20),), more))
    return found


def _officer(tables: Mapping[str, DataFrame], span: Span) -> list[Sums]:
    found = []
    if labelled := tables.get("labelling"):
        sums = {
            "labelled": "CAST(event = 'topic-labelled' AS bigint)",
            "reset": "CAST(event = 'topic-reset' AS bigint)",
        }
        timed = List("labelling_time", (_HOUR,))
        found.append(Sums(_dated(labelled, "at", span), sums, (timed,)))
    if disclosed := tables.get("disclosures"):
        # A row of the table is of one reader. Without them there are few rows for several lists.
        sums = {"count": summed("count"), "clients": "count(*)"}
        sums |= {"first": "min(first)", "last": "max(last)"}
        few = disclosed.groupBy("topic", *of_families()).agg(*_named(sums))
        more = {"clients": "sum(clients)", "first": "min(first)", "last": "max(last)"}
        lists = (
            List("disclosures", ("topic", *of_families()), 40),
            List("disclosures_topic", ("topic",), 15),
            # What went out without a purpose, say, must not be among "others".
            *(List(f"disclosures_by_{name}", (name,), 10, nameless=True) for name in of_families()),
        )
        found.append(Sums(few, _COUNT, lists, more))
    return found


def _matrix(disclosed: DataFrame, found: Mapping[str, Rows], span: Span) -> dict[str, Rows]:
    """Topics by the first field in which there is anything."""
    said = {name: found[f"disclosures_by_{name}"] for name in of_families()}
    field = next((name for name, rows in said.items() if any(row[name] for row in rows)), None)
    if field is None:
        return {}
    of_them = disclosed.where(
        F.col("topic").isin(_names(found["disclosures_topic"], "topic"))
        & F.col(field).isin(_names(said[field], field))
    )
    lists = (List("disclosures_matrix", ("topic", field), 150),)
    return _collected([Sums(of_them, _COUNT, lists)], [], span)


def _names(rows: Rows, name: str) -> list[str]:
    return [row[name] for row in rows if "others" not in row]


def _rows_of_traffic(tables: Mapping[str, DataFrame]) -> list[DataFrame]:
    found = []
    if changed := tables.get("changed"):
        columns = ["client", "measure", "hour", "hours", "count", "usual", "z"]
        found.append(_first("changed", changed, columns, [_down("abs(z)")], 40))
    if labelled := tables.get("labelling"):
        columns = ["at", "topic", "event", "client", "label", "rule"]
        found.append(_first("labelling", labelled, columns, [_down("unix_millis(at)")], 40))
    return found


_ORDERED: Mapping[str, tuple[tuple[str, ...], int]] = {
    "cost": (("what", "stage", "measure", "size", "key", "variant"), 3000),
    "paper": (("comparison", "size", "stage"), 200),
    "stages": (("behaviour", "stage", "kind"), 400),
    "cuts": (("behaviour", "cut_partition", "cut_op"), 200),
    "coverage": (("behaviour", "first"), 200),
    "regressions": (("source", "subject", "part", "what"), 200),
    "simulations": (("plan", "kind", "rule", "round"), 20_000),
}


def _rig(tables: Mapping[str, DataFrame], hil: DataFrame) -> list[DataFrame]:
    found = []
    for name, (order, limit) in _ORDERED.items():
        if frame := tables.get(name):
            found.append(_first(name, frame, frame.columns, order, limit))
    if behaved := tables.get("behaviours"):
        newest = (
            hil.groupBy("commit")
            .agg(F.max("at_ms").alias("at"))
            .orderBy(F.desc("at"), "commit")
            .limit(_COMMITS)
        )
        recent = behaved.join(F.broadcast(newest), "commit")
        by = (_down("at"), "commit", "behaviour", "kind", "board")
        found.append(_first("behaviours", recent, behaved.columns, by, 2000))
    orders = {
        "flaky": ((_down("share"), "behaviour"), 40),
        "reused": (("first",), 40),
        "nonces": ((_down("repeated"), _down("pairs")), 100),
    }
    for name, (order, limit) in orders.items():
        if frame := tables.get(name):
            found.append(_first(name, frame, frame.columns, order, limit))
    return found


def _examples(bad: DataFrame, limit: int) -> DataFrame:
    """A few lines of each of the most frequent reasons."""
    example = "struct(file, raw)"
    sums = {"all": summed("count"), "examples": f"min_by({example}, {example}, {_EXAMPLES})"}
    few = bad.groupBy("reason").agg(*_named(sums))
    return _first("examples", few, ("reason", "examples"), (_down("`all`"), "reason"), limit)


def _dated(frame: DataFrame, time: str, span: Span) -> DataFrame:
    """_HOUR: when the bucket of `time` begins, null outside of the span."""
    if span.began is None or span.ended is None:
        return frame.withColumn(_HOUR, F.lit(None).cast("timestamp"))
    length = span.hours * 3600
    # A bucket begins at a multiple of its length: times are those of hours, or exact.
    bucket = f"timestamp_seconds(floor(unix_seconds({time}) / {length}) * {length})"
    inside = f"unix_millis({time}) BETWEEN {span.began - _HOUR_MS + 1} AND {span.ended}"
    return frame.withColumn(_HOUR, F.expr(f"IF({inside}, {bucket}, NULL)"))


def _down(column: Sql) -> Sql:
    """For an order from the largest on; what is null comes last."""
    return f"coalesce(-CAST({column} AS double), {_INFINITE})"


def _named(of: Mapping[str, Sql]) -> Iterator[Column]:
    return (F.expr(f"{one} AS `{name}`") for name, one in of.items())


def _summed(of: Sums) -> DataFrame:
    """_list, _text: of each list its groups with most of the sums, how many groups there are, and
    what the sums come to over all of them."""
    by = list(dict.fromkeys(name for one in of.lists for name in one.by))
    more = of.more or {}
    sets = [[F.col(name) for name in one.by] for one in of.lists]
    sums = {name: summed(one) for name, one in of.sums.items()}
    grouped = of.frame.groupingSets(sets, *by).agg(
        *_named({"_set": "grouping_id()", **sums, **more})
    )
    timed = f"_set IN ({', '.join(str(_set(by, one)) for one in of.lists if one.timed) or 'NULL'})"
    if _HOUR in by:
        grouped = grouped.where(f"NOT coalesce({timed}, false) OR {_HOUR} IS NOT NULL")
    row = _row(grouped, [*by, *sums, *more])
    size = " + ".join(f"CAST({name} AS double)" for name in sums)
    order = (
        f"IF({timed}, NULL, struct({_nameless_first(by, of.lists)}, -({size}), {', '.join(by)}))"
    )
    told = grouped.groupBy("_set").agg(
        *_named(
            {
                "rows": f"min_by({row}, {order}, {max(one.limit for one in of.lists) or 1})",
                "times": f"collect_list(IF({timed}, {row}, NULL))",
                "groups": "count(*)",
                "sums": f"struct({', '.join(f'{summed(name)} AS {name}' for name in sums)})",
            }
        )
    )
    names = " ".join(f"WHEN {_set(by, one)} THEN '{one.name}'" for one in of.lists)
    return told.selectExpr(
        f"CASE _set {names} END AS _list", _json("rows", "times", "groups", "sums")
    )


def _nameless_first(by: Sequence[str], lists: Sequence[List]) -> Sql:
    """0 of what has to be in its list, 1 of the rest."""
    whens = " ".join(
        f"WHEN _set = {_set(by, one)} AND `{one.by[0]}` = '' THEN 0"
        for one in lists
        if one.nameless
    )
    return f"CASE {whens} ELSE 1 END" if whens else "1"


def _set(by: Sequence[str], one: List) -> int:
    """Its grouping_id: a bit for each column that it leaves out."""
    return sum(1 << (len(by) - 1 - at) for at, name in enumerate(by) if name not in one.by)


def _first(
    name: str, frame: DataFrame, columns: Iterable[str], by: Iterable[Sql], limit: int
) -> DataFrame:
    """_list, _text: rows as they are, in this order; equal ones by the rest of their columns."""
    names = list(columns)
    order = ", ".join((*by, *(f"`{each}`" for each in names)))
    rows = F.expr(f"min_by({_row(frame, names)}, struct({order}), {limit}) AS rows")
    return frame.agg(rows).selectExpr(f"'{name}' AS _list", _json("rows"))


def _json(*names: str) -> Sql:
    # Times become text here: Python would give them this machine's zone.
    options = f"map('ignoreNullFields', 'false', 'timestampFormat', {literal(_TIME)})"
    return f"to_json(struct({', '.join(names)}), {options}) AS _text"


def _row(frame: DataFrame, names: Sequence[str]) -> Sql:
    """A struct of these columns. Infinite and NaN become null: JSON does not have them."""
    kinds = {field.name: field.dataType for field in frame.schema}
    return f"struct({', '.join(_plain(name, kinds[name]) for name in names)})"


def _plain(name: str, kind: T.DataType) -> Sql:
    if isinstance(kind, T.DoubleType):
        return f"IF(abs(`{name}`) < {_INFINITE}, `{name}`, NULL) AS `{name}`"
    return f"`{name}`"


def _collected(sums: Sequence[Sums], lists: Sequence[DataFrame], span: Span) -> dict[str, Rows]:
    frames = [*map(_summed, sums), *lists]
    if not frames:
        return {}
    told = {row["_list"]: json.loads(row["_text"]) for row in _in_one(frames)}
    found = {name: each.get("rows") or [] for name, each in told.items()}
    for of in sums:
        for one in of.lists:
            each = told.get(one.name, {"rows": [], "times": [], "groups": 0})
            found[one.name] = (_timed if one.timed else _most)(one, of, each, span)
    return found


def _in_one(frames: Sequence[DataFrame]) -> list[Any]:
    """Their rows. Small plans, many of them: what is spared by another plan on the way is less than
    what making it costs."""
    conf = frames[0].sparkSession.conf
    before = conf.get(_ADAPTIVE) or "true"
    conf.set(_ADAPTIVE, "false")
    try:
        return reduce(DataFrame.unionByName, frames).collect()
    finally:
        conf.set(_ADAPTIVE, before)


def _timed(one: List, of: Sums, told: Mapping[str, Any], span: Span) -> Rows:
    """Oldest first: {hour (when a bucket begins), hours (its length), by…, sums…}."""
    by = [_HOUR, *(name for name in one.by if name != _HOUR)]
    rows = sorted(told["times"], key=lambda row: [row[name] for name in by])
    return [
        {_HOUR: row[_HOUR], "hours": span.hours, **{x: row[x] for x in (*by[1:], *of.sums)}}
        for row in rows
    ]


def _most(one: List, of: Sums, told: Mapping[str, Any], span: Span) -> Rows:
    """The groups with most, and one row for the rest of them."""
    sums, more = list(of.sums), list(of.more or {}) if one is of.lists[0] else []
    kept = [{x: row[x] for x in (*one.by, *sums, *more)} for row in told["rows"][: one.limit]]
    if one.nameless:
        kept.sort(key=lambda row: -sum(row[x] for x in sums))
    if told["groups"] <= one.limit:
        return kept
    rest = {x: max(0, told["sums"][x] - sum(row[x] for row in kept)) for x in sums}
    nameless = {**dict.fromkeys(one.by, ""), **dict.fromkeys(more)}
    return [*kept, {**nameless, **rest, "others": told["groups"] - one.limit}]
