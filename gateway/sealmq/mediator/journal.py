"""The journal (SPEC.md 6.4): what a broker has acknowledged and may not have on its disk yet.

Brokers keep queues in memory between two saves. So a message of QoS 1 or 2 counts as accepted only
when it is on this disk too, and is published again when the broker was lost. One fdatasync serves
all that waits, in a thread; entries lie in short segments, and a segment goes as a whole once the
broker has saved. Nobody can hold one longer than five minutes of unbroken connection, or beyond
MOST bytes.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from .journal_file import Entry, Segment, pack, read

log = logging.getLogger("sealmq.mediator")

MOST = 128 * 1024 * 1024
LONGEST_S = 300.0
SEGMENT_S = 5.0
SEGMENT_BYTES = 4 * 1024 * 1024
# What may wait for the disk before QoS 1 and 2 are refused.
WAITING_BYTES = 32 * 1024 * 1024
_RETRY_S = 0.5


class Journal:
    """In `folder`, which is made. `saved`, `autosave_s`: as in BrokerAddress.

    `told` hears why nothing can be written, and None when it can again; `dropped` hears how many
    bytes were given up unsaved. `folder` None: no journal, everything is durable at once. `clock`:
    seconds that only rise.
    """

    def __init__(
        self,
        folder: Path | None,
        saved: Path | None = None,
        autosave_s: float = 60.0,
        told: Callable[[str | None], None] = lambda reason: None,
        dropped: Callable[[int], None] = lambda size: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._folder, self._saved, self._autosave_s = folder, saved, autosave_s
        self._told, self._dropped, self._clock = told, dropped, clock
        self._loop = asyncio.get_running_loop()
        self._thread = ThreadPoolExecutor(1, "sealmq journal")
        self.most = MOST
        self.seq = 0
        self.durable = 0
        # Why QoS 1 and 2 cannot be taken now.
        self.failing: str | None = None
        self._segments: list[Segment] = []
        self._files = 0
        self._size = 0
        self._waiting = 0
        self._busy = False
        self._tasks: list[tuple[int, Callable[..., None], tuple[Any, ...]]] = []
        self._up_since: float | None = None
        self._mtime = 0
        # When the two saves before the next one were seen.
        self._saves: tuple[float | None, float | None] = (None, None)
        if folder is not None:
            self._start(folder)

    @property
    def on(self) -> bool:
        """Whether there is one."""
        return self._folder is not None

    def state(self) -> dict[str, Any] | None:
        """For `sealmq status`; None where there is none."""
        if self._folder is None:
            return None
        return {"bytes": self._size, "segments": len(self._segments), "failing": self.failing}

    def _start(self, folder: Path) -> None:
        folder.mkdir(mode=0o700, exist_ok=True)
        for path in sorted(folder.glob("*.seg")):
            if not path.stem.isdecimal():
                log.warning("journal: %s is none of its files", path)
                continue
            old = Segment(path, 0, self._clock())
            old.size, old.closed, old.again = path.stat().st_size, True, True
            self._size += old.size
            self._files = max(self._files, int(path.stem))
            self._segments.append(old)
        self._mtime = self._saved_at()
        self._next()

    # --- what comes ---

    def append(self, topic: bytes, payload: bytes, qos: int, retain: bool) -> int:
        """Takes an entry; its number, which is on disk once `durable` has reached it. 0: none."""
        if self._folder is None:
            return 0
        segment = self._segments[-1]
        data = pack(time.time_ns() // 1_000_000, topic, payload, qos, retain)
        self.seq += 1
        segment.waiting.append(data)
        segment.size += len(data)
        self._size += len(data)
        self._waiting += len(data)
        if qos:
            segment.open += 1
        if segment.size >= SEGMENT_BYTES:
            self._next()
        if not self._busy:
            self._busy = True
            self._loop.call_soon(self._flush)
        if self._waiting > WAITING_BYTES and self.failing is None:
            self._fail("the disk is too slow for what comes")
        return self.seq

    def acked(self, seq: int) -> None:
        """The broker has acknowledged this entry, or never will."""
        if not seq:
            return
        segment = self._segments[-1]
        if seq >= segment.first:
            segment.open -= 1
            return
        for segment in reversed(self._segments):
            if segment.first <= seq:
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
            last.closed, last.quiet = True, self._clock()
        self._files += 1
        path = self._folder / f"{self._files:08d}.seg"
        self._segments.append(Segment(path, self.seq + 1, self._clock()))

    def _flush(self) -> None:
        segment = next((s for s in self._segments if s.waiting), None)
        if segment is None:
            self._busy = False
            return
        entries, segment.waiting = segment.waiting, []
        # All that was taken so far but for what later segments hold.
        last = self.seq
        later = self._segments[self._segments.index(segment) + 1 :]
        if later:
            last = later[0].first - 1
        self._write(segment, b"".join(entries), last)

    def _write(self, segment: Segment, data: bytes, last: int) -> None:
        done = self._loop.run_in_executor(self._thread, segment.write, data)
        done.add_done_callback(partial(self._written, segment, data, last))

    def _written(
        self, segment: Segment, data: bytes, last: int, done: asyncio.Future[None]
    ) -> None:
        if done.cancelled():
            return
        error = done.exception()
        if error is not None:
            reason = os.strerror(error.errno) if isinstance(error, OSError) and error.errno else ""
            self._fail(f"the journal cannot be written: {reason or type(error).__name__}")
            self._loop.call_later(_RETRY_S, self._write, segment, data, last)
            return
        self._waiting -= len(data)
        self.durable = last
        if self.failing is not None and self._waiting < WAITING_BYTES // 2:
            self.failing = None
            self._told(None)
        waiting, self._tasks = self._tasks, []
        for task in waiting:
            if task[0] <= last:
                task[1](*task[2])
            else:
                self._tasks.append(task)
        self._flush()

    def _fail(self, reason: str) -> None:
        if self.failing is None:
            self.failing = reason
            self._told(reason)

    # --- what goes ---

    def broker_lost(self) -> None:
        """All that is here is to be published again."""
        self._up_since = None
        if self._folder is None:
            return
        if self._segments[-1].size:
            self._next()
        for segment in self._segments[:-1]:
            segment.again = True

    def broker_back(self, done: list[Segment]) -> None:
        """These were published again; the broker has not saved them yet."""
        now = self._up_since = self._clock()
        for segment in done:
            segment.again, segment.open, segment.quiet = False, 0, now
        self._mtime, self._saves = self._saved_at(), (None, None)

    def lost(self) -> list[Segment]:
        """What is to be published again, oldest first."""
        return [segment for segment in self._segments if segment.again]

    def all(self) -> list[Segment]:
        """All that it holds, oldest first."""
        return list(self._segments)

    def entries(self, segments: list[Segment]) -> Iterator[Entry]:
        """What these hold; a file that cannot be read is logged and left out."""
        for segment in segments:
            try:
                yield from read(segment.path)
            except FileNotFoundError:
                continue  # nothing was written to it yet
            except OSError as error:
                log.error("journal %s: %s", segment.path.name, error.strerror)

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
        if mtime != self._mtime:
            self._mtime = mtime
            limit, self._saves = self._saves[0], (self._saves[1], now)
        if self._up_since is not None:
            for segment in [s for s in self._segments[:-1] if not s.waiting]:
                if self._over(segment, now, self._up_since, limit):
                    self._drop(segment)
                elif now - max(segment.opened, self._up_since) >= LONGEST_S:
                    self._drop(segment)
                    self._dropped(segment.size)
        self._bound()

    def _over(self, segment: Segment, now: float, up_since: float, saved: float | None) -> bool:
        if segment.open > 0:
            return False
        if self._saved is None:
            return now - max(segment.quiet, up_since) >= 2 * self._autosave_s
        return saved is not None and segment.quiet <= saved

    def _bound(self) -> None:
        given_up = 0
        while self._size > self.most and len(self._segments) > 1 and not self._segments[0].waiting:
            given_up += self._segments[0].size
            self._drop(self._segments[0])
        if given_up:
            self._dropped(given_up)

    def _drop(self, segment: Segment) -> None:
        self._segments.remove(segment)
        self._size -= segment.size
        self._thread.submit(segment.end, True)

    def _saved_at(self) -> int:
        try:
            return self._saved.stat().st_mtime_ns if self._saved is not None else 0
        except OSError:
            return 0

    async def close(self) -> None:
        """Writes what waits, if that is possible, and ends the thread."""
        if self._waiting and self.failing is None:
            try:
                async with asyncio.timeout(2.0):
                    await self.safe(self.seq)
            except TimeoutError:
                log.warning("the journal was not written to its end")
        for segment in self._segments:
            self._thread.submit(segment.end, False)
        self._thread.shutdown(wait=True)
