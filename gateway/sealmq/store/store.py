"""The store: an asyncio face over one writer thread; readers block, for start-up and the CLI."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Self, TypeVar

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DBAPIError

from sealmq.families.records import FamilyRecord, Record, TopicLabel

from . import database, kept, left, tables
from .records import Held, KeptSession, KeptSub, SessionMark, StoreRecord, WillRecord
from .usage import Most
from .writer import Job, Writer

T = TypeVar("T")


class Reader:
    """Reads what is committed. Blocking; not for use inside the event loop while it serves."""

    def __init__(self, engine: Engine, path: Path) -> None:
        self._engine = engine
        self._path = path

    @classmethod
    def open_readonly(cls, path: Path, *, busy_s: float = 2.0) -> Reader:
        """For the CLI, whether the mediator runs or not. StoreCorrupt, StoreUnavailable."""
        return Reader(database.readonly(path, busy_s), path)

    def records(self) -> list[Record]:
        """All that the policy families index (Engine.load)."""
        return self._read(tables.read_records)

    def rows(self, family: str) -> list[FamilyRecord]:
        """Those of one family."""
        return self._read(lambda conn: tables.read_family(conn, family))

    def topics(self) -> list[TopicLabel]:
        """The learned labels, by topic."""
        return self._read(tables.read_topics)

    def sessions(self) -> dict[int, SessionMark]:
        """The marks by client number."""
        return self._read(tables.read_sessions)

    def wills(self) -> list[WillRecord]:
        """The wills that were neither published nor taken back, oldest CONNECT first."""
        return self._read(left.read_wills)

    def kept(self) -> list[KeptSession]:
        """The sessions that the broker keeps."""
        return self._read(left.read_kept)

    def kept_subs(self) -> list[KeptSub]:
        """The subscriptions of these sessions."""
        return self._read(kept.read_all)

    def cache(self, name: str) -> bytes | None:
        """A sealed blob, or None."""
        return self._read(lambda conn: tables.read_cache(conn, name))

    @property
    def identity(self) -> bytes:
        """Which store this is: 16 bytes, drawn when it was made. b"" of an older version."""
        return self._read(tables.read_identity)

    def close(self) -> None:
        self._engine.dispose()

    def _read(self, what: Callable[[Connection], T]) -> T:
        try:
            with self._engine.begin() as conn:
                return what(conn)
        except DBAPIError as error:
            raise database.translate(error, self._path) from error


class Store(Reader):
    """Tables topics, resets, families, sessions, cache, meta; wills and kept (left.py);
    kept_subs (kept.py)."""

    def __init__(self, engine: Engine, path: Path, queue: int) -> None:
        super().__init__(engine, path)
        self._writer = Writer(engine, path, queue)

    @classmethod
    def open(cls, path: Path, *, queue: int = 4096, busy_s: float = 2.0) -> Self:
        """Open or create (file 0600). StoreCorrupt, StoreUnavailable.

        `queue`: how many commits may wait; `busy_s`: how long a lock of another process is waited
        for, in the writer's thread.
        """
        return cls(database.create(path, busy_s), path, queue)

    def bound(self, rows: int, family_bytes: int) -> None:
        """From now on: how many rows of policy families may count on one client (usage.py), and how
        many bytes one family's may have. Before, there is no bound.
        """
        self._writer.most = Most(rows, family_bytes)

    async def commit(self, records: Sequence[StoreRecord], urgent: bool = False) -> list[Held]:
        """All or nothing, on disk (fsync) when this returns; one Held for each record, in order.

        `urgent`: with a full disk, too, as far as space kept back for it reaches.

        Commits complete in the order of submission. StoreUnavailable, StoreFull: nothing of it is
        kept, later ones may pass. Cancelling does not take a commit back.
        """
        job = Job(records, asyncio.get_running_loop(), urgent)
        self._writer.submit(job)
        return await job.future

    def close(self) -> None:
        """Write what is queued, then end the writer thread. Blocks for that long."""
        self._writer.close()
        super().close()
