"""What the family adds to a message whose answers are kept: instructions of the mediator's core."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
MORE = 1000


def _instructions(order: str, count: int) -> int:
    tests, root = HERE.parents[1], HERE.parents[3]
    paths = (tests, root / "gateway", root / "shared_spec", root / "shared_spec/tests")
    done = subprocess.run(
        ["valgrind", "--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null",
         sys.executable, str(HERE / "message_cost.py"), order, str(count)],
        check=False,
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONHASHSEED": "0", "PYTHONPATH": ":".join(map(str, paths))},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) == 50 + count, done.stdout
    found = re.search(r"I +refs: +([0-9,]+)", done.stderr)
    assert found, done.stderr
    return int(found[1].replace(",", ""))


@pytest.mark.full
def test_a_message_costs_hardly_more_than_under_labels_alone() -> None:
    each = {
        order: _instructions(order, 200 + MORE) - _instructions(order, 200)
        for order in ("labels", "labels,owners")
    }
    print({order: found // MORE for order, found in each.items()})
    assert each["labels,owners"] <= 1.02 * each["labels"]
