"""What summary.json counts: what was kept, and the figures that people want to see first."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from .measures.columns import instant_of, summed
from .rules import Sql

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
    day = f"date_trunc('day', {instant_of('at_ms')}) AS of"
    one = "CAST(1 AS bigint) AS rows"
    return kept_in_all(log.selectExpr(day, one, "at_ms AS began", "at_ms AS ended"))


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
        day = f"date_trunc('day', {'hour' if name == 'audit' else 'of'})"
        inside = f"unix_millis({day}) BETWEEN {CLOCK_SET_MS} AND {before_ms}"
        figures = {
            "kept": "coalesce(sum(rows), 0)",
            "began": f"min(IF({inside}, began, NULL))",
            "ended": f"max(IF({inside}, ended, NULL))",
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
        _figures(frame, {f"rows {name}": "count(*)", **_sums(name)})
        for name, frame in tables.items()
        if name not in none
    ]
    nothing = {f"rows {name}": 0 for name in none}
    return {
        **dict.fromkeys((*OF_LOG, KEYS_REPEATED), 0),
        **nothing,
        **(_collected(found) if found else {}),
    }


def _sums(name: str) -> dict[str, Sql]:
    """The figures that a table has."""
    match name:
        case "decisions":
            return {"allowed": _sum("count", "allowed"), "denied": _sum("count", "NOT allowed")}
        case "disclosures":
            return {"disclosed": _sum("count")}
        case "labelling":
            return {"labelled": "count_if(event = 'topic-labelled')"}
        case "refusals":
            words = {"forged": "forged", "replayed": "replayed", "malformed": "malformed"}
            each = {**words, "too_old": "too old", "old_keys": "old keys"}
            return {figure: _sum("count", f"class = '{word}'") for figure, word in each.items()}
        case "unenforced":
            return {"unenforced": _sum("count")}
        case "changed":
            return {"changed": "count(DISTINCT site, client)"}
        case "behaviours":
            return {each: _sum(each) for each in ("passed", "failed", "skipped")}
        case "cuts":
            return {"cuts": _sum("cuts")}
        case "nonces":
            return {
                "nonces": _sum("distinct"),
                "nonces_repeated": _sum("repeated"),
                KEYS_REPEATED: "count_if(repeated > 0)",
            }
        case "flaky" | "regressions":
            return {name: "count(*)"}
        case _:
            return {}


def _sum(column: str, where: Sql = "true") -> Sql:
    """0 of nothing."""
    return f"IF(count(*) = 0, 0, {summed(f'IF({where}, `{column}`, 0)')})"


def _figures(frame: DataFrame, figures: Mapping[str, Sql]) -> DataFrame:
    named = frame.selectExpr(
        *(f"CAST({figure} AS bigint) AS `{name}`" for name, figure in figures.items())
    )
    pairs = (f"named_struct('name', '{name}', 'value', `{name}`)" for name in figures)
    return named.selectExpr(f"inline(array({', '.join(pairs)}))")


def _collected(frames: list[DataFrame]) -> dict[str, int | None]:
    rows = reduce(DataFrame.unionByName, frames).collect()
    return {row["name"]: row["value"] for row in rows}
