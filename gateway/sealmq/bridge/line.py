"""The line to one neighbour: TLS 1.3, each side known by the fingerprint of its certificate.

Nothing of a certificate counts but its fingerprint: no name, no date, no authority. Who calls
compares it before anything is said. Who listens lets TLS ask for exactly the peer's certificate;
until it has that one, which its first caller brings, it takes nothing else.

A frame is a u32 length, a type, a body.
"""

from __future__ import annotations

import asyncio
import hmac
import os
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from hashlib import sha256

from sealmq import peerkeys
from sealmq.site.model import Peer
from sealmq_spec.const import MAX_PAYLOAD

WHO, CERTIFICATE, HELLO, KEYS, TAKEN, MESSAGE, ANSWER, PING, PONG, RECORD, FAR = range(1, 12)
"""Types of frames. WHO: bring your certificate and call again. TAKEN: of KEYS. RECORD: of the
judges' own. FAR: for a site that may be no neighbour (far.py)."""

MOST = MAX_PAYLOAD + 8192
CONNECT_S = 10.0
PING_S = 5.0
SILENT_S = 20.0
_BACKLOG = 4 << 20
# Who calls at once, and has not shown yet who it is.
CALLERS = 16


class LineLost(Exception):
    """The line has ended, or cannot begin; with a reason for people."""


class NotThePeer(LineLost):
    """Whoever is there is another one."""


@dataclass(frozen=True, slots=True)
class Own:
    """What this side shows. der: its certificate; key: the line's, 32 bytes."""

    der: bytes
    key: bytes = field(repr=False)

    def into(self, context: ssl.SSLContext) -> None:
        """TLS takes keys from files alone: one in memory, which nobody else can open."""
        fd = os.memfd_create("sealmq line", os.MFD_CLOEXEC)
        try:
            os.write(fd, peerkeys.private_pem(self.key) + peerkeys.pem(self.der))
            context.load_cert_chain(f"/proc/self/fd/{fd}")
        finally:
            os.close(fd)


class Line:
    """One connection, each side known to the other."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, peer: bytes
    ) -> None:
        self._reader, self._writer = reader, writer
        self.peer = peer
        """The other side's certificate, DER."""

    def send(self, kind: int, body: bytes = b"") -> None:
        """Queue a frame."""
        self._writer.write(len(body).to_bytes(4, "big") + bytes((kind,)) + body)

    @property
    def backlog(self) -> int:
        """Bytes that are queued."""
        size: int = self._writer.transport.get_write_buffer_size()
        return size

    async def flush(self) -> None:
        """Wait until not too much is queued."""
        try:
            if self.backlog > _BACKLOG:
                await self._writer.drain()
        except OSError as error:
            raise LineLost(_words(error)) from None

    async def receive(self) -> tuple[int, bytes]:
        """The next frame. LineLost, also after SILENT_S without one."""
        try:
            async with asyncio.timeout(SILENT_S):
                head = await self._reader.readexactly(5)
                size = int.from_bytes(head[:4], "big")
                if size > MOST:
                    raise LineLost(f"a frame of {size} bytes")
                return head[4], await self._reader.readexactly(size)
        except TimeoutError:
            raise LineLost(f"nothing was heard for {SILENT_S:g} s") from None
        except (OSError, asyncio.IncompleteReadError) as error:
            raise LineLost(_words(error)) from None

    async def close(self) -> None:
        """End it."""
        self._writer.close()
        try:
            async with asyncio.timeout(1):
                await self._writer.wait_closed()
        except (OSError, TimeoutError):
            self._writer.transport.abort()


def _context(side: int) -> ssl.SSLContext:
    context = ssl.SSLContext(side)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False
    context.options |= ssl.OP_NO_COMPRESSION
    return context


def same(der: bytes | None, peer: Peer) -> bool:
    """Whether this certificate is the peer's."""
    found = sha256(der or b"").hexdigest()
    return hmac.compare_digest(found, peer.fingerprint)


async def call(own: Own, peer: Peer) -> Line:
    """A line to a peer that listens. LineLost."""
    line = await _call(own, peer)
    kind, _ = await line.receive()
    if kind == WHO:
        line.send(CERTIFICATE, own.der)
        try:
            await line.receive()
        finally:
            await line.close()
        line = await _call(own, peer)
        kind, _ = await line.receive()
    if kind != HELLO:
        await line.close()
        raise LineLost("the peer does not know this site's certificate")
    return line


async def _call(own: Own, peer: Peer) -> Line:
    if peer.address is None:
        raise LineLost("the peer has no address")
    context = _context(ssl.PROTOCOL_TLS_CLIENT)
    context.verify_mode = ssl.CERT_NONE  # its fingerprint is compared below, before a word is said
    own.into(context)
    host, port = peer.address
    try:
        async with asyncio.timeout(CONNECT_S):
            reader, writer = await asyncio.open_connection(host, port, ssl=context)
    except (OSError, TimeoutError) as error:
        raise LineLost(_words(error)) from None
    shown = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    if not same(shown, peer):
        writer.transport.abort()
        raise NotThePeer("whoever answers there has another fingerprint")
    return Line(reader, writer, shown)


class Listener:
    """Waits for a peer. One line at a time: a newer one takes the place of the last."""

    def __init__(self, own: Own, peer: Peer, said: Callable[[str], None]) -> None:
        self._own, self._peer, self._said = own, peer, said
        self._known: bytes | None = None
        self._lines: asyncio.Queue[Line] = asyncio.Queue(1)
        self._tasks: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[Listener]:
        """LineLost when the port cannot be had."""
        host, port = self._peer.listen or ("", 0)
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            listening = socket.create_server((host, port), family=family, backlog=16)
        except OSError as error:
            raise LineLost(f"cannot listen on {host}:{port}: {_words(error)}") from None
        listening.setblocking(False)
        accepting = asyncio.create_task(self._accept(listening), name="bridge: accept")
        try:
            yield self
        finally:
            for task in (accepting, *self._tasks):
                task.cancel()
            await asyncio.gather(accepting, *self._tasks, return_exceptions=True)
            listening.close()

    async def next(self) -> Line:
        """The next one that the peer begins."""
        return await self._lines.get()

    async def _accept(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                sock, _ = await loop.sock_accept(listening)
            except OSError:  # no descriptor is free
                await asyncio.sleep(1)
                continue
            if len(self._tasks) >= CALLERS:
                sock.close()
                continue
            task = asyncio.create_task(self._caller(sock), name="bridge: caller")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    # Whoever comes may be anybody: only the right certificate changes something.
    async def _caller(self, sock: socket.socket) -> None:
        try:
            context = _context(ssl.PROTOCOL_TLS_SERVER)
            self._own.into(context)
            known = self._known
            if known is not None:
                context.verify_mode = ssl.CERT_REQUIRED
                context.load_verify_locations(cadata=known)
            async with asyncio.timeout(CONNECT_S):
                reader, writer = await _accepted(sock, context)
                if known is None:
                    await self._introduced(reader, writer)
                else:
                    await self._take(reader, writer)
        except (LineLost, OSError, TimeoutError) as error:
            self._said(f"a caller was sent away: {_words(error)}")

    async def _introduced(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        line = Line(reader, writer, b"")
        try:
            line.send(WHO)
            kind, der = await line.receive()
            if kind != CERTIFICATE or not same(der, self._peer):
                raise NotThePeer("another fingerprint")
            self._known = der
            line.send(TAKEN)
        finally:
            await line.close()

    async def _take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        shown = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        if not same(shown, self._peer):
            writer.transport.abort()
            return
        line = Line(reader, writer, shown)
        line.send(HELLO)
        while not self._lines.empty():
            await self._lines.get_nowait().close()
        self._lines.put_nowait(line)


async def _accepted(
    sock: socket.socket, context: ssl.SSLContext
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    protocol = asyncio.StreamReaderProtocol(reader)
    transport, _ = await loop.connect_accepted_socket(
        lambda: protocol, sock, ssl=context, ssl_handshake_timeout=CONNECT_S
    )
    return reader, asyncio.StreamWriter(transport, protocol, reader, loop)


def _words(error: BaseException) -> str:
    if isinstance(error, asyncio.IncompleteReadError):
        return "the peer has closed it"
    if isinstance(error, TimeoutError):
        return f"no answer within {CONNECT_S:g} s"
    if isinstance(error, ssl.SSLError):
        return f"TLS: {error.reason or 'failed'}"
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
