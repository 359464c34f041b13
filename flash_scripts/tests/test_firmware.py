"""Firmware files: what is not whole or for another chip is refused, offsets come from its table."""

from __future__ import annotations

import hashlib
import struct
from pathlib import Path

import pytest

from board_things import built
from sealmq_board import bundle, firmware, littlefs
from sealmq_board.chips import CHIPS, Chip
from sealmq_board.errors import BoardError
from sealmq_board.esptool_run import Ways
from sealmq_board.onto_board import Board
from sealmq_board.ports import Port
from sealmq_board.showing import Shown

MIB = 1 << 20
GENERIC = (
    ("nvs", 1, 2, 0x9000, 0x6000),
    ("phy_init", 1, 1, 0xF000, 0x1000),
    ("factory", 0, 0, 0x10000, 0x1F0000),
    ("vfs", 1, 0x81, 0x200000, 0x200000),
)
# Since MicroPython 1.26.
WITHOUT_VFS = GENERIC[:3]
OTA = (
    ("nvs", 1, 2, 0x9000, 0x4000),
    ("otadata", 1, 0, 0xD000, 0x2000),
    ("ota_0", 0, 0x10, 0x10000, 0x180000),
    ("ota_1", 0, 0x11, 0x190000, 0x180000),
    ("vfs", 1, 0x81, 0x310000, 0xF0000),
)


def image(chip: Chip, *segments: bytes, digest: bool = True) -> bytes:
    head = struct.pack("<BBBBIB3xHBHH4xB", 0xE9, len(segments), 2, 0x20, 0, 0xEE, chip.image_id,
                       0, 0, 0xFFFF, digest)  # fmt: skip
    body, checksum = bytearray(head), 0xEF
    for segment in segments:
        body += struct.pack("<II", 0x3F400020, len(segment)) + segment
        for byte in segment:
            checksum ^= byte
    body += bytes(15 - len(body) % 16) + bytes([checksum])
    return bytes(body) + (hashlib.sha256(body).digest() if digest else b"")


def table(rows: tuple[tuple[str, int, int, int, int], ...]) -> bytes:
    raw = b"".join(
        b"\xaa\x50" + struct.pack("<BBII16sI", kind, sub, at, size, name.encode(), 0)
        for name, kind, sub, at, size in rows
    )
    digest = hashlib.md5(raw, usedforsecurity=False).digest()
    return (raw + b"\xeb\xeb" + b"\xff" * 14 + digest).ljust(0xC00, b"\xff")


def whole(chip: Chip, rows: tuple[tuple[str, int, int, int, int], ...] = GENERIC) -> bytes:
    """A file as MicroPython's makeimg.py puts it together."""
    raw = image(chip, b"boot" * 50).ljust(0x8000 - chip.boot_offset, b"\xff") + table(rows)
    return raw.ljust(0x10000 - chip.boot_offset, b"\xff") + image(chip, b"app!" * 999, b"more")


ESP32 = CHIPS["esp32"]


@pytest.mark.parametrize("chip", CHIPS.values(), ids=list(CHIPS))
def test_it_is_cut_into_its_parts(chip: Chip) -> None:
    raw = whole(chip)
    made = firmware.checked(raw, chip)
    assert made.digest == hashlib.sha256(raw).hexdigest()
    assert [(part.name, part.offset) for part in made.parts] == [
        ("factory", 0x10000),
        ("partition table", 0x8000),
        ("bootloader", chip.boot_offset),
    ]
    for part in made.parts:
        start = part.offset - chip.boot_offset
        assert raw[start : start + len(part.content)] == part.content
        # NVS and what else lies between is left alone.
        assert part.offset + len(part.content) <= 0x9000 or part.offset >= 0x10000
    assert firmware.layout(made, 4 * MIB) == (0x9000, 0x6000, 0x200000, 0x200000)
    assert firmware.layout(made, 16 * MIB) == (0x9000, 0x6000, 0x200000, 0x200000)


def test_what_a_file_has_in_the_place_of_nvs_is_not_written() -> None:
    raw = whole(ESP32)
    made = firmware.checked(raw[:0x8000] + b"old secret" + raw[0x800A:], ESP32)
    assert [part.name for part in made.parts] == ["factory", "partition table", "bootloader"]


def test_where_no_file_system_is_in_the_table_it_is_the_rest_of_the_flash() -> None:
    made = firmware.checked(whole(ESP32, WITHOUT_VFS), ESP32)
    assert firmware.layout(made, 4 * MIB) == (0x9000, 0x6000, 0x200000, 2 * MIB)
    assert firmware.layout(made, 16 * MIB) == (0x9000, 0x6000, 0x200000, 14 * MIB)
    with pytest.raises(BoardError, match="leaves 0 bytes for files"):
        firmware.layout(made, 2 * MIB)


def test_flash_that_is_too_small() -> None:
    with pytest.raises(BoardError, match="made for 4 MiB of flash, the board has 2"):
        firmware.layout(firmware.checked(whole(ESP32), ESP32), 2 * MIB)


def test_too_little_nvs_is_refused() -> None:
    for rows in ((("nvs", 1, 2, 0x9000, 0x2000), *GENERIC[1:]), GENERIC[1:]):
        made = firmware.checked(whole(ESP32, rows), ESP32)
        with pytest.raises(BoardError, match=r"bytes of NVS; at least 12,288"):
            firmware.layout(made, 4 * MIB)


def test_which_of_two_programs_runs_is_set_back() -> None:
    made = firmware.checked(whole(ESP32, OTA), ESP32)
    parts = {part.name: part for part in made.parts}
    assert parts["otadata"] == ("otadata", 0xD000, b"\xff" * 0x2000)
    assert parts["ota_0"].offset == 0x10000
    assert "ota_1" not in parts
    assert firmware.layout(made, 4 * MIB) == (0x9000, 0x4000, 0x310000, 0xF0000)


def test_a_fat_layout_is_refused() -> None:
    rows = (*WITHOUT_VFS, ("ffat", 1, 0x81, 0x200000, 0x200000))
    made = firmware.checked(whole(ESP32, rows), ESP32)
    with pytest.raises(BoardError, match="FAT"):
        firmware.layout(made, 4 * MIB)


@pytest.mark.parametrize(
    ("text", "version"),
    [
        (b"v1.24.0 on 2024-10-25", "v1.24.0 on 2024-10-25"),
        (b"v1.26.0-preview.12.gabc on 2025-05-02", "v1.26.0-preview.12.gabc on 2025-05-02"),
        (b"no version", ""),
        (b"v1.23.0 on 2024-06-02", None),
        (b"v1.22.2 on 2024-02-22", None),
        (b"v1.9.4 on 2018-05-11", None),
    ],
)
def test_a_micropython_that_is_too_old_for_the_client(text: bytes, version: str | None) -> None:
    raw = whole(ESP32)[:0xF000] + image(ESP32, b"\0" + text + b"\0")
    if version is not None:
        assert firmware.checked(raw, ESP32).version == version
        return
    with pytest.raises(BoardError, match=r"needs 1\.24 or later"):
        firmware.checked(raw, ESP32)


def test_another_chip_is_named() -> None:
    for name, raw in (("esp32", whole(CHIPS["esp32s2"])), ("esp32c3", whole(CHIPS["esp32s3"]))):
        with pytest.raises(BoardError, match="the firmware is for ESP32-S"):
            firmware.checked(raw, CHIPS[name])
    # The bootloader is right, the program is not.
    raw = whole(ESP32)[:0xF000] + image(CHIPS["esp32s2"], b"app")
    with pytest.raises(BoardError, match="program is for ESP32-S2, the bundle for ESP32"):
        firmware.checked(raw, ESP32)


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (b"", "does not begin with 0xE9"),
        (b"UF2\n" * 400, "a .uf2, which esptool does not write"),
        (image(ESP32, b"app" * 40000), "no partition table at 0x8000"),  # .app-bin
        (whole(ESP32)[:0x6000], "no partition table"),
        (whole(ESP32)[:0x7100], "ends before its program"),
        (whole(ESP32)[:0xF008], "does not begin with 0xE9"),
        (whole(ESP32)[:0xF100], "program is cut short"),
        (whole(ESP32)[:-33], "program is cut short"),
        (whole(ESP32)[:-1], "program is cut short"),
    ],
)
def test_what_is_not_whole_is_refused(raw: bytes, text: str) -> None:
    with pytest.raises(BoardError, match=text) as caught:
        firmware.checked(raw, ESP32)
    assert caught.value.hint


@pytest.mark.parametrize("at", [0x20, 0x7002, 0x7048, 0xF030, 0xF000 + 24 + 8 + 3996 + 10])
def test_a_flipped_bit_is_found(at: int) -> None:
    raw = bytearray(whole(ESP32))
    raw[at] ^= 4
    with pytest.raises(BoardError, match=r"damaged|cut short"):
        firmware.checked(bytes(raw), ESP32)


@pytest.mark.parametrize(
    ("offset", "size"), [(0x1000, 0x1000), (0x9001, 0x6000), (0x9000, 0), (0x9000, 0xFFFFF000)]
)
def test_a_partition_that_cannot_be_is_refused(offset: int, size: int) -> None:
    rows = tuple((*row[:3], offset, size) if row[0] == "nvs" else row for row in GENERIC)
    with pytest.raises(BoardError, match=f"'nvs' has {size:,} bytes at 0x{offset:x}"):
        firmware.checked(whole(ESP32, rows), ESP32)


def test_without_a_digest_the_checksum_counts() -> None:
    raw = whole(ESP32)[:0xF000] + image(ESP32, b"app", digest=False)
    firmware.checked(raw, ESP32)
    torn = raw[:-14] + bytes([raw[-14] ^ 1]) + raw[-13:]
    with pytest.raises(BoardError):
        firmware.checked(torn.replace(b"app", b"apq"), ESP32)


def test_a_file_that_is_no_firmware_has_a_bound() -> None:
    with pytest.raises(BoardError, match="at most"):
        firmware.checked(b"\xe9" * (33 << 20), ESP32)


# What `flash` makes of it: in the order of writing, the bootloader last, the file system fitted.
def test_what_is_written_and_in_which_order(tmp_path: Path) -> None:
    taken = bundle.read(built(tmp_path))
    made = firmware.checked(whole(ESP32, WITHOUT_VFS), ESP32)
    ways = Ways(Port("x", "x"), "esp32", 115200, "no-reset", "no-reset")
    one = Board("x", ways, taken, made, Shown(None, "x"))
    one.flash_size = 8 * MIB
    parts = one.parts()
    assert [(part.name, part.offset) for part in parts] == [
        ("factory", 0x10000),
        ("partition table", 0x8000),
        ("vfs", 0x200000),
        ("nvs", 0x9000),
        ("bootloader", 0x1000),
    ]
    assert len(parts[2].content) == 6 * MIB
    assert littlefs.contents(parts[2].content) == littlefs.contents(taken.vfs)
    assert parts[3].content == taken.nvs


def test_a_uf2_is_refused_with_how_it_gets_onto_its_board() -> None:
    with pytest.raises(BoardError, match=r"\.uf2") as caught:
        firmware.checked(b"UF2\n" + bytes(508), CHIPS["esp32"])
    assert "BOOTSEL" in str(caught.value.hint)
