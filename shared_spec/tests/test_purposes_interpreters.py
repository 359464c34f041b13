"""The grammar of purposes on 64-bit and 32-bit MicroPython: what CPython answers, they answer."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings

from purposes_answers import answer, make
from purposes_made import OTHER, accesses, commands, pieced, spoiled

SPEC = Path(__file__).resolve().parents[1]
BUILT = SPEC.parent / "build/micropython"
made = settings(max_examples=200, deadline=None, derandomize=True, database=None)


def cases() -> list[list[Any]]:
    """Values to be written, their texts, and texts of which most are wrong."""
    found: list[list[Any]] = []

    @made
    @given(commands, accesses, pieced, spoiled)
    def collect(command: Any, access: Any, one: str, other: str) -> None:
        at = len(found) % len(OTHER)
        found.extend([at, value] for value in (command, access))
        found.extend([n, p, text] for n in (0, at) for p in (0, 1) for text in (one, other))

    collect()
    readers = make(list(OTHER))
    for at, value in [case for case in found if len(case) == 2]:
        text = answer(readers, [at, value])
        found.extend([at, published, text] for published in (0, 1) if isinstance(text, str))
    return found


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Any]]:
    """The cases in a file, and CPython's answers."""
    path = tmp_path_factory.mktemp("purposes") / "cases"
    some = cases()
    lines = [json.dumps(line, ensure_ascii=False) for line in [OTHER, *some]]
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    readers = make(list(OTHER))
    return path, [json.loads(json.dumps(answer(readers, case))) for case in some]


@pytest.mark.parametrize("interpreter", ["micropython64", "micropython32"])
def test_micropython_answers_the_same(asked: tuple[Path, list[Any]], interpreter: str) -> None:
    path, wanted = asked
    done = subprocess.run(
        [BUILT / "bin" / interpreter, SPEC / "tests/purposes_answers.py", path],
        env={**os.environ, "MICROPYPATH": f"{SPEC}:{BUILT / 'lib'}"},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    got = [json.loads(line) for line in done.stdout.split("\n") if line]
    assert got == wanted
    refused = sum(isinstance(one, dict) for one in got)
    assert len(got) > 2000
    assert min(refused, len(got) - refused) > len(got) // 5
