"""The NVS image: made by Espressif's generator, read by a parser of ours, bounds, torn pages."""

from __future__ import annotations

import struct
import zlib

import pytest

from sealmq_board import nvs_image
from sealmq_board.errors import BoardError


def blob(size: int) -> bytes:
    return bytes((n * 31 + n // 256) % 256 for n in range(size))


@pytest.mark.parametrize(
    "sizes", [(1, 1), (300, 80), (4000, 4000), (3968, 33), (31, 32), (4000, 1)]
)
def test_what_goes_in_comes_out(sizes: tuple[int, int]) -> None:
    values = {nvs_image.ENROLMENT: blob(sizes[0]), nvs_image.WIFI: blob(sizes[1])}
    raw = nvs_image.image(values)
    assert len(raw) == 0x6000
    assert nvs_image.read(raw) == {("sealmq", key): value for key, value in values.items()}
    # NVS needs a page that is free.
    assert raw[-4096:] == b"\xff" * 4096


def test_every_size_of_an_enrolment_reads_back() -> None:
    for size in range(1, 4001, 37):
        nvs_image.image({nvs_image.ENROLMENT: blob(size), nvs_image.MEDIATOR: b"h:1"})


@pytest.mark.parametrize("size", [0, 4001])
def test_a_blob_has_bounds(size: int) -> None:
    with pytest.raises(BoardError, match=r"1 to 4,000"):
        nvs_image.image({nvs_image.ENROLMENT: blob(size)})


@pytest.mark.parametrize("key", ["state", "boot", "Enrolment"])
def test_what_is_the_boards_own_is_never_written(key: str) -> None:
    with pytest.raises(BoardError, match="board's own"):
        nvs_image.image({nvs_image.ENROLMENT: b"x", key: b"y"})


def test_a_partition_that_is_too_small() -> None:
    values = {nvs_image.ENROLMENT: blob(4000), nvs_image.WIFI: blob(4000)}
    with pytest.raises(BoardError, match="do not fit"):
        nvs_image.image(values, 0x3000)


@pytest.mark.parametrize("size", [0x3000, 0x4000, 0x6000, 0x10000])
def test_it_fits_partitions_of_other_sizes(size: int) -> None:
    values = {nvs_image.ENROLMENT: blob(4000), nvs_image.WIFI: blob(120)}
    raw = nvs_image.fitted(nvs_image.image(values), size)
    assert len(raw) == size
    assert raw[-4096:] == b"\xff" * 4096
    assert nvs_image.read(raw) == {("sealmq", key): value for key, value in values.items()}


def test_erased_is_empty() -> None:
    assert nvs_image.read(b"\xff" * 0x6000) == {}


@pytest.mark.parametrize("raw", [b"", b"\0" * 0x1000, b"\xff" * 100, b"PK" * 2048])
def test_what_is_no_nvs_is_refused(raw: bytes) -> None:
    with pytest.raises(nvs_image.NvsError):
        nvs_image.read(raw)


def test_any_bit_that_flips_costs_a_value_and_never_changes_one() -> None:
    values = {nvs_image.ENROLMENT: blob(90), nvs_image.WIFI: blob(40)}
    raw = nvs_image.image(values)
    whole = {("sealmq", key): value for key, value in values.items()}
    for at in range(0x40, 0x40 + 12 * 32):
        for bit in (1, 0x80):
            torn = bytearray(raw)
            torn[at] ^= bit
            found = nvs_image.read(bytes(torn))
            for key, value in found.items():
                assert whole.get(key) == value, hex(at)


# Of one key written anew: both are there when the power failed before the old one was given up.
def test_the_newer_of_two_counts() -> None:
    raw = bytearray(nvs_image.image({nvs_image.WIFI: b"a"}))
    for n, number in enumerate((3, 4)):
        entry = struct.pack("<BBBB4x16si4s", 1, 0x14, 1, 0xFF, b"boot", number, b"\xff" * 4)
        crc = zlib.crc32(entry[:4] + entry[8:], 0xFFFFFFFF)
        place = 4 + n
        start = 64 + 32 * place
        raw[start : start + 32] = entry[:4] + struct.pack("<I", crc) + entry[8:]
        raw[32 + place // 4] &= ~(1 << place % 4 * 2) & 0xFF
    found = nvs_image.read(bytes(raw))
    assert found[("sealmq", "boot")] == 4
    assert found[("sealmq", "wifi")] == b"a"
