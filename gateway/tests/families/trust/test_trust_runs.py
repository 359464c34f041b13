"""Many simulated runs: lines of their contract, and a file that goes on where it stopped."""

from __future__ import annotations

import gzip
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest

from sealmq.cli.main import main
from sealmq.families.trust import simulate
from sealmq.families.trust.cli import runs

ROOT = Path(__file__).resolve().parents[4]


def test_runs_are_lines_of_their_contract_whoever_makes_them(tmp_path: Path) -> None:
    """All kinds under two rules, twice: in this process and in two others."""
    plan = simulate.Plan(sites=10, rounds=3, messages=6)
    series = runs.Series(2 * len(runs.KINDS), plan, 0.2, ("average", "spki"))
    begun = runs.Begun("0" * 16, 5)
    made = list(runs.lines(series, begun))
    assert made == list(runs.lines(series, begun, jobs=2))
    rows = [json.loads(line) for some in made for line in some]
    schema = json.loads((ROOT / "shared_spec" / "simulation.schema.json").read_text())
    jsonschema.validate(rows, {"type": "array", "items": schema})
    assert len({row["id"] for row in rows}) == len(rows) == 2 * len(runs.KINDS) * plan.rounds
    assert {row["kind"] for row in rows} == set(runs.KINDS)
    assert set(schema["properties"]["kind"]["enum"]) == set(runs.KINDS)
    assert set(schema["properties"]["rule"]["enum"]) == set(simulate.RULES)
    honest = [row for row in rows if row["kind"] == "honest"]
    assert not any(row["bad_withheld"] or row["bad_delivered"] for row in honest)
    malicious = [row for row in rows if row["kind"] == "malicious"]
    assert any(row["bad_delivered"] for row in malicious)
    assert series.name != replace(series, plan=replace(plan, wrong=0.1)).name

    out = tmp_path / "runs.jsonl"
    words = ["trust", "simulate", "--runs", "3", "--sites", "8", "--rounds", "2", "--jobs", "1"]
    assert main([*words, "--messages", "4", "--kind", "malicious", "--out", str(out)]) == 0
    kept = [json.loads(line) for line in out.read_text().splitlines()]
    assert {(row["rule"], row["seed"], row["kind"]) for row in kept} == {
        (rule, 1, "malicious") for rule in list(simulate.RULES)[:3]
    }
    assert not out.with_name(out.name + ".open").exists()
    assert main([*words, "--out", str(out)]) == 1, "a file that is there stays"
    assert main(words) == 2


def test_what_was_measured_is_what_the_same_runs_give_today() -> None:
    """Some of each kind and rule, of those whose lines are kept (evidence/parts.py)."""
    kept = ROOT / "evidence" / "results" / "simulations" / "sites-20.jsonl.gz"
    rows = [json.loads(line) for line in gzip.decompress(kept.read_bytes()).splitlines()]
    plan = simulate.Plan(sites=20, rounds=15, messages=10)
    series = runs.Series(len(rows) // plan.rounds, plan)
    some = list(enumerate(series))[5::249]
    assert {run.kind for _, run in some} == set(runs.KINDS)
    assert {run.rule for _, run in some} == set(simulate.RULES)
    for number, run in some:
        lines = rows[number * plan.rounds : (number + 1) * plan.rounds]
        assert {(row["simulated"], row["kind"], row["rule"], row["seed"]) for row in lines} == {
            (series.name, run.kind, run.rule, run.seed)
        }
        want = [simulate.Counts(*(row[name] for name in simulate.Counts._fields)) for row in lines]
        assert run.rounds() == want, run


def test_runs_that_were_interrupted_go_on_where_they_stopped(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Cut after any byte, the file becomes what it was; each run is made once."""
    out, part = tmp_path / "runs.jsonl", tmp_path / "runs.jsonl.open"
    words = ["trust", "simulate", "--sites", "6", "--rounds", "3", "--messages", "3", "--out"]
    words += [str(out), "--jobs", "1", "--kind", "malicious"]
    assert main([*words, "--runs", "6"]) == 0
    whole = out.read_bytes()
    ends = [n + 1 for n, byte in enumerate(whole) if byte == ord("\n")][2::3]
    draw = random.Random(3)
    for at in (0, 1, ends[0] - 1, ends[0], ends[3], *draw.sample(range(len(whole)), 5), len(whole)):
        out.unlink()
        part.write_bytes(whole[:at])
        capsys.readouterr()
        assert main([*words, "--runs", "6", "--json"]) == 0
        found = json.loads(capsys.readouterr().out)
        assert found["there"] == sum(end <= at for end in ends)
        if found["there"]:
            assert out.read_bytes() == whole
        rows = [json.loads(line) for line in out.read_bytes().splitlines()]
        assert [row["id"].partition("-s")[2] for row in rows] == [str(n + 1) for n in range(18)]
        assert not part.exists()
        if not found["there"]:
            out.write_bytes(whole)

    # What is of other runs, or of more, stays as it is.
    torn = whole[: ends[4]].replace(b'"seed": 1', b'"seed": 2', 1)
    for there, more in (
        (whole, ["--runs", "5"]), (whole, ["--runs", "6", "--seed", "2"]),
        (whole, ["--runs", "6", "--share", ".3"]), (whole, ["--runs", "6", "--rule", "spki"]),
        (torn, ["--runs", "6"]), (b"mine\n", ["--runs", "6"]), (b"[]\n", ["--runs", "6"]),
        (whole.replace(b'"bad_withheld": ', b'"bad_withheld": -1', 1), ["--runs", "6"]),
    ):  # fmt: skip
        out.unlink(missing_ok=True)
        part.write_bytes(there)
        assert main([*words, *more]) == 1
        assert part.read_bytes() == there
        assert not out.exists()
        assert f"{part}: " in capsys.readouterr().err


def test_runs_whose_process_is_killed_leave_no_worker_and_can_be_gone_on_with(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, part = tmp_path / "runs.jsonl", tmp_path / "runs.jsonl.open"
    words = ["trust", "simulate", "--sites", "6", "--rounds", "3", "--messages", "3", "--jobs", "2"]
    words += ["--out", str(out), "--runs"]
    with begun(words, part) as first:
        assert main([*words, "9"]) == 1
        assert "is written by another process" in capsys.readouterr().err
        first.kill()
        # What it says ends when the last process that could say something has ended.
        assert first.communicate(timeout=120)[1] == "", "no traceback"
    there = part.read_bytes().count(b"\n") // 3
    assert main([*words, str(there + 2), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["there"] == there
    assert out.read_bytes().count(b"\n") == 3 * (there + 2)


@contextmanager
def begun(words: list[str], part: Path) -> Iterator[subprocess.Popen[str]]:
    """Very many runs, once the first of them are in the file; a group of processes of its own."""
    words = [sys.executable, "-m", "sealmq.cli", *words, "1000000"]
    first = subprocess.Popen(words, stderr=subprocess.PIPE, text=True, start_new_session=True)
    try:
        while not (part.exists() and part.stat().st_size):
            assert first.poll() is None
            time.sleep(0.05)
        yield first
    finally:
        with suppress(ProcessLookupError):
            os.killpg(first.pid, signal.SIGKILL)
        first.communicate()


def test_runs_are_interrupted_with_a_word_on_how_they_go_on(tmp_path: Path) -> None:
    out, part = tmp_path / "runs.jsonl", tmp_path / "runs.jsonl.open"
    words = ["trust", "simulate", "--sites", "6", "--rounds", "3", "--messages", "3", "--jobs", "2"]
    with begun([*words, "--out", str(out), "--runs"], part) as first:
        os.killpg(first.pid, signal.SIGINT)  # as a terminal does: the workers too
        assert first.communicate(timeout=120)[1] == f"the same words go on with {part}\n"
    assert first.returncode == 130
    assert part.read_bytes().endswith(b"}\n"), "no run is torn"
