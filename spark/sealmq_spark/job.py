"""From logs to a report: read what is new, each line once, measure, and write it all down."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from . import outputs, tables
from .errors import FOUND, OK
from .found import shown as readable
from .headline import DAILY, KEYS_REPEATED, LOGS, OF_LOG, of_logs, of_tables
from .ingest import ingest, unread
from .measures.hourly import site_names
from .page import Live, render
from .progress import Steps
from .session import SMALL
from .settle import Settled, settle
from .shown import Rows, Span, shown
from .tables import Days, Logs, Tables

_DAY_MS = 86_400_000
_KEPT = 4
"""How much smaller lines are as Parquet, about."""
_TOLD = 20
"""Findings that `why` names one by one."""


@dataclass(frozen=True)
class Outcome:
    """exit_code: OK, or FOUND after a regression or a nonce used twice. summary: as
    shared_spec/report.schema.json has it. lists: what the page shows beside it."""

    exit_code: int
    summary: dict[str, Any]
    lists: Mapping[str, Rows]


def small(logs: Sequence[str], out: Path, master: str | None) -> bool:
    """Whether the session of a report into `out` is a `small` one (session.py): by what it has to
    look at, which are new lines and of old ones what `tables.whole` says. ReportError."""
    here = (master or "").startswith("local")
    return here and unread(logs, out) + _KEPT * tables.whole(out) < SMALL


def run(
    spark: SparkSession,
    logs: Sequence[str],
    out: Path,
    steps: Steps | None = None,
    days: Days | None = None,
    live: Live | None = None,
) -> Outcome:
    """Read what is new in the logs and write tables, page and summary into `out`.

    Killed anywhere it leaves the last report or this one, and the next run goes on from there.
    days: all is read and kept, and what is reported is of these. live: of a page made anew.
    """
    steps = steps or Steps()
    days = days or Days()
    with steps.step("ingest"), steps.watching(lambda: _tasks(spark)):
        ingest(spark, logs, out)
    with steps.step("settle"):
        settled = settle(spark, out)
    with outputs.tables(out) as folder:
        made, found = _measured(spark, settled, out, folder, days, steps)
        with steps.step("page"):
            summary = _summary(spark, logs, settled, found, days)
            lists = _shown(settled, made, found, days, summary["sites"])
            summary["why"] = _why(lists, found)
            summary["exit"] = FOUND if summary["why"] else OK
            summary["seconds"] = dict(steps.seconds)
            # Before the tables are new: what ends it here leaves the last report.
            page = render(summary, lists, live)
    summary["seconds"] = dict(steps.seconds)
    _put(out, page, summary)
    return Outcome(summary["exit"], summary, lists)


def publish(outcome: Outcome, out: Path, live: Live | None = None) -> None:
    """Make the page of a report anew, and write it."""
    _put(out, render(outcome.summary, outcome.lists, live), outcome.summary)


# The summary is of the page that is there.
def _put(out: Path, page: str, summary: dict[str, Any]) -> None:
    outputs.replace(out / outputs.PAGE, page)
    outputs.replace(out / outputs.SUMMARY, outputs.as_json(summary))


def _measured(
    spark: SparkSession, settled: Settled, out: Path, folder: Path, days: Days, steps: Steps
) -> tuple[dict[str, DataFrame], dict[str, Any]]:
    """The tables, and what is counted over them and the logs."""
    with steps.step("measures", total=len(tables.TABLES)):
        record = settled.record
        bench = record.documents if record.rows else ""
        frames = {name: getattr(settled, name) for name in LOGS}
        of_days = {name: record.days.get(name, {}) for name in DAILY}
        logs = Logs(frames, of_days, {"bench": bench})
        of = Tables(spark, out, folder, logs, days)
        of.make(steps.at)
        kept = {log: of.made[name] for log, name in tables.KEPT.items() if name not in of.none}
        found: dict[str, Any] = of_logs(kept, _now_ms() + _DAY_MS) | {"kept bench": record.rows}
        told = {name: of.made[name] for name in tables.TABLES}
        found |= of_tables(told, of.none & told.keys())
        for name in ("by_rule", "by_client"):  # of which the page's lists of decisions are made
            told[name] = of.made[name]
            found[f"rows {name}"] = found["rows decisions"]
        found["sites"] = (
            site_names(kept["audit"], of.of_all_days("hourly")) if found["kept audit"] else {}
        )
    return told, found


def _shown(
    settled: Settled,
    made: Mapping[str, DataFrame],
    found: Mapping[str, Any],
    days: Days,
    sites: Mapping[str, str],
) -> dict[str, Rows]:
    rows = {name: found[f"rows {name}"] for name in made}
    rows["quarantine"] = sum(settled.quarantined.values())
    span = Span(found["began audit"], found["ended audit"])
    return shown(made, {"hil": days.of(settled.hil)}, settled.quarantine, rows, span, sites)


def _summary(
    spark: SparkSession,
    logs: Sequence[str],
    settled: Settled,
    found: Mapping[str, Any],
    days: Days,
) -> dict[str, Any]:
    """All but what the findings come to."""
    kept = {name: found[f"kept {name}"] for name in LOGS}
    if not kept["simulation"]:  # which few reports have
        del kept["simulation"]
    reasons = sorted(settled.quarantined.items(), key=lambda item: (-item[1], item[0]))
    began = [found[f"began {name}"] for name in LOGS[:3] if found[f"began {name}"] is not None]
    ended = [found[f"ended {name}"] for name in LOGS[:3] if found[f"ended {name}"] is not None]
    return {
        "v": 1,
        "made": now(),
        "versions": _versions(spark),
        "master": spark.sparkContext.master,
        "sites": found["sites"],
        "logs": [readable(str(Path(each).absolute())) for each in logs],
        **{
            name: day.isoformat()
            for name, day in (("since", days.since), ("until", days.until))
            if day is not None
        },
        "lines": settled.lines + kept["bench"],
        "kept": kept,
        "repeated": settled.repeated,
        "quarantined": sum(settled.quarantined.values()),
        "reasons": dict(reasons),
        "began": _time(min(began)) if began else None,
        "ended": _time(max(ended)) if ended else None,
        "headline": {
            name: found[name] if any(kept[log] for log in needed) else None
            for name, needed in OF_LOG.items()
        },
        "tables": {name: found[f"rows {name}"] for name in tables.TABLES},
    }


def _why(lists: Mapping[str, Rows], figures: Mapping[str, Any]) -> list[str]:
    """What makes the exit code 1, in words, the worst first; _TOLD of them. figures: how many there
    are, since lists are bounded."""
    found = [
        f"nonces: {row['repeated']} used twice under the key {row['key']}"
        for row in lists["nonces"]
        if row["repeated"]
    ]
    found += [_regression(row) for row in lists["regressions"]]
    more = figures["regressions"] + figures[KEYS_REPEATED] - _TOLD
    return [*found[:_TOLD], f"and {more} more"] if more > 0 else found


def _regression(row: Mapping[str, Any]) -> str:
    where = "the rig" if row["source"] == "rig" else "a bench"
    before, now = (_figure(row[name]) for name in ("before", "now"))
    return f"{where}: {row['subject']}, {row['part']}: {row['what']} ({before} before, {now} now)"


def _figure(value: float | None) -> str:
    return "nothing" if value is None else f"{value:.4g}" if abs(value) < 1e4 else f"{value:.0f}"


def _tasks(spark: SparkSession) -> str:
    """How far Spark is with what it does now; asked from another thread."""
    tracker = spark.sparkContext.statusTracker()
    infos = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
    done = sum(info.numCompletedTasks for info in infos if info is not None)
    there = sum(info.numTasks for info in infos if info is not None)
    return f"{done} of {there} parts" if there > 1 else ""


def _versions(spark: SparkSession) -> dict[str, str]:
    java = spark._jvm.java.lang.System.getProperty("java.version")  # type: ignore[union-attr]
    try:
        ours = metadata.version("sealmq")
    except metadata.PackageNotFoundError:  # a checkout that was not installed
        ours = "unknown"
    return {
        "sealmq": ours,
        "spark": spark.version,
        "java": str(java),
        "python": platform.python_version(),
    }


def now() -> str:
    """As a summary says when it was made."""
    return _time(_now_ms())


def _now_ms() -> int:
    return int(datetime.now(UTC).timestamp() * 1000)


def _time(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms // 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
