"""What amqtt reads and writes: only bytes that our own decoder has passed, and never for ever.

amqtt has no limit on a packet's size, loses its place in the stream behind a packet that it
refuses, and keeps a silent client for ever whatever its keep alive says (MQTT 3.1.1 section
3.1.2.10). So each connection goes through here: a broken packet or too long a silence ends it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
from collections.abc import Callable, Iterable

from amqtt.adapters import ReaderAdapter, WriterAdapter

from sealmq.mqtt import Decoder, Packet, ProtocolError, Publish

log = logging.getLogger("sealmq.broker")

# Remaining length of a PUBLISH: 1 MiB of payload (SPEC.md 9), its envelopes and topic, and as much
# again for what policy families will add.
MAX_PACKET = 2 * 1024 * 1024
CHUNK = 64 * 1024
MOST_BACKLOG = 256
BACKLOG_S = 0.002
CLOSE_S = 5.0


def check(packets: Iterable[Packet]) -> None:
    """ProtocolError for what a mediator never sends though it is MQTT."""
    for packet in packets:
        # amqtt would stop to serve the connection without closing it.
        if isinstance(packet, Publish) and packet.topic.startswith("$"):
            raise ProtocolError("PUBLISH to a topic of the server's own ('$...') [MQTT-4.7.2-1]")


class GuardedReader(ReaderAdapter):
    """amqtt's reader. `first` is handed out before what comes from `stream`.

    `keepalive` is the client's, in seconds; 0 means none. `abort` closes the connection.
    """

    def __init__(
        self,
        stream: asyncio.StreamReader,
        decoder: Decoder,
        first: bytes,
        keepalive: int,
        name: str,
        abort: Callable[[], None],
    ) -> None:
        self._stream = stream
        self._decoder = decoder
        self._held = bytearray(first)
        self._name = name
        self._abort = abort
        # How many messages of this connection wait to be routed; set once there is a session.
        self.backlog: Callable[[], int] = lambda: 0
        self._loop = asyncio.get_running_loop()
        self._silence = keepalive * 1.5
        self._heard = self._loop.time()
        self._timer: asyncio.TimerHandle | None = None
        if keepalive:
            self._timer = self._loop.call_later(self._silence, self._listen)

    async def read(self, n: int = -1) -> bytes:
        """Exactly n bytes; IncompleteReadError, which amqtt takes for the end."""
        while len(self._held) < n:
            await self._more(n)
        data = bytes(self._held[:n])
        del self._held[:n]
        return data

    def feed_eof(self) -> None:
        """End the connection."""
        self.stop()
        self._abort()

    def stop(self) -> None:
        """The connection has ended: keep no time any more."""
        if self._timer is not None:
            self._timer.cancel()

    async def _more(self, wanted: int) -> None:
        # amqtt takes in what comes as fast as it comes, and routes it more slowly.
        while self.backlog() > MOST_BACKLOG:  # noqa: ASYNC110 - amqtt's queue tells nobody
            await asyncio.sleep(BACKLOG_S)
        chunk = await self._stream.read(CHUNK)
        self._heard = self._loop.time()
        if chunk:
            try:
                check(self._decoder.feed(chunk))
            except ProtocolError as error:
                log.warning("closing %s: %s", self._name, error)
                self.feed_eof()
                chunk = b""
        if not chunk:
            raise asyncio.IncompleteReadError(bytes(self._held), wanted)
        self._held += chunk

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
