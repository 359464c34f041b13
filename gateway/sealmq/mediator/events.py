"""Every event of a session goes through here: the site's clock is set before it, and the effects
that it has are executed at once. Bytes for clients are written once a turn of the loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from .clock import Clock
from .core.effects import ALL, Effect
from .core.session import Agenda, Session
from .core.site import Site

log = logging.getLogger("sealmq.mediator")

# So many bytes that have come are handled at once.
_TOGETHER = 256 * 1024

Executor = Callable[[Session, Any], None]


class MissingExecutor(Exception):
    """An effect that nothing executes: such a mediator does not start."""


class Peer(Protocol):
    """A session's connection, as its effects need it (server.Channel)."""

    session: Session

    def received(self, data: bytes) -> None:
        """Hands on to its session what the client has sent."""

    def write(self, data: bytes) -> None:
        """Towards the client."""

    def throttle(self, why: str, on: bool) -> None:
        """Stops or goes on reading what it sends."""

    def settled(self) -> None:
        """Something that held its packets back is done."""

    def deadline(self, seconds: float) -> None:
        """Closes the session unless it has moved on by then; 0 for no deadline."""

    def end(self, cut: bool) -> None:
        """Closes; `cut`: what was not sent yet is thrown away."""


class Events:
    """`peers`: the connection of each session that has not ended; `agenda`: those that have effects
    or bytes.
    """

    def __init__(self, site: Site, clock: Clock) -> None:
        self._site, self._clock = site, clock
        self._loop = asyncio.get_running_loop()
        self._executors: Mapping[type[Effect], Executor] = {}
        self._inside = self._draining = self._writing = False
        # What sockets have brought in this turn of the loop, and how many bytes that are.
        self._came: list[tuple[Peer, bytes]] = []
        self._bytes = 0
        self.peers: dict[Session, Peer] = {}
        self.agenda = Agenda()
        self.look()

    def executed_by(self, executors: Mapping[Any, Executor]) -> None:
        """Raises MissingExecutor unless it is the closed set of effects that has executors."""
        wrong = ALL.symmetric_difference(executors)
        if wrong:
            names = ", ".join(sorted(effect.__name__ for effect in wrong))
            raise MissingExecutor(f"effects and what executes them differ: {names}")
        self._executors = executors

    def look(self, stepped: bool = False) -> None:
        """Sets the site's clock, once for each time that the loop's own clock shows. stepped: the
        wall clock was set.
        """
        site, mono_s = self._site, self._loop.time()
        if mono_s != site.mono_s or stepped:
            site.mono_s = mono_s
            site.now_ms = self._clock.now_ms()

    def came(self, peer: Peer, data: bytes) -> None:
        """A client's socket has brought this. It is handled together with what others bring in this
        turn of the loop, after all have been read: one after the other, each with a read between,
        a message costs half as much again, since the system's code and ours displace each other.
        """
        if not self._came:
            self._loop.call_soon(self.hand_on)
        self._came.append((peer, data))
        self._bytes += len(data)
        if self._bytes > _TOGETHER:
            self.hand_on()

    def hand_on(self) -> None:
        """Handles what sockets have brought so far."""
        if self._came:
            came, self._came, self._bytes = self._came, [], 0
            self.run(self._hand_on, came)

    # A fault with one ends that session alone.
    def _hand_on(self, came: list[tuple[Peer, bytes]]) -> None:
        for peer, data in came:
            try:
                peer.received(data)
            except Exception:
                log.exception("what a client has sent could not be handled")
                peer.session.close("internal error")

    def run(self, event: Callable[..., object], *words: Any) -> None:
        """Handles one event. A fault in it is logged, and ends that session alone. An event within
        another, as each packet of those that one read has brought, is a part of it.
        """
        part, self._inside = self._inside, True
        if not part and self._loop.time() != self._site.mono_s:
            self.look()
        try:
            event(*words)
        except Exception:
            log.exception("an event of a session could not be handled")
            session = getattr(event, "__self__", None)
            if isinstance(session, Session):
                session.close("internal error")
        finally:
            self._inside = part
        agenda = self.agenda
        if not part and (agenda.pending or (agenda.dirty and not self._writing)):
            self.drain()

    def drain(self) -> None:
        """Executes the effects of sessions, and then those that come of these, in their order."""
        agenda = self.agenda
        if not self._draining:
            self._draining = True
            pending, executors = agenda.pending, self._executors
            try:
                while pending:
                    sessions = pending[:]
                    pending.clear()
                    for session in sessions:
                        effects, session.effects = session.effects, []
                        for effect in effects:
                            try:
                                executors[type(effect)](session, effect)
                            except Exception:
                                log.exception("%s could not be executed", type(effect).__name__)
                                session.close("internal error")
            finally:
                self._draining = False
        if agenda.dirty and not self._writing:
            self._writing = True
            self._loop.call_soon(self._write)

    def _write(self) -> None:
        self._writing = False
        agenda = self.agenda
        dirty = agenda.dirty[:]
        agenda.dirty.clear()
        for session in dirty:
            out = session.out
            peer = self.peers.get(session)
            if peer is None:
                continue
            if session.throttled:
                # An answer to what it published may have let more of what waits go on.
                peer.settled()
            if not out:
                continue
            # Writing may fill the socket: then the session is called at once, and may write.
            session.out = []
            peer.write(out[0] if len(out) == 1 else b"".join(out))
        if agenda.pending:
            self.drain()
