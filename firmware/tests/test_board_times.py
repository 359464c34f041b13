"""The script that times a board runs through on real MicroPython, so that on a board it does too.
What it prints for a host says nothing about a board and is not looked at."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from device_script import board
from real_micropython import BITS, ROOT

# What an ESP32 has, without what it is for.
ESP32 = """
class NVS:
    kept = {}
    def __init__(self, namespace): self.namespace = namespace
    def set_i32(self, key, value): self.kept[self.namespace, key] = value
    def set_blob(self, key, value): self.kept[self.namespace, key] = value
    def erase_key(self, key): del self.kept[self.namespace, key]
    def commit(self): pass
"""


@pytest.mark.parametrize("bits", BITS)
def test_every_row_on_a_host(bits: int, tmp_path: Path) -> None:
    (tmp_path / "esp32.py").write_text(ESP32)
    folders = (tmp_path, ROOT / "firmware", ROOT / "shared_spec", ROOT / "build/micropython/lib")
    with board(tmp_path) as made:
        done = subprocess.run(
            [
                ROOT / "build" / "micropython" / "bin" / f"micropython{bits}",
                ROOT / "firmware" / "host" / "board_times.py",
                made.enrolment,
            ],
            env={**os.environ, "MICROPYPATH": ":".join(map(str, folders))},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
    assert done.returncode == 0, done.stdout + done.stderr
    rows = re.findall(r"^\| (.+) \| (\d+) \| (\d+) \| (\d+) \|$", done.stdout, re.MULTILINE)
    names = {name for name, *_ in rows}
    ciphers = {
        f"{op} {suite}, {n} bytes"
        for op in ("seal", "open")
        for suite in ("CCM", "ChaCha20-Poly1305")
        for n in (16, 64, 256, 1024, 4096)
    }
    assert ciphers <= names
    # Every row of the table that waits in the README has a line to be filled from.
    readme = (ROOT / "firmware" / "README.md").read_text(encoding="utf-8")
    waiting = readme.split("## Unmeasured until a board runs it")[1].split("\n## ")[0]
    wanted = re.findall(r"^\| `(.+?)` \|", waiting, re.MULTILINE)
    assert len(wanted) > 8
    assert set(wanted) <= names
    assert all(int(calls) > 0 for *_, calls in rows)
