"""The chips: where the ROM looks for its bootloader, and what code they run.

From Espressif's image format and MicroPython's generic boards. Where partitions lie is not here: it
is read from the firmware itself (firmware.py).
"""

from __future__ import annotations

from typing import NamedTuple

SECTOR = 4096
# MicroPython's own layout of 4 MiB: what `build` makes its images for, `flash` fits them to others.
NVS_SIZE = 0x6000
VFS_SIZE = 0x200000
PARTITION_TABLE = 0x8000


class Chip(NamedTuple):
    """One chip, by esptool's name for it."""

    name: str
    title: str  # as esptool and people write it
    image_id: int  # in the header of each image made for it
    boot_offset: int  # of the second-stage bootloader
    arch: str  # of native code in .mpy files


CHIPS = {
    chip.name: chip
    for chip in (
        Chip("esp32", "ESP32", 0, 0x1000, "xtensawin"),
        Chip("esp32s2", "ESP32-S2", 2, 0x1000, "xtensawin"),
        Chip("esp32s3", "ESP32-S3", 9, 0x0, "xtensawin"),
        Chip("esp32c3", "ESP32-C3", 5, 0x0, "rv32imc"),
        Chip("esp32c6", "ESP32-C6", 13, 0x0, "rv32imc"),
    )
}
# The interpreters that stand in for a chip on a virtual board.
HOST_ARCHS = ("x64", "x86")


def with_image_id(number: int) -> str:
    """The chip whose images bear this number, for a message."""
    for chip in CHIPS.values():
        if chip.image_id == number:
            return chip.title
    return f"an unknown chip ({number})"
