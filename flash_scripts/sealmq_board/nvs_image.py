"""An ESP32's NVS partition: made by Espressif's generator, read back by a parser of our own before
anything is done with it.

Entries are of 32 bytes, 126 a page behind a header and a bitmap of two bits each; a blob is chunks
and an index. All numbers are little-endian, each CRC is CRC-32 from all ones.
"""

from __future__ import annotations

import io
import struct
import zlib
from typing import Any

from .chips import NVS_SIZE, SECTOR
from .errors import BoardError

# As firmware/sealmq_device/nvs.py has it. `state` and `boot` are the board's own.
NAMESPACE = "sealmq"
ENROLMENT = "enrolment"
WIFI = "wifi"
MEDIATOR = "mediator"
LARGEST = 4000

_ENTRY = 32
_ENTRIES = 126
_FIRST = 64  # of a page: the first entry
_ACTIVE, _FULL, _FREEING = 0xFFFFFFFE, 0xFFFFFFFC, 0xFFFFFFF8
_U8, _I32, _BLOB_DATA, _BLOB_INDEX = 0x01, 0x14, 0x42, 0x48
_VERSION_2 = 0xFE
_WRITTEN = 0b10


class NvsError(BoardError):
    """What is read is no NVS partition."""


def image(values: dict[str, bytes], size: int = NVS_SIZE) -> bytes:
    """A partition with these blobs in our namespace. BoardError: one does not fit."""
    for key, value in values.items():
        if key not in (ENROLMENT, WIFI, MEDIATOR):
            raise BoardError(f"{key} is the board's own and never written from here")
        if not 0 < len(value) <= LARGEST:
            raise BoardError(f"{key} has {len(value):,} bytes", f"NVS takes 1 to {LARGEST:,}")
    made = _generated(values, size)
    found = {key: value for (space, key), value in read(made).items() if space == NAMESPACE}
    if found != values:
        # Never seen; what stands there is not named.
        raise BoardError(
            "the NVS image does not read back as it was written",
            hint="esp-idf-nvs-partition-gen is another one than `make setup` installs",
        )
    return made


def fitted(raw: bytes, size: int) -> bytes:
    """The same blobs of ours in a partition of another size. BoardError: they do not fit."""
    if len(raw) <= size:
        return raw.ljust(size, b"\xff")
    return image({key: value for (space, key), value in read(raw).items()}, size)


def _generated(values: dict[str, bytes], size: int) -> bytes:
    # Behind a function: it draws in a command line of its own.
    from esp_idf_nvs_partition_gen import nvs_partition_gen as generator

    out = io.BytesIO()
    generator_error: type[Exception] = generator.InsufficientSizeError
    try:
        # The last page is left free, as NVS wants it; the generator adds it itself.
        nvs: Any = generator.nvs_open(out, size - SECTOR, generator.Page.VERSION2)
        generator.write_entry(nvs, NAMESPACE, "namespace", "", "")
        for key in sorted(values):
            generator.write_entry(nvs, key, "data", "binary", values[key])
        generator.nvs_close(nvs)
    except generator_error:
        raise BoardError(
            f"{sum(map(len, values.values())):,} bytes do not fit an NVS of {size:,} bytes"
        ) from None
    return out.getvalue()


def read(raw: bytes, torn: bool = False) -> dict[tuple[str, str], Any]:
    """{(namespace, key): bytes or int} of a partition. NvsError: it is none.

    Of the same key the later entry counts, as after a power cut between writing the new value and
    giving up the old one; what is torn counts as not there. `torn`: so does a page whose header is,
    as for the board itself.
    """
    if len(raw) % SECTOR or not raw:
        raise NvsError(f"{len(raw):,} bytes are no NVS partition")
    pages = []
    for start in range(0, len(raw), SECTOR):
        page = raw[start : start + SECTOR]
        state, number = struct.unpack_from("<II", page)
        if state == 0xFFFFFFFF:
            continue
        if state not in (_ACTIVE, _FULL, _FREEING) or _crc(page[4:28]) != _u32(page, 28):
            if torn:
                continue
            raise NvsError(f"the NVS page at 0x{start:x} has no valid header")
        if page[8] != _VERSION_2:
            raise NvsError(f"the NVS page at 0x{start:x} has format {page[8]:#x}, not 2")
        pages.append((number, page))
    entries = [entry for _, page in sorted(pages) for entry in _entries(page)]
    return _values(entries)


# (namespace index, type, chunk, key, the 8 data bytes, what follows) of the page's valid entries.
def _entries(page: bytes) -> list[tuple[int, int, int, str, bytes, bytes]]:
    found = []
    at = 0
    while at < _ENTRIES:
        start = _FIRST + at * _ENTRY
        head = page[start : start + _ENTRY]
        if (page[_ENTRY + at // 4] >> at % 4 * 2) & 3 != _WRITTEN:
            at += 1
            continue
        space, kind, span, chunk = head[:4]
        if _crc(head[:4] + head[8:32]) != _u32(head, 4) or not 1 <= span <= _ENTRIES - at:
            at += 1
            continue
        key = head[8:24].split(b"\0")[0].decode("ascii", "replace")
        rest = page[start + _ENTRY : start + span * _ENTRY]
        found.append((space, kind, chunk, key, head[24:32], rest))
        at += span
    return found


def _values(entries: list[tuple[int, int, int, str, bytes, bytes]]) -> dict[tuple[str, str], Any]:
    spaces = {data[0]: key for space, kind, _, key, data, _ in entries if not space and kind == _U8}
    chunks: dict[tuple[int, str, int], bytes] = {}
    for space, kind, chunk, key, data, rest in entries:
        if kind == _BLOB_DATA:
            size = struct.unpack_from("<H", data)[0]
            if size <= len(rest) and _crc(rest[:size]) == _u32(data, 4):
                chunks[space, key, chunk] = rest[:size]
    values: dict[tuple[str, str], Any] = {}
    for space, kind, _, key, data, _ in entries:
        if space not in spaces:
            continue
        if kind == _I32:
            values[spaces[space], key] = struct.unpack_from("<i", data)[0]
        elif kind == _BLOB_INDEX:
            size, count, first = struct.unpack_from("<IBB", data)
            parts = [chunks.get((space, key, first + n)) for n in range(count)]
            whole = b"".join(part for part in parts if part is not None)
            if None not in parts and len(whole) == size:
                values[spaces[space], key] = whole
    return values


def _crc(raw: bytes) -> int:
    return zlib.crc32(raw, 0xFFFFFFFF)


def _u32(raw: bytes, at: int) -> int:
    number: int = struct.unpack_from("<I", raw, at)[0]
    return number
