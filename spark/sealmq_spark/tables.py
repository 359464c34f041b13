"""Which tables a report has: what makes each, from what, and how it grows.

A table with a `time` is made day by day: the rows of a day come of that day's lines alone. Where
some of its lines are new, they are added to its rows if these can be added, and otherwise the day
is made anew; the other days stay as they are (OUT/days). What needs more than one day is made of
such tables, which are small, or of the whole log; it is taken over from the last report where
nothing that it is made of has changed. So a report costs what is new, and a few columns of what
there was.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, DataFrameWriter, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from . import outputs, state
from .columns_of import columns_of, nothing, stored, write_nothing
from .contracts import fingerprint
from .headline import DAILY, kept, kept_in_all
from .measures.behaviours import behaviours
from .measures.changed import changed, hours
from .measures.cost import cost
from .measures.cuts import coverage, cuts
from .measures.decisions import by_client, by_rule, decided_in_all, decisions
from .measures.disclosures import BY, daily, daily_in_all, disclosures
from .measures.figures import figures
from .measures.flaky import flaky
from .measures.gaps import gaps
from .measures.hourly import hourly, hourly_in_all
from .measures.labelling import labelling
from .measures.nonces import nonces, reused
from .measures.paper import paper
from .measures.refusals import refusals
from .measures.regressions import regressions
from .measures.simulations import simulations
from .measures.stages import stages
from .measures.unenforced import unenforced, unenforced_in_all

DAY = "day"
DAYS = "days"
_CODE = "code"
_KEY = "_key"
_MARK = "_of"
"""In the folder of a table's day: which lines it is made of. Spark leaves it alone."""
_OF = ".of.json"
"""In a report's folder of tables: a mark of what each is made of."""


@dataclass(frozen=True)
class Table:
    """`make` gets the `inputs` in their order: logs, or tables that stand further up.

    time: a column of instants, whose date (UTC) is the day that a row is of; such a table has one
    input. adds: makes of rows that were made of some lines of a day, and of others, those of all of
    them. key: of a table of one input that has days, columns of both: the rows of a key come of its
    lines alone, and only keys that the new days have are made anew. told: it is one of the report's
    tables, and not only what these are made of.
    """

    make: Callable[..., DataFrame]
    inputs: tuple[str, ...]
    time: str | None = None
    adds: Callable[[DataFrame], DataFrame] | None = None
    key: tuple[str, ...] = ()
    told: bool = True


def _as_they_are(rows: DataFrame) -> DataFrame:
    return rows


KEPT: Mapping[str, str] = {"audit": "hourly", **{each: f"kept_{each}" for each in DAILY[1:]}}
"""Log -> the table of what there is of it, and from when to when."""

_ALL: Mapping[str, Table] = {
    **{
        table: Table(kept, (name,), "of", kept_in_all, told=False)
        for name, table in KEPT.items()
        if name != "audit"
    },
    KEPT["audit"]: Table(hourly, ("audit",), "hour", hourly_in_all, told=False),
    "daily": Table(daily, ("audit",), "first", daily_in_all, told=False),
    "decisions": Table(decisions, ("audit",), "hour", decided_in_all),
    "hours": Table(hours, ("decisions",), "hour", told=False),
    "by_rule": Table(by_rule, ("decisions",), "hour", told=False),
    "by_client": Table(by_client, ("decisions",), "of", told=False),
    "disclosures": Table(disclosures, ("daily",), key=BY),
    "labelling": Table(labelling, ("audit",), "at", _as_they_are),
    "refusals": Table(refusals, ("decisions",), "hour"),
    "unenforced": Table(unenforced, ("audit",), "hour", unenforced_in_all),
    "changed": Table(changed, ("hours", "hourly")),
    "gaps": Table(gaps, ("audit",), "at", _as_they_are),
    "stages": Table(stages, ("hil",)),
    "behaviours": Table(behaviours, ("hil",)),
    "flaky": Table(flaky, ("hil",)),
    "cuts": Table(cuts, ("hil",)),
    "coverage": Table(coverage, ("hil",)),
    "nonces": Table(nonces, ("nonce",), key=("key",)),
    "reused": Table(reused, ("nonces", "nonce")),
    "cost": Table(cost, ("bench",)),
    "paper": Table(paper, ("cost",)),
    "figures": Table(figures, ("bench",)),
    "regressions": Table(regressions, ("hil", "bench")),
    "simulations": Table(simulations, ("simulation",)),
}
TABLES: Mapping[str, Table] = {name: table for name, table in _ALL.items() if table.told}


@dataclass(frozen=True)
class Days:
    """Of which days (UTC), both included, lines are reported; None: no end on that side."""

    since: date | None = None
    until: date | None = None

    def of(self, lines: DataFrame) -> DataFrame:
        """Those of these days."""
        if self.since is not None:
            lines = lines.where(F.col(DAY) >= F.lit(self.since))
        return lines if self.until is None else lines.where(F.col(DAY) <= F.lit(self.until))

    def has(self, day: str) -> bool:
        """Whether such a day (2026-11-30) is one of them."""
        return (self.since is None or self.since.isoformat() <= day) and (
            self.until is None or day <= self.until.isoformat()
        )


@dataclass(frozen=True)
class Logs:
    """What tables are made of. frames: each log, with `day` where it has days. days: of these how
    they have changed (state.py). others: of the rest a mark of what it is."""

    frames: Mapping[str, DataFrame]
    days: Mapping[str, state.Days]
    others: Mapping[str, str]


def whole(out: Path) -> int:
    """Bytes of `out` that the next tables are made of, whatever is new: the rig's log, whose tables
    are of the whole of it, and what tables of all days are made of; all logs where another SealMQ
    has made the tables there are."""
    return sum(outputs.size_of(out / name) for name in (DAILY if _old(out) else ("hil", DAYS)))


def _old(out: Path) -> bool:
    return _text(out / DAYS / _CODE) != _code()


class Tables:
    """Makes the tables of a report in `folder`, from what stands in `out`.

    made: of each its frame, read back; of what is not told as well, in the days that are reported.
    none: those that were made of nothing.
    """

    def __init__(
        self, spark: SparkSession, out: Path, folder: Path, logs: Logs, days: Days
    ) -> None:
        self._spark, self._folder, self._days, self._logs = spark, folder, days, logs
        self._out, self._last = out, out / outputs.TABLES
        self._store = out / DAYS
        self._store.mkdir(exist_ok=True)
        if _old(out):
            # All is made anew, as are the tables of the last report.
            shutil.rmtree(self._store)
            self._store.mkdir()
            (self._store / _CODE).write_text(_code())
        self._have: dict[str, dict[str, str]] = {}
        self._of_last: dict[str, str] = _json(self._last / _OF)
        self._of = {"": f"{_code()} {days.since} {days.until}"}
        self.made: dict[str, DataFrame] = {}
        self.none: set[str] = set()

    def make(self, told: Callable[[int, str], None] = lambda number, name: None) -> None:
        """All of them. told: is told of each before it is made."""
        for name, days in self._logs.days.items():
            if not any(map(self._days.has, days)):
                self.none.add(name)
            self._of[name] = _mark(
                [f"{day} {days[day][0]}" for day in sorted(days) if self._days.has(day)]
            )
        for name, mark in self._logs.others.items():
            self._of[name] = mark
            if not mark:
                self.none.add(name)
        for number, (name, table) in enumerate(_ALL.items()):
            told(number, name)
            if table.time is not None:
                self._by_day(name, table)
            else:
                self._whole(name, table)
        (self._folder / _OF).write_text(json.dumps(self._of))

    def _by_day(self, name: str, table: Table) -> None:
        folder, (source,) = self._store / name, table.inputs
        have = {path.name[4:]: _text(path / _MARK) for path in folder.glob(f"{DAY}=*")}
        days = self._logs.days.get(source)
        want = (
            {day: str(last) for day, (last, _) in days.items()}
            if days is not None
            else self._have[source]
        )
        stale = {day for day in have.keys() | want.keys() if have.get(day) != want.get(day)}
        grown = set()
        if days is not None and table.adds is not None:
            both = stale & have.keys() & days.keys()
            grown = {day for day in both if have[day] and _adds(int(have[day]), days[day])}
        after = {day: int(have[day]) if day in grown else -1 for day in stale}
        columns = columns_of(name)
        if stale:
            frame = table.make(self._of_days(source, after))
            if grown and table.adds is not None:
                old = self._rows(name, grown)
                frame = table.adds(frame.unionByName(old.select(*columns.names)))
            self._put(folder, _days(frame, str(table.time)), {day: want.get(day) for day in stale})
        self._have[name] = want
        mine = [f"{day} {want[day]}" for day in sorted(want) if self._days.has(day)]
        self._of[name] = _mark(mine)
        there = [
            path
            for path in folder.glob(f"{DAY}=*")
            if self._days.has(path.name[4:]) and any(path.glob("*.parquet"))
        ]
        if not there:
            self.none.add(name)
        if table.told:
            folder = self._folder / name
            for path in there:
                _link(path, folder / path.name)
            if not there:
                write_nothing(self._spark, columns, folder)
            self.made[name] = self._read(folder, columns)
        elif there:
            self.made[name] = self._days.of(self._read(folder, columns, DAY)).drop(DAY)
        else:
            self.made[name] = nothing(self._spark, columns)

    def of_all_days(self, name: str) -> DataFrame:
        """What is not told and has days, whichever days are reported."""
        return self._read(self._store / name, columns_of(name))

    def _put(self, folder: Path, rows: DataFrameWriter, want: Mapping[str, str | None]) -> None:
        """Write rows of these days, and put each with its mark in the place of what was there."""
        new = folder.with_name(f".{folder.name}")
        shutil.rmtree(new, ignore_errors=True)  # of one that was killed
        rows.parquet(str(new))
        folder.mkdir(exist_ok=True)
        for day, mark in want.items():
            name = f"{DAY}={day}"
            if mark is not None:
                (new / name).mkdir(parents=True, exist_ok=True)
                (new / name / _MARK).write_text(mark)
            _replace(folder / name, new / name)
        shutil.rmtree(new, ignore_errors=True)

    def _of_days(self, name: str, after: Mapping[str, int]) -> DataFrame:
        """Of a log's lines of these days what was added after that change; of a table its rows."""
        if name not in self._logs.frames:
            return self._rows(name, after)
        paths = [
            str(path)
            for day, number in sorted(after.items())
            for path in sorted((self._out / name / f"{DAY}={day}").glob("*.parquet"))
            if state.added(path) > number
        ]
        frame = self._logs.frames[name]
        if not paths:
            return frame.limit(0)
        base = str(self._out / name)
        return self._spark.read.schema(frame.schema).option("basePath", base).parquet(*paths)

    def _rows(self, name: str, days: Iterable[str]) -> DataFrame:
        """What the table has of these days."""
        columns = columns_of(name)
        frame = self._read(self._store / name, columns, DAY)
        return frame.where(F.col(DAY).isin([date.fromisoformat(day) for day in sorted(days)]))

    def _by_key(self, name: str, table: Table) -> Path:
        """Where the table is, of all days there are."""
        folder, (source,) = self._store / name, table.inputs
        # Those of the log; of a table, those of the log that it is made of.
        days = self._logs.days[source if source in self._logs.days else _ALL[source].inputs[0]]
        have: dict[str, int] = _json(folder / _MARK)
        want = {day: last for day, (last, _) in days.items()}
        if have == want:
            return folder
        lines = self._input(source)
        if have and have.keys() <= days.keys() and all(_adds(have[day], days[day]) for day in have):
            # A hash, since all tasks get the keys. Of two keys with one hash, both are made anew.
            key = F.xxhash64(*table.key)
            after = {day: have.get(day, -1) for day in want if have.get(day) != want[day]}
            keys = F.broadcast(self._of_days(source, after).select(key.alias(_KEY)).distinct())
            old = self._read(folder, columns_of(name)).withColumn(_KEY, key)
            mine = lines.withColumn(_KEY, key).join(keys, _KEY, "left_semi").drop(_KEY)
            rows = table.make(mine).unionByName(old.join(keys, _KEY, "left_anti").drop(_KEY))
        else:
            rows = table.make(lines)
        new = self._store / f".{name}"
        rows.write.mode("overwrite").parquet(str(new))
        (new / _MARK).write_text(json.dumps(want))
        _replace(folder, new)
        return folder

    def _whole(self, name: str, table: Table) -> None:
        columns = columns_of(name)
        self._of[name] = _mark([self._of[each] for each in ("", *table.inputs)])
        folder, last = self._folder / name, self._last / name
        if self.none.issuperset(table.inputs):
            self.none.add(name)
            write_nothing(self._spark, columns, folder)
        elif self._of_last.get(name) == self._of[name] and last.is_dir():
            _link(last, folder)
        elif table.key and self._days == Days():
            _link(self._by_key(name, table), folder)
        else:
            made = table.make(*map(self._input, table.inputs))
            made.write.mode("overwrite").parquet(str(folder))
        self.made[name] = self._read(folder, columns)

    def _input(self, name: str) -> DataFrame:
        frame = self.made[name] if name in self.made else self._logs.frames[name]
        return self._days.of(frame) if name in self._logs.days else frame

    def _read(self, folder: Path, columns: T.StructType, *more: str) -> DataFrame:
        days = (T.StructField(name, T.DateType()) for name in more)
        schema = T.StructType([*columns, *days])
        return stored(self._spark, folder, schema).selectExpr(*schema.names)


def _replace(folder: Path, new: Path) -> None:
    """Half gone, it must not look as if it could be added to."""
    (folder / _MARK).unlink(missing_ok=True)
    shutil.rmtree(folder, ignore_errors=True)
    if new.exists():
        new.rename(folder)


def _adds(have: int, day: tuple[int, int]) -> bool:
    """Whether lines were added only, since the change `have`."""
    return have >= day[1]


def _text(path: Path) -> str:
    return path.read_text() if path.exists() else ""


def _json(path: Path) -> dict[str, Any]:
    return json.loads(path.read_bytes()) if path.exists() else {}


def _mark(of: Sequence[str]) -> str:
    return hashlib.sha256("\n".join(of).encode()).hexdigest()[:32]


def _code() -> str:
    """What the tables are made by."""
    here = Path(__file__).resolve().parent
    files = [
        here / "tables.py",
        here / "columns_of.py",
        here / "headline.py",
        *sorted((here / "measures").glob("*.py")),
    ]
    texts = (hashlib.sha256(path.read_bytes()).hexdigest() for path in files)
    return _mark([fingerprint(), *texts])


def _link(source: Path, target: Path) -> None:
    """The same files under another name; copies where there are no such links."""
    target.mkdir(parents=True)
    for path in source.iterdir():
        if path.name[0] in "._":
            continue
        try:
            os.link(path, target / path.name)
        except OSError:
            shutil.copy2(path, target / path.name)


def _days(frame: DataFrame, time: str) -> DataFrameWriter:
    # Days that are small share a task, and one that is large is split.
    dated = frame.withColumn(DAY, F.to_date(time)).hint("rebalance", F.col(DAY))
    return dated.write.mode("overwrite").partitionBy(DAY)
