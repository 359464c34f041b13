"""Rounds of faults under load with the site's own Mosquitto: nor does a reader that sleeps."""

from __future__ import annotations

from pathlib import Path

import pytest

from faults_run import passes


def test_10_rounds(tmp_path: Path) -> None:
    """Each kind of fault once."""
    passes(tmp_path, "--rounds", 10, "--seed", 30, "--broker", "mosquitto")


@pytest.mark.full
@pytest.mark.parametrize("part", range(6))
def test_300_rounds_more(tmp_path: Path, part: int) -> None:
    passes(tmp_path, "--rounds", 50, "--broker", "mosquitto", "--full")
