"""What waits behind a border, and what has come: one small database of the border's own.

A message lies here, sealed for where it goes, in one step with the note that it has come, before it
is acknowledged; and goes when the broker has it. So after a kill at any moment none is lost, and
none that comes again is made anew. Bounded: what is too much is the oldest, and is told to
`dropped`. The note is a window for each boot session of a sender, 64 wide, as readers have them;
and of what is retained the time that it has for readers.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from sealmq.bridge.spooled import BYTES, EACH, MESSAGES, cost, opened, whole
from sealmq_spec.window import NEW, Window

SENDERS = 20_000
"""Boot sessions whose windows are kept; the one that was used longest ago goes first."""
PLACES = 10_000
"""Topics of which the time of what was retained last is kept; the earliest goes first."""

FORMAT = 1
_TABLES = """
CREATE TABLE IF NOT EXISTS message (
    seq INTEGER PRIMARY KEY AUTOINCREMENT, topic TEXT NOT NULL, retain INTEGER NOT NULL,
    sender TEXT NOT NULL, digest BLOB NOT NULL, m1 BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS came (
    origin BLOB PRIMARY KEY, top INTEGER NOT NULL, mask BLOB NOT NULL, used INTEGER NOT NULL)
    WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS came_used ON came (used);
CREATE TABLE IF NOT EXISTS newest (topic TEXT PRIMARY KEY, t_pub INTEGER NOT NULL) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS newest_t_pub ON newest (t_pub);
"""


class Message(NamedTuple):
    """topic: where it goes. sender, digest: of the message that it was made from. m1: it."""

    topic: str
    retain: bool
    sender: str
    digest: bytes
    m1: bytes


class Waiting(NamedTuple):
    """A message, by its number."""

    seq: int
    message: Message


class Spool:
    """dropped: told of each message that had to go, and why. All methods: sqlite3.Error.
    NewerFormat."""

    def __init__(
        self,
        path: Path,
        dropped: Callable[[Message, str], None],
        messages: int = MESSAGES,
        size: int = BYTES,
    ) -> None:
        self._dropped, self._messages, self._size = dropped, messages, size
        self._db = opened(path, _TABLES, FORMAT)
        held = "SELECT COUNT(*), SUM(LENGTH(m1) + LENGTH(topic)) FROM message"
        count, size = self._db.execute(held).fetchone()
        self.count, self._held = int(count), int(size or 0) + EACH * int(count)
        """Messages that wait, and their bytes."""
        self._used = int(self._db.execute("SELECT MAX(used) FROM came").fetchone()[0] or 0)

    def close(self) -> None:
        """All is on disk already."""
        self._db.close()

    def look(self, origin: bytes, ctr: int) -> int:
        """NEW, SEEN or OLD (sealmq_spec.window). Changes nothing."""
        window = self._window(origin)
        return NEW if window is None else window.look(ctr)

    def newest(self, topic: str) -> int:
        """The latest time (Unix s) of retained messages that were put for a topic; 0: unknown."""
        found = self._db.execute("SELECT t_pub FROM newest WHERE topic = ?", (topic,)).fetchone()
        return 0 if found is None else int(found[0])

    def put(self, one: Message, origin: bytes, ctr: int, t_pub: int = 0) -> None:
        """A message that was NEW waits, and has come. t_pub: its time. On disk then."""
        with whole(self._db):
            gone = self._make_room(cost(one))
            self._note(origin, ctr)
            if one.retain and t_pub > (newest := self.newest(one.topic)):
                self._note_time(one.topic, t_pub, not newest)
            self._db.execute(
                "INSERT INTO message (topic, retain, sender, digest, m1) VALUES (?, ?, ?, ?, ?)",
                one,
            )
        self.count += 1 - len(gone)
        self._held += cost(one) - sum(map(cost, gone))
        for old in gone:
            self._dropped(old, "too much waits: no more is kept")

    def _make_room(self, more: int) -> list[Message]:
        gone: list[Message] = []
        count, size = self.count, self._held
        while count and (count + 1 > self._messages or size + more > self._size):
            [(seq, old)] = self.oldest(1)
            self._db.execute("DELETE FROM message WHERE seq = ?", (seq,))
            gone.append(old)
            count, size = count - 1, size - cost(old)
        return gone

    def oldest(self, most: int) -> list[Waiting]:
        """Those that wait, the oldest first."""
        rows = self._db.execute(
            "SELECT seq, topic, retain, sender, digest, m1 FROM message ORDER BY seq LIMIT ?",
            (most,),
        )
        return [
            Waiting(seq, Message(topic, bool(retain), *rest)) for seq, topic, retain, *rest in rows
        ]

    def done(self, one: Waiting) -> bool:
        """It waits no longer. Whether it still did: `put` may have dropped it meanwhile."""
        gone = self._db.execute("DELETE FROM message WHERE seq = ?", (one.seq,)).rowcount
        self.count -= gone
        self._held -= gone * cost(one.message)
        return gone > 0

    def _window(self, origin: bytes) -> Window | None:
        found = self._db.execute("SELECT top, mask FROM came WHERE origin = ?", (origin,))
        row = found.fetchone()
        return None if row is None else Window(row[0], int.from_bytes(row[1], "big"))

    def _note(self, origin: bytes, ctr: int) -> None:
        known = self._window(origin)
        window = known or Window()
        window.mark(ctr)
        self._used += 1
        self._db.execute(
            "INSERT OR REPLACE INTO came VALUES (?, ?, ?, ?)",
            (origin, window.top, window.mask.to_bytes(8, "big"), self._used),
        )
        if known is None and self._senders() > SENDERS:
            oldest = "(SELECT origin FROM came ORDER BY used LIMIT 1)"
            self._db.execute(f"DELETE FROM came WHERE origin = {oldest}")  # noqa: S608

    def _note_time(self, topic: str, t_pub: int, is_new: bool) -> None:
        self._db.execute("INSERT OR REPLACE INTO newest VALUES (?, ?)", (topic, t_pub))
        if is_new and self._db.execute("SELECT COUNT(*) FROM newest").fetchone()[0] > PLACES:
            first = "(SELECT topic FROM newest ORDER BY t_pub LIMIT 1)"
            self._db.execute(f"DELETE FROM newest WHERE topic = {first}")  # noqa: S608

    def _senders(self) -> int:
        return int(self._db.execute("SELECT COUNT(*) FROM came").fetchone()[0])
