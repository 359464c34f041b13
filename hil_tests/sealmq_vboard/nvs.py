"""ESP-IDF's NVS over the flash's partition, as MicroPython's esp32.NVS uses it: i32 and blobs.

A value is written beside the old one, which is then erased; a blob is chunks and behind them an
index that says which chunks count. Pages are filled one after another; the last free one is only
used to move what lives out of the page with the most rubbish. Whatever moment the power fails at,
`start` finds the old value or the new one. Error codes are ESP-IDF's.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from .flash import SECTOR, Flash
from .nvs_page import (
    ACTIVE,
    ANY_CHUNK,
    BLOB_DATA,
    BLOB_INDEX,
    BLOB_OLD,
    CORRUPT,
    COUNT,
    ENTRY,
    FREEING,
    FULL,
    I32,
    MOST,
    U8,
    UNUSED,
    Item,
    Page,
    crc,
)

NOT_INITIALIZED = 0x1101
NOT_FOUND = 0x1102
TYPE_MISMATCH = 0x1103
NOT_ENOUGH_SPACE = 0x1105
INVALID_NAME = 0x1106
KEY_TOO_LONG = 0x1109
INVALID_LENGTH = 0x110C
VALUE_TOO_LONG = 0x110E

_LONGEST_NAME = 15
_MOST_SPACES = 254
_VERSIONS = (0, 0x80)  # where a blob's chunks are numbered from, in turns
_PIECE = 4096  # bytes of a blob in one answer to the interpreter


class NvsError(Exception):
    """`code` is ESP-IDF's."""

    def __init__(self, code: int) -> None:
        super().__init__(f"NVS error {code:#x}")
        self.code = code


class Nvs:
    def __init__(self, flash: Flash, at: int, size: int) -> None:
        self._pages = [Page(flash, here) for here in range(at, at + size, SECTOR)]
        self._used: list[Page] = []  # by age
        self._free: list[Page] = []
        self._sequence = 0

    # -- start: what a power cut left is put right

    def start(self) -> None:
        """As nvs_flash_init; MicroPython erases a partition that has no free page. PowerLost."""
        self._load()
        self._forget_the_older()
        self._finish_moving()
        if not self._free:
            for page in self._pages:
                page.erase()
            self._load()
        self._erase_orphans()
        if not self._used:
            self._activate()

    def _load(self) -> None:
        for page in self._pages:
            page.load()
        self._free = [page for page in self._pages if page.state in (UNUSED, CORRUPT)]
        used = [page for page in self._pages if page not in self._free]
        self._used = sorted(used, key=lambda page: page.sequence)
        self._sequence = self._used[-1].sequence + 1 if self._used else 0

    def _forget_the_older(self) -> None:
        """The last item may be a new value whose old one was not erased yet, on another page."""
        last = None
        for _, item in self._used[-1].items() if self._used else ():
            last = item
        if last is None:
            return
        for page in self._used[:-1]:
            if page.state == FREEING:
                continue
            for index, item in page.items():
                if item.same(last):
                    page.erase_item(index)
                    return

    def _finish_moving(self) -> None:
        """A page was being emptied: what was copied is thrown away and copied again."""
        for page in list(self._used):
            if page.state == FREEING:
                newest = self._used[-1]
                if newest.state == ACTIVE:
                    newest.erase()
                    self._used.remove(newest)
                    self._free.append(newest)
                self._move_out(page)

    def _erase_orphans(self) -> None:
        """Chunks that no index counts, and indexes whose chunks are not all there."""
        for page, index, item in self._all():
            if item.type == BLOB_INDEX and self._chunks(item) is None:
                page.erase_item(index)
        counted = set()
        for _, _, item in self._all():
            if item.type == BLOB_INDEX:
                _, count, start = _index(item)
                counted |= {(item.space, item.key, start + i) for i in range(count)}
        for page, index, item in self._all():
            if item.type == BLOB_DATA and (item.space, item.key, item.chunk) not in counted:
                page.erase_item(index)

    # -- what the interpreter asks

    def ask(self, verb: bytes, space: bytes, key: bytes, rest: bytes) -> tuple[int, bytes]:
        """One call of esp32.NVS: a number and bytes. NvsError, PowerLost."""
        number = self._space(space, create=True)
        if verb in b"oc":  # open, commit: everything lies in the flash already
            return 0, b""
        if not 1 <= len(key) <= _LONGEST_NAME:
            raise NvsError(KEY_TOO_LONG if key else INVALID_NAME)
        if verb == b"i":
            return 0, self._get(number, key, I32).value[:4]
        if verb == b"I":
            self._set_plain(Item(number, I32, 1, ANY_CHUNK, key, rest))
        elif verb == b"b":
            room, at = struct.unpack("<II", rest)
            value = self._get_blob(number, key)
            if len(value) > room:
                raise NvsError(INVALID_LENGTH)
            return len(value), value[at : at + _PIECE]
        elif verb == b"B":
            self._set_blob(number, key, rest)
        elif verb == b"e":
            self._erase_key(number, key)
        else:
            raise NvsError(NOT_FOUND)
        return 0, b""

    def _space(self, name: bytes, create: bool) -> int:
        if not 1 <= len(name) <= _LONGEST_NAME:
            raise NvsError(INVALID_NAME)
        taken = set()
        for _, _, item in self._all():
            if item.space == 0 and item.type == U8:
                if item.key == name:
                    return item.value[0]
                taken.add(item.value[0])
        free = [number for number in range(1, _MOST_SPACES + 1) if number not in taken]
        if not create or not free:
            raise NvsError(NOT_FOUND if free else NOT_ENOUGH_SPACE)
        self._set_plain(Item(0, U8, 1, ANY_CHUNK, name, bytes([free[0]])))
        return free[0]

    # -- values

    def _all(self) -> Iterator[tuple[Page, int, Item]]:
        for page in list(self._used):
            for index, item in page.items():
                yield page, index, item

    def _find(self, space: int, key: bytes) -> tuple[Page, int, Item] | None:
        """The item that stands for the key: not a chunk."""
        for page, index, item in self._all():
            if (item.space, item.key) == (space, key) and item.type != BLOB_DATA:
                return page, index, item
        return None

    def _get(self, space: int, key: bytes, kind: int) -> Item:
        found = self._find(space, key)
        if found is None:
            raise NvsError(NOT_FOUND)
        if found[2].type != kind:
            raise NvsError(TYPE_MISMATCH)
        return found[2]

    def _get_blob(self, space: int, key: bytes) -> bytes:
        found = self._find(space, key)
        if found is not None and found[2].type == BLOB_OLD:
            page, index, item = found
            data = page.data(index, item)
        else:
            data = self._blob(self._get(space, key, BLOB_INDEX))
        if data is None:
            raise NvsError(NOT_FOUND)
        return data

    def _chunks(self, index: Item) -> list[tuple[Page, int, Item]] | None:
        """The chunks that an index counts, in order; None if they are not all there."""
        size, count, start = _index(index)
        there = {
            item.chunk: (page, at, item)
            for page, at, item in self._all()
            if (item.space, item.key, item.type) == (index.space, index.key, BLOB_DATA)
        }
        wanted = [start + i for i in range(count)]
        if any(chunk not in there for chunk in wanted):
            return None
        chunks = [there[chunk] for chunk in wanted]
        return chunks if sum(item.size for _, _, item in chunks) == size else None

    def _blob(self, index: Item) -> bytes | None:
        data = b""
        for page, at, item in self._chunks(index) or ():
            part = page.data(at, item)
            if part is None:
                return None
            data += part
        return data

    def _set_plain(self, item: Item) -> None:
        old = self._find(item.space, item.key)
        if old is not None and old[2].type == item.type and old[2].value == _padded(item.value):
            return  # no write for what is there already
        if self._current.next_free >= COUNT:
            self._new_page()
        self._current.write(item)
        if old is not None:
            self._drop(self._again(old))

    def _set_blob(self, space: int, key: bytes, data: bytes) -> None:
        if len(data) > (len(self._pages) - 1) * MOST:
            raise NvsError(VALUE_TOO_LONG)
        old = self._find(space, key)
        start = _VERSIONS[0]
        if old is not None and old[2].type == BLOB_INDEX:
            if self._blob(old[2]) == data:
                return
            start = _VERSIONS[_index(old[2])[2] == _VERSIONS[0]]
        try:
            count = self._write_chunks(space, key, data, start)
        except NvsError:
            self._drop_chunks(space, key, start)
            raise
        value = struct.pack("<IBBH", len(data), count, start, 0xFFFF)
        self._current.write(Item(space, BLOB_INDEX, 1, ANY_CHUNK, key, value))
        if old is not None:
            self._drop(self._again(old))

    def _write_chunks(self, space: int, key: bytes, data: bytes, start: int) -> int:
        """How many. There is room for the index behind the last."""
        count = 0
        left = data
        while left or not count:
            room = self._current.tailroom
            if (not count and room < len(data) and room < MOST // 10) or not room:
                self._new_page()
                if self._current.tailroom <= room:
                    raise NvsError(NOT_ENOUGH_SPACE)
                continue
            part, left = left[:room], left[room:]
            span = 1 + -(-len(part) // ENTRY)
            value = struct.pack("<HHI", len(part), 0xFFFF, crc(part))
            self._current.write(Item(space, BLOB_DATA, span, start + count, key, value), part)
            count += 1
            if left or self._current.next_free >= COUNT:
                self._new_page()
        return count

    def _erase_key(self, space: int, key: bytes) -> None:
        found = self._find(space, key)
        if found is None:
            raise NvsError(NOT_FOUND)
        self._drop(found)

    def _again(self, old: tuple[Page, int, Item]) -> tuple[Page, int, Item]:
        """Where an item lies now: a page may have been moved meanwhile."""
        for page, index, item in self._all():
            if item == old[2]:
                return page, index, item
        return old

    def _drop(self, found: tuple[Page, int, Item]) -> None:
        page, index, item = found
        page.erase_item(index)  # a blob's index first: its chunks are orphans then
        if item.type == BLOB_INDEX:
            self._drop_chunks(item.space, item.key, _index(item)[2])

    def _drop_chunks(self, space: int, key: bytes, start: int) -> None:
        for page, index, item in self._all():
            mine = (item.space, item.key, item.type) == (space, key, BLOB_DATA)
            if mine and (item.chunk >= _VERSIONS[1]) == (start >= _VERSIONS[1]):
                page.erase_item(index)

    # -- pages

    @property
    def _current(self) -> Page:
        return self._used[-1]

    def _activate(self) -> None:
        page = self._free.pop(0)
        page.begin(self._sequence)
        self._sequence += 1
        self._used.append(page)

    def _new_page(self) -> None:
        if self._current.state == ACTIVE:
            self._current.turn(FULL)
        if len(self._free) >= 2:
            self._activate()
            return
        emptiest = min(self._used, key=lambda page: page.used)
        if emptiest.used == COUNT or not self._free:
            raise NvsError(NOT_ENOUGH_SPACE)
        self._move_out(emptiest)

    def _move_out(self, page: Page) -> None:
        """Copy what lives there to the free page, then erase it: it is the free one now."""
        self._activate()
        if page.state != FREEING:
            page.turn(FREEING)
        page.copy_to(self._current)
        page.erase()
        self._used.remove(page)
        self._free.append(page)


def _padded(value: bytes) -> bytes:
    return value.ljust(8, b"\xff")


def _index(item: Item) -> tuple[int, int, int]:
    """Of a blob's index: its size, how many chunks, and the first one's number."""
    size, count, start = struct.unpack_from("<IBB", item.value)
    return size, count, start
