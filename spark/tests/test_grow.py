"""Reports night after night say what one report over all says, to the last row; and a night looks
at its own lines only."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import generator
import pytest
from pyspark.sql import SparkSession

import small_logs
from audit_table import NOON, record, rows, table
from lines_made import AUDIT, NONCE, numbered
from sealmq_spark import batches, job, tables
from sealmq_spark.ingest import ingest
from sealmq_spark.settle import Settled, settle
from sealmq_spark.state import State
from sealmq_spark.tables import Days

DAY_MS = 86_400_000
LOGS = ("audit", "hil", "nonce", "bench")
Everything = dict[str, Counter[str]]


def written(path: Path, *lines: dict[str, Any]) -> None:
    """A closed segment."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def held(settled: Settled) -> dict[str, Any]:
    """All that it says, and what stands in its record of days."""
    kept = {name: Counter(map(str, getattr(settled, name).collect())) for name in LOGS}
    told = Counter(map(str, settled.quarantine.collect()))
    counts = (settled.lines, settled.repeated, settled.quarantined)
    days = {name: set(days) for name, days in settled.record.days.items() if days}
    return {**kept, "told": told, "counts": counts, "days": days}


def test_conflicts_and_repetitions_over_nights_settle_as_in_one(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Of an id with two contents the same one counts, whichever came first, on whatever day; the
    day that lost its only line is gone."""
    at = AUDIT["minute_ms"]
    lines = [numbered(AUDIT, n) for n in range(8)]
    other = {**lines[0], "minute_ms": at + DAY_MS}  # of the next day
    third = {**lines[0], "minute_ms": at + 2 * DAY_MS}
    late = {**numbered(AUDIT, 9), "minute_ms": at - 5 * DAY_MS}
    nights: list[list[dict[str, Any]]] = [
        [third, lines[1]],
        [other, numbered(NONCE, 1)],
        [*lines, {**lines[1], "count": 99}, late],
        [third, other, lines[2], numbered(NONCE, 1)],
    ]
    logs = tmp_path / "logs"
    grown = None
    for number, night in enumerate(nights):
        written(logs / f"s{number}.jsonl", *night)
        with (logs / f"s{number}.jsonl").open("a") as file:
            file.write(f"bad {number % 2}\n")
        ingest(spark, [str(logs)], tmp_path / "nights")
        grown = settle(spark, tmp_path / "nights")
    assert grown is not None
    ingest(spark, [str(logs)], tmp_path / "once")
    assert held(grown) == held(settle(spark, tmp_path / "once"))
    assert held(grown)["counts"][:2] == (22, 5)


@pytest.mark.full
def test_many_small_files_are_written_anew(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of a day, and of the state: `--watch` changes it every five minutes, and all of it is
    read each time."""
    monkeypatch.setattr(batches, "_FILES", 3)
    logs, out = tmp_path / "logs", tmp_path / "out"
    for night in range(6):
        path = logs / f"s{night}.jsonl"
        conflict = {**numbered(AUDIT, 9), "count": night + 1}
        written(path, numbered(AUDIT, night), numbered(AUDIT, night + 1), conflict)
        with path.open("a") as file:
            file.write(f"bad {night}\n")
        ingest(spark, [str(logs)], out)
    grown = held(settle(spark, out))
    for name in ("audit", "state/sizes", "state/bad", "state/again", "state/lost"):
        found = [path for path in (out / name).rglob("*.parquet") if path.name[0] != "."]
        assert 0 < len(found) <= 3, name
    assert len(list((out / "state" / "files").iterdir())) <= 3
    assert State(out).files() == {path.name for path in (out / "ingest" / "links").iterdir()}
    ingest(spark, [str(logs)], tmp_path / "once")
    once = held(settle(spark, tmp_path / "once"))
    assert grown == once
    assert Counter(once["counts"][2].values()) == Counter([6, 5])


@pytest.mark.full
def test_what_was_decided_is_put_in_its_place(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed before the state is recorded, nothing has changed; killed after that, the next run
    puts the files where they belong."""
    logs, out = tmp_path / "logs", tmp_path / "out"
    written(logs / "s0.jsonl", numbered(AUDIT, 0), numbered(AUDIT, 1))
    ingest(spark, [str(logs)], out)
    settle(spark, out)
    written(logs / "s1.jsonl", numbered(AUDIT, 1), numbered(AUDIT, 2))

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    for name in ("commit", "_put"):
        with monkeypatch.context() as patch:
            patch.setattr(State, name, killed)
            with pytest.raises(KeyboardInterrupt):
                ingest(spark, [str(logs)], out)
        assert len(list((out / "audit").rglob("*.parquet"))) == 1
    ids = sorted(row.id for row in settle(spark, out).audit.collect())
    assert ids == sorted(numbered(AUDIT, n)["id"] for n in range(3))
    assert not [path for path in (out / "state").glob(".staged-*") if any(path.iterdir())]


def test_rows_of_some_lines_and_of_others_add_up_to_those_of_all(spark: SparkSession) -> None:
    """Of every table that says so. Each group of lines stands on both sides, and on one alone."""
    lines = [
        record("start", name="old"),
        record("start", NOON + timedelta(minutes=5), name="new"),
        record("log-lost", count=70),
        record("topic-labelled", topic="t", label="low", client="a", rule="r"),
        record("stop", NOON + timedelta(hours=2)),
    ]
    for number in range(4):
        at = NOON + timedelta(minutes=20 * number)
        lines.append(record("publish-accepted", at, topic="t", label="low", client="a", count=3))
        lines.append(record("delivered", at, topic="t", label="low", client="b", count=2))
        more = {"question": "publish", "rule": "r", "client": "c", "topic": "t", "count": 5}
        lines.append(record("unenforced", at, **more))
    halves = (table(spark, lines[::2]), table(spark, lines[1::2]))
    whole = table(spark, lines)
    made = 0
    for name, one in tables._ALL.items():
        if one.adds is not None and one.inputs == ("audit",):
            some, others = map(one.make, halves)
            assert rows(one.adds(some.unionByName(others))) == rows(one.make(whole)), name
            made += 1
    assert made >= 6


def reported(
    spark: SparkSession, logs: Path, out: Path, days: Days | None = None
) -> tuple[dict[str, Any], Everything]:
    """The summary, but for what differs from run to run; all rows of all tables and lists."""
    out.mkdir(exist_ok=True)
    outcome = job.run(spark, [str(logs)], out, days=days)
    held: Everything = {"lists": Counter([json.dumps(outcome.lists, sort_keys=True)])}
    folders = {f"tables/{name}": out / "tables" / name for name in tables.TABLES}
    of_logs = {name: out / name for name in LOGS if (out / name).is_dir()}
    for name, folder in {**folders, **of_logs}.items():
        found = spark.read.parquet(str(folder))
        found = found.select([each for each in found.columns if each[0] != "_"])
        held[name] = Counter(str(sorted(row.asDict().items())) for row in found.collect())
    held["quarantine"] = Counter(map(str, spark.read.json(str(out / "quarantine")).collect()))
    return {**outcome.summary, "made": "", "seconds": {}}, held


@pytest.mark.full
def test_nights_say_what_one_report_says(spark: SparkSession, tmp_path: Path) -> None:
    """A made-up site with late, repeated and bad lines, and one whose log is put back; a night of
    some days alone between them."""
    made, logs = tmp_path / "made", tmp_path / "logs"
    generator.generate(made, 10_000, per_day=3_000, segment_lines=1_000)
    small_logs.write(tmp_path / "small", worse=True, twice=True)
    segments = sorted((made / "audit" / "mediator").iterdir(), key=lambda path: path.name[-12:])
    runs = sorted((made / "rig").iterdir())
    conflict = json.loads(segments[0].read_text().splitlines()[0]) | {"inst": 7}
    nights = [
        [*segments[:5], *runs[:2], made / "bench" / "device-1.json"],
        [*segments[5:8], *runs[2:], made / "bench" / "device-2.json", segments[1]],
        [*segments[8:], *(made / "audit").glob("restored*"), *runs[:1], tmp_path / "small"],
    ]
    some = Days(date(2026, 1, 2), date(2026, 1, 3))
    grown: tuple[dict[str, Any], Everything] = ({}, {})
    for number, night in enumerate(nights):
        for path in night:
            target = logs / f"night{number}" / path.name
            copy = shutil.copytree if path.is_dir() else shutil.copy
            target.parent.mkdir(parents=True, exist_ok=True)
            copy(path, target)
        if number == 1:
            written(logs / "night1" / "conflict.jsonl", conflict)
        if number == 2:  # A nonce of the first night is used again, over something else.
            old = json.loads((logs / "night0" / runs[1].name).read_text().splitlines()[0])
            assert "nonce" in old
            written(
                logs / "night2" / "r.jsonl", {**old, "id": f"{'9' * 16}-n1", "digest": "0" * 32}
            )
        days = some if number == 1 else None
        grown = reported(spark, logs, tmp_path / "nights", days)
        if number:
            fresh = reported(spark, logs, tmp_path / f"fresh{number}", days)
            assert grown[0] == fresh[0]
            for name, wanted in fresh[1].items():
                assert grown[1][name] == wanted, name
            assert grown[0]["lines"] > 5_000
    assert grown[0]["headline"]["nonces_repeated"] == 2
