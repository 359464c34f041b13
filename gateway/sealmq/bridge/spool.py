"""What waits for a peer, and what has come from it: one small database of the bridge's own.

A message lies here, on disk, before its publisher is acknowledged, and goes when the peer has it.
Bounded: what is too much is the oldest, and is told to `dropped`. Of what has come, a window for
each boot session of a sender (site, sender, boot, salt) tells what was here before, also after a
restart.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from sealmq_spec.window import NEW, look, mark

MESSAGES = 100_000
BYTES = 64 << 20
# Windows; the one that was used longest ago goes first.
SENDERS = 20_000
# What a message takes beside its topic and m1.
_EACH = 64
_WINDOW = 12

_TABLES = """
CREATE TABLE IF NOT EXISTS waiting (
    seq INTEGER PRIMARY KEY AUTOINCREMENT, label TEXT NOT NULL, topic TEXT NOT NULL,
    flags INTEGER NOT NULL, m1 BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS came (
    origin BLOB PRIMARY KEY, seen BLOB NOT NULL, used INTEGER NOT NULL) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS came_used ON came (used);
"""


class Waiting(NamedTuple):
    """A message to the peer. flags: RETAIN + 2·QoS."""

    seq: int
    label: str
    topic: str
    flags: int
    m1: bytes


class Spool:
    """dropped: told of each message that had to go, and why."""

    def __init__(
        self,
        path: Path,
        dropped: Callable[[Waiting, str], None],
        messages: int = MESSAGES,
        size: int = BYTES,
    ) -> None:
        self._dropped, self._messages, self._size = dropped, messages, size
        self._db = sqlite3.connect(path, isolation_level=None)
        path.chmod(0o600)
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute("PRAGMA synchronous = FULL")
        self._db.executescript(_TABLES)
        # What has come may be forgotten with the power: readers' windows drop what comes again.
        self._loose = sqlite3.connect(path, isolation_level=None)
        self._loose.execute("PRAGMA synchronous = NORMAL")
        rows = self._db.execute("SELECT COUNT(*), SUM(LENGTH(m1) + LENGTH(topic)) FROM waiting")
        count, size_now = rows.fetchone()
        self.count = int(count)
        self.bytes = int(size_now or 0) + _EACH * self.count
        used = self._db.execute("SELECT MAX(used) FROM came").fetchone()[0]
        self._used = int(used or 0)
        self._senders = int(self._db.execute("SELECT COUNT(*) FROM came").fetchone()[0])

    def close(self) -> None:
        """All is on disk already."""
        self._loose.close()
        self._db.close()

    # --- to the peer ---

    def put(self, label: str, topic: str, flags: int, m1: bytes) -> int:
        """On disk when this returns; its number. sqlite3.Error."""
        self._db.execute("BEGIN IMMEDIATE")
        try:
            gone = self._make_room(_cost(topic, m1))
            row = label, topic, flags, m1
            done = self._db.execute(
                "INSERT INTO waiting (label, topic, flags, m1) VALUES (?, ?, ?, ?)", row
            )
            self._db.execute("COMMIT")
        except BaseException:
            self._db.execute("ROLLBACK")
            raise
        for one in gone:
            self._less(one)
            self._dropped(one, "the line was away for too long: no more is kept")
        self.count += 1
        self.bytes += _cost(topic, m1)
        return int(done.lastrowid or 0)

    def _make_room(self, more: int) -> list[Waiting]:
        count, size = self.count + 1, self.bytes + more
        gone: list[Waiting] = []
        while self.count and (count > self._messages or size > self._size):
            after = gone[-1].seq if gone else 0
            some = self.after(after, 1)
            if not some:
                break
            gone += some
            count -= 1
            size -= _cost(some[0].topic, some[0].m1)
        if gone:
            self._db.execute("DELETE FROM waiting WHERE seq <= ?", (gone[-1].seq,))
        return gone

    def after(self, seq: int, most: int) -> list[Waiting]:
        """The oldest that came after `seq`."""
        rows = self._db.execute(
            "SELECT seq, label, topic, flags, m1 FROM waiting WHERE seq > ? ORDER BY seq LIMIT ?",
            (seq, most),
        )
        return [Waiting(*row) for row in rows]

    def done(self, seq: int) -> Waiting | None:
        """The peer has it, or will never take it."""
        found = self.after(seq - 1, 1)
        if not found or found[0].seq != seq:
            return None
        self._db.execute("DELETE FROM waiting WHERE seq = ?", (seq,))
        self._less(found[0])
        return found[0]

    def _less(self, one: Waiting) -> None:
        self.count -= 1
        self.bytes -= _cost(one.topic, one.m1)

    # --- from the peer ---

    def look(self, origin: bytes, ctr: int) -> int:
        """NEW, SEEN or OLD (window.py). Changes nothing: what is refused has used nothing up."""
        return look(self._window(origin), ctr)

    def came(self, origin: bytes, ctr: int) -> None:
        """It has come, and is where it belongs. A process that is killed remembers it."""
        window = self._window(origin)
        if look(window, ctr) != NEW:
            return
        mark(window, ctr)
        self._used += 1
        known = self._loose.execute("SELECT 1 FROM came WHERE origin = ?", (origin,)).fetchone()
        self._senders += known is None
        self._loose.execute(
            "INSERT OR REPLACE INTO came VALUES (?, ?, ?)", (origin, bytes(window), self._used)
        )
        if self._senders > SENDERS:
            self._loose.execute(
                "DELETE FROM came WHERE origin = (SELECT origin FROM came ORDER BY used LIMIT 1)"
            )
            self._senders -= 1

    def _window(self, origin: bytes) -> bytearray:
        row = self._db.execute("SELECT seen FROM came WHERE origin = ?", (origin,)).fetchone()
        return bytearray(_WINDOW) if row is None else bytearray(row[0])


def _cost(topic: str, m1: bytes) -> int:
    return len(m1) + len(topic) + _EACH
