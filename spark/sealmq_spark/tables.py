"""Which tables a report has: what makes each, from what, and how it grows.

A table with a `time` is made day by day: the rows of a day come of that day's lines alone. Where
some of its lines are new, the day is made anew; the other days stay as they are (OUT/days). What
needs more than one day is made of such tables, which are small, or of the whole log; it is taken
over from the last report where nothing that it is made of has changed. So a report costs what is
new, and a few columns of what there was.
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

from . import outputs
from .contracts import fingerprint
from .headline import kept, said
from .measures.behaviours import behaviours
from .measures.changed import changed, hours, known
from .measures.cost import cost
from .measures.cuts import coverage, cuts
from .measures.decisions import by_client, by_rule, decisions
from .measures.disclosures import daily, disclosures
from .measures.figures import figures
from .measures.flaky import flaky
from .measures.gaps import gaps
from .measures.labelling import labelling
from .measures.nonces import nonces, reused
from .measures.paper import paper
from .measures.refusals import refusals
from .measures.regressions import regressions
from .measures.simulations import simulations
from .measures.stages import stages
from .measures.unenforced import unenforced

DAY = "day"
DAYS = "days"
_RECORD = "days.json"
_OF = ".of.json"
"""In a report's folder of tables: a mark of what each is made of."""


@dataclass(frozen=True)
class Table:
    """`make` gets the `inputs` in their order: logs, or tables that stand further up.

    time: a column of instants, whose date (UTC) is the day that a row is of. told: it is one of the
    report's tables, and not only what these are made of.
    """

    make: Callable[..., DataFrame]
    inputs: tuple[str, ...]
    time: str | None = None
    told: bool = True


_ALL: Mapping[str, Table] = {
    "kept": Table(kept, ("audit", "hil", "nonce", "simulation"), "of", told=False),
    "names": Table(said, ("audit",), "of", told=False),
    "known": Table(known, ("audit",), "hour", told=False),
    "daily": Table(daily, ("audit",), "first", told=False),
    "decisions": Table(decisions, ("audit",), "hour"),
    "hours": Table(hours, ("decisions",), "hour", told=False),
    "by_rule": Table(by_rule, ("decisions",), "hour", told=False),
    "by_client": Table(by_client, ("decisions",), "of", told=False),
    "disclosures": Table(disclosures, ("daily",)),
    "labelling": Table(labelling, ("audit",), "at"),
    "refusals": Table(refusals, ("decisions",), "hour"),
    "unenforced": Table(unenforced, ("audit",), "hour"),
    "changed": Table(changed, ("hours", "known")),
    "gaps": Table(gaps, ("audit",), "at"),
    "stages": Table(stages, ("hil",)),
    "behaviours": Table(behaviours, ("hil",)),
    "flaky": Table(flaky, ("hil",)),
    "cuts": Table(cuts, ("hil",)),
    "coverage": Table(coverage, ("hil",)),
    "nonces": Table(nonces, ("nonce",)),
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
    """What tables are made of. frames: each log, with `day` where it has days. days: of these, the
    number of the change that was its last (state.py). others: of the rest a mark of what it is."""

    frames: Mapping[str, DataFrame]
    days: Mapping[str, Mapping[str, int]]
    others: Mapping[str, str]


class Tables:
    """Makes the tables of a report in `folder`, from what stands in `out`.

    made: of each its frame, read back; of what is not told as well, in the days that are reported.
    none: those that were made of nothing.
    """

    def __init__(
        self, spark: SparkSession, out: Path, folder: Path, logs: Logs, days: Days
    ) -> None:
        self._spark, self._folder, self._days, self._logs = spark, folder, days, logs
        self._last = out / outputs.TABLES
        self._store = out / DAYS
        self._store.mkdir(exist_ok=True)
        code = _code()
        self._have: dict[str, Mapping[str, str]] = _json(self._store / _RECORD)
        if self._have.get("", {}).get("code") != code:
            # Made by another SealMQ all is made anew, as are the tables of the last report.
            shutil.rmtree(self._store)
            self._store.mkdir()
            self._have = {"": {"code": code}}
        self._of_last: dict[str, str] = _json(self._last / _OF)
        self._of = {"": f"{code} {days.since} {days.until}"}
        self.made: dict[str, DataFrame] = {}
        self.none: set[str] = set()

    def make(self, told: Callable[[int, str], None] = lambda number, name: None) -> None:
        """All of them. told: is told of each before it is made."""
        for name, days in self._logs.days.items():
            if not any(map(self._days.has, days)):
                self.none.add(name)
            self._of[name] = _mark(
                [f"{day} {days[day]}" for day in sorted(days) if self._days.has(day)]
            )
        for name, mark in self._logs.others.items():
            self._of[name] = mark
            if not mark:
                self.none.add(name)
        for number, (name, table) in enumerate(_ALL.items()):
            told(number, name)
            if table.time is None:
                self._whole(name, table)
            else:
                self._by_day(name, table)
        (self._folder / _OF).write_text(json.dumps(self._of))

    def _by_day(self, name: str, table: Table) -> None:
        folder, have = self._store / name, {**self._have.get(name, {})}
        want: dict[str, str] = {}
        for each in table.inputs:
            source = self._logs.days.get(each) or self._have.get(each) or {}
            for day, of in source.items():
                want[day] = f"{want.get(day, '')} {each} {of}".strip()
        stale = {day for day in have.keys() | want.keys() if have.get(day) != want.get(day)}
        frame = table.make(*(self._of_days(each, stale) for each in table.inputs))
        if stale:
            new = self._store / f".{name}"
            shutil.rmtree(new, ignore_errors=True)  # of one that was killed
            _days(frame, str(table.time)).parquet(str(new))
            for day in stale:
                shutil.rmtree(folder / f"{DAY}={day}", ignore_errors=True)
                if (new / f"{DAY}={day}").is_dir():
                    folder.mkdir(exist_ok=True)
                    (new / f"{DAY}={day}").rename(folder / f"{DAY}={day}")
            shutil.rmtree(new, ignore_errors=True)
            self._have[name] = want
            outputs.replace(self._store / _RECORD, json.dumps(self._have))
        mine = [f"{day} {want[day]}" for day in sorted(want) if self._days.has(day)]
        self._of[name] = _mark(mine)
        there = [path for path in folder.glob(f"{DAY}=*") if self._days.has(path.name[4:])]
        if not there:
            self.none.add(name)
        if table.told:
            folder = self._folder / name
            for path in there:
                _link(path, folder / path.name)
            if not there:
                _nothing(frame, folder)
            self.made[name] = self._read(folder, frame)
        elif there:
            self.made[name] = self._days.of(self._read(folder, frame, DAY)).drop(DAY)
        else:
            self.made[name] = frame.limit(0)

    def _of_days(self, name: str, days: Iterable[str]) -> DataFrame:
        """A log's lines, or a table's rows, of these days."""
        if name in self._logs.frames:
            frame = self._logs.frames[name]
        elif (self._store / name).is_dir():
            frame = self._read(self._store / name, self.made[name], DAY)
        else:
            return self.made[name].limit(0)
        return frame.where(F.col(DAY).isin([date.fromisoformat(day) for day in sorted(days)]))

    def _whole(self, name: str, table: Table) -> None:
        frame = table.make(*map(self._input, table.inputs))
        self._of[name] = _mark([self._of[each] for each in ("", *table.inputs)])
        folder, last = self._folder / name, self._last / name
        if self.none.issuperset(table.inputs):
            self.none.add(name)
            _nothing(frame, folder)
        elif self._of_last.get(name) == self._of[name] and last.is_dir():
            _link(last, folder)
        else:
            frame.write.mode("overwrite").parquet(str(folder))
        self.made[name] = self._read(folder, frame)

    def _input(self, name: str) -> DataFrame:
        frame = self.made[name] if name in self.made else self._logs.frames[name]
        return self._days.of(frame) if name in self._logs.days else frame

    def _read(self, folder: Path, like: DataFrame, *more: str) -> DataFrame:
        days = (T.StructField(name, T.DateType()) for name in more)
        schema = T.StructType([*like.schema, *days])
        return self._spark.read.schema(schema).parquet(str(folder)).select(*schema.names)


def _json(path: Path) -> dict[str, Any]:
    return json.loads(path.read_bytes()) if path.exists() else {}


def _mark(of: Sequence[str]) -> str:
    return hashlib.sha256("\n".join(of).encode()).hexdigest()[:32]


def _code() -> str:
    """What the tables are made by."""
    here = Path(__file__).resolve().parent
    files = [here / "tables.py", here / "headline.py", *sorted((here / "measures").glob("*.py"))]
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


def _nothing(frame: DataFrame, folder: Path) -> None:
    """A file without a row: parted by day there would be none at all, and nobody could read it."""
    frame.limit(0).coalesce(1).write.mode("overwrite").parquet(str(folder))


def _days(frame: DataFrame, time: str) -> DataFrameWriter:
    # Days that are small share a task, and one that is large is split.
    dated = frame.withColumn(DAY, F.to_date(time)).hint("rebalance", F.col(DAY))
    return dated.write.mode("overwrite").partitionBy(DAY)
