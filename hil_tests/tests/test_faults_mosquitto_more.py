"""More rounds of faults with the site's own Mosquitto, in another file for another worker."""

from __future__ import annotations

from pathlib import Path

import pytest

from faults_run import passes


@pytest.mark.full
def test_15_rounds_more(tmp_path: Path) -> None:
    passes(tmp_path, "--rounds", 15, "--seed", 31, "--broker", "mosquitto")
