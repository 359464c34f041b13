"""Messages of QoS 1 and 2 that could not be sent: one small database, bounded. What clients of
MQTT 5 have subscribed to lies beside them, a text for each session (sessions.py).

A message lies here until the site has decided about it. Nothing in it has been acknowledged, so
what is too much is refused, and told to whoever published it. One thread reads and writes; what
comes while it waits for the disk is one commit more, and the event loop never waits.
"""

from __future__ import annotations

import asyncio
import json
import logging
import queue
import sqlite3
import threading
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from sealmq.formats import database

log = logging.getLogger("sealmq.agent")

MESSAGES = 10_000
BYTES = 64 << 20
# What a row takes besides its texts and bytes, with its part of the index.
_EACH = 160
# Rows that are read at once have no more bytes, but for the first one.
_READ_BYTES = 4 << 20

FORMAT = 1
_TABLES = """
CREATE TABLE IF NOT EXISTS unsent (
    seq INTEGER PRIMARY KEY AUTOINCREMENT, user TEXT NOT NULL, origin TEXT NOT NULL,
    topic TEXT NOT NULL, payload BLOB NOT NULL, qos INTEGER NOT NULL, retain INTEGER NOT NULL,
    put TEXT NOT NULL, put_at INTEGER NOT NULL, until INTEGER, size INTEGER NOT NULL);
CREATE INDEX IF NOT EXISTS unsent_origin ON unsent (user, origin);
CREATE TABLE IF NOT EXISTS session (
    user TEXT NOT NULL, client TEXT NOT NULL, said TEXT NOT NULL, PRIMARY KEY (user, client));
"""
_COLUMNS = "seq, origin, topic, payload, qos, retain, put, put_at, until"

T = TypeVar("T")
_Job = tuple[Callable[[sqlite3.Connection], Any], "asyncio.Future[Any]"]


class Full(Exception):
    """No more is kept."""


class Kept(NamedTuple):
    """seq: its place, in the order in which messages came. origin: client id and packet id, by
    which a PUBLISH that comes again is known. put_at, until: Unix seconds; None: for ever."""

    seq: int
    origin: str
    topic: str
    payload: bytes
    qos: int
    retain: bool
    put: Mapping[str, Sequence[str]]
    put_at: int
    until: int | None


class Spool:
    """Of all users, in one file of mode 0600. users: whose messages are kept; those of others are
    deleted. What it gives back comes in the order of the calls. sqlite3.Error, OSError,
    NewerFormat."""

    def __init__(
        self, path: Path, users: Collection[str], messages: int = MESSAGES, size: int = BYTES
    ) -> None:
        self._messages, self._size = messages, size
        path.touch(0o600, exist_ok=True)
        path.chmod(0o600)
        # Used by the thread alone, from here on.
        self._db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        try:
            self._begin(path, users)
        except BaseException:
            self._db.close()
            raise
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        # Sent, but their rows could not be deleted: not read again, deleted as soon as it goes.
        self._undone: set[int] = set()
        # Those of them that the present commit deletes.
        self._deleted: set[int] = set()
        self._thread = threading.Thread(target=self._work, name="agent: spool", daemon=True)
        self._thread.start()

    def _begin(self, path: Path, users: Collection[str]) -> None:
        db = self._db
        database(db, path, _TABLES, FORMAT)
        kept = [str(row[0]) for row in db.execute("SELECT DISTINCT user FROM unsent")]
        for gone in set(kept) - set(users):
            done = db.execute("DELETE FROM unsent WHERE user = ?", (gone,))
            why = "which the configuration does not have any more; none of them was acknowledged"
            log.warning("%s", f"{done.rowcount} unsent messages of {gone!r} were deleted, {why}")
        marks = ", ".join("?" * len(users))
        db.execute(f"DELETE FROM session WHERE user NOT IN ({marks})", tuple(users))  # noqa: S608
        rows = db.execute("SELECT user, COUNT(*), SUM(size) FROM unsent GROUP BY user").fetchall()
        # Of each user, unsent; of all, on disk or on the way there.
        self._unsent = Counter({str(user): int(count) for user, count, _ in rows})
        self._count = self._unsent.total()
        self._bytes = sum(int(row[2]) for row in rows)
        last = db.execute("SELECT seq FROM sqlite_sequence WHERE name = 'unsent'").fetchone()
        self._last = int(last[0]) if last is not None else 0

    def close(self) -> None:
        """What was asked for is done first."""
        self._jobs.put(None)
        self._thread.join()
        self._db.close()

    # --- for the event loop ---

    def number(self) -> int:
        """The place of a message that has come, whether it will be kept or not."""
        self._last += 1
        return self._last

    def waits(self, user: str) -> bool:
        """Whether any of this user's is unsent."""
        return self._unsent.get(user, 0) > 0

    def put(self, user: str, one: Kept, again: bool) -> asyncio.Future[int]:
        """On disk once it is done: its place. again: it may be there already (DUP), and then keeps
        the place that it has. Raises Full."""
        put = json.dumps(dict(one.put))
        texts = (user, one.origin, one.topic, put)
        size = sum(len(text.encode()) for text in texts) + len(one.payload) + _EACH
        if self._count >= self._messages or self._bytes + size > self._size:
            raise Full(f"{self._count} messages of {self._bytes:,} bytes wait for the site already")
        self._reserve(user, 1, size)

        def work(db: sqlite3.Connection) -> int:
            row = (one.topic, one.payload, one.qos, one.retain, put)
            if again:
                same = db.execute(
                    "SELECT seq FROM unsent WHERE user = ? AND origin = ? AND topic = ? AND "
                    "payload = ? AND qos = ? AND retain = ? AND put = ?",
                    (user, one.origin, *row),
                ).fetchone()
                if same is not None and int(same[0]) not in self._undone:
                    return int(same[0])
            db.execute(
                "INSERT INTO unsent VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (one.seq, user, one.origin, *row, one.put_at, one.until, size),
            )
            return one.seq

        future = self._ask(work)

        def over(done: asyncio.Future[int]) -> None:
            if done.cancelled() or done.exception() is not None or done.result() != one.seq:
                self._reserve(user, -1, -size)

        future.add_done_callback(over)
        return future

    def _reserve(self, user: str, count: int, size: int) -> None:
        self._unsent[user] += count
        self._count += count
        self._bytes += size

    def oldest(self, user: str, most: int, but: Collection[str] = ()) -> asyncio.Future[list[Kept]]:
        """A user's in their order, at most so many, but for those of some topics."""
        none_of = f"AND topic NOT IN ({', '.join('?' * len(but))}) " if but else ""

        def work(db: sqlite3.Connection) -> list[Kept]:
            found: list[Kept] = []
            size = 0
            for row in db.execute(
                f"SELECT {_COLUMNS} FROM unsent WHERE user = ? {none_of}ORDER BY seq",  # noqa: S608
                (user, *but),
            ):
                one = _kept(row)
                size += len(one.payload)
                if found and (len(found) >= most or size > _READ_BYTES):
                    break
                if one.seq not in self._undone:
                    found.append(one)
            return found

        return self._ask(work)

    def expired(self, user: str, before: int, most: int) -> asyncio.Future[list[Kept]]:
        """A user's whose interval ends before that time, without their payloads."""

        def work(db: sqlite3.Connection) -> list[Kept]:
            columns = _COLUMNS.replace("payload", "x''")
            rows = db.execute(
                f"SELECT {columns} FROM unsent WHERE user = ? AND until < ? LIMIT ?",  # noqa: S608
                (user, before, most),
            )
            return [one for one in map(_kept, rows) if one.seq not in self._undone]

        return self._ask(work)

    def done(self, user: str, seqs: Collection[int]) -> asyncio.Future[tuple[int, int]]:
        """The site has decided about them: not read again by this process even if it fails."""
        self._unsent[user] -= len(seqs)

        def work(db: sqlite3.Connection) -> tuple[int, int]:
            self._undone.update(seqs)
            return self._delete(db)

        def over(done: asyncio.Future[tuple[int, int]]) -> None:
            if not done.cancelled() and done.exception() is None:
                count, size = done.result()
                self._count, self._bytes = self._count - count, self._bytes - size

        future = self._ask(work)
        future.add_done_callback(over)
        return future

    def sessions(self, user: str) -> asyncio.Future[list[tuple[str, str]]]:
        """What is kept of a user's sessions: client identifier and text."""

        def work(db: sqlite3.Connection) -> list[tuple[str, str]]:
            return db.execute("SELECT client, said FROM session WHERE user = ?", (user,)).fetchall()

        return self._ask(work)

    def keep_session(self, user: str, client: str, said: str | None) -> asyncio.Future[None]:
        """On disk once it is done. None: it is over."""

        def work(db: sqlite3.Connection) -> None:
            if said is None:
                db.execute("DELETE FROM session WHERE user = ? AND client = ?", (user, client))
                return
            db.execute("INSERT OR REPLACE INTO session VALUES (?, ?, ?)", (user, client, said))

        return self._ask(work)

    def _ask(self, work: Callable[[sqlite3.Connection], T]) -> asyncio.Future[T]:
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._jobs.put((work, future))
        return future

    # --- the thread ---

    def _work(self) -> None:
        last = False
        while not last:
            jobs = [self._jobs.get()]
            while not self._jobs.empty():
                jobs.append(self._jobs.get())
            last = None in jobs
            asked = [job for job in jobs if job is not None]
            if last and self._undone:
                self._alone(self._delete)
            if not asked:
                continue
            try:
                answers = self._commit([work for work, _ in asked])
            except Exception:
                # One of them, or the disk: each by itself. Nothing ends the thread.
                answers = [self._alone(work) for work, _ in asked]
            futures = [future for _, future in asked]
            loop = futures[0].get_loop()
            if not loop.is_closed():
                loop.call_soon_threadsafe(_tell, futures, answers)

    def _alone(self, work: Callable[[sqlite3.Connection], Any]) -> Any:
        try:
            return self._commit([work])[0]
        except Exception as error:
            return error

    def _commit(self, works: Sequence[Callable[[sqlite3.Connection], Any]]) -> list[Any]:
        self._deleted.clear()
        self._db.execute("BEGIN")
        try:
            answers = [work(self._db) for work in works]
            self._db.execute("COMMIT")
        except BaseException:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            raise
        self._undone -= self._deleted
        return answers

    def _delete(self, db: sqlite3.Connection) -> tuple[int, int]:
        """How many rows, and their size."""
        sizes = []
        for seq in self._undone - self._deleted:
            row = db.execute("DELETE FROM unsent WHERE seq = ? RETURNING size", (seq,)).fetchone()
            sizes += [int(row[0])] if row is not None else []
            self._deleted.add(seq)
        return len(sizes), sum(sizes)


def _kept(row: Sequence[Any]) -> Kept:
    seq, origin, topic, payload, qos, retain, put, put_at, until = row
    return Kept(seq, origin, topic, payload, qos, bool(retain), json.loads(put), put_at, until)


def _tell(futures: Sequence[asyncio.Future[Any]], answers: Sequence[Any]) -> None:
    for future, answer in zip(futures, answers, strict=True):
        if future.done():
            continue
        if isinstance(answer, Exception):
            future.set_exception(answer)
        else:
            future.set_result(answer)
