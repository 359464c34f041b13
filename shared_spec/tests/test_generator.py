"""The committed vectors are the generator's, and it is independent of what they test."""

from __future__ import annotations

import ast
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SPEC = Path(__file__).resolve().parents[1]
VECTORS = SPEC / "vectors"
SOURCES = [SPEC / "gen_vectors.py", *sorted((SPEC / "vectorgen").glob("*.py"))]
ALLOWED = {
    "__future__",
    "argparse",
    "base64",
    "collections",
    "cryptography",
    "dataclasses",
    "hashlib",
    "json",
    "pathlib",
    "sys",
    "typing",
    "vectorgen",
}


def generate(*args: str) -> subprocess.CompletedProcess[str]:
    """Runs the generator."""
    command = [sys.executable, str(SPEC / "gen_vectors.py"), *args]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def imported(path: Path) -> set[str]:
    """First names of all that a file imports, wherever it does."""
    out: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            out |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            out.add((node.module or "").partition(".")[0])
        elif isinstance(node, ast.Name) and node.id in ("__import__", "eval", "exec"):
            out.add(node.id)
    return out


def test_regenerating_gives_the_same_files() -> None:
    done = generate("--check")
    assert done.returncode == 0, done.stdout + done.stderr


def test_check_notices_a_change(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    # Not the checkout's, which other tests read meanwhile.
    document = shutil.copy(SPEC / "SPEC.md", tmp_path_factory.mktemp("document"))
    assert generate("--dir", str(tmp_path), "--document", str(document)).returncode == 0
    assert {p.name for p in tmp_path.iterdir()} == {p.name for p in VECTORS.iterdir()}
    (tmp_path / "m1-ccm-live.json").write_text("{}")
    (tmp_path / "m1-ccm-empty.json").unlink()
    (tmp_path / "spare.json").write_text("{}")
    done = generate("--check", "--dir", str(tmp_path))
    assert done.returncode == 1
    assert done.stdout.splitlines() == [
        "m1-ccm-empty.json is missing",
        "spare.json is not generated",
        "m1-ccm-live.json differs",
    ]


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: p.name)
def test_the_generator_imports_nothing_of_ours(path: Path) -> None:
    assert imported(path) <= ALLOWED


def test_every_case_is_small_and_has_one_outcome() -> None:
    for path in VECTORS.glob("*.json"):
        text = path.read_text()
        assert len(text.encode()) < 4096, path.name
        case = json.loads(text)
        assert case["name"] == path.stem
        assert case["section"]
        assert case["what"]
        for part in case.get("steps", [case]):
            assert ("out" in part) != ("refuse" in part), path.name


def test_every_sealed_or_tagged_positive_case_is_flipped() -> None:
    sealed = {"aead", "m1", "m2", "m3", "connect", "token", "up", "down", "request", "answer"}
    sealed |= {"kg-time", "record", "manifest"}
    for path in VECTORS.glob("*.json"):
        case = json.loads(path.read_text())
        if case["op"] in sealed and "out" in case:
            assert case.get("flip"), path.name
