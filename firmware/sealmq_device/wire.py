# A non-blocking socket for one who never waits: each write is taken whole. What does not go out at
# once is kept, and a task sends it; whoever has more to say asks `rest` first and waits for that to
# be empty. So no cancelled task leaves half a packet, or a sealed message that nobody sent.
import asyncio
import errno

from micropython import const

from .waiting import writable

_TYPING = False
if _TYPING:
    from collections.abc import Callable
    from typing import Any


# Bytes of acknowledgements that may wait after one message for a peer that does not read.
_MOST = const(4096)


class Wire:
    # mono: as in entropy.py. changed(error): called when `rest` is empty again, with None, or when
    # it can never be.
    def __init__(
        self,
        sock: "Any",
        mono: "Callable[[], int]",
        changed: "Callable[[Exception | None], None]",
    ) -> None:
        self.sock = sock
        self.rest = b""
        self._behind = 0  # bytes that were written while some of it waited
        self.moved = 0  # when some of it went out last
        self._mono = mono
        self._changed = changed
        self._task: "Any" = None

    def write(self, buf: "bytes | bytearray", at: int, n: int) -> int:
        if self.rest:
            self._behind += n
            if self._behind > _MOST:
                raise OSError(errno.ENOBUFS)
            self.rest += bytes(buf[at : at + n])
            return n
        gone = self.sock.write(buf, at, n) or 0
        if gone < n:
            self.rest = bytes(buf[at + gone : at + n])
            self._behind = 0
            self.moved = self._mono()
            self._task = asyncio.create_task(self._send())
        return n

    async def _send(self) -> None:
        error = None
        try:
            while self.rest:
                await writable(self.sock)
                gone = self.sock.write(self.rest)
                if gone:
                    self.rest = self.rest[gone:]
                    self.moved = self._mono()
        except OSError as caught:
            error = caught
        self._task = None
        self._changed(error)

    def close(self) -> None:
        task = self._task
        self._task = None
        if task is not None:
            task.cancel()
        self.rest = b""
        self.sock.close()
