"""The four bytes at the front of a .mpy file: what MicroPython looks at before it runs one.

MicroPython itself says only "incompatible .mpy file", without a name.
"""

from __future__ import annotations

import zlib
from pathlib import Path

VERSION = 6
# Of native code, as MicroPython 1.23 and later have it.
NATIVE = 3
ARCHS = {
    1: "x86",
    2: "x64",
    3: "armv6",
    4: "armv6m",
    5: "armv7m",
    6: "armv7em",
    7: "armv7emsp",
    8: "armv7emdp",
    9: "xtensa",
    10: "xtensawin",
    11: "rv32imc",
    12: "rv64imc",
}


class MpyError(Exception):
    """A .mpy file that cannot be made or would not run; the text names it and says why."""


def check(path: Path, arch: str, name: str = "") -> None:
    """Raises MpyError unless MicroPython 1.23 to 1.29 on `arch` takes the file `path`."""
    name = name or str(path)
    try:
        head = path.read_bytes()
        if path.suffix == ".mpyz":
            head = zlib.decompress(head, -15)
    except OSError as error:
        raise MpyError(f"{name}: {error.strerror}") from error
    except zlib.error as error:
        raise MpyError(f"{name}: {error}") from error
    if len(head) < 4 or head[:1] != b"M":
        raise MpyError(f"{name}: no .mpy file")
    if head[1] != VERSION:
        raise MpyError(f"{name}: .mpy version {head[1]}, not {VERSION}")
    number = head[2] >> 2 & 0x0F
    if not number:
        return
    if head[2] & 3 != NATIVE:
        raise MpyError(f"{name}: native code of .mpy version {VERSION}.{head[2] & 3}, not {NATIVE}")
    found = ARCHS.get(number, f"number {number}")
    if found != arch:
        raise MpyError(f"{name}: native code for {found}, not {arch}")


def check_folder(folder: Path, arch: str) -> int:
    """All .mpy files below `folder`; how many. Raises MpyError for the first wrong one."""
    files = sorted(folder.rglob("*.mpy*"))
    if not files:
        raise MpyError(f"{folder}: no .mpy file in it")
    for path in files:
        check(path, arch, path.relative_to(folder).as_posix())
    return len(files)
