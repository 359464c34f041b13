"""The parts of a running site: what each is started with, and how it shows that it serves.

A Process is a child that is started again when it ends. The brokers stand in brokers.py.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from sealmq.site.layout import Layout
from sealmq.site.reserve import WANT, room

from . import ready
from .child import Child, Start
from .errors import NotReady, RunError
from .notify import more_time, notify

Say = Callable[[str], None]

# A small board that has just booted reads all of Python from its card. Who has ended is not waited
# for.
READY_S = 90.0
# What a mediator has to read before it serves is given time: a million reservations take a quarter
# of a minute on a fast machine, a minute and a half on a small board.
READS_A_S = 1 << 20
STOP_S = 10.0
BACKOFF_S = 1.0, 30.0
# A process that has served so long starts with a short backoff again.
_WELL_S = 5.0
_POLL_S = 0.05


class Part(Protocol):
    """What the supervisor asks of each part."""

    name: str

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
    until READY_S are over, and a second more for each READS_A_S of the bytes that it has to read
    first, `reads`. `ended` puts away what an ended process has left, `starting` comes
    before and `changed` after each start. It gets `patience_s` (STOP_S) to end.
    `advice` knows what to do about the last lines of one that did not become ready. While the disk
    is `full` one that is started again may serve without being able to say so, and is left alone.
    """

    def __init__(
        self,
        start: Start,
        serves: Callable[[int], Awaitable[str | None]],
        ended: Callable[[], None],
        say: Say,
        *,
        starting: Callable[[], None] = lambda: None,
        patience_s: float | None = None,
        reads: Callable[[], int] = lambda: 0,
        advice: Callable[[Sequence[str]], str | None] = lambda lines: None,
        full: Callable[[], bool] = lambda: False,
    ) -> None:
        self.name = start.role
        self.child: Child | None = None
        self.changed: Callable[[], None] = lambda: None
        self._start = start
        self._serves, self._reads = serves, reads
        self._ended, self._starting = ended, starting
        self._say, self._advice, self._full = say, advice, full
        self._patience_s = STOP_S if patience_s is None else patience_s
        self._served_since: float | None = None
        # SIGHUP came before this start served.
        self._hung_up = False

    @property
    def serving(self) -> bool:
        return self._served_since is not None and self.child is not None and self.child.alive

    def hang_up(self) -> None:
        """Pass SIGHUP on: at once to one that serves, else once it does. Before that it may have no
        handler, and die of it, and may have read sealmq.toml already.
        """
        if self.serving and self.child is not None:
            self.child.signal(signal.SIGHUP)
        else:
            self._hung_up = True

    async def start(self) -> None:
        self._served_since = None
        self._hung_up = False  # it reads the file anew
        self._ended()
        self._starting()
        first = self.child is None
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
        ready_s = READY_S + self._reads() // READS_A_S
        if first:
            # systemd counts from the start of them all. Later it counts nothing: its watchdog
            # hears the supervisor meanwhile.
            notify(more_time(ready_s + READY_S))
        end = loop.time() + ready_s
        while child.alive:
            if await self._serves(child.pid) is not None:
                self._served_since = loop.time()
                if self._hung_up:
                    self._hung_up = False
                    self.hang_up()
                return
            if loop.time() > end and not first and self._full():
                self._say(f"{self.name} cannot say whether it serves: the disk is full; it may")
                end = loop.time() + ready_s
            elif loop.time() > end:
                raise NotReady(
                    f"{self.name} is not ready after {ready_s:g} s; "
                    f"its last words: {child.last_words()}",
                    self._advice(child.lines),
                    tuple(child.lines),
                )
            await asyncio.wait([child.exited], timeout=_POLL_S)
        raise NotReady(
            f"{self.name} {child.end_text()} before it was ready; "
            f"its last words: {child.last_words()}",
            self._advice(child.lines),
            tuple(child.lines),
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
            except (RunError, OSError) as error:
                self._say(f"{error}; trying again in {wait:g} s")
                await self.stop()

    async def stop(self) -> bool:
        clean = True
        if self.child is not None:
            # systemd counts from the first of them all, of which a site may have many.
            notify(more_time(self._patience_s + STOP_S))
            clean = await self.child.stop(self._patience_s)
            if not clean:
                self._say(f"{self.name} did not end within {self._patience_s:g} s and was killed")
        self._served_since = None
        self._ended()
        return clean


def process_by_file(
    start: Start,
    layout: Layout,
    say: Say,
    advice: Callable[[Sequence[str]], str | None] = lambda lines: None,
) -> Process:
    """A process that writes run/<role>.json itself once it serves. `advice`: as of Process."""

    async def serves(pid: int) -> str | None:
        told = ready.read(layout, start.role)
        return told.address if told is not None and told.ready and told.pid == pid else None

    def ended() -> None:
        ready.forget(layout, start.role)
        if start.role == "kg":
            with contextlib.suppress(OSError):
                layout.kg_socket.unlink()

    def reads() -> int:
        if start.role != "mediator":
            return 0
        # SQLite's log beside it: what was not put into place before it was killed.
        files = (layout.mediator_db, layout.mediator_db.with_name(f"{layout.mediator_db.name}-wal"))
        return sum(file.stat().st_size for file in files if file.exists())

    def full() -> bool:
        return room(layout.run) < WANT

    return Process(start, serves, ended, say, reads=reads, advice=advice, full=full)
