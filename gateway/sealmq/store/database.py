"""The SQLite file: WAL and synchronous=FULL, so that a commit is on disk when it returns.

WAL with NORMAL would lose commits at power loss, which no kill -9 test shows. Texts of errors are
SQLite's own; SQLAlchemy's would carry the values.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

from sqlalchemy import Connection, Engine, create_engine, delete, event, select
from sqlalchemy.dialects.sqlite import insert
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import NullPool

from sealmq.families.records import FamilyRecord
from sealmq.families.told import FAMILY as TOLD
from sealmq.formats import newer
from sealmq.site.layout import sync_folder
from sealmq.site.reserve import Reserve

from . import kept, left, tables, usage
from .errors import StoreCorrupt, StoreError, StoreUnavailable
from .metadata import add_columns, metadata

_DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def create(path: Path, busy_s: float) -> Engine:
    """Open for reading and writing, or make it (0600); the format is checked."""
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        Reserve(path.parent).urgent()  # its -wal and -shm are made anew
        engine = _engine(f"file:{quote(str(path.absolute()))}", busy_s, "BEGIN IMMEDIATE")
        event.listen(engine, "connect", _durable)
        with engine.begin() as conn:
            metadata.create_all(conn)
            usage.add_column(conn)
            for table in (left.kept, kept.kept_subs):
                add_columns(conn, table)
            row = insert(tables.meta).values(key="format", value=tables.FORMAT)
            conn.execute(row.on_conflict_do_nothing())
            own = insert(tables.meta).values(key=tables.IDENTITY, value=secrets.token_hex(16))
            conn.execute(own.on_conflict_do_nothing())
            _check(conn, path)
        sync_folder(path.parent)
    except OSError as error:
        raise StoreUnavailable(f"{path}: {error.strerror}") from error
    except DBAPIError as error:
        raise translate(error, path) from error
    return engine


def readonly(path: Path, busy_s: float) -> Engine:
    """Open for reading, whether a writer runs or not."""
    if not os.access(path, os.R_OK):
        raise StoreUnavailable(
            f"{path} cannot be read", "run it as root or as the user that the mediator runs as"
        )
    uri = f"file:{quote(str(path.absolute()))}?mode=ro"
    if not path.with_name(path.name + "-wal").exists():
        # Nobody has it open. Without its -wal a reader that may not write the folder needs this.
        uri += "&immutable=1"
    engine = _engine(uri, busy_s, "BEGIN")
    try:
        with engine.connect() as conn:
            _check(conn, path)
    except DBAPIError as error:
        raise translate(error, path) from error
    return engine


def checkpoint(conn: Connection) -> None:
    """Brings the WAL into the file as far as readers let it, so that the next commit begins it
    anew and takes no more space.
    """
    raw = conn.connection.driver_connection
    if raw is not None:
        with contextlib.suppress(sqlite3.Error):
            raw.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()


Change = Callable[[Callable[[str], list[FamilyRecord]]], Iterable[FamilyRecord]]
"""What reads a family's rows -> the rows that change."""


def set_identity(path: Path, identity: bytes, change: Change) -> None:
    """Make a copy of a store one of its own, for a site that is restored.

    Sealed keys go, whose instance numbers are used up, and wills, whose connections are over; and
    what clients told of attributes, which was true then. What was delivered since is not counted.
    `change`: what becomes of families' rows.
    """
    with _changing(path) as conn:
        row = insert(tables.meta).values(key=tables.IDENTITY, value=identity.hex())
        conn.execute(
            row.on_conflict_do_update(
                index_elements=[tables.meta.c.key], set_={"value": row.excluded.value}
            )
        )
        conn.execute(delete(tables.cache))
        mark = {"name": tables.COUNTING, "blob": tables.RUNS}
        conn.execute(insert(tables.cache).values(mark))
        told = tables.families.c.family == TOLD
        conn.execute(delete(tables.families).where(told))
        conn.execute(delete(left.wills))
        _change(conn, change)


def rewrite(path: Path, change: Change) -> None:
    """Change rows of families in a store that nobody serves from. StoreCorrupt, StoreUnavailable:
    nothing was changed."""
    with _changing(path) as conn:
        _change(conn, change)


def _change(conn: Connection, change: Change) -> None:
    for record in change(lambda family: tables.read_family(conn, family)):
        tables.write(conn, record)


@contextlib.contextmanager
def _changing(path: Path) -> Iterator[Connection]:
    engine = create(path, busy_s=2.0)
    try:
        with engine.begin() as conn:
            yield conn
    except DBAPIError as error:
        raise translate(error, path) from error
    finally:
        engine.dispose()


def translate(error: DBAPIError, path: Path) -> StoreError:
    """SQLite's words as an error of ours."""
    origin = error.orig
    code = getattr(origin, "sqlite_errorcode", 0) & 0xFF
    if code in _DAMAGED:
        return StoreCorrupt(f"{path}: {origin}", "put a good copy back, or move the file away")
    return StoreUnavailable(f"{path}: {origin}")


def _engine(uri: str, busy_s: float, begin: str) -> Engine:
    def connect() -> sqlite3.Connection:
        # The driver must not begin transactions by itself: `begin` does it, with the write lock.
        return sqlite3.connect(
            uri, uri=True, timeout=busy_s, isolation_level=None, check_same_thread=False
        )

    engine = create_engine("sqlite://", creator=connect, poolclass=NullPool)
    event.listen(engine, "begin", lambda conn: conn.exec_driver_sql(begin))
    return engine


def _durable(connection: Any, _record: Any) -> None:
    connection.execute("PRAGMA temp_store=MEMORY")  # the disk may be full
    for pragma in ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON"):
        connection.execute(f"PRAGMA {pragma}")
    [(mode,)] = connection.execute("PRAGMA journal_mode").fetchall()
    if mode != "wal":
        raise sqlite3.OperationalError(f"journal mode {mode}: this file system takes no WAL")


def _check(conn: Connection, path: Path) -> None:
    found = conn.scalar(select(tables.meta.c.value).where(tables.meta.c.key == "format"))
    if found != tables.FORMAT:
        raise StoreCorrupt(*newer(path, found, tables.FORMAT))
    state = conn.exec_driver_sql("PRAGMA quick_check(1)").scalar()
    if state != "ok":
        raise StoreCorrupt(f"{path}: {state}", "put a good copy back, or move the file away")
