"""Texts of purposes on 64-bit and 32-bit MicroPython: what CPython writes, they write."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from purposes_answers import answer
from purposes_made import accesses, commands, filters, sharp

SPEC = Path(__file__).resolve().parents[1]
BUILT = SPEC.parent / "build/micropython"
made = settings(max_examples=300, deadline=None, derandomize=True, database=None)
# Most of these have no text.
wrong = st.one_of(
    st.tuples(sharp, sharp),
    st.tuples(st.just("reserve"), filters, st.lists(sharp), st.lists(sharp)),
    st.tuples(st.just("presub"), sharp, sharp, sharp),
    st.tuples(st.just("set"), sharp, sharp, st.just("")),
    st.tuples(st.just("get"), st.sampled_from(["mode", "eip", "presubs", "x"]), sharp, st.just("")),
)


def cases() -> list[Any]:
    """Values, of which some have no text."""
    found: list[Any] = []

    @made
    @given(commands, accesses, wrong, wrong)
    def collect(command: Any, access: Any, one: Any, other: Any) -> None:
        found.extend((command, access, one, other))

    collect()
    return found


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Any]]:
    """The cases in a file, and CPython's answers."""
    path = tmp_path_factory.mktemp("purposes") / "cases"
    some = cases()
    lines = [json.dumps(line, ensure_ascii=False) for line in some]
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path, [answer(case) for case in some]


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
    assert len(got) > 1000
    assert min(refused, len(got) - refused) > len(got) // 5
