"""A stand-in for the official firmware: a file that esptool takes and the virtual board boots.

It has the official one's places (bootloader, partition table, application), whole and with right
checksums, and no program at all: a real chip would boot it into nothing. It says so in its
descriptors, which `esptool image-info` prints.
"""

from __future__ import annotations

import hashlib
import struct

from .chips import Chip
from .image import TABLE_AT, checksum

PROJECT = "sealmq vboard stand-in"
VERSION = "no program: virtual boards only"
APP_AT = 0x10000
# MicroPython's ESP32_GENERIC table for 4 MiB: name, type, subtype, offset, size.
TABLE = (
    ("nvs", 1, 2, 0x9000, 0x6000),
    ("phy_init", 1, 1, 0xF000, 0x1000),
    ("factory", 0, 0, APP_AT, 0x1F0000),
    ("vfs", 1, 0x81, 0x200000, 0x200000),
)
_DESCRIPTOR_MAGIC = 0xABCD5432
_BOOT_DESCRIPTOR_MAGIC = 0x50
_TEXT = b"This is no program. It is put in the place of a firmware on a virtual board.\n"


def image(chip: Chip, segments: list[tuple[int, bytes]]) -> bytes:
    """An image as the ROM's loader wants it: header, segments, checksum, SHA-256."""
    # Entry point 0: nothing here is to be run. DIO, 40 MHz, 4 MiB; any revision; digest appended.
    header = struct.pack(
        "<BBBBIB3xHBHH4xB", 0xE9, len(segments), 2, 0x20, 0, 0xEE, chip.chip_id, 0, 0, 0xFFFF, 1
    )
    body = bytearray(header)
    xored = 0
    for address, data in segments:
        data += bytes(-len(data) % 4)
        xored ^= checksum(data) ^ 0xEF
        body += struct.pack("<II", address, len(data)) + data
    body += bytes(15 - len(body) % 16)
    body.append(xored ^ 0xEF)
    return bytes(body) + hashlib.sha256(body).digest()


def table() -> bytes:
    entries = b"".join(
        struct.pack("<HBBII16sI", 0x50AA, kind, subtype, at, size, name.encode(), 0)
        for name, kind, subtype, at, size in TABLE
    )
    digest = hashlib.md5(entries, usedforsecurity=False).digest()
    return (entries + b"\xeb\xeb" + b"\xff" * 14 + digest).ljust(0xC00, b"\xff")


def _boot_descriptor() -> bytes:
    return struct.pack("<B3xI32s24s16x", _BOOT_DESCRIPTOR_MAGIC, 0, PROJECT.encode(), b"")


def _descriptor() -> bytes:
    return struct.pack(
        "<II8x32s32s16s16s32s32s80x",
        _DESCRIPTOR_MAGIC,
        0,
        VERSION.encode(),
        PROJECT.encode(),
        b"",
        b"",
        b"none",
        b"",
    )


def firmware(chip: Chip, size: int = 0) -> bytes:
    """The file to write at the chip's bootloader offset; of at least `size` bytes, and 48 more."""
    start = chip.bootloader
    boot = image(chip, [(chip.dram, _boot_descriptor() + _TEXT)])
    flash = (boot.ljust(TABLE_AT - start, b"\xff") + table()).ljust(APP_AT - start, b"\xff")
    program = _descriptor() + _TEXT
    least = len(flash) + len(image(chip, [(chip.drom + 0x20, program)]))
    # Filling that does not compress away, and is the same each time.
    for number in range(-(-max(0, size - least) // 32)):
        program += hashlib.sha256(number.to_bytes(4, "big")).digest()
    return flash + image(chip, [(chip.drom + 0x20, program)])
