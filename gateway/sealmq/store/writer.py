"""The one thread that writes: all that waits in one transaction, one fsync, then tells everyone.

A group that fails for the disk's sake fails as a whole. One that fails for a record's sake is tried
again one by one, so that a bad record harms its own submitter only.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Sequence
from pathlib import Path

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DatabaseError, DataError, DBAPIError, IntegrityError

from sealmq.families.records import ResetDone, TopicReset
from sealmq.site.reserve import Reserve

from . import tables
from .database import checkpoint, translate
from .errors import StoreError, StoreFull, StoreUnavailable
from .records import (
    CacheBlob,
    Held,
    KeptGone,
    KeptSubGone,
    KeptSubs,
    SessionMark,
    StoreRecord,
    WillGone,
)
from .usage import Most, Usage

GROUP = 512

# What is written with a full disk, too: what takes something away, and without which nobody could
# connect to do so, or keys would be late. None of it grows with what a client does.
URGENT = (CacheBlob, KeptGone, KeptSubGone, KeptSubs, ResetDone, SessionMark, TopicReset, WillGone)


class Job:
    """One submission and who waits for it."""

    __slots__ = ("failed", "future", "held", "loop", "records", "urgent")

    def __init__(
        self, records: Sequence[StoreRecord], loop: asyncio.AbstractEventLoop, urgent: bool = False
    ) -> None:
        self.records = tuple(records)
        self.urgent = urgent or all(isinstance(record, URGENT) for record in self.records)
        self.loop = loop
        self.future: asyncio.Future[list[Held]] = loop.create_future()
        self.held: list[Held] = []
        self.failed: StoreError | None = None

    def tell(self) -> None:
        """Runs in the loop. Whoever has stopped waiting is not told; the commit stands."""
        if self.future.done():
            return
        if self.failed is not None:
            self.future.set_exception(self.failed)
        else:
            self.future.set_result(self.held)


class Writer:
    """Started with the first submission; `close` ends it."""

    def __init__(self, engine: Engine, path: Path, queue: int) -> None:
        self._engine = engine
        self._path = path
        self._room = queue
        self._reserve = Reserve(path.parent)
        self._jobs: deque[Job] = deque()
        self._wake = threading.Condition()
        self._closed = False
        self._conn: Connection | None = None
        # Of what the connection's transactions have left; counted anew with the next connection.
        self._usage: Usage | None = None
        self.most: Most | None = None
        """How much clients and families may keep; None: nothing is counted."""
        self._thread = threading.Thread(target=self._run, name="sealmq store", daemon=True)
        self._thread.start()

    def submit(self, job: Job) -> None:
        """StoreUnavailable when closed, or when too much waits already."""
        with self._wake:
            if self._closed:
                raise StoreUnavailable("the store is closed")
            if len(self._jobs) >= self._room:
                raise StoreUnavailable(f"{len(self._jobs)} commits wait already; the disk is slow")
            self._jobs.append(job)
            self._wake.notify()

    def close(self) -> None:
        """Write what waits, then end the thread."""
        with self._wake:
            self._closed = True
            self._wake.notify()
        self._thread.join()

    def _run(self) -> None:
        self._reserve.fill()
        while group := self._take():
            self._commit(self._with_room(group))
            self._tell(group)
        self._drop()

    def _with_room(self, group: list[Job]) -> list[Job]:
        """Those that may be written; on a full disk the urgent ones, and the others fail."""
        try:
            self._reserve.ordinary()
        except OSError as error:
            full = StoreUnavailable(f"the disk is full: {error.strerror}")
            self._fail([job for job in group if not job.urgent], full)
            group = [job for job in group if job.urgent]
            self._reserve.urgent()
        return group

    def _take(self) -> list[Job]:
        """All that waits, as far as a group goes; empty at the end."""
        with self._wake:
            while not self._jobs and not self._closed:
                self._wake.wait()
            return [self._jobs.popleft() for _ in range(min(GROUP, len(self._jobs)))]

    def _commit(self, group: list[Job]) -> None:
        if not group:
            return
        try:
            self._transaction(group)
        except Exception as error:  # whoever waits must hear of it, and the thread must live on
            self._drop()
            if len(group) > 1 and _is_the_record(error):
                self._one_by_one(group)
            else:
                self._fail(group, error)

    def _one_by_one(self, group: list[Job]) -> None:
        for job in group:
            self._commit([job])

    def _transaction(self, group: list[Job]) -> None:
        if self._conn is None:
            self._conn = self._engine.connect()
        with self._conn.begin():
            for job in group:
                self._write(self._conn, job)
        if not self._reserve.whole:
            checkpoint(self._conn)

    def _write(self, conn: Connection, job: Job) -> None:
        job.failed = None  # the group may be tried a second time, without others
        most = self.most
        if most is not None:
            if self._usage is None:
                self._usage = Usage(conn)
            try:
                self._usage.add(conn, job.records, most, job.urgent)
            except StoreFull as error:
                job.failed = error
                return
        job.held = [tables.write(conn, record) for record in job.records]

    def _fail(self, group: list[Job], error: Exception) -> None:
        if isinstance(error, DBAPIError):
            error = translate(error, self._path)
        for job in group:
            if isinstance(error, StoreError):
                job.failed = type(error)(str(error), error.hint)
            else:
                job.failed = StoreError(f"a record cannot be stored: {type(error).__name__}")

    def _drop(self) -> None:
        """A connection that has failed is not used again: the next group opens a new one."""
        conn, self._conn, self._usage = self._conn, None, None
        if conn is not None:
            conn.invalidate()
            conn.close()

    def _tell(self, group: list[Job]) -> None:
        by_loop: dict[asyncio.AbstractEventLoop, list[Job]] = {}
        for job in group:
            by_loop.setdefault(job.loop, []).append(job)
        for loop, jobs in by_loop.items():
            try:
                loop.call_soon_threadsafe(_tell_all, jobs)
            except RuntimeError:  # the loop has ended; nobody waits any more
                continue


def _tell_all(jobs: list[Job]) -> None:
    for job in jobs:
        job.tell()


def _is_the_record(error: Exception) -> bool:
    """Whether others would pass: a broken constraint, a value that the driver cannot take."""
    return not isinstance(error, DatabaseError) or isinstance(error, (IntegrityError, DataError))
