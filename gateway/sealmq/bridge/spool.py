"""What waits for neighbours, and what has come: one small database of the bridge's own.

A message waits in memory or on disk, and goes when the last neighbour that it waits for has it. In
memory it waits only as long as whoever handed it over has not been answered, which `safe` is for:
called once the message is on disk, or once all neighbours have it. All that comes within GROUP_S is
written as one transaction; what has come, and that it goes on, is in the same one.

Bounded for each neighbour: what is too much is its oldest, and is told to `dropped`. Of what has
come, windows tell what was here before, by whichever neighbour, also after a restart: one for each
WIDTH counters of a boot session of a sender (site, sender, boot, salt). So a counter that comes
late is judged as any other; of a sender, and of all, windows that were used longest ago go first,
and what is forgotten so counts as new: readers' own windows drop it.
"""

from __future__ import annotations

import itertools
import json
import logging
import sqlite3
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from .spooled import BYTES, EACH, MESSAGES, cost, opened, whole

log = logging.getLogger("sealmq.bridge")

WIDTH = 4096
"""Counters of a window."""
WINDOWS = 20_000
"""In all; a row each."""
EACH_SENDER = 32
"""Windows: copies may lag as far behind others as all MESSAGES of a neighbour that was away."""
_CACHED = 1024
GROUP_S = 0.01
"""What has to be on disk before it is answered waits so long for more: a transaction, and all that
its answers set off here and there, costs more than a message."""
HOLD_S = 0.25
"""A message that may be held is in memory for once or twice as long, at most."""
HOLD_BYTES = 4 << 20
"""In memory, of all that may be held."""

FORMAT = 1
_TABLES = """
CREATE TABLE IF NOT EXISTS message (
    seq INTEGER PRIMARY KEY AUTOINCREMENT, site BLOB NOT NULL, number INTEGER NOT NULL,
    label TEXT NOT NULL, hops INTEGER NOT NULL, token BLOB NOT NULL, topic TEXT NOT NULL,
    flags INTEGER NOT NULL, m1 BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS waiting (
    neighbour TEXT NOT NULL, seq INTEGER NOT NULL, PRIMARY KEY (neighbour, seq)) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS waiting_seq ON waiting (seq);
DROP TABLE IF EXISTS came;
CREATE TABLE IF NOT EXISTS seen (
    origin BLOB NOT NULL, block INTEGER NOT NULL, mask BLOB NOT NULL, used INTEGER NOT NULL,
    PRIMARY KEY (origin, block)) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS seen_used ON seen (used);
CREATE TABLE IF NOT EXISTS certificate (peer TEXT PRIMARY KEY, der BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS known (key BLOB PRIMARY KEY, record BLOB NOT NULL) WITHOUT ROWID;
"""
_new = tuple.__new__
_COLUMNS = "site, number, label, hops, token, topic, flags, m1"

Told = Callable[[], object]
Kept = tuple[bytes, bytes | None]
"""A key, and its record; None: it goes."""


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


class _Fresh:
    """A message in memory. waits: neighbours that have not got it."""

    __slots__ = ("cost", "message", "safe", "seq", "waits")

    def __init__(self, seq: int, message: Message, waits: Iterable[str]) -> None:
        self.seq, self.message, self.waits = seq, message, set(waits)
        self.cost = cost(message)
        self.safe: list[Told] = []


class Spool:
    """dropped: told of each message that had to go, for which neighbour, and why. keeps: what the
    judge wants kept, written with messages, which name its tokens. soon: has a function called in
    so many seconds; without it nothing is written but by `write`.

    What comes from the disk comes in the order of its numbers, and before what is in memory: of
    that, always the oldest is written.
    """

    def __init__(
        self,
        path: Path,
        dropped: Callable[[str, Message, str], None],
        messages: int = MESSAGES,
        size: int = BYTES,
        keeps: Callable[[], Collection[Kept]] = tuple,
        soon: Callable[[float, Told], object] | None = None,
    ) -> None:
        self._dropped, self._messages, self._size = dropped, messages, size
        self._keeps, self._soon = keeps, soon
        self._db = opened(path, _TABLES, FORMAT)
        self._power = True
        rows = self._db.execute(
            "SELECT neighbour, COUNT(*), SUM(LENGTH(m1) + LENGTH(topic)), MAX(seq) "
            "FROM waiting JOIN message USING (seq) GROUP BY neighbour"
        ).fetchall()
        # Messages and bytes for each neighbour, and the last one that is on disk.
        self._held = {who: [int(n), int(size) + EACH * int(n)] for who, n, size, _ in rows}
        self._top = {who: int(top) for who, _, _, top in rows}
        self._seq = int(self._db.execute("SELECT MAX(seq) FROM message").fetchone()[0] or 0)
        self._fresh: dict[int, _Fresh] = {}
        self._fresh_bytes = 0
        self._queues: dict[str, dict[int, _Fresh]] = {}
        # What has gone from the disk, of each neighbour: what each message takes, by its number.
        self._done: dict[str, dict[int, int]] = {}
        self._seen = _Windows(self._db)
        self.seen = self._seen.has
        """Whether (origin, ctr) has come. Changes nothing: who is refused uses nothing up."""
        self._then: list[Told] = []
        self._planned = self._ageing = False
        # What was there a HOLD_S ago.
        self._aged = 0

    def close(self) -> None:
        """All is on disk when this returns, if there is room. May be called again."""
        try:
            self.write()
        except sqlite3.Error as error:
            log.warning("the spool is closed, and what is in memory will come again: %s", error)
        self._db.close()

    # --- to neighbours ---

    def count(self, neighbour: str) -> int:
        """Messages that wait for it."""
        return self._held.get(neighbour, (0, 0))[0]

    def put(
        self, one: Message, to: Collection[str], safe: Told | None = None, hold: bool = False
    ) -> int:
        """Take a message for neighbours; its number. hold: it may be in memory for a while, else it
        is written with all else of this group.
        """
        seq = self._seq = self._seq + 1
        fresh = self._fresh[seq] = _Fresh(seq, one, to)
        size = fresh.cost
        for who in to:
            queue = self._queues.get(who)
            if queue is None:
                queue = self._queues[who] = {}
            queue[seq] = fresh
            held = self._held.get(who)
            if held is None:
                held = self._held[who] = [0, 0]
            held[0] += 1
            held[1] += size
        self._fresh_bytes += size
        if safe is not None:
            fresh.safe.append(safe)
        if not hold or self._fresh_bytes > HOLD_BYTES:
            self.plan()
        elif not self._ageing:
            self._age()
        return seq

    def join(self, seq: int, safe: Told) -> bool:
        """Have `safe` called as well; False when the message is safe already."""
        fresh = self._fresh.get(seq)
        if fresh is not None:
            fresh.safe.append(safe)
        return fresh is not None

    def after(self, neighbour: str, seq: int, most: int) -> list[Waiting]:
        """The oldest for it that came after `seq`."""
        some: list[Waiting] = []
        if seq < self._top.get(neighbour, 0):
            some = self._on_disk(neighbour, seq, most)
        queue = self._queues.get(neighbour)
        if queue and len(some) != most:
            news: list[Waiting] = []
            for number in reversed(queue):
                if number <= seq:
                    break
                news.append(_new(Waiting, (number, queue[number].message)))
            some += reversed(news)
        return some[:most] if most >= 0 else some

    def _on_disk(self, neighbour: str, seq: int, most: int) -> list[Waiting]:
        rows = self._db.execute(
            f"SELECT seq, {_COLUMNS} FROM waiting JOIN message USING (seq) "  # noqa: S608
            "WHERE neighbour = ? AND seq > ? ORDER BY seq LIMIT ?",
            (neighbour, seq, most),
        )
        return [Waiting(number, Message(*row)) for number, *row in rows]

    def done(self, neighbour: str, one: Waiting) -> None:
        """The neighbour has it, or will never take it. From the disk it goes a little later: after
        a kill it may go there again, and what has come twice ends there.
        """
        fresh = self._fresh.get(one.seq)
        if fresh is None:
            self._done.setdefault(neighbour, {})[one.seq] = cost(one.message)
            self._age()
        elif neighbour in fresh.waits:
            fresh.waits.discard(neighbour)
            del self._queues[neighbour][fresh.seq]
            held = self._held[neighbour]
            held[0] -= 1
            held[1] -= fresh.cost
            if not fresh.waits:
                self._out(fresh)

    def keep_only(self, neighbours: Collection[str]) -> None:
        """What waits for others is given up, and named."""
        for who in [one for one in self._held if one not in neighbours]:
            for one in self.after(who, 0, -1):
                self._dropped(who, one.message, "it is no neighbour any more")
                self.done(who, one)
        self.write()

    def _out(self, fresh: _Fresh) -> None:
        """It is not in memory any more: each neighbour has it, or it is on disk."""
        del self._fresh[fresh.seq]
        self._fresh_bytes -= fresh.cost
        for who in fresh.waits:
            del self._queues[who][fresh.seq]
        for safe in fresh.safe:
            safe()

    # --- from neighbours ---

    def came(self, origin: bytes, ctr: int) -> None:
        """It has come, and is where it belongs: written with all else of this group."""
        self._seen.add(origin, ctr)
        if not self._planned:
            self.plan()

    def then(self, told: Told) -> None:
        """Call it once all that is there now is written."""
        if self._planned:
            self._then.append(told)
        else:
            told()

    def hurry(self) -> None:
        """What is to be written waits for nothing more."""
        if self._planned:
            self._plan(0.0)

    # --- writing ---

    def plan(self) -> None:
        """All that is in memory is written soon."""
        if not self._planned:
            self._planned = True
            self._plan(GROUP_S)

    def _plan(self, seconds: float) -> None:
        if self._soon is not None:
            self._soon(seconds, self._grouped)

    def _grouped(self) -> None:
        """Nothing is left to do where another one of this group has done it."""
        if self._planned:
            self.write()

    def _age(self) -> None:
        if not self._ageing and self._soon is not None:
            self._ageing, self._aged = True, 0
            self._soon(HOLD_S, self._tick)

    def _tick(self) -> None:
        self._ageing = False
        if self._planned:
            # What has come is written with it, and may not be without what goes on.
            self.write()
        else:
            self._write(self._aged)
        if self._fresh:
            self._age()
            self._aged = self._seq

    def write(self) -> None:
        """One transaction of all that is in memory. sqlite3.Error: nothing has changed."""
        self._planned = False
        try:
            self._write(self._seq)
        except BaseException:
            self._planned = True  # nobody is answered for what is not written
            raise
        then, self._then = self._then, []
        for told in then:
            told()

    def _write(self, upto: int) -> None:
        fresh = [one for one in self._fresh.values() if one.seq <= upto]
        if not (fresh or self._done):
            if self._seen.changed:
                with self._whole(False):
                    self._seen.write()
                self._seen.written()
            return
        gone: list[tuple[str, Waiting]] = []
        with self._whole(bool(fresh)):
            if fresh:
                self._put_judged(self._keeps())
            held = {who: list(sums) for who, sums in self._held.items()}
            for who, some in self._done.items():
                for seq in self._delete(who, some):
                    held[who][0] -= 1
                    held[who][1] -= some[seq]
            for who in {who for one in fresh for who in one.waits}:
                gone += self._make_room(who, held[who], fresh)
            lost = {(who, one.seq) for who, one in gone}
            rows = [(w, one.seq) for one in fresh for w in one.waits if (w, one.seq) not in lost]
            stay = {seq for _, seq in rows}
            self._db.executemany(
                f"INSERT INTO message (seq, {_COLUMNS}) "  # noqa: S608
                "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                [(one.seq, *one.message) for one in fresh if one.seq in stay],
            )
            self._db.executemany("INSERT INTO waiting VALUES (?, ?)", rows)
            self._seen.write()
        self._done, self._held = {}, held
        self._seen.written()
        for who, seq in rows:
            self._top[who] = max(self._top.get(who, 0), seq)
        for who, lapsed in gone:
            self._dropped(who, lapsed.message, "the line was away for too long: no more is kept")
        for one in fresh:
            self._out(one)

    @contextmanager
    def _whole(self, power: bool) -> Iterator[None]:
        """All of it or nothing; power: on disk afterwards, and not only out of this process."""
        if power is not self._power:
            self._db.execute(f"PRAGMA synchronous = {'FULL' if power else 'NORMAL'}")
            self._power = power
        try:
            with whole(self._db):
                yield
        except BaseException:
            self._seen.failed()
            raise

    def _make_room(
        self, who: str, held: list[int], fresh: list[_Fresh]
    ) -> list[tuple[str, Waiting]]:
        gone: list[tuple[str, Waiting]] = []
        last, rest = 0, (one for one in fresh if who in one.waits)
        while held[0] > self._messages or held[1] > self._size:
            some = self._on_disk(who, last, 1) or [
                Waiting(one.seq, one.message) for one in itertools.islice(rest, 1)
            ]
            if not some:
                break
            [oldest] = some
            last = oldest.seq
            self._delete(who, (last,))
            gone.append((who, oldest))
            held[0] -= 1
            held[1] -= cost(oldest.message)
        return gone

    def _delete(self, who: str, some: Iterable[int]) -> list[int]:
        """Those of them that were there."""
        numbers = json.dumps(list(some))
        found = self._db.execute(
            "DELETE FROM waiting WHERE neighbour = ? AND seq IN (SELECT value FROM json_each(?)) "
            "RETURNING seq",
            (who, numbers),
        ).fetchall()
        self._db.execute(
            "DELETE FROM message WHERE seq IN (SELECT value FROM json_each(?)) "
            "AND NOT EXISTS (SELECT 1 FROM waiting WHERE waiting.seq = message.seq)",
            (numbers,),
        )
        return [int(seq) for (seq,) in found]

    # --- what is known of others ---

    def certificates(self) -> dict[str, bytes]:
        """Of peers, as they have shown them."""
        return dict(self._db.execute("SELECT peer, der FROM certificate"))

    def put_certificate(self, peer: str, der: bytes) -> None:
        """In the place of what was there."""
        with self._whole(True):
            self._db.execute("INSERT OR REPLACE INTO certificate VALUES (?, ?)", (peer, der))

    def judged(self) -> list[tuple[bytes, bytes]]:
        """What the judge keeps: keys and records."""
        return list(self._db.execute("SELECT key, record FROM known"))

    def put_judged(self, changes: Collection[Kept]) -> None:
        """Records in the place of what their keys had. On disk when this returns."""
        if changes:
            with self._whole(True):
                self._put_judged(changes)

    def _put_judged(self, changes: Collection[Kept]) -> None:
        for key, record in changes:
            if record is None:
                self._db.execute("DELETE FROM known WHERE key = ?", (key,))
            else:
                self._db.execute(
                    "INSERT INTO known VALUES (?1, ?2) ON CONFLICT (key) "
                    "DO UPDATE SET record = ?2 WHERE record <> ?2",
                    (key, record),
                )


class _Windows:
    """What has come, by (origin, counter // WIDTH): a bit for each counter."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db
        self._kept: OrderedDict[tuple[bytes, int], bytearray] = OrderedDict()
        self.changed: dict[tuple[bytes, int], None] = {}
        self._used = int(db.execute("SELECT MAX(used) FROM seen").fetchone()[0] or 0)
        self._rows = 0
        self.failed()

    def has(self, origin: bytes, ctr: int) -> bool:
        which = origin, ctr // WIDTH
        mask = self._kept.get(which) or self._mask(which)
        return mask is not None and bool(mask[ctr % WIDTH >> 3] >> (ctr & 7) & 1)

    def add(self, origin: bytes, ctr: int) -> None:
        which = origin, ctr // WIDTH
        mask = self._kept.get(which) or self._mask(which)
        if mask is None:
            mask = self._kept[which] = bytearray(WIDTH >> 3)
        self._kept.move_to_end(which)
        mask[ctr % WIDTH >> 3] |= 1 << (ctr & 7)
        self.changed[which] = None

    # From the disk.
    def _mask(self, which: tuple[bytes, int]) -> bytearray | None:
        row = self._db.execute(
            "SELECT mask FROM seen WHERE origin = ? AND block = ?", which
        ).fetchone()
        if row is None:
            return None
        mask = self._kept[which] = bytearray(row[0])
        return mask

    def write(self) -> None:
        """Within a transaction. `written` once that is on disk, else `failed`."""
        for which in self.changed:
            self._used += 1
            said = bytes(self._kept[which]), self._used, *which
            there = self._db.execute(
                "UPDATE seen SET mask = ?, used = ? WHERE origin = ? AND block = ?", said
            )
            if not there.rowcount:
                self._make_room(which[0])
                self._db.execute(
                    "INSERT INTO seen (mask, used, origin, block) VALUES (?, ?, ?, ?)", said
                )
                self._rows += 1

    # Of its sender, and of all, those that were used longest ago go.
    def _make_room(self, origin: bytes) -> None:
        mine = self._db.execute("SELECT COUNT(*) FROM seen WHERE origin = ?", (origin,))
        if mine.fetchone()[0] >= EACH_SENDER:
            self._forget("WHERE origin = ?", origin)
        elif self._rows >= WINDOWS:
            self._forget("")

    def _forget(self, whose: str, *origin: bytes) -> None:
        [gone] = self._db.execute(
            "DELETE FROM seen WHERE (origin, block) = "  # noqa: S608
            f"(SELECT origin, block FROM seen {whose} ORDER BY used LIMIT 1) "
            "RETURNING origin, block",
            origin,
        ).fetchall()
        self._rows -= 1
        if gone not in self.changed:
            self._kept.pop(gone, None)

    def written(self) -> None:
        """What has changed is on disk."""
        self.changed.clear()
        while len(self._kept) > _CACHED:
            self._kept.popitem(last=False)

    def failed(self) -> None:
        """The transaction was taken back."""
        self._rows = int(self._db.execute("SELECT COUNT(*) FROM seen").fetchone()[0])
