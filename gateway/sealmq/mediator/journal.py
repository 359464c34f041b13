"""The journal (GATEWAY.md G4): what a broker has acknowledged and may not have on its disk yet.

Brokers keep queues in memory between two saves. So a message of QoS 1 or 2 counts as accepted only
when it is on this disk too, and is published again when the broker was lost. One fdatasync serves
all that waits, in a thread, and waits a little for company; entries lie in short segments, and a
segment goes as a whole once the broker has saved. Nothing else ends what was acknowledged: when the
journal is full, more is refused. What the broker has not acknowledged, which its publisher still
owes, is waited for five minutes, and half a minute when there is little room, for all or for one
client. What lies ahead of the clock (it is wrong: the machine has just begun) stays until the clock
has come there.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import math
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

from sealmq.loops import wake
from sealmq_spec.const import WINDOW_S

from .core.limits import ROOM_S
from .core.refusals import JOURNAL_PART
from .disk import Disk
from .journal_file import Ahead, Entry, Segment, pack, read, retained_elsewhere, without_retain

log = logging.getLogger("sealmq.mediator")

MOST = 128 * 1024 * 1024
# One client's part of it is a quarter: a client that fills its part waits, and is refused in the
# end; others are not.
SHARE = 4
# By which rule: what a client has there itself, or all else.
ANYBODYS = "mediator.publish.journal"
# How long an entry that is not acknowledged holds its segment; the second when the journal, or one
# client's part of it, is more than half full.
LONGEST_S = 300.0
HURRIED_S = 30.0
SEGMENT_S = 5.0
SEGMENT_BYTES = 4 * 1024 * 1024
# What may wait for the disk before QoS 1 and 2 are refused.
WAITING_BYTES = 32 * 1024 * 1024
# What lies ahead of the clock has this part of it: a clock that had been wrong the other way might
# make that wait for years.
_AHEAD = 2
# Between two rewritings of what lies ahead.
REWRITE_S = 10.0
_RETRY_S = 0.5
# A sync costs several times what a message does without it, however many it serves. So one begins
# no sooner than this after the one before it, unless so many entries wait that each bears little of
# it, or all whose entries the one before served wait again: one client that publishes message after
# message is not held up.
APART_S = 0.005
COMPANY = 8


class Journal:
    """In `folder`, which is made. `saved`, `autosave_s`: as in BrokerAddress.

    `told` hears why nothing can be taken, and None when it can again; `dropped` how many bytes were
    lost, and why. `folder` None: no journal,
    everything is durable at once. `clock`: seconds that only rise. `most`: bytes, of one of so many
    `workers`. `as_event` calls what tells of all that has come to the disk together (Events.run).
    """

    def __init__(
        self,
        folder: Path | None,
        saved: Path | None = None,
        autosave_s: float = 60.0,
        told: Callable[[str | None], None] = lambda reason: None,
        dropped: Callable[[int, str], None] = lambda size, reason: None,
        clock: Callable[[], float] = time.monotonic,
        most: int = MOST,
        as_event: Callable[..., None] = lambda call, *words: call(*words),
        workers: int = 1,
    ) -> None:
        self._as_event = as_event
        self._workers = workers
        self._folder, self._saved, self._autosave_s = folder, saved, autosave_s
        self._told, self._dropped, self._clock = told, dropped, clock
        self._loop = asyncio.get_running_loop()
        self._disk = Disk("sealmq journal")
        self._most = most
        self.seq = 0
        self.durable = 0
        # The newest stamp here and in other workers' journals, and how far stamps lead the clock.
        self._stamped = self._elsewhere = self._ahead_ms = 0
        # Why QoS 1 and 2 cannot be taken now, from anybody.
        self._failing: str | None = None
        self._broken: str | None = None
        self._full: str | None = None
        # Bytes by client.
        self._shares: Counter[int] = Counter()
        # Who waits until its part has room, by client.
        self._wanted: dict[int, list[asyncio.Future[None]]] = {}
        self._segments: list[Segment] = []
        self._files = 0
        self._size = 0
        self._waiting = 0
        # A write is under way, or will begin in this turn of the loop; else, when one will begin.
        self._busy = False
        self._planned: asyncio.TimerHandle | None = None
        self._began = -APART_S
        # Whose entries wait; and of those whom the last write served, who has none that waits.
        self._clients: set[int] = set()
        self._missing: set[int] = set()
        self._ended = False
        self._tasks: list[tuple[int, Callable[..., None], tuple[Any, ...]]] = []
        self._up_since: float | None = None
        self._mtime = 0
        self.saved_before = -math.inf
        """What the broker had at this time of `clock` is on its disk for certain."""
        # Topics of which what lies ahead has a retained message; those of them where something was
        # retained since, with the number of that entry, which stays until the others are rewritten.
        self._ahead_topics: set[bytes] = set()
        self._later: dict[bytes, int] = {}
        self._rewriting = 0
        self._rewrote = -math.inf
        # When the two saves before the next one were seen.
        self._saves: tuple[float | None, float | None] = (None, None)
        if folder is not None:
            self._start(folder)

    @property
    def most(self) -> int:
        """How many bytes it may have."""
        return self._most

    @most.setter
    def most(self, size: int) -> None:
        """In force at once: a full one may have room again."""
        self._most = size
        self._roomy()

    @property
    def on(self) -> bool:
        """Whether there is one."""
        return self._folder is not None

    def state(self) -> dict[str, Any] | None:
        """For `sealmq status`; None where there is none."""
        if self._folder is None:
            return None
        return {"bytes": self._size, "segments": len(self._segments), "failing": self._failing}

    def _start(self, folder: Path) -> None:
        folder.mkdir(mode=0o700, exist_ok=True)
        for path in sorted(folder.glob("*.seg")):
            if not path.stem.isdecimal():
                log.warning("journal: %s is none of its files", path)
                continue
            old = Segment(path, 0)
            old.size, old.again = path.stat().st_size, True
            self._size += old.size
            self._files = max(self._files, int(path.stem))
            self._segments.append(old)
        self._mtime = self._saved_at()
        self._next()

    # --- what comes ---

    def refuses(self, client: int) -> tuple[str, str] | None:
        """By which rule, and why, nothing more is taken from this client; None when it is."""
        if self._failing is not None:
            return ANYBODYS, self._failing
        if self._has_its_part(client):
            return JOURNAL_PART, (
                f"the part of the journal that this client may have is full: "
                f"{_mib(self._shares[client])} wait for the broker to save them, and one client "
                f"may have {_mib(self.most // SHARE)}, a quarter of {self._bound()}; it has to "
                "publish more slowly, or journal_mib has to be raised"
            )
        return None

    def _has_its_part(self, client: int) -> bool:
        return self._shares[client] * SHARE > self.most

    def _bound(self) -> str:
        """What says how large it may be."""
        setting = f"[limits] journal_mib = {(self.most * self._workers) >> 20}"
        if self._workers == 1:
            return setting
        return f"a worker's {_mib(self.most)} ({setting} for {self._workers} workers)"

    async def room(self, client: int) -> bool:
        """Waits until this client's part has room; False: it had none for ROOM_S."""
        if not self._has_its_part(client):
            return True
        came = self._loop.create_future()
        self._wanted.setdefault(client, []).append(came)
        try:
            async with asyncio.timeout(ROOM_S):
                await came
        except TimeoutError:
            return False
        finally:
            self._wanted[client].remove(came)
            if not self._wanted[client]:
                del self._wanted[client]
        return True

    def append(
        self,
        topic: bytes,
        payload: bytes,
        qos: int,
        retain: bool,
        client: int = 0,
        gen: int | None = None,
    ) -> int:
        """Takes an entry; its number, which is on disk once `durable` has reached it. 0: none.

        `client`, `gen`: as in Entry. Whoever calls asks `refuses` first, where it can refuse.
        """
        if self._folder is None:
            return 0
        segment = self._segments[-1]
        data = pack(self._stamp(), topic, payload, qos, retain, client, gen)
        self.seq += 1
        if not segment.size:
            segment.opened = self._clock()
        segment.shares[client] = segment.shares.get(client, 0) + len(data)
        self._shares[client] += len(data)
        segment.waiting.append(data)
        segment.size += len(data)
        self._size += len(data)
        self._waiting += len(data)
        if qos:
            segment.open += 1
        if retain and self._ahead_topics:
            self.retained_since(topic)
        if segment.size >= SEGMENT_BYTES:
            self._next()
        self._clients.add(client)
        self._missing.discard(client)
        if not self._busy:
            self._plan()
        if self._waiting > WAITING_BYTES:
            much = _mib(WAITING_BYTES)
            self._fail(
                f"the disk is too slow for the journal: more than {much} wait to be written, which "
                "no setting raises; a faster disk, or clients that publish less"
            )
        if self._size > self.most and self._full is None:
            self._full = f"the journal is full: {_mib(self._size)} wait for the broker to save "
            self._full += f"them, of all clients; the bound is {self._bound()}: see whether the "
            self._full += "broker saves, or raise journal_mib"
            self._tell()
        return self.seq

    # Stamps go on rising when the clock is set back: else an older retained message would be the
    # newest of its topic, and take its place when it is published again.
    def _stamp(self) -> int:
        ms = time.time_ns() // 1_000_000 + self._ahead_ms
        last = max(self._stamped, self._elsewhere)
        if ms < last:
            self._ahead_ms += last - ms
            ms = last
        self._stamped = ms
        return ms

    def acked(self, seq: int) -> None:
        """The broker has acknowledged this entry, or never will."""
        if not seq:
            return
        segment = self._segments[-1]
        if seq >= segment.first:
            segment.open -= 1
            return
        for segment in reversed(self._segments):
            if segment.first <= seq <= segment.last:
                segment.open -= 1
                segment.quiet = self._clock()
                return

    def when(self, seq: int, call: Callable[..., None], *words: Any) -> None:
        """Calls with these words once the entry is on disk."""
        if seq <= self.durable:
            call(*words)
        else:
            self._tasks.append((seq, call, words))

    async def safe(self, seq: int) -> None:
        """Returns once the entry is on disk."""
        done = asyncio.Event()
        self.when(seq, done.set)
        await done.wait()

    # --- to the disk ---

    def _next(self) -> None:
        if self._folder is None:
            return
        if self._segments:
            last = self._segments[-1]
            last.last, last.quiet = self.seq, self._clock()
        self._files += 1
        path = self._folder / f"{self._files:08d}.seg"
        self._segments.append(Segment(path, self.seq + 1))

    # How long the next write still waits for company.
    def _wait(self) -> float:
        if not self._missing or len(self._segments[-1].waiting) >= COMPANY:
            return 0.0
        return self._began + APART_S - self._loop.time()

    # Something waits for the disk, and no write is under way.
    def _plan(self) -> None:
        wait = self._wait()
        if wait > 0.0:
            if self._planned is None:
                self._planned = self._loop.call_later(wait, self._flush)
            return
        if self._planned is not None:
            self._planned.cancel()
        self._busy = True
        self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._busy, self._planned = True, None
        self._began = self._loop.time()
        self._missing, self._clients = self._clients, set()
        segment = next(s for s in self._segments if s.waiting)
        entries, segment.waiting = segment.waiting, []
        # All that was taken so far but for what later segments hold.
        last = self.seq if segment is self._segments[-1] else segment.last
        self._write(segment, b"".join(entries), last)

    def _write(self, segment: Segment, data: bytes, last: int) -> None:
        if self._ended:
            return
        self._disk.ask(partial(self._written, segment, data, last), segment.write, data)

    def _written(self, segment: Segment, data: bytes, last: int, error: Exception | None) -> None:
        if error is not None:
            self._fail(f"the journal cannot be written: {_reason(error)}")
            self._loop.call_later(_RETRY_S, self._write, segment, data, last)
            return
        self._waiting -= len(data)
        self.durable = last
        if self._waiting < WAITING_BYTES // 2:
            self._broken = None
            self._tell()
        self._as_event(self._tell_waiting, last)
        self._busy = False
        if self._waiting:
            self._plan()

    def _tell_waiting(self, last: int) -> None:
        waiting, self._tasks = self._tasks, []
        for task in waiting:
            if task[0] <= last:
                task[1](*task[2])
            else:
                self._tasks.append(task)

    def _fail(self, reason: str) -> None:
        if self._broken is None:
            self._broken = reason
            self._tell()

    def _tell(self) -> None:
        before, self._failing = self._failing, self._broken or self._full
        if (before is None) != (self._failing is None):
            self._told(self._failing)

    # --- what goes ---

    def broker_lost(self) -> None:
        """Everything in the journal is to be published again."""
        self._up_since = None
        if self._folder is None:
            return
        if self._segments[-1].size:
            self._next()
        for segment in self._segments[:-1]:
            segment.again = True

    def broker_back(
        self, done: list[Segment], ahead: Mapping[Segment, Ahead] = MappingProxyType({})
    ) -> None:
        """These were published again, but for what lies ahead in some of them; the broker has not
        saved them yet.
        """
        now = self._up_since = self._clock()
        for segment in done:
            segment.again, segment.open, segment.quiet = False, 0, now
            segment.ahead = ahead.get(segment)
        self._bound_ahead()
        self._mtime, self._saves = self._saved_at(), (None, None)

    # What would wait longest goes first.
    def _bound_ahead(self) -> None:
        rows = [(segment.ahead.until, segment) for segment in self._segments if segment.ahead]
        size = 0
        for _, segment in sorted(rows, key=lambda row: row[0]):
            size += segment.size
            if size > self.most // _AHEAD:
                segment.ahead = None
                reason = "it lies ahead of the clock, and such messages have half of the journal"
                self._dropped(segment.size, f"{segment.path.name}: {reason}")
        self._gather_topics()

    def _gather_topics(self) -> None:
        held = (segment.ahead.topics for segment in self._segments if segment.ahead)
        self._ahead_topics = set().union(*held)
        self._later = {t: seq for t, seq in self._later.items() if t in self._ahead_topics}

    def due(self, now_s: int) -> bool:
        """Whether the clock has come to what lay ahead of it, which is now to be published."""
        found = False
        for segment in self._segments:
            ahead = segment.ahead
            if ahead and not segment.again and ahead.until - WINDOW_S <= now_s:
                segment.again = found = True
        return found

    def retained_since(self, topic: bytes) -> None:
        """Something was retained there, here or by another worker: what lies ahead is older."""
        if topic in self._ahead_topics:
            self._later.setdefault(topic, self.seq)

    # By their stamps alone nobody could tell, once the newer ones have left the journal.
    def _rewrite(self, now: float) -> None:
        if not self._later or self._rewriting or now - self._rewrote < REWRITE_S:
            return
        self._rewrote, topics = now, frozenset(self._later)
        for segment in self._segments:
            ahead = segment.ahead
            if ahead and segment.last <= self.durable and ahead.topics & topics:
                self._rewriting += 1
                done = partial(self._rewritten, ahead, topics)
                self._disk.ask(done, without_retain, segment.path, topics)

    def _rewritten(self, ahead: Ahead, topics: frozenset[bytes], error: Exception | None) -> None:
        self._rewriting -= 1
        if error is None:
            ahead.topics.difference_update(topics)
            self._gather_topics()

    def lost(self) -> list[Segment]:
        """What is to be published again, oldest first."""
        return [segment for segment in self._segments if segment.again]

    def all(self) -> list[Segment]:
        """All that it holds, oldest first."""
        return list(self._segments)

    def retained_elsewhere(self) -> dict[bytes, int]:
        """As in journal_file; for any thread."""
        if self._folder is None:
            return {}
        found = retained_elsewhere(self._folder)
        self._elsewhere = max(found.values(), default=0)
        return found

    def entries(self, segments: list[Segment]) -> Iterator[Entry]:
        """What these hold; a file that cannot be read is told and left out."""
        for segment in segments:
            try:
                for entry in read(segment.path):
                    self._stamped = max(self._stamped, entry.ms)
                    yield entry
            except FileNotFoundError:
                continue  # nothing was written to it yet
            except OSError as error:
                if not segment.bad:
                    segment.bad = True
                    self._dropped(segment.size, f"{segment.path.name}: {error.strerror}")

    def tick(self) -> None:
        """About once a second."""
        if self._folder is None:
            return
        now = self._clock()
        current = self._segments[-1]
        if current.size and now - current.opened >= SEGMENT_S:
            self._next()
        # However long a save takes, it begins after the one before was seen. One more must follow:
        # Mosquitto does not sync the folder, so that a power cut may bring the file before back.
        limit = None
        mtime = self._saved_at()
        if mtime not in (0, self._mtime):
            self._mtime = mtime
            limit, self._saves = self._saves[0], (self._saves[1], now)
        if self._up_since is None:
            return
        if self._saved is None and now - 2 * self._autosave_s >= self._up_since:
            limit = now - 2 * self._autosave_s
        if limit is not None:
            self.saved_before = max(self.saved_before, limit)
        self._rewrite(now)
        for segment in self._segments[:-1]:
            # A segment that is not wholly written would still be written to after its end.
            if segment.last <= self.durable and self._over(segment, now, self._up_since, limit):
                self._drop(segment)

    def _over(self, segment: Segment, now: float, up_since: float, saved: float | None) -> bool:
        if segment.ahead or (self._later and segment.last >= min(self._later.values())):
            return False
        since = max(segment.quiet, up_since)
        # Their publishers have no acknowledgement yet.
        if segment.open > 0 and now - since < self._patience():
            return False
        if self._saved is None:
            return now - since >= 2 * self._autosave_s
        return saved is not None and segment.quiet <= saved

    # One client's open entry holds segments with the entries of others, whose part they fill.
    def _patience(self) -> float:
        part = max(self._shares.values(), default=0) * SHARE
        return LONGEST_S if max(self._size, part) <= self.most // 2 else HURRIED_S

    def _drop(self, segment: Segment) -> None:
        self._segments.remove(segment)
        self._size -= segment.size
        self._shares.subtract(segment.shares)
        for client in [c for c in segment.shares if self._shares[c] <= 0]:
            del self._shares[client]
        self._disk.do(segment.end, True)
        self._roomy()

    def _roomy(self) -> None:
        for client, waiting in self._wanted.items():
            if not self._has_its_part(client):
                for came in waiting:
                    wake(came)
        if self._full is not None and self._size < self.most // 4 * 3:
            self._full = None
            self._tell()

    def _saved_at(self) -> int:
        try:
            return self._saved.stat().st_mtime_ns if self._saved is not None else 0
        except OSError:
            return 0

    async def close(self) -> None:
        """Writes what waits, if that is possible, and ends the thread."""
        if self._waiting and self._failing is None:
            try:
                async with asyncio.timeout(2.0):
                    await self.safe(self.seq)
            except TimeoutError:
                log.warning("the journal was not written to its end")
        self._ended = True
        for segment in self._segments:
            self._disk.do(segment.end, False)
        self._disk.close()


def _reason(error: Exception) -> str:
    number = error.errno if isinstance(error, OSError) else None
    if number is None:
        return type(error).__name__
    mend = "; free the disk that the site's state lies on"
    return os.strerror(number) + (mend if number in (errno.ENOSPC, errno.EDQUOT) else "")


def _mib(size: int) -> str:
    return f"{size / (1 << 20):.3g} MiB" if size < 100 << 20 else f"{size >> 20} MiB"
