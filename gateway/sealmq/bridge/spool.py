"""What waits for neighbours, and what has come: one small database of the bridge's own.

A message lies here, on disk, before whoever handed it over is answered, and goes when the last
neighbour that it waits for has it. Bounded for each neighbour: what is too much is its oldest, and
is told to `dropped`. Of what has come, a window for each boot session of a sender (site, sender,
boot, salt) tells what was here before, by whichever neighbour, also after a restart.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from sealmq_spec.window import NEW, OLD, SEEN

MESSAGES = 100_000
BYTES = 64 << 20
# Windows; the one that was used longest ago goes first.
SENDERS = 20_000
WIDTH = 4096
"""Of a window: copies come by lines of which one may lag far behind another."""
# What a message takes beside its topic and m1.
_EACH = 64

_TABLES = """
CREATE TABLE IF NOT EXISTS message (
    seq INTEGER PRIMARY KEY AUTOINCREMENT, site BLOB NOT NULL, number INTEGER NOT NULL,
    label TEXT NOT NULL, hops INTEGER NOT NULL, token BLOB NOT NULL, topic TEXT NOT NULL,
    flags INTEGER NOT NULL, m1 BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS waiting (
    neighbour TEXT NOT NULL, seq INTEGER NOT NULL, PRIMARY KEY (neighbour, seq)) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS waiting_seq ON waiting (seq);
CREATE TABLE IF NOT EXISTS came (
    origin BLOB PRIMARY KEY, top INTEGER NOT NULL, mask BLOB NOT NULL, used INTEGER NOT NULL)
    WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS came_used ON came (used);
CREATE TABLE IF NOT EXISTS certificate (peer TEXT PRIMARY KEY, der BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS known (key BLOB PRIMARY KEY, record BLOB NOT NULL) WITHOUT ROWID;
"""
_COLUMNS = "site, number, label, hops, token, topic, flags, m1"


class Message(NamedTuple):
    """What goes to neighbours. site, number: its own site and the label's number there; label: its
    name, of an own message alone. hops: sites that it has passed, the one that it goes to next
    not. token: 8 bytes. flags: RETAIN + 2·QoS.
    """

    site: bytes
    number: int
    label: str
    hops: int
    token: bytes
    topic: str
    flags: int
    m1: bytes


class Waiting(NamedTuple):
    """A message, by its number."""

    seq: int
    message: Message


class Spool:
    """dropped: told of each message that had to go, for which neighbour, and why."""

    def __init__(
        self,
        path: Path,
        dropped: Callable[[str, Message, str], None],
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
        rows = self._db.execute(
            "SELECT neighbour, COUNT(*), SUM(LENGTH(m1) + LENGTH(topic)) "
            "FROM waiting JOIN message USING (seq) GROUP BY neighbour"
        )
        # Messages and bytes for each neighbour.
        self._held = {who: [int(n), int(size) + _EACH * int(n)] for who, n, size in rows}
        used = self._db.execute("SELECT MAX(used) FROM came").fetchone()[0]
        self._used = int(used or 0)
        self._senders = int(self._db.execute("SELECT COUNT(*) FROM came").fetchone()[0])

    def close(self) -> None:
        """All is on disk already."""
        self._loose.close()
        self._db.close()

    # --- to neighbours ---

    def count(self, neighbour: str) -> int:
        """Messages that wait for it."""
        return self._held.get(neighbour, (0, 0))[0]

    def put(self, one: Message, to: Collection[str]) -> int:
        """On disk when this returns; its number. sqlite3.Error."""
        with _whole(self._db):
            gone = [(who, old) for who in to for old in self._make_room(who, _cost(one))]
            done = self._db.execute(
                f"INSERT INTO message ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",  # noqa: S608
                one,
            )
            seq = int(done.lastrowid or 0)
            self._db.executemany("INSERT INTO waiting VALUES (?, ?)", [(who, seq) for who in to])
        for who, old in gone:
            self._hold(who, old.message, -1)
            self._dropped(who, old.message, "the line was away for too long: no more is kept")
        for who in to:
            self._hold(who, one, 1)
        return seq

    def _make_room(self, who: str, more: int) -> list[Waiting]:
        held, size = self._held.get(who, (0, 0))
        gone: list[Waiting] = []
        while held and (held + 1 > self._messages or size + more > self._size):
            some = self.after(who, gone[-1].seq if gone else 0, 1)
            if not some:
                break
            gone += some
            held -= 1
            size -= _cost(some[0].message)
            self._delete(self._db, who, some[0].seq)
        return gone

    def _delete(self, db: sqlite3.Connection, who: str, seq: int) -> None:
        db.execute("DELETE FROM waiting WHERE neighbour = ? AND seq = ?", (who, seq))
        db.execute(
            "DELETE FROM message WHERE seq = ?1 "
            "AND NOT EXISTS (SELECT 1 FROM waiting WHERE seq = ?1)",
            (seq,),
        )

    def after(self, neighbour: str, seq: int, most: int) -> list[Waiting]:
        """The oldest for it that came after `seq`."""
        rows = self._db.execute(
            f"SELECT seq, {_COLUMNS} FROM waiting JOIN message USING (seq) "  # noqa: S608
            "WHERE neighbour = ? AND seq > ? ORDER BY seq LIMIT ?",
            (neighbour, seq, most),
        )
        return [Waiting(seq, Message(*row)) for seq, *row in rows]

    def done(self, neighbour: str, seq: int) -> Message | None:
        """The neighbour has it, or will never take it. After a loss of power it goes there again:
        what has come twice ends there.
        """
        found = self.after(neighbour, seq - 1, 1)
        if not found or found[0].seq != seq:
            return None
        with _whole(self._loose):
            self._delete(self._loose, neighbour, seq)
        self._hold(neighbour, found[0].message, -1)
        return found[0].message

    def keep_only(self, neighbours: Collection[str]) -> None:
        """What waits for others is given up, and named."""
        for who in [one for one in self._held if one not in neighbours]:
            for seq, _ in self.after(who, 0, -1):
                one = self.done(who, seq)
                if one is not None:
                    self._dropped(who, one, "it is no neighbour any more")
            del self._held[who]

    def _hold(self, who: str, one: Message, sign: int) -> None:
        held = self._held.setdefault(who, [0, 0])
        held[0] += sign
        held[1] += sign * _cost(one)

    # --- from neighbours ---

    def look(self, origin: bytes, ctr: int) -> int:
        """NEW, SEEN or OLD. Changes nothing: what is refused has used nothing up."""
        top, mask = self._window(origin)
        back = top - ctr
        if back < 0:
            return NEW
        if back >= WIDTH:
            return OLD
        return SEEN if mask >> back & 1 else NEW

    def came(self, origin: bytes, ctr: int) -> None:
        """It has come, and is where it belongs. A process that is killed remembers it."""
        top, mask = self._window(origin)
        if ctr > top:
            ahead = ctr - top
            mask = (mask << ahead | 1) & _ALL if ahead < WIDTH else 1
            top = ctr
        elif top - ctr < WIDTH:
            mask |= 1 << top - ctr
        self._used += 1
        raw = mask.to_bytes((mask.bit_length() + 7) // 8, "big")
        known = self._loose.execute("SELECT 1 FROM came WHERE origin = ?", (origin,)).fetchone()
        self._senders += known is None
        self._loose.execute(
            "INSERT OR REPLACE INTO came VALUES (?, ?, ?, ?)", (origin, top, raw, self._used)
        )
        if self._senders > SENDERS:
            self._loose.execute(
                "DELETE FROM came WHERE origin = (SELECT origin FROM came ORDER BY used LIMIT 1)"
            )
            self._senders -= 1

    def _window(self, origin: bytes) -> tuple[int, int]:
        row = self._db.execute("SELECT top, mask FROM came WHERE origin = ?", (origin,)).fetchone()
        return (-1, 0) if row is None else (int(row[0]), int.from_bytes(row[1], "big"))

    # --- what is known of others ---

    def certificates(self) -> dict[str, bytes]:
        """Of peers, as they have shown them."""
        return dict(self._db.execute("SELECT peer, der FROM certificate"))

    def put_certificate(self, peer: str, der: bytes) -> None:
        """In the place of what was there."""
        self._db.execute("INSERT OR REPLACE INTO certificate VALUES (?, ?)", (peer, der))

    def judged(self) -> list[tuple[bytes, bytes]]:
        """What the judge keeps: keys and records."""
        return list(self._db.execute("SELECT key, record FROM known"))

    def put_judged(self, changes: Collection[tuple[bytes, bytes | None]]) -> None:
        """Records in the place of what their keys had; None: nothing. On disk when this returns."""
        if not changes:
            return
        with _whole(self._db):
            for key, record in changes:
                if record is None:
                    self._db.execute("DELETE FROM known WHERE key = ?", (key,))
                else:
                    self._db.execute(
                        "INSERT INTO known VALUES (?1, ?2) ON CONFLICT (key) "
                        "DO UPDATE SET record = ?2 WHERE record <> ?2",
                        (key, record),
                    )


_ALL = (1 << WIDTH) - 1


def _cost(one: Message) -> int:
    return len(one.m1) + len(one.topic) + _EACH


@contextmanager
def _whole(db: sqlite3.Connection) -> Iterator[None]:
    """All of it or nothing. A full disk may have taken the transaction back already."""
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise
