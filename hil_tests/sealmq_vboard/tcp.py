"""The board on a TCP port of this machine, bytes as they are: pyserial's socket://.

No control lines: as with a pseudo-terminal, nothing resets the board. One host at a time; a second
one is turned away.
"""

from __future__ import annotations

import asyncio

from .fronts import Line

LOOPBACK = "127.0.0.1"


class Connection(asyncio.Protocol):
    """One host. RFC 2217 puts its own coding between the bytes and the line."""

    def __init__(self, server: TcpFront) -> None:
        self.server = server
        self.transport: asyncio.Transport | None = None
        self.full = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        if not isinstance(transport, asyncio.Transport):
            return
        if not self.server.plug(self):
            transport.abort()
            return
        self.transport = transport
        self.ready()

    def connection_lost(self, exc: Exception | None) -> None:
        if self.transport is not None:
            self.transport = None
            self.full = False
            self.server.unplug(self)

    def data_received(self, data: bytes) -> None:
        if self.transport is not None:
            self.arrived(data)

    def pause_writing(self) -> None:
        self.full = True
        if self.transport is not None:
            # Who does not read is not listened to, or its questions' answers would pile up.
            self.transport.pause_reading()
        self.server.line.flow()

    def resume_writing(self) -> None:
        self.full = False
        if self.transport is not None:
            self.transport.resume_reading()
        self.server.line.flow()

    def write(self, data: bytes) -> None:
        if self.transport is not None and not self.transport.is_closing():
            self.transport.write(data)

    # -- what a coding changes

    def ready(self) -> None:
        pass

    def arrived(self, data: bytes) -> None:
        self.server.line.received(data)

    def put(self, data: bytes) -> None:
        self.write(data)

    def gone(self) -> None:
        pass


class TcpFront:
    scheme = "socket"
    connection: type[Connection] = Connection

    def __init__(self, line: Line) -> None:
        self.line = line
        self._server: asyncio.Server | None = None
        self._host: Connection | None = None
        self.port = 0

    async def open(self, port: int) -> None:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: self.connection(self), LOOPBACK, port)
        self.port = self._server.sockets[0].getsockname()[1]

    @property
    def url(self) -> str:
        return f"{self.scheme}://{LOOPBACK}:{self.port}"

    @property
    def full(self) -> bool:
        return self._host is not None and self._host.full

    def send(self, data: bytes) -> None:
        if self._host is not None:
            self._host.put(data)

    def close(self) -> None:
        if self._server is not None:
            self._server.close()
        if self._host is not None and self._host.transport is not None:
            self._host.transport.abort()

    def plug(self, host: Connection) -> bool:
        if self._host is not None:
            return False
        self._host = host
        return True

    def unplug(self, host: Connection) -> None:
        if self._host is host:
            self._host = None
            host.gone()
            self.line.flow()
