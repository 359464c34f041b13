"""What one user's clients have published while it could not be sent: on disk, until the site has
decided.

It goes in its order, a batch at a time, while the site is there. Nobody is answered before the row
is gone, so that after a kill nothing comes again that was answered. A topic about which the site
gives no word is put aside, and others pass it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sqlite3
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import partial

from sealmq.client import ClientError

from .going import EXPIRED, SHORTEST_S, Answer, Going, needed
from .spool import Full, Kept, Spool
from .wire import Refusal

log = logging.getLogger("sealmq.agent")

_BATCH = 16
_EXPIRE_S = 10.0
# A topic about which the site gave no word is tried again after 1 s, and up to 30.
_ASIDE_S, _ASIDE_MOST_S = 1.0, 30.0
_DISK_S = 5.0

Send = Callable[[Going], Awaitable[Refusal | Exception | None]]
"""Has the site decide. An exception: no word about it; it is tried again."""


class _Aside:
    """Topics about which the site gave no word; until when they are left alone, each longer than
    the last time. Others do not wait for them."""

    def __init__(self) -> None:
        self._topics: dict[str, tuple[float, float]] = {}

    def put(self, topic: str, now: float) -> None:
        _, pause = self._topics.get(topic, (0.0, _ASIDE_S / 2))
        pause = min(2 * pause, _ASIDE_MOST_S)
        self._topics[topic] = (now + pause, pause)

    def over(self, topic: str) -> None:
        self._topics.pop(topic, None)

    def now(self, now: float) -> list[str]:
        # One that nobody has tried for as long begins anew.
        for topic, (until, _) in list(self._topics.items()):
            if until + _ASIDE_MOST_S <= now:
                del self._topics[topic]
        return [topic for topic, (until, _) in self._topics.items() if until > now]


class Backlog:
    """told: of each refusal that nobody waits for any more, with its topic."""

    def __init__(self, user: str, spool: Spool, told: Callable[[str, Refusal], None]) -> None:
        self._user, self._spool, self._told = user, spool, told
        self.waits: Callable[[], bool] = partial(spool.waits, user)
        """Whether anything is unsent: what comes now goes after it."""
        self.number = spool.number
        """The place of a message that has come, whether it will be kept or not."""
        # On its way to disk, or from there to the site, by origin.
        self._going: dict[str, Going] = {}
        # By their place: who waits for what is on disk, and what of it is being sent.
        self._waiting: dict[int, list[Answer]] = {}
        self._sending: dict[int, Going] = {}
        self._more = asyncio.Event()

    def find(self, origin: str) -> Going | None:
        """What is in memory just now of what waits, and is of this origin."""
        return self._going.get(origin)

    async def run(self, up: asyncio.Event, send: Send) -> None:
        """Send it while `up` is set; until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._drain(up, send), name=f"agent {self._user}: spool")
            group.create_task(self._expire(), name=f"agent {self._user}: expiry")

    def keep(self, going: Going) -> None:
        """Onto the disk. It is answered once the site has decided, or that it cannot be kept."""
        try:
            put = self._spool.put(self._user, going.kept(), going.dup)
        except Full as error:
            going.answer(Refusal("much", "agent.full", str(error)))
            return
        self._going[going.origin] = going

        def stored(done: asyncio.Future[int]) -> None:
            if done.cancelled():
                return
            # Its payload has no place in memory any more.
            self._gone(going)
            if error := done.exception():
                log.error("%s", f"{self._user}: a message could not be kept: {error}")
                going.answer(Refusal("much", "agent.disk", f"not kept on disk: {error}"))
                return
            seq = done.result()
            if (sending := self._sending.get(seq)) is not None:
                sending.also(going.answers)
            else:
                self._waiting[seq] = needed(self._waiting.get(seq, ()), going.answers)
            self._more.set()

        put.add_done_callback(stored)

    def _gone(self, going: Going) -> None:
        if self._going.get(going.origin) is going:
            del self._going[going.origin]

    async def _drain(self, up: asyncio.Event, send: Send) -> None:
        aside = _Aside()
        while True:
            await up.wait()
            self._more.clear()
            try:
                rest = await self._drained(aside, send)
            except sqlite3.Error as error:
                log.error("%s", f"{self._user}: what waits on disk cannot be read: {error}")
                rest = _DISK_S
            except Exception:
                log.exception("%s", f"{self._user}: what waits on disk could not be sent")
                rest = _DISK_S
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(rest):
                    await self._more.wait()

    async def _drained(self, aside: _Aside, send: Send) -> float | None:
        """Seconds to the next try; None: nothing waits. sqlite3.Error"""
        user = self._user
        if not self.waits():
            return None
        rows = await self._spool.oldest(user, _BATCH, aside.now(time.monotonic()))
        rest = 0.0 if rows else _ASIDE_S
        with self._sent(rows, known=True) as going:
            answers = await asyncio.gather(*(send(each) for each in going))
            decided: list[tuple[Going, Refusal | None]] = []
            for each, answer in zip(going, answers, strict=True):
                topic = each.pub.topic
                if not isinstance(answer, Exception):
                    aside.over(topic)
                    decided.append((each, answer))
                    continue
                log.warning("%s", f"{user}: {topic} waits: {answer}")
                if isinstance(answer, ClientError):
                    rest = _ASIDE_S
                else:
                    aside.put(topic, time.monotonic())
            await self._forget([each for each, _ in decided])
        for each, answer in decided:
            self._decided(each, answer)
        return rest

    @contextlib.contextmanager
    def _sent(self, rows: Sequence[Kept], known: bool) -> Iterator[list[Going]]:
        """What is on disk while it is being decided about. known: what comes again is the same;
        rows without payloads are the same as nothing."""
        mine = [one for one in rows if one.seq not in self._sending]
        going = [Going.of(one, self._waiting.pop(one.seq, [])) for one in mine]
        for each in going:
            self._sending[each.seq] = each
            if known:
                self._going[each.origin] = each
        try:
            yield going
        finally:
            for each in going:
                del self._sending[each.seq]
                self._gone(each)
                self._waiting[each.seq] = each.answers

    async def _forget(self, going: Sequence[Going]) -> None:
        """Before anybody is answered, so that after a kill nothing comes again that was."""
        try:
            await self._spool.done(self._user, [each.seq for each in going])
        except Exception as error:
            why = "is still on disk; it is sent once more if the agent ends before it can go"
            said = f"{self._user}: what the site has decided about {why}: {error}"
            log.error("%s", said, exc_info=not isinstance(error, sqlite3.Error))

    def _decided(self, going: Going, refusal: Refusal | None) -> None:
        answers = self._waiting.pop(going.seq, [])
        for answer in answers:
            answer(refusal)
        if refusal is not None and not answers:
            self._told(going.pub.topic, refusal)

    async def _expire(self) -> None:
        """Tell of what waits for too long, also while the site is away."""
        while True:
            await asyncio.sleep(_EXPIRE_S)
            if not self.waits():
                continue
            try:
                before = int(time.time()) + SHORTEST_S
                found = await self._spool.expired(self._user, before, _BATCH)
            except sqlite3.Error:
                continue  # `_drain` says it
            except Exception:
                log.exception("%s", f"{self._user}: what has expired cannot be read")
                continue
            with self._sent(found, known=False) as going:
                await self._forget(going)
            for each in going:
                self._decided(each, EXPIRED)
