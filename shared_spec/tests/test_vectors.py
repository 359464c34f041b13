"""The vectors on CPython, 64-bit and 32-bit MicroPython by one runner, which can fail."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SPEC = Path(__file__).resolve().parents[1]
ROOT = SPEC.parent
RUNNER = SPEC / "run_vectors.py"
VECTORS = SPEC / "vectors"
INTERPRETERS = {
    "cpython": Path(sys.executable),
    "micropython64": ROOT / "build/micropython/bin/micropython64",
    "micropython32": ROOT / "build/micropython/bin/micropython32",
}
CLOSING = re.compile(
    r"^vectors: (\d+) positive, (\d+) negative, (\d+) flipped, (\d+) failed: (ok|FAILED)$", re.M
)


def run(interpreter: str, *args: str) -> tuple[int, str]:
    """Exit code and output of the runner."""
    program = INTERPRETERS[interpreter]
    assert program.is_file(), f"{program} is missing: make setup"
    folders = [SPEC, ROOT / "firmware", ROOT / "build/micropython/lib"]
    env = {**os.environ, "PYTHONPATH": str(SPEC / "tests")}
    env["MICROPYPATH"] = ":".join(map(str, folders))
    done = subprocess.run(
        [program, RUNNER, *args],
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout


def counts(output: str) -> list[int]:
    """positive, negative, flipped, failed."""
    found = CLOSING.search(output)
    assert found, f"no closing line:\n{output[-2000:]}"
    return [int(n) for n in found.groups()[:4]]


@pytest.mark.parametrize("interpreter", INTERPRETERS)
def test_all_vectors_come_out_as_written(interpreter: str) -> None:
    code, output = run(interpreter)
    assert code == 0, output[-4000:]
    positive, negative, flipped, failed = counts(output)
    files = [json.loads(p.read_text()) for p in VECTORS.glob("*.json")]
    assert positive + negative == len(files)
    assert negative >= positive
    assert flipped > 10_000
    assert failed == 0


def test_the_tests_own_cipher_agrees() -> None:
    code, output = run("cpython", "--aead", "spec_cipher", "--flips", "none")
    assert code == 0, output[-4000:]


def test_a_board_flips_at_fewer_places() -> None:
    _, all_of_them = run("cpython", "--only", "m3-")
    _, some = run("cpython", "--only", "m3-", "--flips", "some")
    assert 0 < counts(some)[2] < counts(all_of_them)[2]


@pytest.mark.parametrize("backend", ["spec_gullible", "spec_leaky"])
def test_a_wrong_cipher_is_noticed(backend: str) -> None:
    code, output = run("cpython", "--aead", backend, "--flips", "some")
    assert code == 1
    assert counts(output)[3] > 10


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three vectors and their INDEX."""
    folder = tmp_path_factory.mktemp("sound")
    names = ["m1-ccm-live", "m1-other-topic", "reader-repeat"]
    for name in names:
        shutil.copy(VECTORS / f"{name}.json", folder)
    (folder / "INDEX").write_text("".join(f"{n}\n" for n in names))
    code, output = run("cpython", "--dir", str(folder))
    assert code == 0, output
    return folder


@pytest.fixture
def copy(sound: Path, tmp_path: Path) -> Path:
    """The same, to be spoiled."""
    return Path(shutil.copytree(sound, tmp_path / "copy"))


def spoil(folder: Path, name: str, old: str, new: str) -> None:
    """Replaces text in a case; it must be there."""
    path = folder / f"{name}.json"
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("m1-ccm-live", '"ctr": 1', '"ctr": 2'),
        ("m1-other-topic", '"refuse": "unauthentic"', '"refuse": "malformed"'),
        ("m1-other-topic", '"refuse": "unauthentic"', '"out": {}'),
        ("reader-repeat", '"refuse": "replay"', '"refuse": "stale"'),
        ("reader-repeat", '"age": 0', '"age": 1'),
        ("m1-ccm-live", '"name": "m1-ccm-live"', '"name": "m1-ccm-dead"'),
        ("m1-ccm-live", '"op": "m1"', '"op": "m9"'),
        ("m1-ccm-live", '"in": {', '"in": ['),
    ],
)
def test_a_spoiled_case_fails(copy: Path, name: str, old: str, new: str) -> None:
    spoil(copy, name, old, new)
    code, output = run("cpython", "--dir", str(copy))
    assert code == 1
    assert counts(output)[3] == 1


def test_a_flip_that_does_not_count_fails(copy: Path) -> None:
    # The section's number binds nothing: flipping it is not refused.
    spoil(copy, "m1-ccm-live", '"flip": [\n  "packet"', '"flip": [\n  "spare"')
    spoil(copy, "m1-ccm-live", '"in": {', '"in": {"spare": "00",')
    code, output = run("cpython", "--dir", str(copy))
    assert code == 1
    assert "spare was accepted with byte 0 changed" in output


def test_a_missing_file_fails(copy: Path) -> None:
    (copy / "m1-ccm-live.json").unlink()
    assert run("cpython", "--dir", str(copy))[0] == 1


def test_a_file_that_is_not_listed_fails(copy: Path) -> None:
    (copy / "INDEX").write_text("m1-ccm-live\nm1-other-topic\n")
    assert run("cpython", "--dir", str(copy))[0] == 1


@pytest.mark.parametrize("interpreter", INTERPRETERS)
def test_no_case_at_all_fails(tmp_path: Path, interpreter: str) -> None:
    assert run(interpreter, "--dir", str(tmp_path))[0] == 1
    (tmp_path / "INDEX").write_text("")
    code, output = run(interpreter, "--dir", str(tmp_path))
    assert code == 1
    assert counts(output) == [0, 0, 0, 0]
    assert run(interpreter, "--only", "no such case")[0] == 1


def test_a_missing_interpreter_fails(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(INTERPRETERS, "micropython64", tmp_path / "micropython64")
    with pytest.raises(AssertionError, match="make setup"):
        run("micropython64")
