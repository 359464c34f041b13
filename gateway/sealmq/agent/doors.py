"""Where local clients come in: Unix sockets, loopback TCP, TLS, WebSockets. Who may not is cut off
before a byte of MQTT is read.

A Unix socket is its owner's alone (mode 0600), and the kernel says who has called. A WebSocket can
be opened by any page in a browser of this machine: its Origin has to be known, and its Host a name
of this machine, since a page's own name may have been made to lead here (DNS rebinding).
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
from urllib.parse import urlsplit

from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request, Response
from websockets.typing import Subprotocol

from sealmq.unix import credentials, short_path

from .config import BadConfig, Config, Door
from .local import Pipe
from .wire import MAX_PACKET

log = logging.getLogger("sealmq.agent")

Serve = Callable[[Pipe], Awaitable[None]]

_READ = 65536
_BUFFER = 65536
_CLOSE_S = 2.0
_MQTT = Subprotocol("mqtt")


class Stream:
    """A connection of a socket."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
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
    """A WebSocket: MQTT's bytes in binary messages, wherever those are cut."""

    def __init__(self, connection: ServerConnection) -> None:
        self._connection = connection

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
        pipe = Stream(reader, writer)
        if door.path is not None and not _same_user(writer):
            log.warning("%s", f"{door}: another user of this machine was cut off")
            await pipe.close()
            return
        await serve_one(pipe)

    async def web(connection: ServerConnection) -> None:
        if connection.subprotocol == _MQTT:
            await serve_one(Web(connection))

    # TLS where others reach it; on the loopback there is nobody between.
    tls = context if door.outside else None
    if door.path is not None:
        sock = _unix(door)
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
            door.host,
            door.port,
            ssl=tls,
            process_request=lambda c, r: _judge(c, r, config.origins, names),
            subprotocols=[_MQTT],
            compression=None,
            max_size=MAX_PACKET,
            max_queue=2,
            write_limit=_BUFFER,
        ):
            yield
    else:
        async with await asyncio.start_server(stream, door.host, door.port, ssl=tls):
            yield


def _unix(door: Door) -> socket.socket:
    """Bound, for its owner alone from the first moment on."""
    if door.path is None:
        raise ValueError("no path")
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with short_path(door.path) as short:
            if door.path.exists() and stat.S_ISSOCK(door.path.lstat().st_mode):
                with contextlib.suppress(ConnectionRefusedError):
                    sock.connect(short)
                    raise BadConfig(f"listen: {door}: somebody listens there already")
                door.path.unlink()
                sock.close()
                sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
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
