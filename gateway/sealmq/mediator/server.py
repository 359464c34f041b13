"""Clients' sockets: bytes to packets, each to its session, and back.

From a client that does not read what we send nothing is read either, and what is held for one
client is bounded. While the broker takes no more, clients that publish are not read; no others
wait.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct

from sealmq.mqtt import Decoder, ProtocolError, speaks_five
from sealmq.strangers import Strangers, source_of

from .core.five import Five
from .core.limits import LINGER_S, MAX_CONNECT_BODY, MAX_PACKET
from .core.session import OPEN, Session
from .core.site import Site
from .core.wire import V311
from .events import Events, Peer

# With so many packets for a client they are written at once: one turn may read megabytes.
_MOST_OUT = 256


class Pressure:
    """`on`: the broker takes no more for now. Clients that publish meanwhile are to be stopped."""

    def __init__(self) -> None:
        self.on = False
        self._stopped: dict[Peer, None] = {}

    def change(self, on: bool) -> None:
        """The publish link is full, or takes more again."""
        self.on = on
        if not on:
            stopped, self._stopped = self._stopped, {}
            for peer in stopped:
                peer.throttle("broker", False)

    def stop(self, peer: Peer) -> None:
        """It has published: nothing more is read from it for now."""
        self._stopped[peer] = None
        peer.throttle("broker", True)


class Channel(asyncio.Protocol):
    """One client's connection. `early`: what has come from it already."""

    def __init__(
        self, site: Site, events: Events, strangers: Strangers, early: bytes = b""
    ) -> None:
        self._early = early
        self._site, self._events, self._strangers = site, events, strangers
        # The version is chosen once, from what came first.
        five = Five(site) if speaks_five(early) else None
        self._wire = V311 if five is None else five.wire
        self._decoder: Decoder | Five = five or Decoder(
            MAX_PACKET, "server", max_connect=MAX_CONNECT_BODY, connect_first=True, together=True
        )
        self._transport: asyncio.Transport
        self.session: Session
        # Why nothing is read for now.
        self._paused: set[str] = set()
        self._deadline: asyncio.TimerHandle | None = None
        self._over = self._gone = False

    # --- asyncio ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]
        address = transport.get_extra_info("peername")
        self._events.run(self._begin, address[0] if address else "?")
        if early := self._early:
            self._early = b""
            self.data_received(early)

    def _begin(self, peer: str) -> None:
        self.session = Session(self._site, self._events.agenda, peer, self._wire)
        self._events.peers[self.session] = self
        self._strangers.enter(self.session, source_of(peer))

    def connection_lost(self, exc: Exception | None) -> None:
        reason = str(exc) if exc else "the client closed the connection"
        self._events.hand_on()
        self._gone = True
        self._events.run(self.session.lost, reason)

    def eof_received(self) -> bool:
        return False

    def data_received(self, data: bytes) -> None:
        self._events.came(self, data)

    def pause_writing(self) -> None:
        self._events.run(self.session.writable, False)
        self.throttle("unread", True)

    def resume_writing(self) -> None:
        self._events.run(self.session.writable, True)
        self.throttle("unread", False)

    # --- for the mediator ---

    def received(self, data: bytes) -> None:
        """What the client has sent, a part of an event."""
        if self._over:
            return
        session, fault = self.session, None
        try:
            packets = self._decoder.feed(data)
        except ProtocolError as error:
            # Its traceback refers to this frame, which would refer to it: a cycle.
            packets, fault = list(error.packets), error.with_traceback(None)
        session.heard = self._site.mono_s
        session.receive(*packets)
        if fault is not None:
            session.broken(fault)
        elif session.state != OPEN and self._decoder.buffered > MAX_CONNECT_BODY:
            # Before a proof has verified nobody may make us hold much.
            session.close("a large packet before a proof")
        if session.crowded:
            self.throttle("crowded", True)
        if len(session.out) > _MOST_OUT:
            self._flush()

    def write(self, data: bytes) -> None:
        """Towards the client; nothing once the connection ends."""
        if not self._transport.is_closing():
            self._transport.write(data)

    def throttle(self, why: str, on: bool) -> None:
        """Stops or goes on reading, for a reason of its own: it goes on when none is left."""
        before = bool(self._paused)
        (self._paused.add if on else self._paused.discard)(why)
        # If the client does not read, that is its own fault; every other reason is ours.
        self.session.throttled = bool(self._paused - {"unread"})
        if before != bool(self._paused) and not self._transport.is_closing():
            (self._transport.resume_reading if before else self._transport.pause_reading)()

    def settled(self) -> None:
        """Something that held its packets back is done."""
        if "crowded" in self._paused and not self.session.crowded:
            self.throttle("crowded", False)

    def deadline(self, seconds: float) -> None:
        """Closes the session unless it has moved on by then; 0 for no deadline."""
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        if seconds:
            loop = asyncio.get_running_loop()
            self._deadline = loop.call_later(
                seconds, self._events.run, self.session.close, "too slow"
            )

    def end(self, cut: bool) -> None:
        """Closes. A peer that does not take the rest is cut off a little later; with `cut`, what it
        has not been sent yet, by us or by the system, never goes.
        """
        if self._over:
            return
        self._over = True
        self.deadline(0)
        self._events.peers.pop(self.session, None)
        if self._gone:
            # The connection ended before the session: its descriptor may be another's by now.
            self.session.out.clear()
            return
        if cut:
            self._cut()
            return
        self._flush()
        # The socket was set to lose what it holds if this process is killed; now all of it goes
        # out.
        self._linger(False)
        self._transport.close()
        if self._transport.get_write_buffer_size():
            # Only if something is left: the timer keeps all of the connection in memory.
            asyncio.get_running_loop().call_later(LINGER_S, self._transport.abort)

    def _flush(self) -> None:
        out, self.session.out = self.session.out, []
        if out:
            self.write(b"".join(out))

    def _cut(self) -> None:
        self._linger(True)
        self._transport.abort()

    # `away`: what the system holds for the peer is thrown away when the socket closes.
    def _linger(self, away: bool) -> None:
        sock = self._transport.get_extra_info("socket")
        if sock is not None:
            with contextlib.suppress(OSError):
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", away, 0))
