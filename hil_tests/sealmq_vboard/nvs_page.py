"""One page of ESP-IDF's NVS, format 2: a header, a bitmap of entry states, 126 entries.

header   u32 state, u32 sequence number, u8 version (0xFE), 19 x FF, u32 CRC-32 of bytes 4 to 27
bitmap   two bits an entry, from bit 0 of byte 32 on: 11 empty, 10 written, 00 erased
entry    u8 namespace, u8 type, u8 span (entries that it takes), u8 chunk, u32 CRC-32 of the entry
         without this field, 16 bytes of key, 8 bytes of value; variable length: u16 size, FF FF,
         u32 CRC-32 of the data, which lie in the entries behind
Everything is written so that power may fail at any bit: content first, then its state.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass

from .flash import SECTOR, Flash

ENTRY = 32
COUNT = 126
_BITMAP = 32
_FIRST = 64
_FF = 0xFFFFFFFF
_VERSION = 0xFE
_KNOWN = (0xFE, 0xFF)  # 0xFF: format 1, whose blobs have no index

EMPTY, WRITTEN, ERASED = 3, 2, 0
UNUSED, ACTIVE, FULL, FREEING = 0xFFFFFFFF, 0xFFFFFFFE, 0xFFFFFFFC, 0xFFFFFFF8
CORRUPT = -1

U8, I32, STR, BLOB_OLD, BLOB_DATA, BLOB_INDEX = 0x01, 0x14, 0x21, 0x41, 0x42, 0x48
_VARIABLE = (STR, BLOB_OLD, BLOB_DATA)
ANY_CHUNK = 0xFF
MOST = ENTRY * (COUNT - 1)  # bytes of a chunk


def crc(data: bytes) -> int:
    return zlib.crc32(data, _FF)


@dataclass(frozen=True)
class Item:
    space: int
    type: int
    span: int
    chunk: int
    key: bytes
    value: bytes  # the entry's last 8 bytes

    @property
    def variable(self) -> bool:
        return self.type in _VARIABLE

    @property
    def size(self) -> int:
        return int.from_bytes(self.value[:2], "little")

    def raw(self) -> bytes:
        front = struct.pack("<BBBB", self.space, self.type, self.span, self.chunk)
        back = self.key.ljust(16, b"\0") + self.value.ljust(8, b"\xff")
        return front + struct.pack("<I", crc(front + back)) + back

    def same(self, other: Item) -> bool:
        """Whether one of them takes the other's place."""
        return (self.space, self.key, self.chunk) == (other.space, other.key, other.chunk) and (
            self.type == BLOB_DATA
        ) == (other.type == BLOB_DATA)


def parse(raw: bytes) -> Item | None:
    """The entry, or None if it is damaged."""
    space, kind, span, chunk, check = struct.unpack_from("<BBBBI", raw)
    if check != crc(raw[:4] + raw[8:]) or not 1 <= span <= COUNT:
        return None
    return Item(space, kind, span, chunk, raw[8:24].split(b"\0")[0], raw[24:])


def _states(raw: bytes) -> list[int]:
    return [byte >> shift & 3 for byte in raw[_BITMAP:_FIRST] for shift in (0, 2, 4, 6)][:COUNT]


class Page:
    def __init__(self, flash: Flash, at: int) -> None:
        self._flash = flash
        self.at = at
        self.sequence = 0
        self.state: int = UNUSED

    # -- reading

    def load(self) -> None:
        """Look at what lies there, and clear away what a power cut left."""
        raw = self._flash.read(self.at, SECTOR)
        state, self.sequence, version = struct.unpack_from("<IIB", raw)
        if raw == b"\xff" * SECTOR:
            self.state = UNUSED
            return
        whole = struct.unpack_from("<I", raw, 28)[0] == crc(raw[4:28])
        if whole and version in _KNOWN and state in (ACTIVE, FULL, FREEING):
            self.state = state
            self._repair()
        else:
            self.state = CORRUPT

    def entry(self, index: int) -> bytes:
        return self._flash.read(self.at + _FIRST + index * ENTRY, ENTRY)

    def states(self) -> list[int]:
        return _states(self._flash.read(self.at, _FIRST))

    def items(self) -> Iterator[tuple[int, Item]]:
        """Each item that is written, in order, with its index."""
        if self.state in (UNUSED, CORRUPT):
            return
        raw = self._flash.read(self.at, SECTOR)
        states = _states(raw)
        index = 0
        while index < COUNT:
            at = _FIRST + index * ENTRY
            item = parse(raw[at : at + ENTRY]) if states[index] == WRITTEN else None
            if item is not None:
                yield index, item
            index += item.span if item is not None else 1

    def data(self, index: int, item: Item) -> bytes | None:
        """What a variable item holds; None if it is damaged."""
        first = self.at + _FIRST + (index + 1) * ENTRY
        data = self._flash.read(first, min(item.size, (COUNT - index - 1) * ENTRY))
        return data if crc(data) == struct.unpack_from("<I", item.value, 4)[0] else None

    @property
    def next_free(self) -> int:
        """Entries are used in order; COUNT when the page is full."""
        if self.state == UNUSED:
            return 0
        if self.state != ACTIVE:
            return COUNT
        states = self.states()
        return next((i for i in range(COUNT) if states[i] == EMPTY), COUNT)

    @property
    def used(self) -> int:
        return self.states().count(WRITTEN) if self.state not in (UNUSED, CORRUPT) else 0

    @property
    def tailroom(self) -> int:
        """Bytes that a variable item could have here."""
        return max(0, (COUNT - self.next_free - 1) * ENTRY)

    # -- writing

    def begin(self, sequence: int) -> None:
        """Take an unused page into use; its header is written with its first item."""
        if self.state == CORRUPT:
            self.erase()
        self.sequence = sequence

    def write(self, item: Item, data: bytes = b"") -> None:
        """The caller has seen that there is room."""
        if self.state == UNUSED:
            self._initialize()
        index = self.next_free
        self._put(index, item.raw())
        self._mark(index, 1, WRITTEN)
        whole = len(data) // ENTRY
        if whole:
            self._put(index + 1, data[: whole * ENTRY])
            self._mark(index + 1, whole, WRITTEN)
        if len(data) % ENTRY:
            self._put(index + 1 + whole, data[whole * ENTRY :].ljust(ENTRY, b"\xff"))
            self._mark(index + 1 + whole, 1, WRITTEN)

    def erase_item(self, index: int) -> None:
        """The item and its data; of a damaged one the entry alone."""
        item = parse(self.entry(index))
        span = item.span if item is not None else 1
        self._mark(index, min(span, COUNT - index), ERASED)

    def turn(self, state: int) -> None:
        """ACTIVE to FULL, FULL to FREEING: each clears one more bit."""
        self._flash.program(self.at, struct.pack("<I", state))
        self.state = state

    def copy_to(self, other: Page) -> None:
        if other.state == UNUSED:
            other._initialize()
        for index, item in self.items():
            at = other.next_free
            span = self._flash.read(self.at + _FIRST + index * ENTRY, item.span * ENTRY)
            other._put(at, span)
            other._mark(at, item.span, WRITTEN)

    def erase(self) -> None:
        self._flash.erase(self.at)
        self.state = UNUSED
        self.sequence = 0

    # -- inside

    def _initialize(self) -> None:
        rest = struct.pack("<IB", self.sequence, _VERSION) + b"\xff" * 19
        header = struct.pack("<I", ACTIVE) + rest + struct.pack("<I", crc(rest))
        self._flash.program(self.at, header)
        self.state = ACTIVE

    def _put(self, index: int, data: bytes) -> None:
        self._flash.program(self.at + _FIRST + index * ENTRY, data)

    def _mark(self, index: int, count: int, state: int) -> None:
        """Word by word, and only bits that are cleared."""
        bitmap = self._flash.read(self.at + _BITMAP, 32)
        for word in range(index // 16, (index + count - 1) // 16 + 1):
            (bits,) = struct.unpack_from("<I", bitmap, 4 * word)
            for i in range(max(index, 16 * word), min(index + count, 16 * word + 16)):
                bits &= ~((3 ^ state) << 2 * (i % 16))
            self._flash.program(self.at + _BITMAP + 4 * word, struct.pack("<I", bits))

    def _repair(self) -> None:
        states = self.states()
        end = COUNT
        if self.state == ACTIVE:
            end = self.next_free
            # Written, but the power failed before its state was.
            while end < COUNT and self.entry(end)[:4] != b"\xff\xff\xff\xff":
                self._mark(end, 1, ERASED)
                end += 1
        seen: list[tuple[int, Item]] = []
        index = 0
        while index < end:
            if states[index] in (ERASED, EMPTY):
                index += 1
                continue
            item = parse(self.entry(index)) if states[index] == WRITTEN else None
            whole = item is not None and all(
                state == WRITTEN for state in states[index : index + item.span]
            )
            if item is None or not whole:
                self.erase_item(index)
                index += item.span if item is not None else 1
                continue
            for earlier, old in seen:
                if old.same(item):
                    self.erase_item(earlier)
                    seen.remove((earlier, old))
                    break
            seen.append((index, item))
            index += item.span
