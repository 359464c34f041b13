"""What spools have in common: a small database whose transactions are whole, and what a message
counts in it.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from sealmq.formats import database

MESSAGES = 100_000
BYTES = 64 << 20
"""What may wait, of one border or for one neighbour."""
EACH = 64
"""What a message takes beside its topic and m1."""


class Waits(Protocol):
    """A message that waits."""

    @property
    def topic(self) -> str: ...

    @property
    def m1(self) -> bytes: ...


def opened(path: Path, tables: str, known: int) -> sqlite3.Connection:
    """The database, made if it is new, for its owner alone; a commit is on disk.

    known: the format that this program has. NewerFormat, sqlite3.Error."""
    db = sqlite3.connect(path, isolation_level=None)
    try:
        path.chmod(0o600)
        database(db, path, tables, known)
    except BaseException:
        db.close()
        raise
    return db


@contextmanager
def whole(db: sqlite3.Connection) -> Iterator[None]:
    """All of it or nothing. A full disk may have taken the transaction back already."""
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise


def cost(message: Waits) -> int:
    """Bytes that a message counts."""
    return len(message.m1) + len(message.topic) + EACH
