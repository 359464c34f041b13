"""The byte side of a client's connection: bytes to packets, one after the other, each to `handle`.

A packet that has to wait (for the store, for the key generator) holds back those behind it, so
order stays what the client sent. Whoever does not read what we send is not read either, and what
is held for one client is bounded in packets and in bytes.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import struct
from collections import deque
from collections.abc import Coroutine
from typing import Any

from sealmq.mqtt import Decoder, Packet, ProtocolError, Publish

from .core.limits import (
    LINGER_S,
    MAX_CONNECT_BODY,
    MAX_PACKET,
    QUARANTINE_BYTES,
    QUEUE,
    QUEUE_BYTES,
)

log = logging.getLogger("sealmq.mediator")

Work = Coroutine[Any, Any, None] | None


class Channel(asyncio.Protocol):
    """What a subclass answers: `arrived`, `handle`, `broken`, `gone`, `slow`, `spawn`."""

    def __init__(self) -> None:
        self.peer = ""
        self.small = True
        self.finished = False
        self.heard = 0.0
        self._decoder = Decoder(
            MAX_PACKET, "server", max_connect=MAX_CONNECT_BODY, connect_first=True
        )
        self._transport: asyncio.Transport
        self._queue: deque[Packet] = deque()
        self._held = 0
        self._waiting = False
        self._reading = True
        self._full = False
        self._unread = False
        self._lost: str | None = None
        self._deadline: asyncio.TimerHandle | None = None

    # --- for the subclass ---

    def arrived(self) -> None:
        """A connection is there."""
        raise NotImplementedError

    def handle(self, packet: Packet) -> Work:
        """One packet; a coroutine when it has to wait for something."""
        raise NotImplementedError

    def broken(self, error: ProtocolError) -> None:
        """The peer broke MQTT; everything before that has been handled."""
        raise NotImplementedError

    def gone(self, reason: str) -> None:
        """The peer is gone, and all that it sent has been handled."""
        raise NotImplementedError

    def slow(self, full: bool) -> None:
        """The peer does not read fast enough what we send, or does again."""
        raise NotImplementedError

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Runs work beside the packets."""
        raise NotImplementedError

    # --- asyncio ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]
        address = transport.get_extra_info("peername")
        self.peer = address[0] if address else "?"
        self.arrived()

    def connection_lost(self, exc: Exception | None) -> None:
        self._lost = str(exc) if exc else "the client closed the connection"
        self._pump()

    def eof_received(self) -> bool:
        return False

    def data_received(self, data: bytes) -> None:
        self.heard = asyncio.get_running_loop().time()
        try:
            self._take(self._decoder.feed(data))
        except ProtocolError as error:
            self._take(error.packets)
            if not self.finished:
                self.broken(error)
            return
        # Before a proof has verified nobody may make us hold much.
        if self.small and self._decoder.buffered > MAX_CONNECT_BODY:
            self.gone("a large packet before a proof")

    def _take(self, packets: list[Packet] | tuple[Packet, ...]) -> None:
        for packet in packets:
            self._held += _size(packet)
            self._queue.append(packet)
        self._pump()

    def pause_writing(self) -> None:
        self._unread = True
        if self.small:
            # Before a proof the answers are few and short: no honest peer leaves them unread.
            self.gone("answers unread before a proof")
            return
        self.slow(True)
        self._throttle()

    def resume_writing(self) -> None:
        self._unread = False
        self.slow(False)
        self._throttle()

    def pressure(self, full: bool) -> None:
        """The broker takes no more for now: neither do we."""
        self._full = full
        self._throttle()

    @property
    def held_back(self) -> bool:
        """Whether the peer is not read for reasons that are not its own."""
        return not self._reading and not self._unread

    def _throttle(self) -> None:
        crowded = len(self._queue) >= QUEUE or self._held > QUEUE_BYTES
        reading = not (self._full or self._unread or crowded)
        if reading != self._reading and not self._transport.is_closing():
            self._reading = reading
            (self._transport.resume_reading if reading else self._transport.pause_reading)()

    # --- one packet after the other ---

    def _pump(self) -> None:
        while self._queue and not self._waiting and not self.finished:
            packet = self._queue.popleft()
            size = _size(packet)
            self._held -= size
            if self.small and size > QUARANTINE_BYTES:
                self.gone("a large packet before a proof")
                return
            work = self.handle(packet)
            if work is not None:
                self._waiting = True
                self.spawn(self._wait(work))
        if self._lost is not None and not self._waiting and not self.finished:
            self.gone(self._lost)
        self._throttle()

    async def _wait(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except Exception:
            log.exception("a packet of %s could not be handled", self.peer)
            self.gone("internal error")
        finally:
            self._waiting = False
        self._pump()

    # --- towards the peer ---

    def send(self, data: bytes) -> None:
        """Writes towards the client; nothing once the connection ends."""
        if not self._transport.is_closing():
            self._transport.write(data)

    def set_deadline(self, seconds: float) -> None:
        """Ends the connection unless it has moved on by then; 0 for no deadline."""
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        if seconds:
            loop = asyncio.get_running_loop()
            self._deadline = loop.call_later(seconds, self.gone, "too slow")

    def finish(self) -> None:
        """Closes; a peer that does not take the rest is cut off a little later."""
        self.finished = True
        self.set_deadline(0)
        self._queue.clear()
        self._held = 0
        self._transport.close()
        if self._transport.get_write_buffer_size():
            # Only then: what waits here keeps all of the connection in memory.
            asyncio.get_running_loop().call_later(LINGER_S, self._transport.abort)

    def cut(self) -> None:
        """Behind `finish`: what the peer has not been sent, by us or by the system, never goes."""
        sock = self._transport.get_extra_info("socket")
        if sock is not None:
            with contextlib.suppress(OSError):
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._transport.abort()


def _size(packet: Packet) -> int:
    return len(packet.payload) if isinstance(packet, Publish) else 0
