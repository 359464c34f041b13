"""The red list fits the tree: every patch applies once, every test exists, and SECURITY.md says
what the last runs of `hil_tests/red.py` found.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import red as red_list
from running_site import ROOT

RED = ROOT / "hil_tests/red.py"


# One test that passes, one that never ends and has started something.
ENDLESS = """
import pathlib, pytest, time

@pytest.fixture
def started():
    yield
    pathlib.Path("ended").touch()

def test_short():
    pass

def test_endless(started):
    time.sleep(600)
"""


def red(*arguments: str) -> subprocess.CompletedProcess[str]:
    """hil_tests/red.py, which only looks with these."""
    return subprocess.run(
        [sys.executable, str(RED), *arguments], capture_output=True, text=True, check=False
    )


def test_every_patch_applies_and_every_test_exists() -> None:
    done = red("--check")
    assert done.returncode == 0, done.stderr


def test_each_defence_was_seen_red() -> None:
    names = [line.split()[1] for line in red("--list").stdout.splitlines() if line[:3].strip()]
    results = json.loads((ROOT / "hil_tests/defences/results.json").read_text())
    assert len(names) >= 40
    missing = [name for name in names if results.get(name) != "red"]
    assert missing == [], "run hil_tests/red.py with these names"


def test_the_table_of_security_md_is_the_last_results() -> None:
    done = red("--table")
    assert done.returncode == 0, done.stderr
    table = done.stdout.strip()
    said = (ROOT / "SECURITY.md").read_text()
    assert table in said, "put what hil_tests/red.py --table prints into SECURITY.md"


def test_a_test_that_never_ends_is_interrupted_and_ends_what_it_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(red_list, "WORK", tmp_path)
    monkeypatch.setattr(red_list, "PATIENCE_S", 5)
    monkeypatch.setattr(red_list, "PATIENCE_A_TEST_S", 0)
    tree = tmp_path / "tree"
    (tree / "build").mkdir(parents=True)
    (tree / "build/venv").symlink_to(ROOT / "build/venv")
    (tree / "test_it.py").write_text(ENDLESS)
    outcomes = red_list._pytest(tree, ["test_it.py"])
    assert outcomes.get("test_it.py::test_short") == "passed"
    assert "test_it.py::test_endless" not in outcomes
    assert (tree / "ended").exists()
