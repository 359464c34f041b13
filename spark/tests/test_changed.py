"""Clients that behave otherwise: who is found, who is not, and a naive oracle that agrees."""

from __future__ import annotations

import random
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

import change_oracle
from audit_table import NOON, record, rows, table
from change_oracle import Log
from sealmq_spark.measures.changed import changed, hours
from sealmq_spark.measures.decisions import decisions
from sealmq_spark.measures.hourly import hourly

START = NOON.replace(minute=0)
HOUR = timedelta(hours=1)
EVENTS: dict[str, dict[str, Any]] = {
    "published": {"event": "publish-accepted", "label": "low"},
    "delivered": {"event": "delivered", "label": "low"},
    "refused": {"event": "deliver-denied", "rule": "mediator.deliver.slow"},
}
Counts = dict[int, int]


class Scene:
    """One site and what its clients did, hour by hour; its number is its name."""

    def __init__(self, number: int, hours: Iterable[int], started: Iterable[int] = ()) -> None:
        self.site = f"{number:08x}"
        self.alive, self.started = set(hours), set(started)
        self.did: dict[tuple[str, str], Counts] = {}

    def client(self, name: str, measure: str, counts: Counts) -> None:
        self.did[name, measure] = counts

    def records(self) -> list[dict[str, Any]]:
        """Twelve minutes past, or at the start."""
        found = [
            record("keys-changed", START + n * HOUR, site=self.site, kseq=1) for n in self.alive
        ]
        found += [record("start", START + n * HOUR, site=self.site) for n in self.started]
        for (client, measure), counts in self.did.items():
            for n, count in counts.items():
                at = START + n * HOUR + timedelta(minutes=12)
                what = EVENTS[measure] | {"client": client, "topic": "t", "count": count}
                found.append(record(at=at, site=self.site, **what))
        return found

    def expected(self) -> list[tuple[Any, ...]]:
        said: dict[tuple[str, Any], dict[str, int]] = defaultdict(dict)
        alive = {START + n * HOUR for n in self.alive | self.started}
        for (client, measure), counts in self.did.items():
            for n, count in counts.items():
                said[client, START + n * HOUR][measure] = count
                alive.add(START + n * HOUR)
        log = Log(alive, {START + n * HOUR for n in self.started}, said)
        return [(self.site, *row) for row in change_oracle.rounded(change_oracle.changed(log))]


def of(spark: SparkSession, scenes: Iterable[Scene]) -> DataFrame:
    audit = table(spark, [line for scene in scenes for line in scene.records()])
    return changed(hours(decisions(audit)), hourly(audit))


def steady(hours: Iterable[int], count: int = 60) -> Counts:
    return dict.fromkeys(hours, count)


def told() -> tuple[list[Scene], list[tuple[Any, ...]]]:
    """Two days and ten hours; the log ends in the middle of the last hour. Who must be found."""
    end = 58
    day = Scene(1, range(end + 1))
    always = range(end)
    jitter = {n: 60 + (n * 7) % 5 for n in always}
    # Fell silent for good; came back; was silent for one hour; the last two hours.
    day.client("dead", "published", steady(range(40)))
    day.client("back", "published", {**steady(range(40)), **steady(range(45, end))})
    day.client("pause", "published", {n: 60 for n in always if n != 30})
    day.client("late", "published", steady(range(end - 2)))
    # A burst, a drop, and what a steady client may do without being told of.
    day.client("burst", "published", jitter | {33: 400})
    day.client("drop", "published", jitter | {33: 20})
    day.client("steady", "published", steady(always) | {33: 63, 34: 50})
    # The first hour, and the one in which the log ends, are not whole.
    day.client("edges", "published", steady(always) | {0: 2, end: 1})
    # Refused for the first time, often; no more refused.
    day.client("attacked", "published", steady(always))
    day.client("attacked", "refused", {50: 80})
    day.client("forgiven", "published", steady(always))
    day.client("forgiven", "refused", steady(range(30)))
    # Too new: 24 whole hours it must have been there for.
    day.client("new", "published", steady(range(end - 24, end)) | {50: 900})
    day.client("grown", "published", steady(range(end - 25, end)) | {50: 900})
    # Seldom there: once in two hours is no silence; nor is what it has done before.
    day.client("seldom", "published", {n: 1 for n in always if n % 2})
    day.client("bursts", "published", {n: 40 + n % 3 for n in always if n % 5 == 0} | {30: 200})
    day.client("nights", "delivered", {n: 60 for n in always if n % 24 < 14})
    # The gateway was away for three hours, and half an hour on both sides.
    away = Scene(2, [*range(30), *range(33, end)], started=[33])
    for name in ("a", "b"):
        away.client(name, "published", steady(range(30)) | {29: 30, 33: 30} | steady(range(34, 57)))
    # It started again within one hour.
    again = Scene(3, always, started=[31])
    again.client("a", "published", steady(always) | {31: 12})
    again.client("dead", "published", steady(range(31)))
    # A part of the log is missing.
    lost = Scene(8, [*range(30), *range(33, end)])
    lost.client("a", "published", steady([*range(30), *range(33, end)]) | {29: 30, 33: 30})
    # A clock that was wrong, once, in both directions.
    clock = Scene(4, [-400_000, *range(end), 400_000])
    clock.client("a", "published", steady(always) | {-400_000: 60, 400_000: 60})
    # Nobody but the client itself: a silent site says nothing.
    alone = Scene(5, [])
    alone.client("a", "published", steady(range(40)))
    # Eight days, but of one hour of the day only four: too few to say what is usual then.
    seldom = Scene(7, range(200), started=range(24, 100, 24))
    seldom.client("a", "published", steady(range(200)) | {144: 400})
    # A history of one hour.
    short = Scene(6, [0])
    short.client("a", "published", {0: 900})

    def row(client: str, hour: int, *rest: object, measure: str = "published") -> tuple[Any, ...]:
        return (day.site, client, measure, START + hour * HOUR, *rest)

    wanted = sorted(
        [
            row("dead", 40, 18, 0, 60.0, -32.86),
            row("back", 40, 5, 0, 60.0, -17.32),
            row("pause", 30, 1, 0, 60.0, -7.75),
            row("late", 56, 2, 0, 60.0, -10.95),
            row("burst", 33, 1, 400, 62.0, 42.93),
            row("drop", 33, 1, 20, 62.0, -5.33),
            row("attacked", 50, 1, 80, 0.0, 80.0, measure="refused"),
            row("bursts", 30, 1, 200, 41.0, 24.83),
            row("grown", 50, 1, 900, 60.0, 108.44),
            # From the first whole hour on.
            (again.site, "dead", "published", START + 32 * HOUR, 25, 0, 60.0, -38.73),
        ]
    )

    return [day, away, again, clock, alone, short, seldom, lost], wanted


def drawn(count: int) -> list[Scene]:
    """Random histories of two to four days, by all hours, and of nine, by the hour of the day."""
    rng = random.Random("changed")
    scenes = []
    for number in range(11, 11 + count):
        end = rng.randrange(40, 90) if number % 2 else rng.randrange(200, 230)
        lives = [n for n in range(end) if rng.random() > rng.choice((0.0, 0.0, 0.05))]
        scene = Scene(number, lives, [n for n in lives if rng.random() < 0.01])
        for client in range(2):
            for measure in EVENTS:
                scene.client(f"c{client}", measure, history(rng, rng.randrange(0, 30), end))
        scenes.append(scene)
    return scenes


@pytest.mark.parametrize(
    ("histories", "changes"), [(2, 30), pytest.param(10, 120, marks=pytest.mark.full)]
)
def test_who_is_found(histories: int, changes: int, spark: SparkSession) -> None:
    """One frame, since each costs seconds; the naive oracle says the same of all of it."""
    scenes, wanted = told()
    others = drawn(histories)
    frame = of(spark, [*scenes, *others])
    assert frame.columns == ["site", "client", "measure", "hour", "hours", "count", "usual", "z"]
    found = rows(frame)
    names = {scene.site for scene in scenes}
    assert [row for row in found if row[0] in names] == wanted
    expected = sorted(row for scene in (*scenes, *others) for row in scene.expected())
    kinds = {(row[2], row[4] > 1, row[7] > 0) for row in expected}
    assert len(expected) > changes
    assert len(kinds) >= 6
    assert [row[:6] for row in found] == [row[:6] for row in expected]
    for got, right in zip(found, expected, strict=True):
        assert got[6:] == pytest.approx(right[6:], abs=0.011)


def history(rng: random.Random, first: int, end: int) -> Counts:
    """Steady, or noisy, or by day only, or seldom; with bursts, drops and silences."""
    rate = rng.choice((0.3, 2, 30, 500))
    noise = rng.choice((0.0, 1.0, 3.0))
    nights = rng.random() < 0.3
    quiet = rng.randrange(first, end + 30)
    silence = range(quiet, quiet + rng.choice((0, 1, 5, 40)))
    counts = {}
    for n in range(first, end):
        count = round(rng.gauss(rate, noise * rate**0.5))
        if rng.random() < 0.02:
            count = round(count * rng.choice((0.2, 3, 20)))
        if count > 0 and n not in silence and not (nights and n % 24 > 15):
            counts[n] = count
    return counts


LONG = """
import sys
from pathlib import Path
from sealmq_spark.measures.changed import changed
from sealmq_spark.session import end, session

spark = session(scratch=Path(sys.argv[1]), memory="512m")
hour = "timestamp_seconds(3600 * (450000 + id % 4800)) AS hour"
per = spark.range(500 * 4800).where("id div 4800 % 20 = 0 OR id % 4800 < 1500")
who, what = "concat('c', id div 4800) AS client", "1D + id % 7 AS published"
per = per.selectExpr("'s' AS site", who, hour, what, "1D AS delivered", "0D AS refused")
hourly = spark.range(4800).selectExpr("'s' AS site", hour, "true AS recorded", "false AS started")
print(changed(per, hourly).count())
end(spark)
"""


def test_clients_of_many_hours_need_no_memory_that_a_sort_has_taken(tmp_path: Path) -> None:
    """A few of 200 days among many of 60, who then fall silent in two measures, in half of the
    memory that a report has."""
    words = [sys.executable, "-c", LONG, str(tmp_path)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.stdout.splitlines()[-1:] == ["950"], done.stderr[:2000]
