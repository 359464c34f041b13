"""`sealmq report` as a process: what it says when there is no report. None of it starts Java."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark import SparkContext

import small_logs
from sealmq_spark import errors, java, job, locks, outputs, session
from sealmq_spark.cli import main
from sealmq_spark.errors import ReportError

OK, FOUND, FAILED = 0, 1, 2


def report(
    *words: str | Path, env: dict[str, str] | None = None, timeout: float = 1200
) -> subprocess.CompletedProcess[str]:
    """Run it. No output may hold a traceback."""
    done = subprocess.run(
        [sys.executable, "-P", "-m", "sealmq_spark", *map(str, words)],
        capture_output=True,
        text=True,
        env={**os.environ, **(env or {})},
        timeout=timeout,
        check=False,
    )
    assert "Traceback" not in done.stderr + done.stdout, done.stderr
    return done


def refused(done: subprocess.CompletedProcess[str]) -> str:
    """What it said on stderr, having refused: one line and at most one hint."""
    assert done.returncode == FAILED, done.stderr
    assert done.stdout == ""
    lines = done.stderr.splitlines()
    assert lines[0].startswith("sealmq report: ")
    assert len(lines) == 1 or (len(lines) == 2 and lines[1].startswith("hint: ")), done.stderr
    return done.stderr


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    return small_logs.write(tmp_path / "logs")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "the following arguments are required"),
        (["logs"], "--out"),
        (["logs", "--out", "o", "--since", "soon"], "soon is no day such as 2026-11-30"),
        (["logs", "--out", "o", "--since", "2026-02-02", "--until", "2026-02-01"], "is after"),
        (["logs", "--out", "o", "--driver-memory", "much"], "a size such as 512m or 4g"),
        (["logs", "--out", "o", "--master", "sprak://x"], "local[N]"),
        (["logs", "--out", "o", "--master", "spark://x"], "spark://HOST:PORT"),
        (["logs", "--out", "o", "--bogus"], "--bogus"),
        (["logs", "--out", "o", "--every", "5m"], "--every is of --watch"),
        (["logs", "--out", "o", "--watch", "--every", "0s"], "no time such as 30s"),
        (["logs", "--out", "o", "--watch", "--every", "25h"], "24h at most"),
        (["logs", "--out", "o", "--watch", "--json"], "--json is of one report"),
        (["hdfs://logs", "--out", "o"], "is no path"),
        (["no-such-logs", "--out", "o"], "no-such-logs"),
    ],
)
def test_a_wrong_command_line_is_told(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code = main(words)
    told = capsys.readouterr()
    assert said in refused(subprocess.CompletedProcess(words, code, told.out, told.err))


def test_the_help_has_examples_and_the_exit_codes() -> None:
    done = report("--help")
    assert done.returncode == OK
    for word in (
        "examples:",
        "--fresh",
        "--since 2026-11-28",
        "--watch --every 5m",
        "--master",
        "--driver-memory",
        "spark-submit",
        "Exit code",
    ):
        assert word in done.stdout


def test_without_java_it_says_which_to_install(logs: Path, tmp_path: Path) -> None:
    done = report(logs, "--out", tmp_path / "out", env={"PATH": "/nowhere", "JAVA_HOME": ""})
    said = refused(done)
    assert "there is no Java here" in said
    assert "Java 17 or 21" in said
    assert not (tmp_path / "out").exists()


def test_an_old_java_and_a_java_home_without_java_are_told(logs: Path, tmp_path: Path) -> None:
    program = tmp_path / "old" / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\necho 'openjdk version \"1.8.0_392\"' >&2\n")
    program.chmod(0o755)
    out = tmp_path / "out"
    old = report(logs, "--out", out, env={"JAVA_HOME": str(tmp_path / "old")})
    assert "is Java 8; 17 or later" in refused(old)
    none = report(logs, "--out", out, env={"JAVA_HOME": str(tmp_path)})
    assert "where there is no bin/java" in refused(none)


def test_without_pyspark_it_says_how_to_get_it(logs: Path, tmp_path: Path) -> None:
    program = (
        "import sys, importlib.util as u\n"
        "find = u.find_spec\n"
        "u.find_spec = lambda name, *a: None if name == 'pyspark' else find(name, *a)\n"
        "from sealmq_spark.cli import main\n"
        "sys.exit(main())\n"
    )
    words = [sys.executable, "-c", program, str(logs), "--out", str(tmp_path / "out")]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert "make install EXTRAS=spark" in refused(done)


def test_nothing_to_read_is_told(tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    assert "nothing to read in" in refused(report(empty, "--out", tmp_path / "out"))
    (empty / "mediator-1-5-1.jsonl.open").write_text("")
    said = refused(report(empty, "--out", tmp_path / "out"))
    assert "still being written (.open)" in said
    assert "five minutes after it began" in said
    assert not (tmp_path / "out").exists()


def test_a_folder_of_others_is_left_alone_even_when_fresh(logs: Path, tmp_path: Path) -> None:
    out = tmp_path / "mine"
    out.mkdir()
    (out / "lines").mkdir()
    (out / "lines" / "thesis.tex").write_text("all of it")
    for more in ((), ("--fresh",)):
        assert "holds other files and no report" in refused(report(logs, "--out", out, *more))
    assert (out / "lines" / "thesis.tex").read_text() == "all of it"
    assert "is no folder" in refused(report(logs, "--out", out / "lines" / "thesis.tex"))


def test_an_unwritable_folder_is_told(logs: Path) -> None:
    """Nobody may make one there, root as little as others."""
    said = refused(report(logs, "--out", "/sys/sealmq-report"))
    assert "/sys/sealmq-report: " in said


def test_one_report_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locks, "_REPORT_S", 0.0)
    out = tmp_path / "out"
    with outputs.opened(out):
        with pytest.raises(ReportError, match="another report is being made"):
            with outputs.opened(out):
                pass
    with outputs.opened(out):
        pass


def test_a_report_of_another_format_is_not_continued(logs: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / ".sealmq-report").write_text("99\n")
    said = refused(report(logs, "--out", out))
    assert "another version" in said
    assert "--fresh" in said


def test_a_master_that_nobody_is_is_told_within_seconds(logs: Path, tmp_path: Path) -> None:
    done = report(logs, "--out", tmp_path / "out", "--master", "spark://127.0.0.1:1", timeout=60)
    assert "nobody answers at spark://127.0.0.1:1" in refused(done)


class Py4JJavaError(Exception):
    """What it looks like from here."""

    __module__ = "py4j.protocol"


@pytest.mark.parametrize("wrapped", [False, True])
@pytest.mark.parametrize(
    ("java", "said"),
    [
        ("...\n: java.io.IOException: No space left on device\n\tat java.base", "no space left"),
        ("...\nCaused by: java.lang.OutOfMemoryError: Java heap space", "--driver-memory"),
        ("Reason: All masters are unresponsive! Giving up.", "no Spark master answers"),
    ],
)
def test_javas_words_become_ours(
    java: str, said: str, wrapped: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    error: Exception = Py4JJavaError(java)
    if wrapped:
        outer = ReportError("reading failed")
        outer.__cause__ = error
        error = outer
    assert errors.report(error, "DIR/spark.log") == FAILED
    told = capsys.readouterr().err
    assert said in told
    assert "java." not in told


@pytest.mark.parametrize("wrapped", [False, True])
def test_javas_words_are_kept_before_java_ends(
    logs: Path, tmp_path: Path, wrapped: bool,
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """py4j asks Java for an error's text when it is wanted; that must not be after its end."""
    alive = [True]

    class Spark:
        def stop(self) -> None:
            alive.clear()

    class Late(Py4JJavaError):
        def __str__(self) -> str:
            if not alive:
                raise ConnectionRefusedError(111, "refused")
            return super().__str__()

    def fails(*_: object) -> None:
        error = Late("...\nCaused by: java.io.IOException: No space left on device\n\tat y")
        if wrapped:
            raise ReportError("reading failed") from error
        raise error

    monkeypatch.setattr(session, "session", lambda *_, **__: Spark())
    # Other tests of this process may have one.
    monkeypatch.setattr(SparkContext, "_gateway", None)
    monkeypatch.setattr(java, "wait_for_workers", lambda _: None)
    monkeypatch.setattr(job, "run", fails)
    assert main([str(logs), "--out", str(tmp_path / "out")]) == FAILED
    told = capsys.readouterr().err
    assert "no space left on the disk" in told
    assert "Traceback" not in told


def test_what_nobody_has_words_for_is_javas_innermost_cause(
    capsys: pytest.CaptureFixture[str],
) -> None:
    error = Py4JJavaError("An error occurred\n: a.B: outer\n\tat x\nCaused by: c.D: inner\n\tat y")
    assert errors.report(error, "DIR/spark.log") == FAILED
    assert capsys.readouterr().err == (
        "sealmq report: Spark failed: c.D: inner\nhint: DIR/spark.log has more\n"
    )
    assert errors.report(ConnectionRefusedError(111, "refused"), "DIR/spark.log") == FAILED
    assert "Java ended in the middle of the work" in capsys.readouterr().err


@pytest.mark.full
def test_a_report_over_everything_then_over_what_is_new(logs: Path, tmp_path: Path) -> None:
    """Two runs, each with a Java of its own."""
    out = tmp_path / "out"
    first = report(logs, "--out", out, "--json")
    assert first.returncode == OK, first.stderr
    assert first.stderr == ""
    summary = json.loads(first.stdout)
    assert summary == json.loads((out / "summary.json").read_text())
    assert summary["lines"] == 36
    assert not [
        path
        for path in [out, *out.rglob("*")]
        if path.lstat().st_mode & 0o077 and not path.is_symlink()
    ], "others can read it"
    assert not (out / ".scratch").exists()
    more = small_logs.text([{**small_logs.rig(worse=True)[-2], "id": "2" * 16 + "-77"}])
    (logs / "results" / "2222222222222222-2.jsonl").write_text(more)
    second = report(logs, "--out", out)
    assert second.returncode == FOUND, second.stderr
    assert "FOUND        the rig: publish, verdict: fails" in second.stdout
    assert "kept         14 audit, 11 rig, 4 nonces, 3 bench rows" in second.stdout
    assert json.loads((out / "summary.json").read_text())["repeated"] == 2
    kept = Path(os.environ["XDG_CACHE_HOME"]) / "sealmq"
    assert list(kept.glob("java-*.jsa")), "each Java loads its classes anew"
    assert (out / "report.html").read_text().startswith("<!doctype html>")


@pytest.mark.full
def test_a_full_disk_is_told(logs: Path, tmp_path: Path) -> None:
    """/dev/full stands where the summary is written, by Python; what Java says is tried above."""
    out = tmp_path / "out"
    out.mkdir()
    (out / ".sealmq-report").write_text("1\n")
    (out / ".summary.json.new").symlink_to("/dev/full")
    said = refused(report(logs, "--out", out))
    assert "no space left" in said.lower()
