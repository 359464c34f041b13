"""Reads an NVS partition as Espressif documents it, and takes nothing on trust.

From "Non-Volatile Storage Library", chapter "Internals": structure of a page and of an entry, their
states. Written from that text and independent of what writes. Anything that is not as it says
there, or any value that stands there twice, is a Damage.
"""

from __future__ import annotations

import binascii
from dataclasses import dataclass

Value = int | bytes | str
_PAGE = 4096
_INTEGERS = {
    0x01: (1, False), 0x02: (2, False), 0x04: (4, False), 0x08: (8, False),
    0x11: (1, True), 0x12: (2, True), 0x14: (4, True), 0x18: (8, True),
}  # fmt: skip
_STATES = {0xFFFFFFFF: "empty", 0xFFFFFFFE: "active", 0xFFFFFFFC: "full", 0xFFFFFFF8: "erasing"}


class Damage(Exception):
    """The partition is not what the documentation says."""


@dataclass
class Found:
    space: int
    kind: int
    chunk: int
    key: str
    value: Value


def _crc(data: bytes) -> int:
    return binascii.crc32(data, 0xFFFFFFFF) & 0xFFFFFFFF


def read(image: bytes, corrupted: int = 0) -> dict[tuple[str, str], Value]:
    """(namespace, key) -> int, str or bytes.

    So many pages may be corrupted, after a power cut: the library keeps them for later use.
    """
    if len(image) % _PAGE:
        raise Damage("no whole number of pages")
    found: list[Found] = []
    sequences = set()
    active = 0
    for at in range(0, len(image), _PAGE):
        page = image[at : at + _PAGE]
        state = _STATES.get(int.from_bytes(page[:4], "little"))
        if not page.strip(b"\xff"):
            continue
        if state in (None, "empty") or int.from_bytes(page[28:32], "little") != _crc(page[4:28]):
            corrupted -= 1
            if corrupted < 0:
                raise Damage(f"page at {at:#x} is corrupted")
            continue
        if state == "erasing":
            raise Damage(f"page at {at:#x} is being erased")
        active += state == "active"
        sequence = int.from_bytes(page[4:8], "little")
        if sequence in sequences:
            raise Damage(f"two pages have the number {sequence}")
        sequences.add(sequence)
        found += _page(page, at)
    if active > 1:
        raise Damage(f"{active} active pages")
    return _together(found)


def _page(page: bytes, at: int) -> list[Found]:
    if page[8] != 0xFE or page[9:28].strip(b"\xff"):
        raise Damage(f"page at {at:#x} is not of version 2")
    states = []
    for number in range(126):
        byte = page[32 + number // 4]
        states.append(byte >> 2 * (number % 4) & 3)
    found = []
    number = 0
    while number < 126:
        where = f"entry {number} of the page at {at:#x}"
        entry = page[64 + 32 * number : 96 + 32 * number]
        if states[number] == 3 and entry.strip(b"\xff"):
            raise Damage(f"{where} is empty and holds something")
        if states[number] == 1:
            raise Damage(f"{where} is in no state")
        if states[number] != 2:
            number += 1
            continue
        span = entry[2]
        if not 1 <= span <= 126 - number or states[number : number + span] != [2] * span:
            raise Damage(f"{where}: span {span}")
        behind = page[96 + 32 * number : 64 + 32 * (number + span)]
        found.append(_entry(entry, behind, where))
        number += span
    return found


def _entry(entry: bytes, behind: bytes, where: str) -> Found:
    if int.from_bytes(entry[4:8], "little") != _crc(entry[:4] + entry[8:]):
        raise Damage(f"{where}: checksum")
    kind, key = entry[1], entry[8:24]
    name, _, rest = key.partition(b"\0")
    if not name or rest.strip(b"\0") or len(name) > 15:
        raise Damage(f"{where}: key {key!r}")
    value: Value
    if kind in _INTEGERS:
        width, signed = _INTEGERS[kind]
        value = int.from_bytes(entry[24 : 24 + width], "little", signed=signed)
        if entry[24 + width :].strip(b"\xff") or behind:
            raise Damage(f"{where}: an integer with more than that")
    elif kind in (0x21, 0x42):
        size = int.from_bytes(entry[24:26], "little")
        if len(behind) != -(-size // 32) * 32:
            raise Damage(f"{where}: {size} bytes in {len(behind)}")
        if int.from_bytes(entry[28:32], "little") != _crc(behind[:size]):
            raise Damage(f"{where}: checksum of the data")
        value = behind[:size]
    elif kind == 0x48:
        value = entry[24:32]
    else:
        raise Damage(f"{where}: type {kind:#x}")
    return Found(entry[0], kind, entry[3], name.decode("ascii"), value)


def _together(found: list[Found]) -> dict[tuple[str, str], Value]:
    names: dict[int, str] = {}
    for one in found:
        if one.space == 0:
            if not isinstance(one.value, int) or one.value in names:
                raise Damage(f"namespace {one.key}")
            names[one.value] = one.key
    chunks: dict[tuple[int, str, int], bytes] = {}
    values: dict[tuple[str, str], Value] = {}
    for one in found:
        if one.space and one.space not in names:
            raise Damage(f"{one.key} is in no namespace")
        if one.kind == 0x42:
            place = (one.space, one.key, one.chunk)
            if place in chunks or not isinstance(one.value, bytes):
                raise Damage(f"chunk {one.chunk} of {one.key} stands there twice")
            chunks[place] = one.value
    for one in found:
        if one.space == 0 or one.kind == 0x42:
            continue
        value = one.value
        if one.kind == 0x48 and isinstance(value, bytes):
            value = _blob(one, value, chunks)
        elif one.kind == 0x21 and isinstance(value, bytes):
            value = value[:-1].decode()
        if (names[one.space], one.key) in values:
            raise Damage(f"{one.key} stands there twice")
        values[names[one.space], one.key] = value
    if chunks:
        raise Damage(f"chunks that no index has: {sorted(chunks)}")
    return values


def _blob(one: Found, index: bytes, chunks: dict[tuple[int, str, int], bytes]) -> bytes:
    size, count, start = int.from_bytes(index[:4], "little"), index[4], index[5]
    if start not in (0, 0x80) or index[6:] != b"\xff\xff":
        raise Damage(f"index of {one.key}")
    try:
        whole = b"".join(chunks.pop((one.space, one.key, start + i)) for i in range(count))
    except KeyError:
        raise Damage(f"{one.key} lacks a chunk") from None
    if len(whole) != size:
        raise Damage(f"{one.key}: {len(whole)} bytes, the index says {size}")
    return whole
