"""What summary.json counts: what was kept, and the figures that people want to see first."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from .measures.columns import instant, summed

LOGS = ("audit", "hil", "nonce", "bench", "simulation")
DAILY = ("audit", "hil", "nonce", "simulation")
"""Those whose lines have days."""
CLOCK_SET_MS = 978_307_200_000
"""2001: what says an earlier time has a clock that nobody had set."""

KEYS_REPEATED = "keys repeated"
"""Of how many keys a nonce was used twice; beside the figures of OF_LOG."""

# Figure -> the log without which there is none of it.
OF_LOG: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(
        (
            "allowed",
            "denied",
            "disclosed",
            "labelled",
            "forged",
            "old_keys",
            "replayed",
            "too_old",
            "malformed",
            "unenforced",
            "changed",
        ),
        ("audit",),
    ),
    **dict.fromkeys(("passed", "failed", "skipped", "flaky", "cuts"), ("hil",)),
    **dict.fromkeys(("nonces", "nonces_repeated"), ("nonce",)),
    "regressions": ("hil", "bench"),
}


def kept(log: DataFrame) -> DataFrame:
    """One of DAILY but the audit log, which has `hourly` -> of (timestamp: a day, UTC), rows,
    began, ended (ms)."""
    at = F.col("at_ms")
    day = F.date_trunc("day", instant(at)).alias("of")
    return kept_in_all(
        log.select(day, F.lit(1).cast("bigint").alias("rows"), at.alias("began"), at.alias("ended"))
    )


def kept_in_all(rows: DataFrame) -> DataFrame:
    """`kept` of some lines and of others -> of all of them."""
    sums = (
        F.sum("rows").alias("rows"),
        F.min("began").alias("began"),
        F.max("ended").alias("ended"),
    )
    return rows.groupBy("of").agg(*sums)


def of_logs(kept: Mapping[str, DataFrame], before_ms: int) -> dict[str, int | None]:
    """kept: of each log of DAILY of which there is anything, `kept` or `hourly`.

    Of all: its rows ("kept audit"), its first and last instant in ms ("began audit", "ended
    audit") of those of days that begin from CLOCK_SET_MS to before_ms.
    """
    each = []
    for name, frame in kept.items():
        day = F.date_trunc("day", "hour" if name == "audit" else "of")
        inside = F.unix_millis(day).between(CLOCK_SET_MS, before_ms)
        figures = {
            "kept": F.coalesce(F.sum("rows"), F.lit(0)),
            "began": F.min(F.when(inside, F.col("began"))),
            "ended": F.max(F.when(inside, F.col("ended"))),
        }
        each.append(_figures(frame, {f"{word} {name}": one for word, one in figures.items()}))
    nothing: dict[str, int | None] = {}
    for name in DAILY:
        nothing |= {f"kept {name}": 0, f"began {name}": None, f"ended {name}": None}
    return nothing | (_collected(each) if each else {})


def of_tables(tables: Mapping[str, DataFrame], empty: Iterable[str] = ()) -> dict[str, int | None]:
    """Rows of each table ("rows NAME"), the figures of OF_LOG and KEYS_REPEATED. empty: tables
    without a row."""
    none = set(empty)
    found = [
        _figures(frame, {f"rows {name}": F.count("*"), **_sums(name)})
        for name, frame in tables.items()
        if name not in none
    ]
    nothing = {f"rows {name}": 0 for name in none}
    return {
        **dict.fromkeys((*OF_LOG, KEYS_REPEATED), 0),
        **nothing,
        **(_collected(found) if found else {}),
    }


def _sums(name: str) -> dict[str, Column]:
    """The figures that a table has."""
    count = F.col("count")
    match name:
        case "decisions":
            return {"allowed": _sum(count, "allowed"), "denied": _sum(count, "not allowed")}
        case "disclosures":
            return {"disclosed": _sum(count)}
        case "labelling":
            return {"labelled": F.count_if(F.col("event") == "topic-labelled")}
        case "refusals":
            words = {"forged": "forged", "replayed": "replayed", "malformed": "malformed"}
            each = {**words, "too_old": "too old", "old_keys": "old keys"}
            return {figure: _sum(count, f"class = '{word}'") for figure, word in each.items()}
        case "unenforced":
            return {"unenforced": _sum(count)}
        case "changed":
            return {"changed": F.count_distinct("site", "client")}
        case "behaviours":
            return {each: _sum(F.col(each)) for each in ("passed", "failed", "skipped")}
        case "cuts":
            return {"cuts": _sum(F.col("cuts"))}
        case "nonces":
            return {
                "nonces": _sum(F.col("distinct")),
                "nonces_repeated": _sum(F.col("repeated")),
                KEYS_REPEATED: F.count_if(F.col("repeated") > 0),
            }
        case "flaky" | "regressions":
            return {name: F.count("*")}
        case _:
            return {}


def _sum(count: Column, where: str = "true") -> Column:
    """0 of nothing."""
    mine = F.when(F.expr(where), count).otherwise(F.lit(0))
    return F.when(F.count("*") == 0, 0).otherwise(summed(mine))


def _figures(frame: DataFrame, figures: Mapping[str, Column]) -> DataFrame:
    named = frame.agg(*(column.cast("bigint").alias(name) for name, column in figures.items()))
    pairs = (F.struct(F.lit(name).alias("name"), F.col(name).alias("value")) for name in figures)
    return named.select(F.inline(F.array(*pairs)))


def _collected(frames: list[DataFrame]) -> dict[str, int | None]:
    rows = reduce(DataFrame.unionByName, frames).collect()
    return {row["name"]: row["value"] for row in rows}
