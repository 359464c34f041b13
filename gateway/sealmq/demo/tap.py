"""A TCP relay on loopback that records what passes and can meddle with it, packet by packet.

It is the attacker's place: it holds no key. One stands between devices and mediator, one between
mediator and broker. Recorded are the bytes as their sender sent them, before any meddling.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from .frames import FrameError, Frames

CHUNK = 65536
Meddle = Callable[["Line", bool, bytes], bytes]
Seen = Callable[["Line", bool, bytes], None]


@dataclass
class Line:
    """One connection. `to_server`, `to_client`: its packets so far, in order."""

    number: int
    to_server: list[bytes] = field(default_factory=list)
    to_client: list[bytes] = field(default_factory=list)
    open: bool = True
    _writers: dict[bool, asyncio.StreamWriter] = field(default_factory=dict)

    async def inject(self, to_server: bool, packet: bytes) -> None:
        """Put a packet of ours between two of theirs."""
        writer = self._writers.get(to_server)
        if writer is None or not self.open:
            raise ConnectionError("the connection to inject into is gone")
        writer.write(packet)
        await writer.drain()


class Tap:
    """Relays to `server`, which may be named after the tap has begun to listen.

    `record`: a folder for what passes, a file for each connection and direction. `meddle` may give
    another packet than it was given (connection, towards the server?, packet); `seen` is told of
    each packet.
    """

    def __init__(self, record: Path) -> None:
        self.lines: list[Line] = []
        self.server: tuple[str, int] | None = None
        self.meddle: Meddle | None = None
        self.seen: Seen | None = None
        self._record = record
        self._listening: asyncio.Server | None = None
        self._relays: set[asyncio.Task[None]] = set()

    async def listen(self) -> int:
        """Begin on a free port of the loopback; gives the port."""
        self._record.mkdir(parents=True)
        self._listening = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        return int(self._listening.sockets[0].getsockname()[1])

    async def close(self) -> None:
        """End all."""
        if self._listening is not None:
            self._listening.close()
        for task in self._relays:
            task.cancel()
        await asyncio.gather(*self._relays, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is not None:
            self._relays.add(task)
            task.add_done_callback(self._relays.discard)
        if self.server is None:
            writer.close()
            return
        try:
            server_reader, server_writer = await asyncio.open_connection(*self.server)
        except OSError:
            writer.close()
            return
        line = Line(len(self.lines) + 1, _writers={True: server_writer, False: writer})
        self.lines.append(line)
        try:
            await asyncio.gather(
                self._relay(line, True, reader, server_writer),
                self._relay(line, False, server_reader, writer),
            )
        except (OSError, FrameError):
            pass
        finally:
            line.open = False
            for each in (writer, server_writer):
                each.close()

    async def _relay(
        self,
        line: Line,
        to_server: bool,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        frames = Frames()
        name = f"{line.number:04d}-{'to' if to_server else 'from'}-server.bin"
        with (self._record / name).open("wb", buffering=0) as file:
            while data := await reader.read(CHUNK):
                file.write(data)
                for packet in frames.feed(data):
                    self._pass(line, to_server, packet, writer)
                await writer.drain()
        with contextlib.suppress(OSError):
            writer.write_eof()

    def _pass(
        self, line: Line, to_server: bool, packet: bytes, writer: asyncio.StreamWriter
    ) -> None:
        (line.to_server if to_server else line.to_client).append(packet)
        if self.seen is not None:
            self.seen(line, to_server, packet)
        if self.meddle is not None:
            packet = self.meddle(line, to_server, packet)
        writer.write(packet)
