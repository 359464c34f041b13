"""Takes connections, reads each one's CONNECT, and gives it to the worker of its client.

Nothing is judged here: the client number is what the CONNECT claims. A connection is cut off if it
brings no whole CONNECT in time, or too large a one, or if its place is needed.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Callable, Sequence

from sealmq.mqtt import Connect, Decoder, ProtocolError, speaks_five
from sealmq.mqtt.five import Connect5, Decoder5
from sealmq.strangers import Strangers, source_of
from sealmq_spec.errors import SealError

from .core.limits import BACKLOG, MAX_CONNECT_BODY, MAX_PACKET, OPENING_S
from .core.proof import claim_of

# Bytes of one read. What follows a CONNECT at once goes along with it.
CHUNK = 16 * 1024
# SO_LINGER: when a worker is killed, the system sends nothing more of what the worker had written.
_CUT = struct.pack("ii", 1, 0)
_ORDERLY = struct.pack("ii", 0, 0)

Give = Callable[["Caller", bytes, int], None]
"""(connection, all bytes that came, client number; 0: nobody's). It takes the transport over."""


class Acceptor:
    """Hands each connection over by `give`; until then `strangers` has it."""

    def __init__(self, strangers: Strangers, give: Give) -> None:
        self.strangers, self.give = strangers, give
        # Reading is synchronous: one buffer serves all.
        self.buffer = memoryview(bytearray(CHUNK))
        self._server: asyncio.Server | None = None

    async def listen(self, host: str, port: int) -> tuple[str, int]:
        """Begins; the address. Raises OSError."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: Caller(self), host, port, backlog=BACKLOG)
        name = self._server.sockets[0].getsockname()
        return name[0], name[1]

    def close(self) -> None:
        """Takes nobody more."""
        if self._server is not None:
            self._server.close()


# What comes with it is the worker's to judge.
def _first_of_five(data: bytes) -> Connect5 | None:
    try:
        packets: Sequence[object] = Decoder5(MAX_PACKET, MAX_CONNECT_BODY).feed(data)
    except ProtocolError as error:
        packets = error.packets
    return packets[0] if packets and isinstance(packets[0], Connect5) else None


class Caller(asyncio.BufferedProtocol):
    """A connection whose CONNECT is not whole yet."""

    def __init__(self, acceptor: Acceptor) -> None:
        self._acceptor = acceptor
        self._decoder: Decoder | None = Decoder(
            MAX_PACKET, "server", max_connect=MAX_CONNECT_BODY, connect_first=True
        )
        self._data = bytearray()
        self.transport: asyncio.Transport
        self._deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]
        peer = transport.get_extra_info("peername")
        sock = transport.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _CUT)
        loop = asyncio.get_running_loop()
        self._deadline = loop.call_later(OPENING_S, self.close, "too slow")
        self._acceptor.strangers.enter(self, source_of(peer[0] if peer else "?"))

    def connection_lost(self, exc: Exception | None) -> None:
        self._end()

    def eof_received(self) -> bool:
        return False

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._acceptor.buffer

    def buffer_updated(self, nbytes: int) -> None:
        if self._decoder is None:
            return
        data = bytes(self._acceptor.buffer[:nbytes])
        self._data += data
        client = 0
        try:
            packets = self._decoder.feed(data)
            first = packets[0] if packets else None
        except ProtocolError as error:
            # A CONNECT before the fault is the worker's to answer; so is the fault.
            first = error.packets[0] if error.packets else None
        else:
            if first is None:
                return
        known: object = first
        if speaks_five(came := bytes(self._data)):
            known = _first_of_five(came)
        if isinstance(known, Connect | Connect5):
            try:
                client = claim_of(known).client
            except SealError:
                client = 0
        self._decoder = None
        self._acceptor.give(self, came, client)

    def close(self, reason: str) -> None:
        """Cuts it off."""
        self._end()
        self.transport.abort()

    def refused(self) -> None:
        """Closes it, once what was written to it has gone out."""
        self._end()
        sock = self.transport.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _ORDERLY)
        self.transport.close()

    def become(self, protocol: asyncio.Protocol) -> None:
        """The connection goes on with another protocol, in this process."""
        self._end()
        # asyncio chooses the method that takes what is read when reading begins.
        self.transport.pause_reading()
        self.transport.set_protocol(protocol)
        self.transport.resume_reading()
        protocol.connection_made(self.transport)

    def _end(self) -> None:
        self._decoder = None
        self._data = bytearray()
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        self._acceptor.strangers.leave(self)
