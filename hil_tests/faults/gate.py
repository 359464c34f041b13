"""A client's way to the mediator, through this process: it can be cut, and held shut.

A client that comes while the gate is shut, or while the mediator does not listen, waits inside its
connection instead of backing off: rounds get shorter, the protocol sees the same.
"""

from __future__ import annotations

import asyncio
import contextlib

from .lies import Tamper

_AGAIN_S = 0.05
_PIECE = 65536


class Gate:
    """One listener on loopback in front of host:port. tamper: changes what goes through."""

    def __init__(self, host: str, port: int, tamper: type[Tamper] | None = None) -> None:
        self._there = (host, port)
        self._tamper = tamper
        self._open = asyncio.Event()
        self._open.set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self.port = 0

    async def start(self) -> int:
        """Listen; gives the port."""
        self._server = await asyncio.start_server(self._came, "127.0.0.1", 0)
        self.port = int(self._server.sockets[0].getsockname()[1])
        return self.port

    def cut(self) -> None:
        """Every connection ends, at once and without a word."""
        for task in self._tasks:
            task.cancel()

    def shut(self) -> None:
        """Cut, and let nobody through until `open`."""
        self._open.clear()
        self.cut()

    def open(self) -> None:
        """Let through who waits."""
        self._open.set()

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
        self.cut()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _came(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("no task")
        self._tasks.add(task)
        there: asyncio.StreamWriter | None = None
        try:
            back, there = await self._reach()
            tamper = self._tamper(writer.write) if self._tamper is not None else None
            up = asyncio.create_task(_pipe(reader, there, tamper), name="gate up")
            down = asyncio.create_task(_pipe(back, writer, None), name="gate down")
            try:
                await asyncio.wait((up, down), return_when=asyncio.FIRST_COMPLETED)
                if up.done() and not down.done():
                    # The client has said its last; what it said must arrive.
                    there.write_eof()
                    await asyncio.wait((down,), timeout=2.0)
            finally:
                up.cancel()
                down.cancel()
                await asyncio.gather(up, down, return_exceptions=True)
        except (OSError, asyncio.CancelledError):
            pass  # cut, or broken: both ends learn of it below
        finally:
            self._tasks.discard(task)
            for end in (writer, there):
                if end is not None:
                    end.transport.abort()

    async def _reach(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        while True:
            await self._open.wait()
            with contextlib.suppress(OSError):
                return await asyncio.open_connection(*self._there)
            await asyncio.sleep(_AGAIN_S)


async def _pipe(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, tamper: Tamper | None
) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(_PIECE):
            writer.write(data if tamper is None else tamper.passes(data))
            await writer.drain()
