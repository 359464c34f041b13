"""A TCP connection as the client uses it: bytes, typed errors, a bound on what waits to be sent."""

from __future__ import annotations

import asyncio
import os
import socket
from typing import cast

from sealmq.loops import wake

from .errors import ConnectFailed, ConnectionLost

_READ = 256 * 1024
# So much is sent at once, whatever else the turn brings.
_PIECE = 64 * 1024
# So much may wait: a full window of messages of 16 KiB.
_CLOGGED = 1 << 20
# Packets of such a size on average leave as they are; small ones are put together before.
_LARGE = 2048
_CLOSE_S = 2.0


class Wire(asyncio.Protocol):
    """One connection. `send` never blocks; `flush` waits until little is left to send. What one
    turn of the event loop sends leaves in one piece: a call of the system costs more than a packet.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport
        self.sent = 0
        self._full = False
        self._ended = False
        self._out: list[bytes] = []
        self._pending = 0
        self._in: list[bytes] = []
        self._waiting = 0
        self._broken: ConnectionLost | None = None
        self._comes: asyncio.Future[None] | None = None
        self._goes: asyncio.Future[None] | None = None
        self._gone: asyncio.Future[None] = self._loop.create_future()

    @classmethod
    async def open(cls, host: str, port: int) -> Wire:
        """Connect; ConnectFailed when nobody listens there."""
        loop, wire = asyncio.get_running_loop(), cls()
        try:
            transport, _ = await loop.create_connection(lambda: wire, host, port)
        except OSError as error:
            reason = error.strerror or str(error)
            # asyncio words it as "Connect call failed (address)"; the number says it better.
            if error.errno is not None and not isinstance(error, socket.gaierror):
                reason = os_text(error.errno)
            raise ConnectFailed(f"{host}:{port}: {reason}") from None
        except ValueError:
            # What no resolver is asked for: an empty or too long part, U+0000.
            raise ConnectFailed(f"{host!r} is no name of a host") from None
        # Acknowledgements and pings are small and waited for.
        sock = transport.get_extra_info("socket")
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return wire

    # --- what asyncio tells ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(_CLOGGED)

    def data_received(self, data: bytes) -> None:
        self._in.append(data)
        self._waiting += len(data)
        if self._waiting > _READ:
            self._transport.pause_reading()
        wake(self._comes)

    def connection_lost(self, error: Exception | None) -> None:
        if self._broken is None:
            closed = ConnectionLost("the mediator closed the connection")
            self._broken = closed if error is None else _lost(error)
        for waits in (self._comes, self._goes, self._gone):
            wake(waits)

    def pause_writing(self) -> None:
        self._full = True

    def resume_writing(self) -> None:
        self._full = False
        wake(self._goes)

    # --- for whoever has it ---

    @property
    def backlog(self) -> int:
        """Bytes that the system has not taken yet."""
        return self._transport.get_write_buffer_size() + self._pending

    @property
    def clogged(self) -> bool:
        """Whether much is queued."""
        return self._full or self._pending > _CLOGGED

    def send(self, data: bytes | bytearray) -> None:
        """Queue bytes; on a broken connection they vanish, and `read` tells."""
        if not data or self._ended:
            return
        if not self._out:
            self._loop.call_soon(self._push)
        self._out.append(bytes(data))
        self._pending += len(data)
        self.sent += 1

    def _push(self) -> None:
        out, size = self._out, self._pending
        self._out, self._pending = [], 0
        if not out or self._transport.is_closing():
            return
        if size > _LARGE * len(out):
            self._transport.writelines(out)
        else:
            self._transport.write(out[0] if len(out) == 1 else b"".join(out))

    def goodbye(self, data: bytes) -> None:
        """Queue the last bytes: what is sent later vanishes, and `close` waits for the peer's."""
        self.send(data)
        self._push()
        self._ended = True

    async def flush(self) -> None:
        """Wait until the backlog is small. ConnectionLost when the connection is broken."""
        if self._pending > _PIECE:
            self._push()
        while self._full and self._broken is None:
            if self._goes is None or self._goes.done():
                self._goes = self._loop.create_future()
            await asyncio.wait((self._goes,))
        if self._broken is not None:
            raise self._broken

    async def read(self) -> bytes:
        """What has arrived, at least one byte. ConnectionLost at the end of the stream."""
        while not self._in:
            if self._broken is not None:
                raise self._broken
            self._comes = self._loop.create_future()
            await self._comes
        data = self._in[0] if len(self._in) == 1 else b"".join(self._in)
        if self._waiting > _READ and self._broken is None:
            self._transport.resume_reading()
        self._in, self._waiting = [], 0
        return data

    async def close(self) -> None:
        """Send what is queued, at most for 2 s, and close.

        Behind a goodbye the peer closes: if we did while it still writes, it could lose what it has
        not read of ours, acknowledgements and the goodbye too, and send or fire what it should not.
        """
        self._push()
        try:
            async with asyncio.timeout(_CLOSE_S):
                while self._ended:
                    await self.read()
                self._transport.close()
                await self._gone
        except (ConnectionLost, TimeoutError):
            pass
        finally:
            self._transport.abort()


def os_text(number: int) -> str:
    """What an errno means, in lower case."""
    text = os.strerror(number)
    return text[:1].lower() + text[1:]


def _lost(error: Exception) -> ConnectionLost:
    why = getattr(error, "strerror", None) or type(error).__name__
    return ConnectionLost(f"the connection broke: {why}")
