"""The questions of sessions (core/effects.py) that are not answered at once: each is a task, and
its result, or the exception that it raises, goes to the session as the answer.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

from sealmq.kglink import KgError
from sealmq.store import StoreError
from sealmq_spec.errors import SealError

from .core.effects import BrokerAway
from .core.session import Session
from .events import Events
from .links import NotTaken
from .links.snapshots import SnapshotCut

log = logging.getLogger("sealmq.mediator")

# Exceptions that are answers; any other is a fault of ours, and is logged as well.
_ANSWERS = (SealError, StoreError, KgError, BrokerAway, NotTaken, SnapshotCut)


class _Asked:
    """What one session has asked. `count`: questions that are not answered; `cancelled_at_end`:
    tasks of those that nobody waits for once the session has ended.
    """

    __slots__ = ("cancelled_at_end", "count", "done")

    def __init__(self) -> None:
        self.count = 0
        self.cancelled_at_end: set[asyncio.Task[None]] = set()
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()


class Questions:
    """`tasks`: all that run, those that no session waits for too."""

    def __init__(self, events: Events) -> None:
        self._events = events
        self._asked: dict[Session, _Asked] = {}
        self.tasks: set[asyncio.Task[Any]] = set()

    def ask(
        self, session: Session, task: int, work: Coroutine[Any, Any, object], ends: bool = False
    ) -> None:
        """Runs `work`, which returns the answer or raises it. `ends`: it is cancelled when the
        session ends.
        """
        asked = self._of(session)
        asked.count += 1

        async def answered() -> None:
            answer: object
            try:
                answer = await work
            except _ANSWERS as error:
                # The session keeps the error. Its frames would keep the session in memory.
                answer = error.with_traceback(None)
            except Exception as error:
                log.exception("a question of %s could not be answered", session.peer)
                answer = error.with_traceback(None)
            self.reply(session, task, answer)

        name = f"client {session.client.name}" if session.known else f"client {session.peer}"
        running = self.spawn(answered(), name)
        if ends:
            asked.cancelled_at_end.add(running)
        running.add_done_callback(lambda done: self._over(session, asked, work, done))

    def reply(self, session: Session, task: int, answer: object) -> None:
        """Gives the session its answer. `task` 0: it wants none."""
        if task:
            self._events.run(session.reply, task, answer)
        peer = self._events.peers.get(session)
        if peer is not None:
            peer.settled()

    def done(self, session: Session) -> asyncio.Future[None]:
        """Done once the session has ended and all that it asked is answered."""
        asked = self._of(session)
        self._look(session, asked)
        return asked.done

    def end(self, session: Session) -> None:
        """The session has ended."""
        asked = self._asked.get(session)
        if asked is not None:
            for task in list(asked.cancelled_at_end):
                task.cancel()
            self._look(session, asked)

    def spawn(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        """A task that no session waits for. What it raises is logged."""
        task = asyncio.get_running_loop().create_task(work, name=name)
        self.tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _of(self, session: Session) -> _Asked:
        asked = self._asked.get(session)
        if asked is None:
            asked = self._asked[session] = _Asked()
        return asked

    def _over(
        self,
        session: Session,
        asked: _Asked,
        work: Coroutine[Any, Any, object],
        task: asyncio.Task[None],
    ) -> None:
        work.close()  # a task that is cancelled before its first step has never begun it
        asked.cancelled_at_end.discard(task)
        asked.count -= 1
        self._look(session, asked)

    def _look(self, session: Session, asked: _Asked) -> None:
        if session.state == "closed" and not asked.count and not asked.done.done():
            asked.done.set_result(None)
            self._asked.pop(session, None)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self.tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("%s failed: %r", task.get_name(), error)
