"""What the page shows of the tables: few rows each, whatever the tables hold.

Lists of plain dicts, in the order in which they are shown. What is left out of a list of the most
frequent is its last row, which has `others` (how many) and "" for a name. Times are text, UTC.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql import Column, DataFrame, Window
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


def shown(
    tables: Mapping[str, DataFrame],
    logs: Mapping[str, DataFrame],
    quarantine: DataFrame,
    rows: Mapping[str, int],
    span: Span,
    sites: Mapping[str, str],
) -> dict[str, Rows]:
    """All lists of the page. rows: of each table and of `quarantine`; empty ones cost nothing.
    sites: their names, by number."""
    there = {name: frame for name, frame in tables.items() if rows.get(name)}
    if len(sites) > 1:
        there = {name: _with_site(frame, sites) for name, frame in there.items()}
    found: dict[str, Rows] = {}
    found |= _traffic(there, span)
    found |= _officer(there, span)
    found |= _rig(there, logs["hil"])
    found["quarantine"] = _quarantine(quarantine) if rows.get("quarantine") else []
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


def _traffic(tables: Mapping[str, DataFrame], span: Span) -> dict[str, Rows]:
    found: dict[str, Rows] = {}
    if decided := tables.get("decisions"):
        sums = {
            "allowed": F.when(F.col("allowed"), F.col("count")).otherwise(0),
            "denied": F.when(~F.col("allowed"), F.col("count")).otherwise(0),
        }
        found["decisions_time"] = _over_time(decided, "hour", [], sums, span)
        for name, limit in (("rule", 20), ("label", 20), ("client", 15), ("question", 20)):
            found[f"decisions_{name}"] = _most(decided, [name], sums, limit)
    count = {"count": F.col("count")}
    if refused := tables.get("refusals"):
        found["refusals_time"] = _over_time(refused, "hour", ["class"], count, span)
        found["refusals"] = _most(refused, ["client", "class", "rule"], count, 20)
    if let := tables.get("unenforced"):
        found["unenforced"] = _most(let, ["question", "rule", "client", "topic"], count, 20)
    if changed := tables.get("changed"):
        columns = ("client", "measure", "hour", "hours", "count", "usual", "z")
        found["changed"] = _first(changed, columns, [F.desc(F.abs("z"))], 40)
    if missing := tables.get("gaps"):
        more = {"times": F.count("*"), "first": F.min("at"), "last": F.max("at")}
        found["gaps"] = _most(missing, ["event", "what", "role"], count, 20, more)
    return found


def _officer(tables: Mapping[str, DataFrame], span: Span) -> dict[str, Rows]:
    found: dict[str, Rows] = {}
    if labelled := tables.get("labelling"):
        sums = {
            "labelled": (F.col("event") == "topic-labelled").cast("bigint"),
            "reset": (F.col("event") == "topic-reset").cast("bigint"),
        }
        found["labelling_time"] = _over_time(labelled, "at", [], sums, span)
        columns = ("at", "topic", "event", "client", "label", "rule")
        found["labelling"] = _first(labelled, columns, [F.desc("at")], 40)
    if disclosed := tables.get("disclosures"):
        count = {"count": F.col("count")}
        more = {
            "clients": F.count_distinct("site", "client"),
            "first": F.min("first"),
            "last": F.max("last"),
        }
        found["disclosures"] = _most(disclosed, ["topic", *of_families()], count, 40, more)
        found["disclosures_topic"] = topics = _most(disclosed, ["topic"], count, 15)
        for name in of_families():
            found[f"disclosures_by_{name}"] = said = _most(disclosed, [name], count, 10)
            # Of the first field in which there is anything.
            if "disclosures_matrix" not in found and any(row[name] for row in said):
                matrix = disclosed.where(
                    F.col("topic").isin(_names(topics, "topic"))
                    & F.col(name).isin(_names(said, name))
                )
                found["disclosures_matrix"] = _most(matrix, ["topic", name], count, 150)
    return found


def _names(rows: Rows, name: str) -> list[str]:
    return [row[name] for row in rows if "others" not in row]


_ORDERED: Mapping[str, tuple[tuple[str, ...], int]] = {
    "cost": (("what", "stage", "measure", "size", "key", "variant"), 3000),
    "paper": (("comparison", "size", "stage"), 200),
    "stages": (("behaviour", "stage", "kind"), 400),
    "cuts": (("behaviour", "cut_partition", "cut_op"), 200),
    "coverage": (("behaviour", "first"), 200),
    "regressions": (("source", "subject", "part", "what"), 200),
    "simulations": (("plan", "kind", "rule", "round"), 20_000),
}


def _rig(tables: Mapping[str, DataFrame], hil: DataFrame) -> dict[str, Rows]:
    found: dict[str, Rows] = {}
    for name, (order, limit) in _ORDERED.items():
        if frame := tables.get(name):
            found[name] = _first(frame, frame.columns, [F.col(each) for each in order], limit)
    if behaved := tables.get("behaviours"):
        newest = (
            hil.groupBy("commit")
            .agg(F.max("at_ms").alias("at"))
            .orderBy(F.desc("at"), "commit")
            .limit(_COMMITS)
        )
        recent = behaved.join(F.broadcast(newest), "commit")
        by = [F.desc("at"), *map(F.col, ("commit", "behaviour", "kind", "board"))]
        found["behaviours"] = _first(recent, behaved.columns, by, 2000)
    if flaky := tables.get("flaky"):
        found["flaky"] = _first(flaky, flaky.columns, [F.desc("share"), F.col("behaviour")], 40)
    if reused := tables.get("reused"):
        found["reused"] = _first(reused, reused.columns, [F.col("first")], 40)
    if nonces := tables.get("nonces"):
        by = [F.desc("repeated"), F.desc("pairs")]
        found["nonces"] = _first(nonces, nonces.columns, by, 100)
    return found


def _quarantine(bad: DataFrame) -> Rows:
    """The most frequent reasons, each with examples: {reason, count, examples: [{file, raw}]}."""
    most = _most(bad, ["reason"], {"count": F.col("count")}, 20)
    of_reason = Window.partitionBy("reason").orderBy("file", "raw")
    few = (
        bad.where(F.col("reason").isin(_names(most, "reason")))
        .withColumn("number", F.row_number().over(of_reason))
        .where(F.col("number") <= _EXAMPLES)
        .select("reason", "number", "file", "raw")
    )
    examples: dict[str, Rows] = {}
    for row in sorted(few.collect(), key=lambda row: row["number"]):
        examples.setdefault(row["reason"], []).append({"file": row["file"], "raw": row["raw"]})
    return [{**row, "examples": examples.get(row["reason"], [])} for row in most]


def _most(
    frame: DataFrame,
    by: list[str],
    sums: Mapping[str, Column],
    limit: int,
    more: Mapping[str, Column] | None = None,
) -> Rows:
    """The groups with most of `sums`, and one row for the rest. more: aggregates of the groups
    alone; the rest has null for them."""
    extra = more or {}
    grouped = frame.groupBy(*by).agg(
        *(summed(column).alias(name) for name, column in sums.items()),
        *(column.alias(name) for name, column in extra.items()),
    )
    size = sum((F.col(name).cast("double") for name in sums), F.lit(0.0))
    first = _plain(grouped.orderBy(size.desc(), *by).limit(limit + 1))
    if len(first) <= limit:
        return first
    kept = first[:limit]
    totals = (summed(F.col(name)).alias(name) for name in sums)
    (whole,) = _plain(grouped.agg(F.count("*").alias("others"), *totals))
    rest = {name: max(0, whole[name] - sum(row[name] for row in kept)) for name in sums}
    nameless = {**dict.fromkeys(by, ""), **dict.fromkeys(extra)}
    return [*kept, {**nameless, **rest, "others": whole["others"] - limit}]


def _over_time(
    frame: DataFrame, time: str, by: list[str], sums: Mapping[str, Column], span: Span
) -> Rows:
    """Sums by bucket, oldest first: {hour (when it begins), hours (its length), by…, sums…}."""
    if span.began is None or span.ended is None:
        return []
    length = span.hours * 3600
    # A bucket begins at a multiple of its length: times are those of hours, or exact.
    bucket = F.timestamp_seconds(F.floor(F.unix_seconds(time) / length) * length)
    rows = _plain(
        frame.where(F.unix_millis(time).between(span.began - _HOUR_MS + 1, span.ended))
        .groupBy(bucket.alias("hour"), *by)
        .agg(*(summed(column).alias(name) for name, column in sums.items()))
        .orderBy("hour", *by)
    )
    return [{"hour": row.pop("hour"), "hours": span.hours, **row} for row in rows]


def _first(frame: DataFrame, columns: Iterable[str], order: list[Column], limit: int) -> Rows:
    """Rows as they are, in this order; equal ones by the rest of their columns."""
    names = list(columns)
    rest = [F.col(name) for name in names]
    return _plain(frame.orderBy(*order, *rest).limit(limit).select(*names))


def _plain(frame: DataFrame) -> Rows:
    """The rows as dicts. Times become text here: Python would give them this machine's zone."""
    times = {f.name for f in frame.schema if isinstance(f.dataType, T.TimestampType)}
    texts = (F.date_format(name, _TIME) if name in times else F.col(name) for name in frame.columns)
    named = (text.alias(name) for text, name in zip(texts, frame.columns, strict=True))
    return [row.asDict() for row in frame.select(*named).collect()]
