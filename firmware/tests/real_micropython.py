"""Scripts run by real MicroPython, 64-bit and 32-bit; a missing interpreter is a failure."""

from __future__ import annotations

import os
import platform
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BITS = (64, 32)
# MicroPython has no viper on 64-bit ARM; plain code stands in there.
VIPER = (32,) if platform.machine() == "aarch64" else BITS


def micropython(bits: int, script: str, *args: object, heap: str = "1M") -> str:
    """What `script` (a file beside this one) prints; AssertionError with its error otherwise."""
    program = ROOT / "build" / "micropython" / "bin" / f"micropython{bits}"
    assert program.exists(), f"{program} is missing: run firmware/host/fetch.py"
    folders = (ROOT / "firmware", ROOT / "shared_spec", ROOT / "build" / "micropython" / "lib")
    done = subprocess.run(
        [program, "-X", f"heapsize={heap}", Path(__file__).with_name(script), *map(str, args)],
        env={**os.environ, "MICROPYPATH": ":".join(map(str, folders))},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
