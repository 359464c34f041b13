"""READ_FLASH under way: the flasher stub sends blocks, the host says how much it has."""

from __future__ import annotations

import hashlib

from .flash import Flash
from .slip import frame


class Sending:
    """Blocks go out as far ahead of the host's receipts as it allowed; at the end their MD5."""

    def __init__(self, flash: Flash, at: int, length: int, block: int, ahead: int) -> None:
        self._flash = flash
        self._at = at
        self._length = length
        self._block = block
        self._ahead = ahead
        self._sent = 0
        self._digest = hashlib.md5(usedforsecurity=False)

    def more(self, acknowledged: int) -> tuple[bytes, bool]:
        """What may go out now, and whether that is all."""
        out = []
        while self._sent < self._length and self._sent - acknowledged < self._ahead * self._block:
            length = min(self._block, self._length - self._sent)
            data = self._flash.read(self._at + self._sent, length)
            self._digest.update(data)
            self._sent += length
            out.append(frame(data))
        done = acknowledged >= self._length
        if done:
            out.append(frame(self._digest.digest()))
        return b"".join(out), done
