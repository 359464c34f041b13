"""Killed at any moment and started again: each line counts once, as plain Python counts them."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from lines_made import AUDIT, HIL, NONCE, numbered
from sealmq_spark import batches
from sealmq_spark.ingest import ingest
from sealmq_spark.settle import settle
from sealmq_spark.state import FILES as READ
from sealmq_spark.state import State

FILES, EACH = 12, 40
_PROGRAM = Path(__file__).with_name("kill_me.py")
_PATIENCE_S = 240.0


def segment(number: int, rng: random.Random) -> bytes:
    """Good, repeated, and bad lines."""
    base = (AUDIT, HIL, NONCE)[number % 3]
    texts = [json.dumps(numbered(base, number * EACH + n)) for n in range(EACH)]
    texts += [*rng.sample(texts, 5), f"bad {number}", "bad"]
    rng.shuffle(texts)
    return "".join(text + "\n" for text in texts).encode()


def written(logs: Path, numbers: range, rng: random.Random) -> None:
    """These segments, closed."""
    for number in numbers:
        (logs / f"s{number}.jsonl").write_bytes(segment(number, rng))


def counted(logs: Path) -> tuple[Counter[str], int, Counter[str]]:
    """The oracle: ids, repeated lines, bad lines."""
    good: Counter[str] = Counter()
    bad: Counter[str] = Counter()
    for path in logs.glob("*.jsonl"):
        for text in path.read_text().splitlines():
            if text.startswith("bad"):
                bad[text] += 1
            else:
                good[json.loads(text)["id"]] += 1
    return Counter(good.keys()), good.total() - len(good), bad


def was_given(out: Path, path: Path) -> bool:
    """Whether it knows of that file."""
    files = out / "ingest" / "files.jsonl"
    return files.exists() and str(path) in files.read_text()


def read(out: Path) -> int:
    """How many batches are read."""
    return len(list((out / READ).glob("*.txt")))


def state(out: Path) -> str:
    """How far a run in OUT has come."""
    work = out / "ingest" / "work"
    if not (out / "state").exists():
        return "before it reads"
    for part in ("documents", "twice", "rest", "first", "suspects"):
        if (work / part).exists():
            return f"with {part}"
    return "between batches"


class Run:
    """The program in a group of its own."""

    def __init__(self, logs: Path, out: Path, scratch: Path) -> None:
        self.out = out
        self.log = scratch.with_suffix(".log")
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, str(_PROGRAM), str(logs), str(out), str(scratch)],
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def until(self, met: Callable[[], bool]) -> None:
        """Until that holds; it must before the program's end."""
        end = time.monotonic() + _PATIENCE_S
        while not met():
            assert self.process.poll() is None, f"it ended before: {self.log.read_text()[-3000:]}"
            assert time.monotonic() < end, "that never came"
            time.sleep(0.002)

    def kill(self, java: bool) -> str:
        """With its Java, or without, which then lives on for a moment."""
        if java:
            os.killpg(self.process.pid, signal.SIGKILL)
        else:
            self.process.kill()
        self.process.wait()
        return state(self.out)


def checked(spark: SparkSession, logs: Path, out: Path) -> None:
    ingest(spark, [str(logs)], out)
    settled = settle(spark, out)
    good, repeated, bad = counted(logs)
    tables = (settled.audit, settled.hil, settled.nonce)
    found = Counter(row.id for table in tables for row in table.select("id").collect())
    assert found == good
    assert settled.repeated == repeated
    assert settled.lines == good.total() + repeated + bad.total()
    told: Counter[str] = Counter()
    for row in settled.quarantine.collect():
        told[row.raw] += row["count"]
    assert told == bad


@pytest.mark.parametrize("left", ["undecided", pytest.param("decided", marks=pytest.mark.full)])
def test_what_a_killed_run_leaves_counts_once(
    left: str, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a run leaves it that was killed in its second batch, before that was recorded or after it:
    those below are killed, in processes of their own, and say that there is nothing else.
    """
    monkeypatch.setattr(batches, "EACH", 4000)
    rng = random.Random("killed")
    logs, out = tmp_path / "logs", tmp_path / "out"
    logs.mkdir()
    written(logs, range(3), rng)
    name = "commit" if left == "undecided" else "_put"
    whole = getattr(State, name)

    def killed(self: State, *of: Any) -> None:
        if read(out):
            raise KeyboardInterrupt
        whole(self, *of)

    with monkeypatch.context() as patch:
        patch.setattr(State, name, killed)
        with pytest.raises(KeyboardInterrupt):
            ingest(spark, [str(logs)], out)
    assert read(out) == 1
    written(logs, range(3, 4), rng)
    checked(spark, logs, out)
    assert read(out) > 2


@pytest.mark.full
def test_killed_in_a_batch(spark: SparkSession, tmp_path: Path) -> None:
    rng = random.Random("killed")
    logs, out = tmp_path / "logs", tmp_path / "out"
    logs.mkdir()
    written(logs, range(6), rng)
    run = Run(logs, out, tmp_path / "run")
    run.until(lambda: read(out) > 0 and state(out) == "with suspects")
    run.kill(java=True)
    written(logs, range(6, 7), rng)
    checked(spark, logs, out)


@pytest.mark.full
def test_killed_without_its_java(spark: SparkSession, tmp_path: Path) -> None:
    """Its Java lives on for a moment; and what it had read counts once as well."""
    rng = random.Random("killed")
    logs, out = tmp_path / "logs", tmp_path / "out"
    logs.mkdir()
    written(logs, range(6), rng)
    run = Run(logs, out, tmp_path / "run")
    run.until((out / "ingest" / "work" / "suspects" / "_SUCCESS").exists)
    run.kill(java=False)
    written(logs, range(6, 7), rng)
    checked(spark, logs, out)


@pytest.mark.full
def test_killed_at_many_moments(spark: SparkSession, tmp_path: Path) -> None:
    rng = random.Random("killed often")
    states: Counter[str] = Counter()
    for turn in range(6):
        logs, out = tmp_path / f"logs{turn}", tmp_path / f"out{turn}"
        logs.mkdir()
        for kill in range(5):
            written(logs, range(kill * FILES, (kill + 1) * FILES), rng)
            run = Run(logs, out, tmp_path / f"run{turn}-{kill}")
            last = logs / f"s{(kill + 1) * FILES - 1}.jsonl"
            run.until(partial(was_given, out, last))
            moment = time.monotonic() + rng.uniform(0, 12)
            while time.monotonic() < moment and run.process.poll() is None:
                time.sleep(0.002)
            states[run.kill(java=rng.random() < 0.5)] += 1
        checked(spark, logs, out)
    assert len(states) >= 3, f"the kills landed alike: {states}"
