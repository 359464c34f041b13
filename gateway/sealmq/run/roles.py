"""The parts of a running site: what each is started with, and how it shows that it serves.

A Process is a child that is started again when it ends; an ExternalBroker is only watched. Both
answer the same calls of the supervisor.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Awaitable, Callable
from typing import Protocol

from sealmq.broker.errors import BrokerError, Refused
from sealmq.broker.external import Target, admitted, lets_anybody_in
from sealmq.site.layout import Layout

from . import proc, ready
from .child import Child, Start
from .errors import NotReady, RunError
from .ready import Ready

Say = Callable[[str], None]

READY_S = 30.0
# How long an external broker may stay away when the site starts, and how often it is asked then.
EXTERNAL_S = 10.0
STOP_S = 10.0
BACKOFF_S = 1.0, 30.0
# A process that has served so long starts with a short backoff again.
_WELL_S = 30.0
_POLL_S = 0.05
WATCH_S = 5.0


class Part(Protocol):
    """What the supervisor asks of each part."""

    name: str

    @property
    def serving(self) -> bool:
        """Whether it was ready when last looked at, and has not ended since."""

    @property
    def child(self) -> Child | None:
        """Its process."""

    async def start(self) -> None:
        """Return once it serves; NotReady (or a BrokerError) when it does not."""

    async def tend(self) -> None:
        """Keep it serving, until cancelled."""

    async def stop(self) -> bool:
        """End it; whether that went cleanly."""


class Process:
    """A child of the supervisor.

    `serves` says whether the process serves, by its address or None; it is asked again and again
    until READY_S are over. `ended` puts away what an ended process has left, `starting` comes
    before and `changed` after each start.
    """

    def __init__(
        self,
        start: Start,
        serves: Callable[[int], Awaitable[str | None]],
        ended: Callable[[], None],
        say: Say,
        *,
        starting: Callable[[], None] = lambda: None,
    ) -> None:
        self.name = start.role
        self.child: Child | None = None
        self.changed: Callable[[], None] = lambda: None
        self._start = start
        self._serves = serves
        self._ended, self._starting = ended, starting
        self._say = say
        self._served_since: float | None = None

    @property
    def serving(self) -> bool:
        return self._served_since is not None and self.child is not None and self.child.alive

    async def start(self) -> None:
        self._served_since = None
        self._ended()
        self._starting()
        try:
            child = self.child = Child(self._start, self._say)
        except (OSError, ValueError) as error:
            who = self._start.identity
            as_whom = "" if who is None else f" as user {who.name}"
            raise NotReady(
                f"{self.name} cannot be started{as_whom}: {error}",
                None if who is None else f"can {who.name} reach the interpreter and the site?",
            ) from None
        self.changed()
        loop = asyncio.get_running_loop()
        end = loop.time() + READY_S
        while child.alive:
            if await self._serves(child.pid) is not None:
                self._served_since = loop.time()
                return
            if loop.time() > end:
                raise NotReady(
                    f"{self.name} is not ready after {READY_S:g} s; "
                    f"its last words: {child.last_words()}",
                    lines=tuple(child.lines),
                )
            await asyncio.wait([child.exited], timeout=_POLL_S)
        raise NotReady(
            f"{self.name} {child.end_text()} before it was ready; "
            f"its last words: {child.last_words()}",
            lines=tuple(child.lines),
        )

    async def tend(self) -> None:
        wait = BACKOFF_S[0]
        loop = asyncio.get_running_loop()
        while True:
            child = self.child
            if child is not None and self.serving:
                await asyncio.wait([child.exited])
                self._ended()
                if self._served_since is not None and loop.time() - self._served_since > _WELL_S:
                    wait = BACKOFF_S[0]
                self._say(f"{self.name} {child.end_text()}; starting it again in {wait:g} s")
            await asyncio.sleep(wait)
            wait = min(wait * 2, BACKOFF_S[1])
            try:
                await self.start()
                self._say(f"{self.name} is ready again")
            except RunError as error:
                self._say(f"{error}; trying again in {wait:g} s")
                await self.stop()

    async def stop(self) -> bool:
        clean = True
        if self.child is not None:
            clean = await self.child.stop(STOP_S)
            if not clean:
                self._say(f"{self.name} did not end within {STOP_S:g} s and was killed")
        self._served_since = None
        self._ended()
        return clean


def process_by_file(start: Start, layout: Layout, say: Say) -> Process:
    """A process that writes run/<role>.json itself once it serves."""

    async def serves(pid: int) -> str | None:
        told = ready.read(layout, start.role)
        return told.address if told is not None and told.ready and told.pid == pid else None

    def ended() -> None:
        ready.forget(layout, start.role)
        if start.role == "kg":
            layout.kg_socket.unlink(missing_ok=True)

    return Process(start, serves, ended, say)


class Port:
    """The broker's loopback port; it listens from the first start to the end, whoever serves.

    While there is no broker, connections are accepted and closed at once. So nobody else can take
    the port, and with it the password that the mediator would send there.
    """

    def __init__(self, host: str, port: int) -> None:
        try:
            self.sock = socket.create_server((host, port), backlog=512)
        except OSError as error:
            raise RunError(
                f"the embedded broker cannot have {host}:{port}: {error.strerror}",
                "choose another --broker-port, or none for a free one",
            ) from None
        self.sock.setblocking(False)
        self.host, self.number = host, self.sock.getsockname()[1]

    def refuse(self) -> None:
        """There is no broker."""
        asyncio.get_running_loop().add_reader(self.sock, self._turn_away)

    def hand_over(self) -> None:
        """A broker starts; it inherits the socket."""
        asyncio.get_running_loop().remove_reader(self.sock)

    def close(self) -> None:
        """Give the port back."""
        self.sock.close()

    def _turn_away(self) -> None:
        try:
            sock, _ = self.sock.accept()
        except OSError:
            return
        with sock:
            # A reset: no half-closed connection lingers on.
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def embedded_broker(start: Start, target: Target, port: Port, layout: Layout, say: Say) -> Process:
    """The broker's process; it serves once it lets the mediator's credentials in."""

    async def serves(pid: int) -> str | None:
        try:
            await admitted(target, 2.0)
        except BrokerError:
            return None
        ready.write(layout, Ready("broker", pid, target.address, True), user=proc.user_of(pid))
        return target.address

    def ended() -> None:
        port.refuse()
        ready.forget(layout, "broker")

    return Process(start, serves, ended, say, starting=port.hand_over)


class ExternalBroker:
    """A broker that somebody else runs: never started or stopped, only asked whether it serves."""

    name = "broker"
    child = None

    def __init__(self, target: Target, layout: Layout, say: Say) -> None:
        self._target, self._layout, self._say = target, layout, say
        self._serving = False

    @property
    def serving(self) -> bool:
        return self._serving

    async def start(self) -> None:
        end = asyncio.get_running_loop().time() + EXTERNAL_S
        while True:
            try:
                await admitted(self._target)
                break
            except Refused:
                raise  # asking again makes wrong credentials no better
            except BrokerError:
                if asyncio.get_running_loop().time() > end:
                    raise
            await asyncio.sleep(0.5)
        self._tell(True)
        if await lets_anybody_in(self._target):
            self._say(
                f"warning: broker {self._target.address} lets in anybody, not mediators only; "
                "whoever reaches it sees topics and ciphertext, and can publish"
            )

    async def tend(self) -> None:
        while True:
            await asyncio.sleep(WATCH_S)
            try:
                await admitted(self._target)
                if not self._serving:
                    self._say(f"broker {self._target.address} is there again")
                    self._tell(True)
            except BrokerError as error:
                if self._serving:
                    self._say(str(error))
                    self._tell(False)

    async def stop(self) -> bool:
        self._serving = False
        ready.forget(self._layout, "broker")
        return True

    def _tell(self, serving: bool) -> None:
        self._serving = serving
        ready.write(self._layout, Ready("broker", None, self._target.address, serving))
