"""Custody: the table is DESIGN.md's, the mediator keeps it whoever dies, and each defence that is
taken out is missed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from custody.__main__ import main
from custody.catalogue import DEFENCES, LARGE, WORLDS
from custody.search import search
from custody.world import Bounds
from sealmq.mediator.core.custody import CUSTODY, ENDS

DESIGN = Path(__file__).parents[2] / "DESIGN.md"


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    with caplog.at_level("CRITICAL"):
        yield


def test_the_table_is_that_of_the_design() -> None:
    rows = re.findall(r"^\| (\d) \| (.+) \| (.+) \| (.+) \|$", DESIGN.read_text(), re.MULTILINE)
    assert {int(n): tuple(row) for n, *row in rows} == {n: tuple(r) for n, r in CUSTODY.items()}


def test_who_ends_a_reader_s_session_is_said_by_the_design() -> None:
    lost = DESIGN.read_text().partition("## What is lost")[2].partition("\n## ")[0]
    named = {"reader", "broker", "live link alone", "mediator or worker"}
    assert named <= set(re.findall(r"^\| ([a-z ]+) \|", lost, re.MULTILINE))
    assert ENDS["clean"] - ENDS["kept"] == {"live"}


@pytest.mark.parametrize("name", WORLDS)
def test_nothing_is_lost_and_nothing_stands_still(name: str) -> None:
    _holds(WORLDS[name])


@pytest.mark.full
@pytest.mark.parametrize("name", LARGE)
def test_nothing_is_lost_and_nothing_stands_still_in_large_worlds(name: str) -> None:
    _holds(LARGE[name])


def _holds(bounds: Bounds) -> None:
    outcome = search(bounds)
    assert not outcome.bad, "\n".join([outcome.bad, *outcome.trace])
    # A search that goes nowhere finds nothing either.
    assert outcome.states > 20


@pytest.mark.parametrize("name", DEFENCES)
def test_each_defence_taken_out_is_missed(name: str) -> None:
    defence = DEFENCES[name]
    with defence.out():
        outcome = search(defence.world)
    assert outcome.bad, defence.text
    assert len(outcome.trace) > 0


@pytest.mark.full
@pytest.mark.parametrize("name", DEFENCES)
def test_what_misses_a_defence_finds_nothing_with_it(name: str) -> None:
    outcome = search(DEFENCES[name].world)
    assert not outcome.bad, "\n".join([outcome.bad, *outcome.trace])


def test_the_command_names_worlds_and_defences_and_prints_what_it_finds(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["--list"]) == 0
    listed = capsys.readouterr().out
    assert all(name in listed for name in (*WORLDS, *LARGE, *DEFENCES))
    assert main(["--without", "durable-first"]) == 1
    assert "before the journal is durable" in capsys.readouterr().out
    with pytest.raises(SystemExit) as stopped:
        main(["--without", "moat"])
    assert stopped.value.code == 2
