"""Rounds of faults under load with the embedded broker: whoever is connected loses nothing.

It promises no persistent sessions, so there is no reader that sleeps.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from faults_run import passes

# Those that end it or hold it up; with the others it has nothing to do, and Mosquitto has all.
_ITS_OWN = "kill-broker,broker-gone,kill-supervisor,power-cut"


def test_4_rounds(tmp_path: Path) -> None:
    """Each kind of fault of the broker's once."""
    passes(tmp_path, "--rounds", 4, "--seed", 20, "--faults", _ITS_OWN, "--broker", "embedded")


@pytest.mark.full
def test_10_rounds(tmp_path: Path) -> None:
    """Each kind of fault once."""
    passes(tmp_path, "--rounds", 10, "--seed", 20, "--broker", "embedded")


@pytest.mark.full
@pytest.mark.parametrize("part", range(4))
def test_200_rounds_more(tmp_path: Path, part: int) -> None:
    passes(tmp_path, "--rounds", 50, "--broker", "embedded", "--full")
