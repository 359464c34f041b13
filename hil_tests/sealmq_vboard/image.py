"""What the ROM and the bootloader look at before anything runs: image headers, partition table.

Reading only, and nothing is taken for granted: a flash half written is the usual case. What is
wrong is told in the words a real chip prints, as far as there are any.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable
from dataclasses import dataclass

from .chips import Chip

IMAGE_MAGIC = 0xE9
TABLE_AT = 0x8000
_TABLE_LENGTH = 0xC00
_ENTRY = struct.Struct("<HBBII16sI")
_ENTRY_MAGIC = 0x50AA
_DIGEST_MAGIC = 0xEBEB
_HEADER = struct.Struct("<BBBBIB3xHBHH4xB")
_SEGMENT = struct.Struct("<II")
_MOST_SEGMENTS = 16
_MOST_IMAGE = 4 << 20

Read = Callable[[int, int], bytes]


def checksum(data: bytes) -> int:
    """All bytes xored with 0xEF, by halving."""
    length = 1 << (len(data) - 1).bit_length() if data else 1
    value = int.from_bytes(data, "little")
    while length > 1:
        length >>= 1
        value = value >> 8 * length ^ value & (1 << 8 * length) - 1
    return value ^ 0xEF


class NoBoot(Exception):
    """The flash holds nothing that boots; the text is what the chip prints."""


@dataclass(frozen=True)
class Partition:
    name: str
    kind: int
    subtype: int
    at: int
    size: int


def check_image(read: Read, at: int, end: int, chip: Chip) -> None:
    """NoBoot: the image at `at` is not whole, or for another chip."""
    header = read(at, _HEADER.size)
    magic, count, *_, chip_id, _, _, _, hashed = _HEADER.unpack(header)
    if magic != IMAGE_MAGIC:
        raise NoBoot(f"invalid header: 0x{int.from_bytes(header[:4], 'little'):08x}")
    if chip_id != chip.chip_id:
        raise NoBoot(f"image is for chip id {chip_id}, this is {chip.title} ({chip.chip_id})")
    if not 0 < count <= _MOST_SEGMENTS:
        raise NoBoot(f"image at {at:#x} has {count} segments")
    here = at + _HEADER.size
    xored = 0
    for _ in range(count):
        if here + _SEGMENT.size > end:
            raise NoBoot(f"image at {at:#x} is longer than its place")
        _, length = _SEGMENT.unpack(read(here, _SEGMENT.size))
        here += _SEGMENT.size
        if length > _MOST_IMAGE or here + length > end:
            raise NoBoot(f"image at {at:#x} is longer than its place")
        xored ^= checksum(read(here, length)) ^ 0xEF
        here += length
    # The checksum is the last byte of a block of 16.
    here += 15 - (here - at) % 16
    if here + 1 + 32 * hashed > end:
        raise NoBoot(f"image at {at:#x} is longer than its place")
    if read(here, 1)[0] != xored ^ 0xEF:
        raise NoBoot(
            f"checksum failed. Calculated 0x{xored ^ 0xEF:02x} read 0x{read(here, 1)[0]:02x}"
        )
    if hashed:
        whole = read(at, here + 1 - at)
        if hashlib.sha256(whole).digest() != read(here + 1, 32):
            raise NoBoot(f"image at {at:#x} has invalid hash")


def partitions(read: Read, size: int) -> list[Partition]:
    """The partition table. NoBoot: there is none, or its digest does not fit."""
    table = read(TABLE_AT, _TABLE_LENGTH)
    found: list[Partition] = []
    for at in range(0, _TABLE_LENGTH, _ENTRY.size):
        magic, kind, subtype, start, length, name, _ = _ENTRY.unpack_from(table, at)
        if magic == _DIGEST_MAGIC:
            digest = hashlib.md5(table[:at], usedforsecurity=False).digest()
            if digest != table[at + 16 : at + 32]:
                raise NoBoot("partition table: MD5 does not fit")
            break
        if magic != _ENTRY_MAGIC:
            if magic == 0xFFFF and found:
                break
            raise NoBoot(f"partition 0 invalid magic number 0x{magic:x}")
        if start + length > size:
            raise NoBoot(f"partition {len(found)} invalid: it ends behind the flash")
        text = name.rstrip(b"\0").decode("ascii", "replace")
        found.append(Partition(text, kind, subtype, start, length))
    if not found:
        raise NoBoot("partition table is empty")
    return found


def check_flash(read: Read, size: int, chip: Chip) -> list[Partition]:
    """All that stands between power-on and the program: the partitions, or NoBoot."""
    check_image(read, chip.bootloader, TABLE_AT, chip)
    table = partitions(read, size)
    apps = [part for part in table if part.kind == 0]
    if not apps:
        raise NoBoot("no bootable app partitions in the partition table")
    # The official table has one, `factory`; with none of its kind the first is taken.
    app = min(apps, key=lambda part: part.subtype)
    check_image(read, app.at, app.at + app.size, chip)
    return table
