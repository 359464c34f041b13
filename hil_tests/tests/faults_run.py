"""`python -m faults` as tests start it: as a command, in a folder of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parents[1]
# What the longest run may take on a slow machine; no test looks at how long it took.
LIMIT_S = 3600


def faults(folder: Path, *options: object) -> tuple[int, str]:
    """(exit code, all that it printed, seed included). What is kept lies in `folder`."""
    done = subprocess.run(
        [sys.executable, "-m", "faults", *map(str, options)],
        cwd=HERE,
        env={**os.environ, "TMPDIR": str(folder)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    return done.returncode, done.stdout


def passes(folder: Path, *options: object) -> None:
    """A run in which every promise is kept."""
    code, said = faults(folder, *options)
    assert code == 0, said
    assert said.splitlines()[-1] == "ok"
