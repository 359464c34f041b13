"""The partition table in the flash, as ESP-IDF's bootloader reads it."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

_TABLE = 0x8000
_LENGTH = 0xC00
_MAGIC = b"\xaa\x50"


class Partition(NamedTuple):
    type: int
    subtype: int
    at: int
    size: int
    label: str
    encrypted: bool


def read(flash: Callable[[int, int], bytes]) -> list[Partition]:
    """All entries up to the first that is none."""
    table = flash(_TABLE, _LENGTH)
    found = []
    for at in range(0, _LENGTH, 32):
        magic, kind, subtype, offset, size, label, flags = struct.unpack_from(
            "<2sBBII16sI", table, at
        )
        if magic != _MAGIC:
            break
        name = label.split(b"\0")[0].decode("ascii", "replace")
        found.append(Partition(kind, subtype, offset, size, name, bool(flags & 1)))
    return found


def place(image: Path, at: int) -> dict[str, Any]:
    """The partition that an offset falls into, and where in it; of a board that is off, too."""

    def flash(start: int, length: int) -> bytes:
        with image.open("rb") as file:
            file.seek(start)
            return file.read(length)

    for part in read(flash):
        if part.at <= at < part.at + part.size:
            return {"partition": part.label, "offset": at - part.at}
    return {"partition": None, "offset": at}
