"""`sealmq report --watch`: the rounds without Spark, and all of it as a process."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from scale_run import checksum

import small_logs
from page_cases import case
from sealmq_spark import job, outputs, watch
from sealmq_spark.errors import ReportError
from sealmq_spark.found import MARK
from sealmq_spark.job import Outcome, publish
from sealmq_spark.page import Live
from sealmq_spark.tables import TABLES

_PATIENCE_S = 400.0
_TIMES = re.compile(r'<p id="late"[^>]* data-made="([^"]*)"')


class Rounds:
    """Reports of the page's example, which counts them in `lines`; `then` says what comes to pass
    after each round, and ends them."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.logs, self.out = folder / "logs", folder / "out"
        self.logs.mkdir()
        self.made = 0
        self.pauses: list[float] = []
        self.pages: list[str] = []
        self.said: list[str] = []
        self._then: list[Callable[[], object]] = []
        clock = iter(range(1000))
        for each in (watch, job):
            monkeypatch.setattr(each, "now", lambda: f"2027-01-15T12:00:{next(clock):02}Z")

    def report(self, live: Live) -> Outcome:
        self.made += 1
        summary, lists = case("full")
        outcome = Outcome(1, {**summary, "lines": self.made, "made": job.now()}, lists)
        publish(outcome, self.out, live)
        return outcome

    def run(self, *then: Callable[[], object]) -> None:
        self._then = list(then)
        self.watch(self.report, self._wait)

    def watch(self, report: Callable[[Live], Outcome], wait: Callable[[float], None]) -> None:
        with outputs.opened(self.out) as place:
            watch.watch(report, [str(self.logs)], place, 60, wait=wait, say=self.said.append)

    def _wait(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.pages.append((self.out / outputs.PAGE).read_text())
        if not self._then:
            raise KeyboardInterrupt
        self._then.pop(0)()

    @property
    def page(self) -> str:
        return (self.out / outputs.PAGE).read_text()


def test_a_report_is_made_when_a_file_is_new_rotated_or_cut_and_else_the_page_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rounds = Rounds(tmp_path, monkeypatch)
    first, second = rounds.logs / "a-1.jsonl", rounds.logs / "a-2.jsonl"
    first.write_text("x\n" * 9)
    made: list[int] = []

    def then(act: Callable[[], object]) -> Callable[[], None]:
        def run() -> None:
            made.append(rounds.made)
            act()

        return run

    nothing = lambda: None  # noqa: E731
    rounds.run(
        then(nothing),
        then(lambda: second.write_text("y\n")),
        then(lambda: first.rename(rounds.logs / "a-1.old.jsonl")),
        then(lambda: second.write_text("")),
        then(lambda: (rounds.logs / "a-3.jsonl.open").write_text("z\n")),
        then(lambda: (rounds.logs / "a-3.jsonl.open").rename(rounds.logs / "a-3.jsonl")),
        then(nothing),
    )
    assert made == [1, 1, 2, 3, 4, 4, 5]
    assert rounds.made == len(rounds.said) == 5
    assert all(0 < pause <= 60 for pause in rounds.pauses)
    # Each round's page is newer than that before it; the figures are those of the last report.
    times = [_TIMES.findall(page) for page in rounds.pages]
    assert all(len(each) == 1 for each in times)
    assert times == sorted(times)
    assert len({each[0] for each in times}) == len(times) == 8
    summary = json.loads((rounds.out / outputs.SUMMARY).read_text())
    assert (summary["lines"], [summary["made"]]) == (5, times[-1])


def test_an_ended_page_says_so_whatever_ended_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rounds = Rounds(tmp_path, monkeypatch)
    rounds.run()
    (page,) = rounds.pages
    assert "Live: made anew every 1\u00a0min." in page
    assert "Not live" not in page
    assert "Not live: sealmq report --watch ended at 2027-01-15 12:00:01 UTC." in rounds.page
    assert "Live: made anew" not in rounds.page

    def full(live: Live) -> Outcome:
        raise ReportError("no space left on the disk")

    def closed(_: float) -> None:
        (rounds.logs / "new.jsonl").write_text("x\n")

    reports = iter([rounds.report, full])
    with pytest.raises(ReportError, match="no space"):
        rounds.watch(lambda live: next(reports)(live), closed)
    assert "Not live" in rounds.page


def test_a_folder_that_was_taken_away_is_not_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the mark of a report no later one would work in it."""
    rounds = Rounds(tmp_path, monkeypatch)

    def taken_away(live: Live) -> Outcome:
        shutil.rmtree(rounds.out)
        raise ReportError("somebody has taken it away")

    reports = iter([rounds.report, taken_away])
    with pytest.raises(ReportError, match="taken it away"):
        rounds.watch(
            lambda live: next(reports)(live), lambda _: (rounds.logs / "new.jsonl").touch()
        )
    assert not rounds.out.exists()


@pytest.mark.parametrize("replaced", [False, True])
def test_nothing_is_written_where_the_folder_was_taken_away_between_two_rounds(
    replaced: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not into another report's folder that stands in its place, also when no file is new."""
    rounds = Rounds(tmp_path, monkeypatch)
    names = (MARK, outputs.PAGE, outputs.SUMMARY, ".scratch/x")
    theirs = [rounds.out / name for name in names]

    def taken_away() -> None:
        rounds.out.rename(tmp_path / "away")
        if replaced:
            (rounds.out / ".scratch").mkdir(parents=True)
            for path in theirs:
                path.write_text("theirs")

    with pytest.raises(ReportError, match=r"somebody has taken .*out away"):
        rounds.run(taken_away)
    assert rounds.made == 1
    assert rounds.out.exists() == replaced
    if replaced:
        assert {path.read_text() for path in theirs} == {"theirs"}


def test_a_signal_ends_it_once() -> None:
    before = [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)]
    for each in (signal.SIGINT, signal.SIGTERM):
        with watch.ended_by_signals() as take:
            signal.signal(each, signal.SIG_DFL)  # as Spark does
            take()
            with pytest.raises(KeyboardInterrupt):
                _killed(each)
            # What cleans up now is not interrupted.
            os.kill(os.getpid(), signal.SIGINT)
            os.kill(os.getpid(), signal.SIGTERM)
        assert [signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM)] == before


def _killed(by: int) -> None:
    os.kill(os.getpid(), by)
    time.sleep(10)


class Watcher:
    """The command as a process, in a group of its own."""

    def __init__(self, logs: Path, out: Path) -> None:
        self.out = out
        self.log = out.with_suffix(".log")
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-m", "sealmq_spark", str(logs), "--out", str(out),
                 "--watch", "--every", "1s"],
                stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip

    def until(self, met: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """The summary for which that holds first."""
        end = time.monotonic() + _PATIENCE_S
        while True:
            assert self.process.poll() is None, self.log.read_text()
            assert time.monotonic() < end, self.log.read_text()
            with_it = self.out / outputs.SUMMARY
            if with_it.exists() and met(found := json.loads(with_it.read_text())):
                return dict(found)
            time.sleep(0.05)


@pytest.mark.full
def test_watched_killed_rotated_and_cut_it_has_what_one_report_has(
    spark: SparkSession, tmp_path: Path
) -> None:
    logs, out = small_logs.write(tmp_path / "logs"), tmp_path / "out"
    later = sorted((logs / "audit").glob("*-2.jsonl.gz"))
    held = {path: path.read_bytes() for path in later}
    for path in later:
        path.unlink()
    watcher = Watcher(logs, out)
    try:
        first = watcher.until(lambda said: True)
        again = watcher.until(lambda said: said["made"] > first["made"])
        assert again["kept"] == first["kept"]
        assert again["kept"]["audit"] == 10
        # Killed with its Java, and a segment is closed before it is there again.
        os.killpg(watcher.process.pid, signal.SIGKILL)
        watcher.process.wait()
        for path, content in held.items():
            path.write_bytes(content)
        watcher = Watcher(logs, out)
        whole = watcher.until(lambda said: said["kept"]["audit"] == 14)
        assert whole["repeated"] == 2
        sums = _sums(spark, out)
        # Rotated, it is read again and counts once; cut, what was in it stays.
        plain = next((logs / "audit").glob("*-1.jsonl"))
        turned_over = plain.rename(plain.with_name("rotated.jsonl"))
        emptied = logs / "results" / f"{small_logs.RUN_NEW}-1.jsonl"
        lines = emptied.read_bytes()
        emptied.write_bytes(b"")
        after = watcher.until(lambda said: said["repeated"] == 12)
        assert after["kept"] == whole["kept"]
        assert "Live: made anew every 1\u00a0s." in (out / outputs.PAGE).read_text()
        watcher.process.terminate()
        assert watcher.process.wait(120) == 0, watcher.log.read_text()
    finally:
        if watcher.process.poll() is None:
            os.killpg(watcher.process.pid, signal.SIGKILL)
            watcher.process.wait()
    said = watcher.log.read_text()
    assert "Traceback" not in said
    assert "rror" not in said, said
    assert "Not live: sealmq report --watch ended at" in (out / outputs.PAGE).read_text()
    assert not (out / ".scratch").exists()
    assert _sums(spark, out) == sums
    turned_over.rename(plain)
    emptied.write_bytes(lines)
    single = tmp_path / "single"
    done = subprocess.run(
        [sys.executable, "-P", "-m", "sealmq_spark", str(logs), "--out", str(single)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert _sums(spark, single) == sums


def _sums(spark: SparkSession, out: Path) -> dict[str, Any]:
    return {name: checksum(spark.read.parquet(str(out / "tables" / name))) for name in TABLES}
