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
import struct
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from typing import cast

from sealmq import peerkeys
from sealmq.loops import wake
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
# Frames that nobody has taken yet: then no more is read.
_UNREAD = 1 << 20
# More is not kept for the end of a turn: TLS makes buffers as large as what it is given.
_PIECE = 128 << 10
# What comes is read into one buffer, as much at once; it grows for a frame that is longer.
_READ = 256 << 10
_FRAME = struct.Struct(">IB")
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


class Line(asyncio.BufferedProtocol):
    """One connection, each side known to the other. Frames of one turn of the event loop leave
    together, and are read as they come.
    """

    def __init__(self) -> None:
        self.peer = b""
        """The other side's certificate, DER; empty as long as it has shown none."""
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport
        # What has come of frames that are not whole: the first _filled bytes.
        self._raw = memoryview(bytearray(_READ))
        self._filled = 0
        self._frames: deque[tuple[int, bytes]] = deque()
        self._unread = 0
        self._waits: asyncio.Future[None] | None = None
        self._room: asyncio.Future[None] | None = None
        self._gone: asyncio.Future[None] = self._loop.create_future()
        self._why = ""
        self._out: list[bytes] = []
        self._pending = 0
        self._heard = 0.0
        self._watch: asyncio.TimerHandle

    # --- what asyncio tells ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(_BACKLOG)
        self._heard = self._loop.time()
        self._watch = self._loop.call_later(SILENT_S, self._silent)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._raw[self._filled :]

    def buffer_updated(self, count: int) -> None:
        if self._why:
            return
        raw, at, end = self._raw, 0, self._filled + count
        while end - at >= _FRAME.size:
            size, kind = _FRAME.unpack_from(raw, at)
            if size > MOST:
                self._end(f"a frame of {size} bytes")
                return
            stop = at + _FRAME.size + size
            if end < stop:
                break
            self._frames.append((kind, bytes(raw[at + _FRAME.size : stop])))
            at = stop
        self._keep(at, end)
        if not at:
            return
        self._heard = self._loop.time()
        self._unread += at
        if self._unread > _UNREAD:
            self._transport.pause_reading()
        wake(self._waits)

    def _keep(self, at: int, end: int) -> None:
        """What is left from `at` on begins the buffer, which has room for more."""
        raw, self._filled = self._raw, end - at
        whole = _FRAME.size
        if self._filled >= whole:
            whole += _FRAME.unpack_from(raw, at)[0]
        # By what has come, and not by what a stranger says will.
        if whole >= len(raw) <= 2 * self._filled:
            self._raw = memoryview(bytearray(min(whole, 2 * self._filled) + _READ))
            self._raw[: end - at] = raw[at:end]
        elif at and at != end:
            raw[: end - at] = raw[at:end]

    def pause_writing(self) -> None:
        self._room = self._loop.create_future()

    def resume_writing(self) -> None:
        wake(self._room)
        self._room = None

    def connection_lost(self, error: Exception | None) -> None:
        self._end("the peer has closed it" if error is None else _words(error))
        wake(self._gone)

    def _end(self, why: str) -> None:
        self._why = self._why or why
        self._watch.cancel()
        self._transport.abort()
        wake(self._waits)
        wake(self._room)

    def _silent(self) -> None:
        left = SILENT_S if self._frames else SILENT_S - (self._loop.time() - self._heard)
        if left > 0:
            self._watch = self._loop.call_later(left, self._silent)
        else:
            self._end(f"nothing was heard for {SILENT_S:g} s")

    # --- for whoever has it ---

    def shown(self) -> bytes | None:
        """The certificate that TLS has verified the other side's key of."""
        found: bytes | None = self._transport.get_extra_info("ssl_object").getpeercert(True)
        return found

    def abort(self) -> None:
        """End it, without a word."""
        self._end("it was ended here")

    def send(self, kind: int, *body: bytes) -> None:
        """Queue a frame, whose body may be in parts."""
        size = sum(map(len, body))
        if not self._out:
            self._loop.call_soon(self._write)
        self._out += (_FRAME.pack(size, kind), *body)
        self._pending += _FRAME.size + size
        if self._pending > _PIECE:
            self._write()

    def send_all(self, kind: int, bodies: Iterable[bytes]) -> None:
        """Queue frames of one type."""
        out, pending = self._out, self._pending
        if not out:
            self._loop.call_soon(self._write)
        for body in bodies:
            size = len(body)
            out += (_FRAME.pack(size, kind), body)
            pending += _FRAME.size + size
        self._pending = pending

    def _write(self) -> None:
        out, self._out, self._pending = self._out, [], 0
        if out and not self._why:
            self._transport.write(b"".join(out))

    @property
    def backlog(self) -> int:
        """Bytes that are queued."""
        return self._transport.get_write_buffer_size() + self._pending

    async def flush(self) -> None:
        """Wait until not too much is queued."""
        if self._room is not None and not self._why:
            await self._room
        if self._why:
            raise LineLost(self._why)

    async def receive(self) -> tuple[int, bytes]:
        """The next frame. LineLost, also after SILENT_S without one."""
        [frame] = await self.receive_some(1)
        return frame

    async def receive_some(self, most: int = 1024) -> list[tuple[int, bytes]]:
        """The next frames, at least one and at most so many. LineLost, as `receive`."""
        while not self._frames:
            if self._why:
                raise LineLost(self._why)
            self._waits = self._loop.create_future()
            await self._waits
        frames = self._frames
        if len(frames) <= most:
            some = list(frames)
            frames.clear()
        else:
            some = [frames.popleft() for _ in range(most)]
        if not self._frames and self._unread:
            if self._unread > _UNREAD and not self._why:
                self._transport.resume_reading()
            self._unread = 0
        return some

    async def close(self) -> None:
        """Send what is queued, and end it."""
        self._write()
        self._watch.cancel()
        # One that is over was aborted, and asyncio before Python 3.11.4 cannot abort after a second
        # close.
        if not self._why:
            self._transport.close()
        await asyncio.wait((self._gone,), timeout=1)
        self._end("it was closed here")


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
    kind = await _first(line)
    if kind == WHO:
        line.send(CERTIFICATE, own.der)
        try:
            await _first(line)
        finally:
            await line.close()
        line = await _call(own, peer)
        kind = await _first(line)
    if kind != HELLO:
        await line.close()
        raise LineLost("the peer does not know this site's certificate")
    return line


# Who does not know this site closes the line, and says nothing.
async def _first(line: Line) -> int:
    try:
        kind, _ = await line.receive()
    except LineLost as error:
        raise LineLost(f"{error}: does it have this site's fingerprint?") from None
    return kind


async def _call(own: Own, peer: Peer) -> Line:
    if peer.address is None:
        raise LineLost("the peer has no address")
    context = _context(ssl.PROTOCOL_TLS_CLIENT)
    context.verify_mode = ssl.CERT_NONE  # its fingerprint is compared below, before a word is said
    own.into(context)
    host, port = peer.address
    try:
        async with asyncio.timeout(CONNECT_S):
            loop = asyncio.get_running_loop()
            _, line = await loop.create_connection(Line, host, port, ssl=context)
    except (OSError, TimeoutError) as error:
        raise LineLost(_words(error)) from None
    shown = line.shown()
    if not same(shown, peer):
        line.abort()
        raise NotThePeer("whoever answers there has another fingerprint")
    line.peer = shown or b""
    return line


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
                line = Line()  # the loop's answer is another object with uvloop
                await asyncio.get_running_loop().connect_accepted_socket(
                    lambda: line, sock, ssl=context, ssl_handshake_timeout=CONNECT_S
                )
                if known is None:
                    await self._introduced(line)
                else:
                    await self._take(line)
        except (LineLost, OSError, TimeoutError) as error:
            self._said(f"a caller was sent away: {_words(error)}")

    async def _introduced(self, line: Line) -> None:
        try:
            line.send(WHO)
            kind, der = await line.receive()
            if kind != CERTIFICATE or not same(der, self._peer):
                raise NotThePeer("another fingerprint")
            self._known = der
            line.send(TAKEN)
        finally:
            await line.close()

    async def _take(self, line: Line) -> None:
        shown = line.shown()
        if not same(shown, self._peer):
            line.abort()
            return
        line.peer = shown or b""
        line.send(HELLO)
        while not self._lines.empty():
            await self._lines.get_nowait().close()
        self._lines.put_nowait(line)


def _words(error: BaseException) -> str:
    if isinstance(error, TimeoutError):
        return f"no answer within {CONNECT_S:g} s"
    if isinstance(error, ssl.SSLError):
        return f"TLS: {error.reason or 'failed'}"
    # What a library has put into `strerror` says the address once more.
    if isinstance(error, OSError) and error.errno is not None and error.errno > 0:
        return os.strerror(error.errno)
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
