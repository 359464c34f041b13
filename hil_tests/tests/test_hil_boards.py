"""The rig on virtual boards: real esptool, mpremote, MicroPython, site and broker; power cuts.

One run for all boards; what it wrote is then judged line by line, as a reader of the results would.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from sealmq_hil.behaviour import NAMES
from sealmq_hil.processes import sealmq

ROOT = Path(__file__).parents[2]
# Closed segments by their names: what happened, and the nonces that were seen.
VALIDATORS = {
    name: Draft202012Validator(
        json.loads((ROOT / "shared_spec" / f"{name}.schema.json").read_text())
    )
    for name in ("hil", "nonce")
}


# A client of another tree; else boards get what `make firmware` left.
_BUILD = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from build_mpy import build
build(Path(sys.argv[2]), sys.argv[3:])
"""


def client(folder: Path, tree: Path) -> Path:
    """The folder for `--files`."""
    words = [str(tree / "firmware/host"), str(folder), "x64"]
    subprocess.run([sys.executable, "-c", _BUILD, *words], check=True)
    return folder


def run(folder: Path, *words: str, timeout: float = 900) -> tuple[str, list[dict[str, Any]]]:
    """`sealmq hil run …`, which has to pass: what it said, and the lines of closed segments."""
    out = folder / "results"
    done = subprocess.run(
        [sys.executable, "-m", "sealmq_hil", "run", "--out", str(out), *words],
        capture_output=True,
        text=True,
        timeout=timeout,
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout, lines(out, "hil")


def lines(out: Path, name: str) -> list[dict[str, Any]]:
    """The lines of one contract, each valid."""
    assert not list(out.glob("*.open"))
    rows = []
    for file in sorted(out.glob("*.jsonl")):
        if ("-nonces-" in file.name) == (name == "nonce"):
            rows += [json.loads(line) for line in file.read_text().splitlines()]
    for row in rows:
        VALIDATORS[name].validate(row)
    assert len({row["id"] for row in rows}) == len(rows)
    return rows


def reused(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """One line of each (key, nonce) under which different things were sealed."""
    under: dict[tuple[str, str], dict[str, dict[str, Any]]] = defaultdict(dict)
    for row in rows:
        under[row["key"], row["nonce"]][row["digest"]] = row
    return [row for found in under.values() if len(found) > 1 for row in [*found.values()][:1]]


def judge_nonces(rows: list[dict[str, Any]], boards: int) -> None:
    """Many, of every layer, none of them twice; of one run and every board."""
    count = Counter(row["layer"] for row in rows)
    assert {"m1", "m2", "m3", "up", "down", "proof", "request", "record"} <= set(count)
    assert len({row["run"] for row in rows}) == 1
    own = Counter(row["board"] for row in rows if row["layer"] == "m2")
    assert len(own) == boards
    assert all(number > 20 for number in own.values())
    # Each power cut made a boot session, whose keys are its own.
    keys = {row["key"] for row in rows if row["layer"] == "m2"}
    assert len(keys) > 3 * boards
    assert reused(rows) == []


def judge(rows: list[dict[str, Any]], boards: int, cuts: int) -> None:
    """Everything was tried on every board and passed, with so many cuts, half of them inside."""
    verdicts = [row for row in rows if row["stage"] == "verdict"]
    assert len(verdicts) == boards * len(NAMES)
    assert {row["outcome"] for row in rows} == {"pass"}
    assert all(len(row["image"]) == 64 for row in verdicts if row["behaviour"] != "flash")
    made = [row for row in rows if "cut_after" in row and row["behaviour"] != "provision"]
    assert len(made) == cuts
    assert 2 * sum(row["cut_inside"] for row in made) >= cuts
    assert {row["cut_partition"] for row in made} == {"nvs"}
    assert {row["behaviour"] for row in made} == {"cut-counter", "cut-provisioning"}
    again = [row for row in rows if "cut_after" in row and row["behaviour"] == "provision"]
    assert [row["cut_partition"] for row in again] == ["vfs"] * boards
    collected = [row for row in rows if row["behaviour"] == "nonces" and "count" in row]
    assert {row["stage"] for row in collected} == {"link", "inner", "outer"}
    assert all(row["count"] > 20 for row in collected)


@pytest.mark.parametrize("cuts", [3, pytest.param(6, marks=pytest.mark.full)])
def test_a_board_and_its_power_cuts(cuts: int, tmp_path: Path) -> None:
    """Every behaviour, and each kind of cut; of six, each more than once. Boards that wait for one
    another: test_hil_runner.py; several at once: below.
    """
    _, rows = run(tmp_path, "--boards", "1", "--cuts", str(cuts), "--seed", "8")
    judge(rows, 1, cuts)
    judge_nonces(lines(tmp_path / "results", "nonce"), 1)


@pytest.mark.full
def test_two_boards_and_eight_power_cuts(tmp_path: Path) -> None:
    _, rows = run(tmp_path, "--boards", "2", "--cuts", "8", "--seed", "8")
    judge(rows, 2, 8)
    judge_nonces(lines(tmp_path / "results", "nonce"), 2)


@pytest.mark.full
def test_three_boards_and_twenty_power_cuts(tmp_path: Path) -> None:
    said, rows = run(tmp_path, "--boards", "3", "--cuts", "20", "--seed", "20")
    judge(rows, 3, 20)
    judge_nonces(lines(tmp_path / "results", "nonce"), 3)
    assert "0 twice with other content" in said
    assert "virtual boards say nothing about:" in said
    assert said.rstrip().endswith(f"{3 * len(NAMES)} pass, 0 fail, 0 skip")


@pytest.mark.full
@pytest.mark.parametrize("bits", [64, 32])
def test_ten_boards_and_two_hundred_power_cuts(tmp_path: Path, bits: int) -> None:
    words = ["--boards", "10", "--cuts", "200", "--seed", "200", "--bits", str(bits)]
    _, rows = run(tmp_path, *words, timeout=3600)
    judge(rows, 10, 200)
    judge_nonces(lines(tmp_path / "results", "nonce"), 10)


@pytest.mark.full
def test_an_embedded_broker_is_tapped_on_the_boards_paths(tmp_path: Path) -> None:
    words = [word for name in ("flash", "publish", "power-loss", "nonces") for word in
             ("--behaviour", name)]  # fmt: skip
    _, rows = run(tmp_path, "--broker", "embedded", "--seed", "3", *words)
    collected = [row["stage"] for row in rows if row["behaviour"] == "nonces" and "count" in row]
    assert collected == ["link"]


@pytest.mark.full
def test_a_client_whose_counter_begins_anew_is_found_out(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    for name in ("firmware", "shared_spec"):
        shutil.copytree(ROOT / name, tree / name, ignore=shutil.ignore_patterns("__pycache__"))
    (tree / "build").symlink_to(ROOT / "build")
    session = tree / "shared_spec/sealmq_spec/bootsession.py"
    good = "        self.conn = conn\n"
    text = session.read_text()
    assert text.count(good) == 1
    session.write_text(text.replace(good, good + "        self.ctr = 0\n"))
    files = client(tmp_path / "client", tree)
    names = [word for name in ("flash", "mediator-loss") for word in ("--behaviour", name)]
    out = tmp_path / "results"
    words = ["--files", str(files), "--json", "--out", str(out), *names]
    done = subprocess.run(
        [sys.executable, "-m", "sealmq_hil", "run", *words],
        capture_output=True,
        text=True,
        timeout=900,
        cwd=ROOT,
    )
    assert done.returncode == 1, done.stderr
    verdicts = {
        row["behaviour"]: row.get("cause", "")
        for row in map(json.loads, done.stdout.splitlines())
        if row["stage"] == "verdict"
    }
    assert verdicts["flash"] == ""
    assert verdicts["mediator-loss"].startswith("sealed twice with other content: m2 1 1 1 ")
    assert " m1 1 0 1 " in verdicts["mediator-loss"]
    # Whoever reads the lines finds the same, and so does the report over them.
    found = reused(lines(out, "nonce"))
    assert {(row["layer"], row["board"]) for row in found} >= {
        ("m1", "virtual-1"),
        ("m2", "virtual-1"),
    }
    words = sealmq("report", out, "--out", tmp_path / "report", "--json")
    reported = subprocess.run(words, capture_output=True, text=True, timeout=900, cwd=ROOT)
    assert reported.returncode == 1, reported.stderr
    assert json.loads(reported.stdout)["headline"]["nonces_repeated"] == len(found)
