"""Rounds of faults under load with the embedded broker: whoever is connected loses nothing.

It promises no persistent sessions, so there is no reader that sleeps.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from faults_run import passes

# Of those that end it; Mosquitto has all.
_ITS_OWN = "kill-broker,power-cut"


def test_2_rounds(tmp_path: Path) -> None:
    """It is killed; and the power fails, after which everything starts again."""
    passes(tmp_path, "--rounds", 2, "--seed", 20, "--faults", _ITS_OWN, "--broker", "embedded")


@pytest.mark.full
def test_10_rounds(tmp_path: Path) -> None:
    """Each kind of fault once."""
    passes(tmp_path, "--rounds", 10, "--seed", 20, "--broker", "embedded")


@pytest.mark.full
@pytest.mark.parametrize("part", range(4))
def test_200_rounds_more(tmp_path: Path, part: int) -> None:
    passes(tmp_path, "--rounds", 50, "--broker", "embedded", "--full")
