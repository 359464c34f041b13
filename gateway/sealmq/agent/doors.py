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
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from http import HTTPStatus
from typing import cast
from urllib.parse import urlsplit

from websockets.asyncio.server import Server, ServerConnection
from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request, Response
from websockets.server import ServerProtocol
from websockets.typing import Subprotocol

from sealmq.loops import wake
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
# For a TLS handshake, and for the request of a WebSocket.
_TLS_S = _HTTP_S = 10.0
# A CONNECT's first bytes, before its remaining length counts.
_HEAD = 5
_BACKLOG = 128
_AGAIN_S = 0.2
# Places at each door.
STRANGERS = 64
# That strangers were ended is said at most once in so long.
_SAY_S = 10.0
_MQTT = Subprotocol("mqtt")


class _Place:
    """Of one that has not said who it is."""

    def __init__(self, conn: socket.socket) -> None:
        self._conn = conn

    def close(self, reason: str) -> None:
        """Whoever reads it, TLS, HTTP or MQTT, finds its end."""
        with contextlib.suppress(OSError):
            self._conn.shutdown(socket.SHUT_RDWR)


Enter = Callable[[socket.socket, Callable[[], None]], Awaitable[None]]
"""Serves a connection to its end; calls what comes with it once it is known whose it is."""


class _Gate:
    """Accepts at one door. A loop's own server tells of nobody before the TLS handshake."""

    def __init__(self, door: Door, sock: socket.socket, enter: Enter) -> None:
        self._door, self._sock, self._enter = door, sock, enter
        self._strangers = Strangers(STRANGERS)
        self._tasks: set[asyncio.Task[None]] = set()
        # How many were ended when that was said last, and when.
        self._said, self._said_s = 0, -_SAY_S

    @contextlib.asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        self._sock.setblocking(False)
        self._sock.listen(_BACKLOG)
        accepting = asyncio.create_task(self._accept(), name=f"agent: {self._door}")
        try:
            yield
        finally:
            tasks = [accepting, *self._tasks]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self._sock.close()

    async def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                conn, address = await loop.sock_accept(self._sock)
            except OSError as error:
                # Too many files, say: others end meanwhile.
                log.error("%s", f"{self._door}: {error.strerror or error}")
                await asyncio.sleep(_AGAIN_S)
                continue
            task = asyncio.create_task(self._one(conn, address), name=f"agent: at {self._door}")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _one(self, conn: socket.socket, address: object) -> None:
        place, strangers = _Place(conn), self._strangers
        strangers.enter(place, source_of(address[0]) if isinstance(address, tuple) else "")
        self._say_ended()
        try:
            await self._enter(conn, lambda: strangers.leave(place))
        except OSError as error:
            log.info("%s", f"{self._door}: {error.strerror or error}")
        except Exception:
            log.exception("%s", f"{self._door}: a connection failed")
        finally:
            strangers.leave(place)
            conn.close()

    def _say_ended(self) -> None:
        ended, now = self._strangers.ended, asyncio.get_running_loop().time()
        if ended > self._said and now >= self._said_s + _SAY_S:
            why = f"over {STRANGERS} that say not who they are; ended: {ended - self._said}"
            log.warning("%s", f"{self._door}: {why}")
            self._said, self._said_s = ended, now


class Stream(asyncio.Protocol):
    """A connection of a socket. proved: called once it is known whose it is.

    No more is read while more than _READ bytes wait, and what is read is given in pieces of _READ:
    whoever is asked for room between two messages is asked often enough.
    """

    def __init__(self, proved: Callable[[], None]) -> None:
        self.proved = proved
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport
        self._pieces: deque[bytes] = deque()
        self._held, self._ended, self._full = 0, False, False
        self._lost: Exception | None = None
        self._comes: asyncio.Future[None] | None = None
        self._goes: asyncio.Future[None] | None = None
        self._gone: asyncio.Future[None] = self._loop.create_future()

    # --- what asyncio tells ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=_BUFFER)

    def data_received(self, data: bytes) -> None:
        self._pieces.append(data)
        self._held += len(data)
        if self._held > _READ:
            self._transport.pause_reading()
        wake(self._comes)

    def eof_received(self) -> bool:
        self._ended = True
        wake(self._comes)
        # Without TLS it may still read what it is answered.
        return self._transport.get_extra_info("sslcontext") is None

    def connection_lost(self, error: Exception | None) -> None:
        self._ended = True
        self._lost = error or ConnectionResetError("the connection is over")
        for waits in (self._comes, self._goes, self._gone):
            wake(waits)

    def pause_writing(self) -> None:
        self._full = True

    def resume_writing(self) -> None:
        self._full = False
        wake(self._goes)

    # --- for whoever has it ---

    async def read(self) -> bytes:
        while not self._pieces:
            if self._ended:
                return b""
            self._comes = self._loop.create_future()
            await self._comes
        piece = self._pieces.popleft()
        if len(piece) > _READ:
            self._pieces.appendleft(piece[_READ:])
            piece = piece[:_READ]
        if self._held > _READ >= self._held - len(piece) and not self._ended:
            self._transport.resume_reading()
        self._held -= len(piece)
        return piece

    async def send(self, data: bytes | bytearray) -> None:
        if self._lost is None:
            self._transport.write(data)
        while self._full and self._lost is None:
            self._goes = self._loop.create_future()
            await self._goes
        if self._lost is not None:
            raise ConnectionError(str(self._lost)) from None

    async def close(self) -> None:
        self._transport.close()
        try:
            await asyncio.wait((self._gone,), timeout=_CLOSE_S)
        finally:
            self._transport.abort()


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

    async def send(self, data: bytes | bytearray) -> None:
        try:
            await self._connection.send(bytes(data))
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
    # TLS where others reach it; on the loopback there is nobody between.
    tls = context if door.outside else None
    wait = _TLS_S if tls is not None else None
    loop = asyncio.get_running_loop()

    async def stream(conn: socket.socket, proved: Callable[[], None]) -> None:
        if door.path is not None and not _same_user(conn):
            log.warning("%s", f"{door}: another user of this machine was cut off")
            return
        made = Stream(proved)  # the loop's answer is another object with uvloop
        await loop.connect_accepted_socket(lambda: made, conn, ssl=tls, ssl_handshake_timeout=wait)
        await serve_one(made)

    names = _names(config, door)
    proving: dict[ServerConnection, Callable[[], None]] = {}

    async def spoken(connection: ServerConnection) -> None:
        if connection.subprotocol == _MQTT:
            await serve_one(Web(connection, proving[connection]))

    upgrading = _Upgrading(
        spoken,
        process_request=lambda c, r: _judge(c, r, config.origins, names),
        open_timeout=_HTTP_S,
    )

    async def web(conn: socket.socket, proved: Callable[[], None]) -> None:
        _, connection = await loop.connect_accepted_socket(
            lambda: _upgraded(upgrading, proving, proved), conn, ssl=tls, ssl_handshake_timeout=wait
        )
        try:
            await connection.wait_closed()
        finally:
            proving.pop(connection, None)

    sock = _unix(door) if door.path is not None else _tcp(door)
    try:
        async with _Gate(door, sock, web if door.web else stream).open():
            yield
    finally:
        if door.path is not None:
            with contextlib.suppress(OSError):
                door.path.unlink()


class _Upgrading(Server):
    """A gate accepts for it; it serves as long as that does."""

    def is_serving(self) -> bool:
        return True


def _upgraded(
    server: Server, proving: dict[ServerConnection, Callable[[], None]], proved: Callable[[], None]
) -> ServerConnection:
    """One that is to ask for MQTT over a WebSocket."""
    protocol = ServerProtocol(subprotocols=[_MQTT], max_size=MAX_CONNECT + _HEAD)
    connection = ServerConnection(protocol, server, max_queue=2, write_limit=_BUFFER)
    proving[connection] = proved
    return connection


def _tcp(door: Door) -> socket.socket:
    sock = socket.socket(socket.AF_INET6 if ":" in door.host else socket.AF_INET)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if sock.family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        sock.bind((door.host, door.port))
    except BaseException:
        sock.close()
        raise
    return sock


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


def _same_user(conn: socket.socket) -> bool:
    """Whether whoever called is who we are, or root: the kernel says it."""
    _, uid, _ = credentials(conn)
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
