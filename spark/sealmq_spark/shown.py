"""What the page shows of the tables: few rows each, whatever the tables hold.

Lists of plain dicts, in the order in which they are shown. What is left out of a list of the most
frequent is its last row, which has `others` (how many) and "" for a name. Times are text, UTC.

Spark takes long to plan a query, however small: the lists of one table are one pass over it, each
list becomes one row with a text (JSON), and so all lists are one query.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from .contracts import of_families
from .measures.columns import summed

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
    By time: all buckets of _HOUR, oldest first."""

    name: str
    by: tuple[str, ...]
    limit: int = 0

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
    "decisions_time", "decisions_rule", "decisions_label", "decisions_client", "decisions_question",
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
    sums: Mapping[str, Column | str]
    lists: tuple[List, ...]
    more: Mapping[str, Column] | None = None


def _traffic(tables: Mapping[str, DataFrame], span: Span) -> list[Sums]:
    found = []
    if (decided := tables.get("by_rule")) and (clients := tables.get("by_client")):
        sums: dict[str, Column | str] = {
            "allowed": F.when(F.col("allowed"), F.col("count")).otherwise(0),
            "denied": F.when(~F.col("allowed"), F.col("count")).otherwise(0),
        }
        limits = (("rule", 20), ("label", 20), ("question", 20))
        most = (List(f"decisions_{name}", (name,), limit) for name, limit in limits)
        timed = List("decisions_time", (_HOUR,))
        found.append(Sums(_dated(decided, "hour", span), sums, (timed, *most)))
        found.append(Sums(clients, sums, (List("decisions_client", ("client",), 15),)))
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
        more = {"times": F.count("*"), "first": F.min("at"), "last": F.max("at")}
        found.append(Sums(missing, _COUNT, (List("gaps", ("event", "what", "role"), 20),), more))
    return found


def _officer(tables: Mapping[str, DataFrame], span: Span) -> list[Sums]:
    found = []
    if labelled := tables.get("labelling"):
        sums: dict[str, Column | str] = {
            "labelled": (F.col("event") == "topic-labelled").cast("bigint"),
            "reset": (F.col("event") == "topic-reset").cast("bigint"),
        }
        timed = List("labelling_time", (_HOUR,))
        found.append(Sums(_dated(labelled, "at", span), sums, (timed,)))
    if disclosed := tables.get("disclosures"):
        # A row of the table is of one reader. Without them there are few rows for several lists.
        few = disclosed.groupBy("topic", *of_families()).agg(
            summed("count").alias("count"),
            F.count("*").alias("clients"),
            F.min("first").alias("first"),
            F.max("last").alias("last"),
        )
        more = {"clients": F.sum("clients"), "first": F.min("first"), "last": F.max("last")}
        lists = (
            List("disclosures", ("topic", *of_families()), 40),
            List("disclosures_topic", ("topic",), 15),
            *(List(f"disclosures_by_{name}", (name,), 10) for name in of_families()),
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
        found.append(_first("changed", changed, columns, [_down(F.abs("z"))], 40))
    if labelled := tables.get("labelling"):
        columns = ["at", "topic", "event", "client", "label", "rule"]
        found.append(_first("labelling", labelled, columns, [_down(F.unix_millis("at"))], 40))
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
            by = [F.col(each) for each in order]
            found.append(_first(name, frame, frame.columns, by, limit))
    if behaved := tables.get("behaviours"):
        newest = (
            hil.groupBy("commit")
            .agg(F.max("at_ms").alias("at"))
            .orderBy(F.desc("at"), "commit")
            .limit(_COMMITS)
        )
        recent = behaved.join(F.broadcast(newest), "commit")
        by = [_down(F.col("at")), *map(F.col, ("commit", "behaviour", "kind", "board"))]
        found.append(_first("behaviours", recent, behaved.columns, by, 2000))
    orders: Mapping[str, tuple[list[Column], int]] = {
        "flaky": ([_down(F.col("share")), F.col("behaviour")], 40),
        "reused": ([F.col("first")], 40),
        "nonces": ([_down(F.col("repeated")), _down(F.col("pairs"))], 100),
    }
    for name, (by, limit) in orders.items():
        if frame := tables.get(name):
            found.append(_first(name, frame, frame.columns, by, limit))
    return found


def _examples(bad: DataFrame, limit: int) -> DataFrame:
    """A few lines of each of the most frequent reasons."""
    example = F.struct("file", "raw")
    few = bad.groupBy("reason").agg(
        summed("count").alias("all"), F.min_by(example, example, _EXAMPLES).alias("examples")
    )
    order = [_down(F.col("all")), F.col("reason")]
    return _first("examples", few, ("reason", "examples"), order, limit)


def _dated(frame: DataFrame, time: str, span: Span) -> DataFrame:
    """_HOUR: when the bucket of `time` begins, null outside of the span."""
    if span.began is None or span.ended is None:
        return frame.withColumn(_HOUR, F.lit(None).cast("timestamp"))
    length = span.hours * 3600
    # A bucket begins at a multiple of its length: times are those of hours, or exact.
    bucket = F.timestamp_seconds(F.floor(F.unix_seconds(time) / length) * length)
    inside = F.unix_millis(time).between(span.began - _HOUR_MS + 1, span.ended)
    return frame.withColumn(_HOUR, F.when(inside, bucket))


def _down(column: Column) -> Column:
    """For an order from the largest on; what is null comes last."""
    return F.coalesce(-column.cast("double"), F.lit(float("inf")))


def _summed(of: Sums) -> DataFrame:
    """_list, _text: of each list its groups with most of the sums, how many groups there are, and
    what the sums come to over all of them."""
    by = list(dict.fromkeys(name for one in of.lists for name in one.by))
    sums, more = list(of.sums), list(of.more or {})
    sets = [[F.col(name) for name in one.by] for one in of.lists]
    grouped = of.frame.groupingSets(sets, *by).agg(
        F.grouping_id().alias("_set"),
        *(summed(column).alias(name) for name, column in of.sums.items()),
        *(column.alias(name) for name, column in (of.more or {}).items()),
    )
    names = F.create_map(*(F.lit(x) for one in of.lists for x in (_set(by, one), one.name)))
    timed = F.col("_set").isin([_set(by, one) for one in of.lists if one.timed])
    if _HOUR in by:
        grouped = grouped.where(~timed | F.col(_HOUR).isNotNull())
    row = _row(grouped, [*by, *sums, *more])
    size = sum((F.col(name).cast("double") for name in sums), F.lit(0.0))
    order = F.when(~timed, F.struct(-size, *by))
    most = max((one.limit for one in of.lists), default=0) or 1
    told = grouped.groupBy("_set").agg(
        F.min_by(row, order, most).alias("rows"),
        F.collect_list(F.when(timed, row)).alias("times"),
        F.count("*").alias("groups"),
        F.struct(*(summed(name).alias(name) for name in sums)).alias("sums"),
    )
    return told.select(
        names[F.col("_set")].alias("_list"), _json("rows", "times", "groups", "sums")
    )


def _set(by: Sequence[str], one: List) -> int:
    """Its grouping_id: a bit for each column that it leaves out."""
    return sum(1 << (len(by) - 1 - at) for at, name in enumerate(by) if name not in one.by)


def _first(
    name: str, frame: DataFrame, columns: Iterable[str], order: list[Column], limit: int
) -> DataFrame:
    """_list, _text: rows as they are, in this order; equal ones by the rest of their columns."""
    names = list(columns)
    rest = [F.col(each) for each in names]
    rows = F.min_by(_row(frame, names), F.struct(*order, *rest), limit).alias("rows")
    return frame.agg(rows).select(F.lit(name).alias("_list"), _json("rows"))


# Times become text here: Python would give them this machine's zone.
_AS = {"ignoreNullFields": "false", "timestampFormat": _TIME}


def _json(*names: str) -> Column:
    return F.to_json(F.struct(*names), _AS).alias("_text")


def _row(frame: DataFrame, names: Sequence[str]) -> Column:
    """What is no number is null: JSON has no such numbers."""
    kinds = {field.name: field.dataType for field in frame.schema}
    return F.struct(*(_plain(name, kinds[name]).alias(name) for name in names))


def _plain(name: str, kind: T.DataType) -> Column:
    if isinstance(kind, T.DoubleType):
        return F.when(F.abs(name) < float("inf"), F.col(name))
    return F.col(name)


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
    if told["groups"] <= one.limit:
        return kept
    rest = {x: max(0, told["sums"][x] - sum(row[x] for row in kept)) for x in sums}
    nameless = {**dict.fromkeys(one.by, ""), **dict.fromkeys(more)}
    return [*kept, {**nameless, **rest, "others": told["groups"] - one.limit}]
