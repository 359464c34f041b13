"""MicroPython's firmware as one .bin: is it for this chip and whole, and where does it put things?

An image begins with the bootloader, at the chip's own offset; the partition table lies at 0x8000.
All offsets are read from that table. The file covers NVS as well, with 0xFF: it is cut into its
parts, and what lies between them on the board is never written for its sake.
"""

from __future__ import annotations

import hashlib
import re
import struct
from typing import NamedTuple

from .chips import PARTITION_TABLE, SECTOR, Chip, with_image_id
from .errors import BoardError

_MAGIC = 0xE9
_UF2 = b"UF2\n"
# How a board with a drive of its own gets MicroPython.
PICO = (
    "a Raspberry Pi Pico W is not flashed from here: hold BOOTSEL while you plug it in, copy "
    "MicroPython's .uf2 to the drive RPI-RP2, then `sealmq board provision`"
)
_HEADER, _SEGMENT = 24, 8
_ENTRY = 32
_ENTRY_MAGIC, _MD5_MAGIC = b"\xaa\x50", b"\xeb\xeb"
_APP, _DATA = 0, 1
_OTA_DATA = 0
_TABLE_SIZE = 0xC00
_LARGEST = 1 << 25
_LEAST_NVS = 3 * SECTOR  # one of them stays free
# The oldest MicroPython that the client is tried on. Version and native interface of its .mpy files
# are of 1.23, so they alone do not tell.
OLDEST = (1, 24)
_GENERIC = "MicroPython's own: https://micropython.org/download, ESP32_GENERIC or the board's"


class Partition(NamedTuple):
    """A line of the partition table."""

    name: str
    kind: int  # 0: a program, 1: data
    sub: int
    offset: int
    size: int


class Part(NamedTuple):
    """Bytes and where they go."""

    name: str
    offset: int
    content: bytes


class Firmware(NamedTuple):
    """A firmware file that was checked."""

    digest: str  # SHA-256, hex
    parts: tuple[Part, ...]  # the last one is the bootloader
    partitions: tuple[Partition, ...]
    version: str  # MicroPython's, if it is told anywhere

    def place(self, name: str) -> Partition | None:
        """The partition of that name."""
        return next((each for each in self.partitions if each.name == name), None)


class Layout(NamedTuple):
    """Where a board's own images go."""

    nvs: int
    nvs_size: int
    vfs: int
    vfs_size: int


def checked(raw: bytes, chip: Chip) -> Firmware:
    """The parts of a firmware file. BoardError: not whole, not for this chip, too old."""
    if len(raw) > _LARGEST:
        raise BoardError(f"the firmware has {len(raw):,} bytes", f"at most {_LARGEST:,}")
    if raw.startswith(_UF2):
        raise BoardError("the firmware is a .uf2, which esptool does not write", hint=PICO)
    _check_header(raw, 0, chip, "the firmware")
    at = PARTITION_TABLE - chip.boot_offset
    partitions = _table(raw[at : at + _TABLE_SIZE])
    programs = [each for each in partitions if each.kind == _APP]
    if not programs:
        raise BoardError("the firmware's partition table has no program", _GENERIC)
    parts = []
    for each in partitions:
        start = each.offset - chip.boot_offset
        content = raw[start : start + each.size]
        if each.kind == _DATA and each.sub == _OTA_DATA:
            # Says which of two programs runs: that of an older firmware must not stay.
            parts.append(Part(each.name, each.offset, b"\xff" * each.size))
        elif each.name not in ("nvs", "vfs") and content.strip(b"\xff"):
            parts.append(Part(each.name, each.offset, content))
    first = min(programs, key=lambda each: each.offset)
    if not any(part.offset == first.offset for part in parts):
        raise BoardError("the firmware ends before its program begins", hint="fetch it again")
    _check_image(raw, first.offset - chip.boot_offset, chip, "the firmware's program")
    _check_image(raw, 0, chip, "the firmware's bootloader")
    parts.append(Part("partition table", PARTITION_TABLE, raw[at : at + SECTOR]))
    boot = raw[:at].rstrip(b"\xff")
    boot += b"\xff" * (-len(boot) % 4)
    parts.append(Part("bootloader", chip.boot_offset, boot))
    digest = hashlib.sha256(raw).hexdigest()
    return Firmware(digest, tuple(parts), tuple(partitions), _version(raw))


def nvs_place(firmware: Firmware) -> Partition:
    """Where NVS is. BoardError: no room."""
    nvs = firmware.place("nvs")
    if nvs is None or nvs.size < _LEAST_NVS:
        size = 0 if nvs is None else nvs.size
        raise BoardError(f"the firmware has {size:,} bytes of NVS", f"at least {_LEAST_NVS:,}")
    return nvs


def layout(firmware: Firmware, flash_size: int) -> Layout:
    """Where NVS and the file system are, on a chip with that much flash. BoardError: no room."""
    nvs = nvs_place(firmware)
    end = max(each.offset + each.size for each in firmware.partitions)
    if end > flash_size:
        raise BoardError(
            f"the firmware is made for {end / 1048576:g} MiB of flash, the board has "
            f"{flash_size / 1048576:g}",
            hint="MicroPython has other .bin files for boards with less",
        )
    vfs = firmware.place("vfs")
    if vfs is None and firmware.place("ffat") is not None:
        raise BoardError("the firmware has a FAT file system (TinyUF2)", "one with littlefs")
    # Since MicroPython 1.26 none is in the table: it is what is left of the flash behind all else.
    start, size = (end, flash_size - end) if vfs is None else (vfs.offset, vfs.size)
    if size < 64 * SECTOR or start % SECTOR or nvs.offset % SECTOR:
        raise BoardError(
            f"the firmware leaves {size:,} bytes for files", f"at least {64 * SECTOR:,}"
        )
    return Layout(nvs.offset, nvs.size, start, size - size % SECTOR)


# The text of os.uname().version.
def _version(raw: bytes) -> str:
    found = re.search(rb"v(\d+)\.(\d+)\.[0-9a-z.-]{1,40} on 20\d\d-\d\d-\d\d", raw)
    if not found:
        return ""
    if (int(found[1]), int(found[2])) < OLDEST:
        raise BoardError(
            f"the firmware is MicroPython {found[0].decode()}",
            "the client needs 1.24 or later",
            hint=_GENERIC,
        )
    return found[0].decode()


def _check_header(raw: bytes, at: int, chip: Chip, what: str) -> int:
    if len(raw) < at + _HEADER or raw[at] != _MAGIC:
        raise BoardError(
            f"{what} is no image for an {chip.title}: it does not begin with 0xE9",
            _GENERIC,
            hint="an archive is no image; the chip is set by `build --chip`",
        )
    number: int = struct.unpack_from("<H", raw, at + 12)[0]
    if number != chip.image_id:
        raise BoardError(
            f"{what} is for {with_image_id(number)}, the bundle for {chip.title}",
            hint="another .bin, or `sealmq board build --chip`",
        )
    return raw[at + 1]


# Segments, the checksum and the digest behind them: a file that was cut short ends in here.
def _check_image(raw: bytes, start: int, chip: Chip, what: str) -> None:
    count = _check_header(raw, start, chip, what)
    at = start + _HEADER
    checksum = 0xEF
    for _ in range(count):
        if at + _SEGMENT > len(raw):
            raise _cut(what)
        size: int = struct.unpack_from("<I", raw, at + 4)[0]
        at += _SEGMENT + size
        if at > len(raw):
            raise _cut(what)
        checksum ^= _xor(raw[at - size : at])
    at += 16 - (at - start) % 16
    if at > len(raw):
        raise _cut(what)
    if raw[at - 1] != checksum:
        raise BoardError(f"{what} is damaged: its checksum is wrong", hint="fetch it again")
    if raw[start + 23] == 1:
        if at + 32 > len(raw):
            raise _cut(what)
        if hashlib.sha256(raw[start:at]).digest() != raw[at : at + 32]:
            raise BoardError(f"{what} is damaged: its digest is wrong", hint="fetch it again")


def _xor(raw: bytes) -> int:
    # Eight bytes at a time: a program has 1.5 MB.
    folded = 0
    for (word,) in struct.iter_unpack("<Q", raw + bytes(-len(raw) % 8)):
        folded ^= word
    for shift in (32, 16, 8):
        folded ^= folded >> shift
    return folded & 0xFF


def _cut(what: str) -> BoardError:
    return BoardError(f"{what} is cut short", hint="fetch it again")


def _table(raw: bytes) -> list[Partition]:
    found = []
    for at in range(0, len(raw), _ENTRY):
        entry = raw[at : at + _ENTRY]
        if entry[:2] == _MD5_MAGIC:
            if entry[16:] != hashlib.md5(raw[:at], usedforsecurity=False).digest():
                raise BoardError("the firmware's partition table is damaged", hint="fetch it again")
            break
        if entry[:2] != _ENTRY_MAGIC:
            break
        kind, sub, offset, size = struct.unpack_from("<BBII", entry, 2)
        name = entry[12:28].split(b"\0")[0].decode("ascii", "replace")
        found.append(Partition(name, kind, sub, offset, size))
    if not found:
        raise BoardError(
            f"the firmware has no partition table at 0x{PARTITION_TABLE:x}",
            "the whole firmware",
            hint="the .bin of MicroPython's download page, not the .app-bin of an update",
        )
    for name, _, _, offset, size in found:
        if offset <= PARTITION_TABLE or offset % SECTOR or not 0 < size <= _LARGEST:
            raise BoardError(
                f"the firmware's partition {name!r} has {size:,} bytes at 0x{offset:x}",
                f"whole sectors behind the partition table, at most {_LARGEST:,} bytes",
                hint="fetch it again",
            )
    return found
