"""Messages of QoS 1 and 2 that could not be sent: one small database, bounded.

A message lies here until the site has decided about it. Nothing in it has been acknowledged, so
what is too much is refused, and told to whoever published it.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

MESSAGES = 10_000
BYTES = 64 << 20
# Without an expiry of its own; seconds.
KEPT_S = 86_400
_EACH = 128

_TABLES = """
CREATE TABLE IF NOT EXISTS waiting (
    seq INTEGER PRIMARY KEY AUTOINCREMENT, user TEXT NOT NULL, origin TEXT NOT NULL,
    topic TEXT NOT NULL, payload BLOB NOT NULL, qos INTEGER NOT NULL, retain INTEGER NOT NULL,
    put TEXT NOT NULL, until INTEGER NOT NULL);
CREATE INDEX IF NOT EXISTS waiting_user ON waiting (user, seq);
"""


class Full(Exception):
    """No more is kept."""


class Kept(NamedTuple):
    """origin: client id and packet id, by which a PUBLISH that comes again is known. until: Unix
    seconds."""

    seq: int
    origin: str
    topic: str
    payload: bytes
    qos: int
    retain: bool
    put: Mapping[str, Sequence[str]]
    until: int


class Spool:
    """Of all users, in one file of mode 0600."""

    def __init__(self, path: Path, messages: int = MESSAGES, size: int = BYTES) -> None:
        self._messages, self._size = messages, size
        path.touch(0o600, exist_ok=True)
        path.chmod(0o600)
        self._db = sqlite3.connect(path, isolation_level=None)
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute("PRAGMA synchronous = FULL")
        self._db.executescript(_TABLES)
        rows = self._db.execute("SELECT COUNT(*), SUM(LENGTH(payload)) FROM waiting").fetchone()
        self._count, self._bytes = int(rows[0]), int(rows[1] or 0) + _EACH * int(rows[0])

    def close(self) -> None:
        """All is on disk already."""
        self._db.close()

    def count(self, user: str) -> int:
        """How many of this user's wait."""
        row = self._db.execute("SELECT COUNT(*) FROM waiting WHERE user = ?", (user,)).fetchone()
        return int(row[0])

    def put(self, user: str, one: Kept) -> int:
        """On disk when this returns: its number. A message that is there already keeps its own.
        Full, sqlite3.Error."""
        same = self._db.execute(
            "SELECT seq FROM waiting WHERE user = ? AND origin = ? AND topic = ? AND payload = ?",
            (user, one.origin, one.topic, one.payload),
        ).fetchone()
        if one.origin and same is not None:
            return int(same[0])
        size = self._bytes + len(one.payload) + _EACH
        if self._count >= self._messages or size > self._size:
            raise Full(f"{self._count} messages wait for the site already")
        done = self._db.execute(
            "INSERT INTO waiting (user, origin, topic, payload, qos, retain, put, until) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            (
                user, one.origin, one.topic, one.payload, one.qos, one.retain,
                json.dumps(dict(one.put)), one.until,
            ),
        )  # fmt: skip
        self._count, self._bytes = self._count + 1, size
        return int(done.lastrowid or 0)

    def after(self, user: str, seq: int, most: int) -> list[Kept]:
        """The oldest of a user's that came after `seq`."""
        rows = self._db.execute(
            "SELECT seq, origin, topic, payload, qos, retain, put, until FROM waiting "
            "WHERE user = ? AND seq > ? ORDER BY seq LIMIT ?",
            (user, seq, most),
        )
        return [
            Kept(seq, origin, topic, payload, qos, bool(retain), json.loads(put), until)
            for seq, origin, topic, payload, qos, retain, put, until in rows
        ]

    def done(self, seq: int) -> None:
        """The site has decided about it."""
        row = self._db.execute(
            "DELETE FROM waiting WHERE seq = ? RETURNING LENGTH(payload)", (seq,)
        ).fetchone()
        if row is not None:
            self._count, self._bytes = self._count - 1, self._bytes - int(row[0]) - _EACH
