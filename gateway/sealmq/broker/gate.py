"""The embedded broker's door: nobody reaches amqtt who is not a mediator.

amqtt acts on a CONNECT before it asks who sent it: it deletes or takes over the session of that
client id and takes over its will, so that a stranger could end sessions and, by a will, publish.
Here the CONNECT is read, and judged, first; amqtt sees it afterwards. The door also does what amqtt
leaves undone: a limit in time and number for strangers, and a clean end of the old connection when
a client id comes again (MQTT-3.1.4-2).
"""

from __future__ import annotations

import asyncio
import logging
import socket
from dataclasses import dataclass
from typing import Protocol

from amqtt.adapters import ReaderAdapter, WriterAdapter

from sealmq.mqtt import Connect, Decoder, Packet, ProtocolError, build

from .credentials import ID_PREFIX, PROBE_PREFIX, Credentials
from .stream import CHUNK, MAX_PACKET, Arriving, GuardedReader, GuardedWriter

log = logging.getLogger("sealmq.broker")

# Seconds for a whole CONNECT, and for an old connection to end when its client id comes again.
OPENING_S = 5.0
TAKE_OVER_S = 5.0
LISTENER = "default"

IDENTIFIER_REJECTED, UNAVAILABLE, NOT_AUTHORISED = 2, 3, 5


class Behind(Protocol):
    """What stands behind the door: amqtt's Broker."""

    async def external_connected(
        self, reader: ReaderAdapter, writer: WriterAdapter, listener_name: str
    ) -> None:
        """Serve a connection to its end."""


@dataclass(slots=True)
class _Live:
    writer: GuardedWriter
    over: asyncio.Event


class Gate:
    """Accepts, judges and hands on connections. `most` bounds how many there are at once."""

    def __init__(self, behind: Behind, credentials: Credentials, most: int) -> None:
        self._behind = behind
        self._credentials = credentials
        self._most = most
        self._count = 0
        self._live: dict[str, _Live] = {}
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def open(self, sock: socket.socket) -> None:
        """Listen on a bound socket."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            lambda: asyncio.StreamReaderProtocol(Arriving(), self._arrive), sock=sock, backlog=512
        )

    async def close(self) -> None:
        """Accept nothing more; end what is there."""
        if self._server is not None:
            self._server.close()
        for live in list(self._live.values()):
            live.writer.abort()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # Not a coroutine: each connection's task is ours, named and ended by `close`.
    def _arrive(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._serve(reader, writer), name="broker connection")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, stream: asyncio.StreamWriter) -> None:
        writer = GuardedWriter(stream)
        self._count += 1
        try:
            if self._count > self._most:
                log.warning("refused a connection: %d are open", self._most)
                return
            await self._judge(reader, writer)
        except OSError:
            pass  # the peer has gone
        except Exception as error:
            # A defect in what stands behind must cost this connection, not the broker.
            log.error("closing a connection: %s: %s", type(error).__name__, error)
        finally:
            self._count -= 1
            await writer.close()

    async def _judge(self, reader: asyncio.StreamReader, writer: GuardedWriter) -> None:
        decoder = Decoder(MAX_PACKET, connect_first=True)
        try:
            async with asyncio.timeout(OPENING_S):
                connect, rest = await _first(reader, decoder)
        except TimeoutError:
            log.warning("refused a connection: no CONNECT within %g s", OPENING_S)
            return
        except ProtocolError as error:
            log.warning("refused a connection: %s", error)
            if error.connack is not None:
                writer.write(build.connack(False, error.connack))
            return
        if connect is None:
            return
        name = connect.client_id.encode("unicode_escape").decode()[:80]
        if not self._credentials.match(connect.username, connect.password):
            # `sealmq status` asks like this whether we serve, and refuse.
            probe = connect.username is None and connect.client_id.startswith(PROBE_PREFIX)
            level = logging.DEBUG if probe else logging.WARNING
            log.log(level, "refused %r: not the mediator's credentials", name)
            writer.write(build.connack(False, NOT_AUTHORISED))
            return
        if not connect.client_id.startswith(ID_PREFIX):
            log.warning("refused %r: a mediator's client ids begin with %s", name, ID_PREFIX)
            writer.write(build.connack(False, IDENTIFIER_REJECTED))
            return
        await self._admit(connect, rest, reader, decoder, writer)

    async def _admit(
        self,
        connect: Connect,
        rest: list[Packet],
        reader: asyncio.StreamReader,
        decoder: Decoder,
        writer: GuardedWriter,
    ) -> None:
        """Hand an authenticated connection on, once an older one of its client id has ended."""
        name = connect.client_id
        while (old := self._live.get(name)) is not None:
            old.writer.abort()
            try:
                async with asyncio.timeout(TAKE_OVER_S):
                    await old.over.wait()
            except TimeoutError:
                log.error("refused %r: its old connection does not end", name)
                writer.write(build.connack(False, UNAVAILABLE))
                return
        live = self._live[name] = _Live(writer, asyncio.Event())
        # Without a keep alive amqtt sets no timers of its own; GuardedReader keeps the time.
        first = build.connect(
            name,
            clean_session=connect.clean_session,
            keepalive=0,
            will=connect.will,
            username=connect.username,
            password=connect.password,
        )
        guarded = GuardedReader(reader, decoder, first, rest, connect.keepalive, name, writer.abort)
        try:
            await self._behind.external_connected(guarded, writer, LISTENER)
        finally:
            guarded.stop()
            del self._live[name]
            live.over.set()


async def _first(
    reader: asyncio.StreamReader, decoder: Decoder
) -> tuple[Connect | None, list[Packet]]:
    """The CONNECT, and what has come with it; None when the peer left without one."""
    while chunk := await reader.read(CHUNK):
        packets = decoder.feed(chunk)
        if packets:
            connect = packets[0]
            if not isinstance(connect, Connect):  # the decoder lets nothing else come first
                raise ProtocolError(f"{type(connect).__name__} before CONNECT [MQTT-3.1.0-1]")
            return connect, packets[1:]
    return None, []
