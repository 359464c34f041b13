"""A mediator's connection: only packets that our own decoder has passed, and never for ever.

amqtt has no limit on a packet's size, loses its place in the stream after a packet that it
refuses, and keeps a silent client for ever whatever its keep alive says (MQTT 3.1.1 section
3.1.2.10). So each connection goes through here: a broken packet or too long a silence ends it. What
came before the end is handed out first, whatever the end is.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
from collections import deque
from collections.abc import Callable, Iterable

from amqtt.adapters import ReaderAdapter, WriterAdapter

from sealmq.mqtt import Decoder, Packet, ProtocolError, Publish

log = logging.getLogger("sealmq.broker")

# Remaining length of a PUBLISH: 1 MiB of payload (SPEC.md 9), its envelopes and topic, and as much
# again for what policy families will add.
MAX_PACKET = 2 * 1024 * 1024
CHUNK = 64 * 1024
# Packets of one connection in a row, before the others have their turn.
TURN = 64
# Unsent bytes: one packet of the outbox, and as much again in answers.
MOST_UNSENT = 2 * MAX_PACKET
CLOSE_S = 5.0


class Arriving(asyncio.StreamReader):
    """A stream whose reset is an end like any other; asyncio forgets what came before a reset."""

    def set_exception(self, exc: BaseException) -> None:
        """The connection is lost."""
        self.feed_eof()


class GuardedReader(ReaderAdapter):
    """The CONNECT as bytes for amqtt, what follows it as packets for ourselves.

    `first` are the packets that have come with the CONNECT. `keepalive` is the client's, in
    seconds; 0 means none. `abort` closes the connection.
    """

    def __init__(
        self,
        stream: asyncio.StreamReader,
        decoder: Decoder,
        connect: bytes,
        first: Iterable[Packet],
        keepalive: int,
        name: str,
        abort: Callable[[], None],
    ) -> None:
        self._stream = stream
        self._decoder = decoder
        self._connect = bytearray(connect)
        self._packets = deque(first)
        self._fault = ""
        self._taken = 0
        self._name = name
        self._abort = abort
        self._loop = asyncio.get_running_loop()
        self._silence = keepalive * 1.5
        self._heard = self._loop.time()
        self._timer: asyncio.TimerHandle | None = None
        if keepalive:
            self._timer = self._loop.call_later(self._silence, self._listen)

    async def read(self, n: int = -1) -> bytes:
        """Exactly n bytes of the CONNECT; IncompleteReadError after it."""
        data = bytes(self._connect[:n])
        if len(data) < n:
            raise asyncio.IncompleteReadError(data, n)
        del self._connect[:n]
        return data

    async def next(self) -> Packet | None:
        """The next packet after the CONNECT; None at the end."""
        self._taken += 1
        if self._taken % TURN == 0:
            await asyncio.sleep(0)
        while not self._packets:
            if self._fault or not (chunk := await self._stream.read(CHUNK)):
                self._end()
                return None
            self._heard = self._loop.time()
            try:
                self._packets.extend(self._decoder.feed(chunk))
            except ProtocolError as error:
                self._packets.extend(error.packets)
                self._fault = str(error)
        packet = self._packets.popleft()
        if isinstance(packet, Publish) and packet.topic.startswith("$"):
            # MQTT, but nothing that a mediator ever sends.
            self._fault = "PUBLISH to a topic of the server's own ('$...') [MQTT-4.7.2-1]"
            self._packets.clear()
            self._end()
            return None
        return packet

    def feed_eof(self) -> None:
        """End the connection."""
        self.stop()
        self._abort()

    def stop(self) -> None:
        """The connection has ended: keep no time any more."""
        if self._timer is not None:
            self._timer.cancel()

    def _end(self) -> None:
        if self._fault:
            log.warning("closing %s: %s", self._name, self._fault)
            self.feed_eof()

    def _listen(self) -> None:
        left = self._heard + self._silence - self._loop.time()
        if left > 0:
            self._timer = self._loop.call_later(left, self._listen)
        else:
            log.warning("closing %s: silent for %g s", self._name, self._silence)
            self.feed_eof()


class GuardedWriter(WriterAdapter):
    """amqtt's writer, whose `close` cannot hang on a peer that does not read."""

    def __init__(self, stream: asyncio.StreamWriter) -> None:
        self._stream = stream

    def write(self, data: bytes) -> None:
        """Queue a packet."""
        if not self._stream.is_closing():
            self._stream.write(data)

    async def drain(self) -> None:
        """Wait while too much is queued."""
        if not self._stream.is_closing():
            await self._stream.drain()

    async def relieve(self) -> None:
        """Wait only while far too much is queued.

        A client may read nothing until we have read what it sends. One that is gone is no error
        here: its end shows in what is read.
        """
        if self._stream.transport.get_write_buffer_size() > MOST_UNSENT:
            with contextlib.suppress(OSError):
                await self.drain()

    def get_peer_info(self) -> tuple[str, int] | None:
        """Address and port."""
        peer = self._stream.get_extra_info("peername")
        return (peer[0], peer[1]) if peer else None

    def get_ssl_info(self) -> ssl.SSLObject | None:
        """None: loopback, no TLS."""
        return None

    async def close(self) -> None:
        """Send what is queued, then close; after CLOSE_S close all the same."""
        self._stream.close()
        with contextlib.suppress(OSError):
            try:
                async with asyncio.timeout(CLOSE_S):
                    await self._stream.wait_closed()
            except TimeoutError:
                self.abort()

    def abort(self) -> None:
        """Close now."""
        self._stream.transport.abort()
