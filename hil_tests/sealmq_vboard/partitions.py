"""The partition table in the flash, as ESP-IDF's bootloader reads it."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import NamedTuple

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
