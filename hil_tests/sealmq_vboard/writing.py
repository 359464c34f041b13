"""A write to flash in progress, plain or compressed: what FLASH_BEGIN opens and FLASH_END closes.

The ROM erases the whole range at the beginning; the flasher stub erases each sector when the data
reach it.
"""

from __future__ import annotations

import enum
import zlib

from .flash import SECTOR, Flash


class Why(enum.Enum):
    """Why a command fails: the ROM's code, and the flasher stub's."""

    INVALID = (0x05, 0xC0)  # a length or a value that cannot be
    FAILED = (0x06, 0xC3)
    CHECKSUM = (0x07, 0xC1)
    WRITE = (0x08, 0xC4)
    READ = (0x09, 0xC4)
    READ_LENGTH = (0x0A, 0xC0)
    NOT_WRITING = (0x06, 0xC6)
    INFLATE = (0x0B, 0xC7)
    NOT_ENOUGH = (0x06, 0xC8)
    TOO_MUCH = (0x0D, 0xC9)
    UNKNOWN = (0x05, 0xFF)  # no such command


class Refused(Exception):
    def __init__(self, why: Why) -> None:
        super().__init__(why.name)
        self.why = why


def sectors(at: int, length: int) -> tuple[int, int]:
    """The whole sectors that hold these bytes: offset and length."""
    start = at - at % SECTOR
    return start, -(-(at + length - start) // SECTOR) * SECTOR


class Writing:
    def __init__(self, flash: Flash, at: int, length: int, *, lazy: bool, packed: bool) -> None:
        """Lazy: erase as the data come. Refused: the range is not in the chip."""
        if at + length > flash.size:
            raise Refused(Why.INVALID)
        self._flash = flash
        self._at = at
        self._left = length
        self._unpack = zlib.decompressobj() if packed else None
        start, whole = sectors(at, length)
        self._erased = start if lazy else start + whole
        if not lazy and length:
            flash.erase(start, whole)

    @property
    def packed(self) -> bool:
        return self._unpack is not None

    def take(self, data: bytes) -> None:
        """The data of the next packet."""
        if self._unpack is None:
            # The last packet is filled up to the block's size.
            self._put(data[: self._left])
            return
        try:
            plain = self._unpack.decompress(data, self._left + 1)
        except zlib.error:
            raise Refused(Why.INFLATE) from None
        if len(plain) > self._left:
            raise Refused(Why.TOO_MUCH)
        self._put(plain)
        if self._unpack.eof and self._left:
            raise Refused(Why.NOT_ENOUGH)

    def finish(self) -> None:
        if self._left:
            raise Refused(Why.NOT_ENOUGH)

    def _put(self, data: bytes) -> None:
        _, whole = sectors(self._at, len(data))
        end = self._at - self._at % SECTOR + whole
        if end > self._erased:
            self._flash.erase(self._erased, end - self._erased)
            self._erased = end
        self._flash.program(self._at, data)
        self._at += len(data)
        self._left -= len(data)
