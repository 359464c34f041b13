"""Where local clients come in: Unix sockets, loopback TCP, TLS, WebSockets. Who may not is cut off
before a byte of MQTT is read.

A Unix socket is its owner's alone (mode 0600), and the kernel says who has called. A WebSocket can
be opened by any page in a browser of this machine: its Origin has to be known, and its Host a name
of this machine, since a page's own name may have been made to lead here (DNS rebinding).

Whoever has not said who it is has a place at its door from accept on, with TLS and HTTP: one more
ends the oldest of the address that has most there, and nothing at another door.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import ssl
import stat
from collections.abc import AsyncIterator, Awaitable, Callable
from http import HTTPStatus
from typing import Any
from urllib.parse import urlsplit

from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request, Response
from websockets.typing import Subprotocol

from sealmq.strangers import Strangers, source_of
from sealmq.unix import credentials, short_path

from .config import BadConfig, Config, Door
from .local import Pipe
from .wire import MAX_CONNECT, MAX_PACKET

log = logging.getLogger("sealmq.agent")

Serve = Callable[[Pipe], Awaitable[None]]

_READ = 65536
_BUFFER = 65536
_CLOSE_S = 2.0
_TLS_S = 10.0
# A CONNECT's first bytes, before its remaining length counts.
_HEAD = 5
# Places at each door.
STRANGERS = 64
_MQTT = Subprotocol("mqtt")


class _Caller(socket.socket):
    """A connection, for as long as it is one."""

    left: Callable[[], None] = staticmethod(lambda: None)

    def close(self) -> None:
        self.left()
        super().close()


class _Place:
    """Of one that has not said who it is."""

    def __init__(self, caller: _Caller) -> None:
        self._caller = caller

    def close(self, reason: str) -> None:
        """Whoever reads it, TLS, HTTP or MQTT, finds its end."""
        with contextlib.suppress(OSError):
            self._caller.shutdown(socket.SHUT_RDWR)


class _Listener(socket.socket):
    """A door's socket. Nothing but accept() sees a connection before its TLS handshake."""

    def __init__(self, family: int, door: Door) -> None:
        super().__init__(family, socket.SOCK_STREAM)
        self._door = door
        self._strangers = Strangers(STRANGERS)
        self._places: dict[int, _Place] = {}

    def accept(self) -> tuple[socket.socket, Any]:
        conn, address = super().accept()
        caller = _Caller(conn.family, conn.type, conn.proto, fileno=conn.detach())
        fd = caller.fileno()
        caller.left = lambda: self.leave(fd)
        self._places[fd] = place = _Place(caller)
        before = self._strangers.ended
        source = source_of(address[0]) if isinstance(address, tuple) else ""
        self._strangers.enter(place, source)
        if self._strangers.ended > before:
            log.warning("%s", f"{self._door}: more than {STRANGERS} that say nothing; one ended")
        return caller, address

    def leave(self, fd: int) -> None:
        """It has said who it is, or is gone."""
        place = self._places.pop(fd, None)
        if place is not None:
            self._strangers.leave(place)


class Stream:
    """A connection of a socket. proved: called once it is known whose it is."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        proved: Callable[[], None],
    ) -> None:
        self._reader, self._writer, self.proved = reader, writer, proved
        writer.transport.set_write_buffer_limits(high=_BUFFER)

    async def read(self) -> bytes:
        try:
            return await self._reader.read(_READ)
        except (OSError, ssl.SSLError):
            return b""

    async def send(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    async def close(self) -> None:
        try:
            async with asyncio.timeout(_CLOSE_S):
                self._writer.close()
                await self._writer.wait_closed()
        except (OSError, TimeoutError, ssl.SSLError):
            pass
        finally:
            self._writer.transport.abort()


class Web:
    """A WebSocket: MQTT's bytes in binary messages, wherever those are cut. As Stream; until it is
    known whose it is its messages are no longer than a CONNECT.
    """

    def __init__(self, connection: ServerConnection, proved: Callable[[], None]) -> None:
        self._connection, self._proved = connection, proved

    def proved(self) -> None:
        self._connection.protocol.max_size = MAX_PACKET
        self._proved()

    async def read(self) -> bytes:
        try:
            data = b""
            while not data:
                said = await self._connection.recv()
                if isinstance(said, str):
                    await self._connection.close(1003)  # MQTT 3.1.1, 6: binary alone
                    return b""
                data = said
            return data
        except ConnectionClosed:
            return b""

    async def send(self, data: bytes) -> None:
        try:
            await self._connection.send(data)
        except ConnectionClosed as error:
            raise ConnectionError(str(error)) from None

    async def close(self) -> None:
        await self._connection.close()


@contextlib.asynccontextmanager
async def opened(config: Config, serve_one: Serve) -> AsyncIterator[None]:
    """All doors are open inside of it. BadConfig for an address that is taken."""
    context = None
    if config.certificate is not None and config.key is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        try:
            context.load_cert_chain(config.certificate, config.key)
        except (OSError, ssl.SSLError) as error:
            raise BadConfig(f"certificate and key: {error}") from None
    async with contextlib.AsyncExitStack() as stack:
        for door in config.doors:
            try:
                await stack.enter_async_context(_open(config, door, context, serve_one))
            except OSError as error:
                raise BadConfig(f"listen: {door}: {error.strerror or error}") from None
        yield


@contextlib.asynccontextmanager
async def _open(
    config: Config, door: Door, context: ssl.SSLContext | None, serve_one: Serve
) -> AsyncIterator[None]:
    async def stream(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        fd = writer.get_extra_info("socket").fileno()
        pipe = Stream(reader, writer, lambda: sock.leave(fd))
        if door.path is not None and not _same_user(writer):
            log.warning("%s", f"{door}: another user of this machine was cut off")
            await pipe.close()
            return
        await serve_one(pipe)

    async def web(connection: ServerConnection) -> None:
        if connection.subprotocol == _MQTT:
            fd = connection.transport.get_extra_info("socket").fileno()
            await serve_one(Web(connection, lambda: sock.leave(fd)))

    # TLS where others reach it; on the loopback there is nobody between.
    tls = context if door.outside else None
    wait = _TLS_S if tls is not None else None
    sock = _unix(door) if door.path is not None else _tcp(door)
    if door.path is not None:
        try:
            async with await asyncio.start_unix_server(stream, sock=sock):
                yield
        finally:
            with contextlib.suppress(OSError):
                door.path.unlink()
    elif door.web:
        names = _names(config, door)
        async with serve(
            web,
            sock=sock,
            ssl=tls,
            ssl_handshake_timeout=wait,
            process_request=lambda c, r: _judge(c, r, config.origins, names),
            subprotocols=[_MQTT],
            compression=None,
            max_size=MAX_CONNECT + _HEAD,
            max_queue=2,
            write_limit=_BUFFER,
        ):
            yield
    else:
        async with await asyncio.start_server(
            stream, sock=sock, ssl=tls, ssl_handshake_timeout=wait
        ):
            yield


def _tcp(door: Door) -> _Listener:
    sock = _Listener(socket.AF_INET6 if ":" in door.host else socket.AF_INET, door)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if sock.family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        sock.bind((door.host, door.port))
    except BaseException:
        sock.close()
        raise
    return sock


def _unix(door: Door) -> _Listener:
    """Bound, for its owner alone from the first moment on."""
    if door.path is None:
        raise ValueError("no path")
    sock = _Listener(socket.AF_UNIX, door)
    try:
        with short_path(door.path) as short:
            if door.path.exists() and stat.S_ISSOCK(door.path.lstat().st_mode):
                with contextlib.suppress(ConnectionRefusedError):
                    sock.connect(short)
                    raise BadConfig(f"listen: {door}: somebody listens there already")
                door.path.unlink()
                sock.close()
                sock = _Listener(socket.AF_UNIX, door)
            before = os.umask(0o177)
            try:
                sock.bind(short)
            finally:
                os.umask(before)
    except BaseException:
        sock.close()
        raise
    return sock


def _same_user(writer: asyncio.StreamWriter) -> bool:
    """Whether whoever called is who we are, or root: the kernel says it."""
    _, uid, _ = credentials(writer.get_extra_info("socket"))
    return uid in (0, os.geteuid())


def _names(config: Config, door: Door) -> frozenset[str]:
    return frozenset(("localhost", "127.0.0.1", "::1", door.host, *config.hosts))


def _judge(
    connection: ServerConnection, request: Request, origins: object, names: frozenset[str]
) -> Response | None:
    """None lets it in."""
    hosts = request.headers.get_all("Host")
    if len(hosts) != 1 or _host(hosts[0]) not in names:
        log.warning("%s", f"WebSocket for host {hosts!r} refused: not a name of this machine")
        return connection.respond(HTTPStatus.FORBIDDEN, "agent.host: not a name of this machine\n")
    for origin in request.headers.get_all("Origin"):
        if not isinstance(origins, list | tuple) or origin not in origins:
            log.warning("%s", f"WebSocket of origin {origin!r} refused: it is not in `origins`")
            return connection.respond(HTTPStatus.FORBIDDEN, "agent.origin: not in `origins`\n")
    return None


def _host(text: str) -> str:
    try:
        return urlsplit(f"//{text}").hostname or ""
    except ValueError:
        return ""
