"""Instructions that a message takes, by cachegrind: not what else runs on the machine."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
MORE = 1000


def a_message(script: Path, order: str) -> int:
    """Of one more message in `script ORDER COUNT`, which prints how many came."""
    return (_of(script, order, 200 + MORE) - _of(script, order, 200)) // MORE


def _of(script: Path, order: str, count: int) -> int:
    paths = (ROOT / "gateway/tests", ROOT / "gateway", ROOT / "shared_spec",
             ROOT / "shared_spec/tests")  # fmt: skip
    done = subprocess.run(
        ["valgrind", "--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null",
         sys.executable, str(script), order, str(count)],
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
