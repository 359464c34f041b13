"""What the running interpreter sees at once: a page that the host and it share.

u8 Wi-Fi is there, at 0; u32 how often it went away, at 4; i32 the clock's rate in ppm, at 8; i64
microseconds that the clock was moved by, at 16.
"""

from __future__ import annotations

import mmap
import os
import struct


class Live:
    def __init__(self) -> None:
        self.fd = os.memfd_create("board", os.MFD_CLOEXEC)
        os.ftruncate(self.fd, mmap.PAGESIZE)
        self._page = mmap.mmap(self.fd, mmap.PAGESIZE)
        self._page[0] = 1

    @property
    def wifi(self) -> bool:
        return bool(self._page[0])

    @wifi.setter
    def wifi(self, on: bool) -> None:
        if self.wifi and not on:
            self._put("<I", 4, self._get("<I", 4) + 1)
        self._page[0] = on

    @property
    def ppm(self) -> int:
        return self._get("<i", 8)

    @ppm.setter
    def ppm(self, ppm: int) -> None:
        self._put("<i", 8, ppm)

    @property
    def moved_us(self) -> int:
        return self._get("<q", 16)

    def move(self, us: int) -> None:
        self._put("<q", 16, self.moved_us + us)

    def close(self) -> None:
        self._page.close()
        os.close(self.fd)

    def _get(self, form: str, at: int) -> int:
        return int(struct.unpack_from(form, self._page, at)[0])

    def _put(self, form: str, at: int, value: int) -> None:
        struct.pack_into(form, self._page, at, value)
