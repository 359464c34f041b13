"""A TCP connection as the client uses it: bytes, typed errors, a bound on what waits to be sent."""

from __future__ import annotations

import asyncio
import os
import socket

from .errors import ConnectFailed, ConnectionLost

_READ = 256 * 1024
# So much is sent at once, whatever else the turn brings.
_PIECE = 64 * 1024
_CLOSE_S = 2.0


class Wire:
    """One connection. `send` never blocks; `flush` waits until little is left to send. What one
    turn of the event loop sends leaves in one piece: a call of the system costs more than a packet.
    """

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self.sent = 0
        self._ended = False
        self._out: list[bytes] = []
        self._pending = 0

    @classmethod
    async def open(cls, host: str, port: int) -> Wire:
        """Connect; ConnectFailed when nobody listens there."""
        try:
            reader, writer = await asyncio.open_connection(host, port)
        except OSError as error:
            reason = error.strerror or str(error)
            # asyncio words it as "Connect call failed (address)"; the number says it better.
            if error.errno is not None and not isinstance(error, socket.gaierror):
                reason = os_text(error.errno)
            raise ConnectFailed(f"{host}:{port}: {reason}") from None
        # Acknowledgements and pings are small and waited for.
        writer.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return cls(reader, writer)

    @property
    def backlog(self) -> int:
        """Bytes that the system has not taken yet."""
        return self._writer.transport.get_write_buffer_size() + self._pending

    def send(self, data: bytes) -> None:
        """Queue bytes; on a broken connection they vanish, and `read` tells."""
        if data and not self._ended and not self._writer.is_closing():
            if not self._out:
                asyncio.get_running_loop().call_soon(self._push)
            self._out.append(data)
            self._pending += len(data)
            self.sent += 1

    def _push(self) -> None:
        out, self._out, self._pending = self._out, [], 0
        if out and not self._writer.is_closing():
            self._writer.write(b"".join(out))

    def goodbye(self, data: bytes) -> None:
        """Queue the last bytes: what is sent later vanishes, and `close` waits for the peer's."""
        self.send(data)
        self._push()
        self._ended = True

    async def flush(self) -> None:
        """Wait until the backlog is small. ConnectionLost when the connection is broken."""
        if self._pending > _PIECE:
            self._push()
        try:
            await self._writer.drain()
        except OSError as error:
            raise _lost(error) from None

    async def read(self) -> bytes:
        """What has arrived, at least one byte. ConnectionLost at the end of the stream."""
        try:
            data = await self._reader.read(_READ)
        except OSError as error:
            raise _lost(error) from None
        if not data:
            raise ConnectionLost("the mediator closed the connection")
        return data

    async def close(self) -> None:
        """Send what is queued, at most for 2 s, and close.

        Behind a goodbye the peer closes: if we did while it still writes, it could lose what it has
        not read of ours, acknowledgements and the goodbye too, and send or fire what it should not.
        """
        self._push()
        try:
            async with asyncio.timeout(_CLOSE_S):
                while self._ended and await self._reader.read(_READ):
                    pass
                self._writer.close()
                await self._writer.wait_closed()
        except (OSError, TimeoutError):
            pass
        finally:
            self._writer.transport.abort()


def os_text(number: int) -> str:
    """What an errno means, in lower case."""
    text = os.strerror(number)
    return text[:1].lower() + text[1:]


def _lost(error: OSError) -> ConnectionLost:
    return ConnectionLost(f"the connection broke: {error.strerror or type(error).__name__}")
