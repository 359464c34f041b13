"""A worker process as its owner has it: started, given connections, called, ended.

One that does not answer a call in ANSWER_S is ended (SIGKILL): nobody waits for a process that
hangs, and it must not go on by keys or rows that are no longer in force. Its clients connect anew.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import re
import signal
import socket
import sys
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from sealmq.families.attributes import Attribute
from sealmq.families.records import Record
from sealmq.mqtt import build, speaks_five
from sealmq.mqtt import five as v5
from sealmq.run.child import Child, Start
from sealmq.site.config import Config
from sealmq.site.layout import Layout

from .acceptor import Caller
from .core import reasons
from .frames import Gone, Handler, Peer
from .keysource import KeySource
from .shared import Fresh

log = logging.getLogger("sealmq.mediator")

MODULE = "sealmq.mediator.worker"
CALLS_FD, HAND_FD = "SEALMQ_WORKER_CALLS", "SEALMQ_WORKER_HAND"

ANSWER_S = 5.0
# Taking a whole configuration over may hold its loop for longer.
RELOAD_S = 60.0
# How often it is asked whether it still answers, and how long that may take.
ALIVE_S, THINK_S = 5.0, 15.0
STOP_S = 8.0
# How long a worker that publishes its journal again waits for the kept sessions of others.
REOPEN_S = 60.0
# Connections that wait for a worker to take them.
WAITING = 1024
_UNAVAILABLE = build.connack(False, 3)
_UNAVAILABLE_5 = v5.connack(False, reasons.SERVER_AWAY, {})
_OWN_FILE = re.compile(r"/proc/self/fd/(\d+)")


class WorkerProcess:
    """One process. `news` is its last report; `changed` is called when there is a new one."""

    def __init__(
        self,
        layout: Layout,
        index: int,
        inst: int,
        secrets: Mapping[str, Any],
        handlers: Callable[[WorkerProcess], Mapping[str, Handler]],
        changed: Callable[[], None],
        module: str = MODULE,
    ) -> None:
        self.index, self.inst, self._changed = index, inst, changed
        self.left: Callable[[], None] = lambda: None
        """Called when it has ended."""
        self.whole = False
        """Whether it has ended with all in the store that it had counted."""
        self.news: dict[str, Any] = {}
        self.live = False
        """Whether its live link is there."""
        self.serving = False
        """Whether it has begun: from then on its answers are waited for."""
        self._said = asyncio.Event()
        self._reloading = 0
        self._waiting: deque[tuple[Caller, bytes]] = deque()
        self._blocked = False
        self._loop = asyncio.get_running_loop()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        self._hand, hand = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setblocking(False)
        self._hand.setblocking(False)
        try:
            start = Start(
                f"worker {index}",
                module,
                layout.root,
                secrets,
                {CALLS_FD: theirs.fileno(), HAND_FD: hand.fileno()},
                keep=_own_files(secrets["broker"]),
                guard=False,
            )
            self._child = Child(start, lambda line: print(line, file=sys.stderr, flush=True))
        except BaseException:
            ours.close()
            self._hand.close()
            raise
        finally:
            theirs.close()
            hand.close()
        self._peer = Peer(ours, handlers(self))
        self._reading: asyncio.Task[str] | None = None
        self._watch: asyncio.Task[None] | None = None

    # --- its life ---

    @property
    def pid(self) -> int:
        """Its process."""
        return self._child.pid

    @property
    def away(self) -> str | None:
        """Why no client can connect; None while clients can."""
        if not self.serving or not self._child.alive:
            return "a worker of the mediator is starting"
        away = self.news.get("away", "a worker of the mediator is starting")
        return away if away is None else str(away)

    async def begin(self, *words: Any) -> None:
        """Tells it what it begins with; returns when it has read the store. Raises Gone."""
        await self._peer.call("begin", *words)
        self.serving = True
        self._watch = asyncio.create_task(self._look(), name=f"watch worker {self.index}")

    async def open(self) -> None:
        """Before `begin`."""
        await self._peer.open()
        self._reading = asyncio.create_task(self._peer.run(), name=f"worker {self.index}")

    async def until(self, holds: Callable[[], bool]) -> None:
        """Returns when this holds after one of its reports, or when it has ended."""
        while not holds() and self._child.alive:
            said = asyncio.ensure_future(self._said.wait())
            waits: set[asyncio.Future[Any]] = {said, self._child.exited}
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            said.cancel()
            self._said.clear()

    async def exited(self) -> str:
        """Waits until it has ended; how, and its last words."""
        await asyncio.wait([self._child.exited])
        self.serving = False
        self._drop()
        self._peer.close()
        if self._reading is not None:
            await asyncio.gather(self._reading, return_exceptions=True)
        # After its last call: what it asked has no effect from now on.
        self.left()
        if self._watch is not None:
            self._watch.cancel()
        return f"{self._child.end_text()}; {self._child.last_words()}"

    def kill(self, reason: str) -> None:
        """Ends it at once."""
        if self._child.alive:
            log.error("worker %d is ended: %s", self.index, reason)
            self._child.signal(signal.SIGKILL)

    async def stop(self) -> None:
        """Ends it in good order, if it does so in time."""
        with contextlib.suppress(TimeoutError, Gone):
            async with asyncio.timeout(STOP_S):
                self.whole = bool(await self._peer.call("stop"))
        self._peer.close()
        await self._child.stop(1.0)
        await self.exited()

    async def _look(self) -> None:
        while True:
            await asyncio.sleep(ALIVE_S)
            await self.ask("ping", patience=THINK_S)

    # --- what it is asked ---

    async def ask(self, name: str, *words: Any, patience: float | None = None) -> None:
        """Returns when it has done that, or has ended, because it did not answer or by itself.

        One that has not begun does it before it serves anybody; nobody waits for that.
        """
        if not self._child.alive:
            return
        patience = ANSWER_S if patience is None else patience
        call = asyncio.ensure_future(self._peer.call(name, *words))
        # Whoever waits for it may be cancelled meanwhile.
        call.add_done_callback(_seen)
        if not self.serving:
            return
        waits = {call, self._child.exited}
        while True:
            most = max(patience, RELOAD_S) if self._reloading else patience
            done, _ = await asyncio.wait(waits, timeout=most, return_when=asyncio.FIRST_COMPLETED)
            if call in done:
                with contextlib.suppress(Gone):
                    call.result()
                    return
            if not done and self._reloading and most < RELOAD_S:
                continue
            if call in done:
                # It ends by itself, and may be writing its log to the end.
                done, _ = await asyncio.wait({self._child.exited}, timeout=ANSWER_S)
            if self._child.exited not in done:
                self.kill(f"it did not answer '{name}', or end, in {most:g} s")
            # Its sockets are closed when this is done: it serves nobody any more.
            await asyncio.wait([self._child.exited])
            return

    async def apply(self, groups: list[tuple[str, list[Record]]]) -> None:
        """Returns when it has applied these records of other workers, or was ended."""
        await self.ask("apply", groups)

    async def ring(self, keys: KeySource, fresh: Fresh) -> None:
        await self.ask("ring", keys.site, self.inst, keys.snapshot, fresh)

    async def ended(self) -> None:
        with contextlib.suppress(Gone):
            if self.serving:
                await self._peer.call("ended")

    async def reopened(self) -> None:
        """Returns when the broker has its clients' kept sessions, or in REOPEN_S."""
        with contextlib.suppress(Gone, TimeoutError):
            async with asyncio.timeout(REOPEN_S):
                await self._peer.call("reopened")

    async def config(self, config: Config) -> None:
        if not self.serving:
            await self.ask("config", config.text)
            return
        try:
            await self._peer.call("config", config.text)
        except Gone:
            await asyncio.wait([self._child.exited])

    def reloading(self, begun: bool) -> None:
        """It says that it takes a configuration over, or has. One that hangs says nothing."""
        self._reloading += 1 if begun else -1

    async def attributes(self, rows: list[Attribute]) -> None:
        await self.ask("attributes", rows)

    async def links(self, client: int, links: list[dict[str, Any]]) -> None:
        await self.ask("links", client, links)

    def set_kg(self, there: bool) -> None:
        self.tell("kg", there)

    def tell(self, name: str, *words: Any) -> None:
        """Sends a notice, which has no answer."""
        if self._child.alive:
            with contextlib.suppress(Gone):
                self._peer.tell(name, *words)

    def told(self, news: dict[str, Any]) -> None:
        """It has sent a report."""
        self.news = news
        self._said.set()
        self._changed()

    # --- connections ---

    def give(self, caller: Caller, data: bytes) -> None:
        """Hands a connection over, with the bytes that came. One that cannot be is refused."""
        if not self.serving or len(self._waiting) >= WAITING:
            caller.transport.write(_UNAVAILABLE_5 if speaks_five(data) else _UNAVAILABLE)
            caller.refused()
            return
        caller.transport.pause_reading()
        self._waiting.append((caller, data))
        if not self._blocked:
            self._push()

    def _push(self) -> None:
        if self._blocked:
            self._loop.remove_writer(self._hand)
            self._blocked = False
        while self._waiting:
            caller, data = self._waiting[0]
            if not caller.transport.is_closing():
                fd = caller.transport.get_extra_info("socket").fileno()
                try:
                    socket.send_fds(self._hand, [data], [fd])
                except BlockingIOError:
                    self._loop.add_writer(self._hand, self._push)
                    self._blocked = True
                    return
                except OSError as error:
                    log.warning("a connection is not taken: %s", error.strerror)
                caller.close("it is a worker's now")
            self._waiting.popleft()

    def _drop(self) -> None:
        if self._blocked:
            self._loop.remove_writer(self._hand)
            self._blocked = False
        while self._waiting:
            self._waiting.popleft()[0].close("the worker has ended")
        self._hand.close()


# Files with the broker's certificates were inherited by the owner, and are by the worker.
def _own_files(broker: Mapping[str, Any]) -> list[int]:
    found = (_OWN_FILE.fullmatch(word) for word in broker.values() if isinstance(word, str))
    return [int(match.group(1)) for match in found if match is not None]


def _seen(call: asyncio.Future[Any]) -> None:
    if not call.cancelled():
        call.exception()


def own_sockets() -> tuple[socket.socket, socket.socket]:
    """In a worker: the socket of calls and the one on which connections come."""
    pair = []
    for name in (CALLS_FD, HAND_FD):
        text = os.environ.pop(name, "")
        if not text.isdecimal():
            raise Gone(f"{name} is not set: `sealmq up` starts the workers of a mediator")
        sock = socket.socket(fileno=int(text))
        sock.set_inheritable(False)
        sock.setblocking(False)
        pair.append(sock)
    return pair[0], pair[1]
