"""A part is run, noted and taken over at its end; what fails or is interrupted changes nothing."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from evidence import __main__ as program
from evidence import collect, parts
from evidence.collect import noted, run
from evidence.parts import PARTS, Part, commands, find
from evidence.place import ROOT, EvidenceError, put
from evidence.reduce import _param
from evidence.reduced import order

LEFT = "import sys, pathlib; pathlib.Path(sys.argv[1]).write_text('new'); print('said')"
HANGS = """
import os, subprocess, sys, pathlib, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
pathlib.Path(sys.argv[1]).write_text(f"{os.getpid()} {child.pid}")
time.sleep(600)
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(collect, "WORK", tmp_path / "work")
    monkeypatch.setattr(collect, "RUNS", tmp_path / "runs")
    (tmp_path / "result").write_text("old")
    return tmp_path


def part(folder: Path, *run: Sequence[str], minutes: float = 1) -> Part:
    def keep(work: Path) -> None:
        put(folder / "result", (work / "made").read_text())

    return Part("one", "a test", run, [folder / "result"], keep, minutes, False, ["evidence"])


def gone(pid: int) -> bool:
    """Ended, whoever is to bury it."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def until_gone(pids: list[int]) -> None:
    deadline = time.monotonic() + 60
    while not all(map(gone, pids)):
        assert time.monotonic() < deadline, pids
        time.sleep(0.02)


def test_a_part_is_taken_over_at_its_end(folder: Path) -> None:
    made = part(folder, ["-c", LEFT, "WORK/made"])
    assert noted(made) is None
    run(made)
    assert (folder / "result").read_text() == "new"
    assert (folder / "work/one/said-1.txt").read_text() == "said\n"
    note = noted(made)
    assert note is not None
    assert set(note) == {
        "began", "commit", "command", "load", "cores", "machine", "python", "seconds",
    }  # fmt: skip
    assert note["command"] == "make evidence PARTS=one"
    assert len(note["commit"].removesuffix("-dirty")) == 40 or note["commit"] == "unknown"


def test_one_that_fails_changes_nothing(folder: Path) -> None:
    with pytest.raises(EvidenceError, match=r"ended with 3; what was there stays"):
        run(part(folder, ["-c", LEFT, "WORK/made"], ["-c", "import sys; sys.exit(3)"]))
    assert (folder / "result").read_text() == "old"
    assert not (folder / "runs").exists()


def test_one_that_hangs_is_ended_with_all_that_it_started(folder: Path) -> None:
    with pytest.raises(EvidenceError, match="took more than"):
        run(part(folder, ["-c", HANGS, str(folder / "pids")], minutes=8 / 60))
    until_gone([int(pid) for pid in (folder / "pids").read_text().split()])
    assert (folder / "result").read_text() == "old"


def test_an_interrupted_one_loses_nothing(folder: Path) -> None:
    script = f"""
import sys
from pathlib import Path
from evidence import collect
from evidence.parts import Part
folder = Path({str(folder)!r})
collect.WORK, collect.RUNS = folder / "work", folder / "runs"
words = ["-c", {HANGS!r}, str(folder / "pids")]
collect.run(Part("one", "", [words], [], lambda work: (folder / "result").unlink(), 1, False, []))
"""
    child = subprocess.Popen([sys.executable, "-c", script], cwd=ROOT, stderr=subprocess.PIPE)
    deadline = time.monotonic() + 60
    while not (pids := (folder / "pids")).exists() or not pids.read_text():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    child.send_signal(signal.SIGINT)
    _, said = child.communicate(timeout=90)
    assert child.returncode != 0
    assert b"KeyboardInterrupt" in said
    until_gone([int(pid) for pid in pids.read_text().split()])
    assert (folder / "result").read_text() == "old"
    assert not (folder / "runs").exists()


def test_both_runs_of_purposes_are_kept_in_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    [each] = find(["purposes"])
    [result] = each.results
    committed = json.loads(result.read_text())["rows"]
    closer = [row for row in committed if row["params"].get("stage") == "closer"]
    for name, rows in (
        ("whole", [row for row in committed if row not in closer]),
        ("closer", [{**row, "params": {**row["params"], "stage": "variants"}} for row in closer]),
    ):
        assert rows
        (tmp_path / f"{name}.json").write_text(json.dumps({"rows": rows}))
    monkeypatch.setattr(parts, "put", lambda path, text: put(tmp_path / "kept.json", text))
    each.keep(tmp_path)
    kept = json.loads((tmp_path / "kept.json").read_text())["rows"]
    assert sorted(kept, key=order) == sorted(committed, key=order)
    (tmp_path / "closer.json").write_text('{"rows": []}')
    with pytest.raises(EvidenceError, match="has no rows"):
        each.keep(tmp_path)


def test_every_part_runs_what_there_is() -> None:
    for each in PARTS:
        for words in commands(each, Path("/w")):
            assert words[0] == sys.executable
            assert not any("WORK" in word for word in words)
            if words[1] != "-m":
                assert (ROOT / words[1]).is_file()
        assert len(each.to) in (0, len(each.run))
        assert all((ROOT / of).exists() for of in each.of)
    assert [each.name for each in find(["rig", "device"])] == ["device", "rig"]
    assert find([]) == list(PARTS)


def test_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        program.main(["nobody"])
    assert ended.value.code == 2
    assert "there is no part nobody" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        program.main(["rig", "--check"])
    assert program.main(["--list"]) == 0
    listed = capsys.readouterr().out
    assert all(each.name in listed for each in PARTS)
    assert program.main(["--check"]) == 0


def test_two_at_once_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(program, "WORK", tmp_path)
    with (tmp_path / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert program.main(["sizes"]) == 1
    assert "another `make evidence` runs" in capsys.readouterr().err


def test_params_come_back_as_they_were() -> None:
    for value in (1, 0.3, True, "3.11.7", "256k", "TLS1-3-AES", "before each 25, not counted"):
        said = value if isinstance(value, str) else json.dumps(value)
        assert _param(said) == value
        assert type(_param(said)) is type(value)


def test_the_makefile_hands_the_parts_over() -> None:
    def words(*given: str) -> str:
        done = subprocess.run(
            ["make", "-n", "-o", "setup", "-o", "firmware", "evidence", *given],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
            # Not as a part of the make that may run the tests, which would say where it goes.
            env={k: v for k, v in os.environ.items() if not k.startswith(("MAKE", "MFLAGS"))},
        )
        return done.stdout.strip().splitlines()[-1]

    assert words().endswith("-m evidence")
    assert words("PARTS=device rig").endswith("-m evidence device rig")
    assert words("PARTS=none").endswith("-m evidence --reduce")
