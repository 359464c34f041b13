"""The audit log of one process. Writing is cheap; a thread of its own serialises and fsyncs.

If the disk fails, lines wait (up to a bound, above which they are counted as lost), and the process
does not. `synced` is for what may not go on before its record is on disk.
"""

from __future__ import annotations

import asyncio
import json
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path

from sealmq.site.reserve import Reserve

from .chain import Chain, SegmentSeal
from .counts import Counts, Key, Said
from .events import LIMITED, NO_MORE, OF_PEERS, ROLES, SEEN, URGENT, VERSION, Field, check
from .reading import last_of_runs, newest_ms
from .retention import Retention
from .segment import CLOSED, Segment, recover
from .totals import Totals

log = logging.getLogger("sealmq.audit")

WAITING = 100_000
BATCH = 1000
# So many counts are collected before the table is updated.
COUNTED = 256
RETRY_S = 1.0
ALL = Retention()

Line = dict[str, Field | int]
Sync = tuple[int, asyncio.AbstractEventLoop, asyncio.Future[None]]


class AuditError(ValueError):
    """The log was opened or used in a way that makes no sense (strict only for records)."""


def clock() -> int:
    """Unix ms."""
    return time.time_ns() // 1_000_000


class Audit:
    """`role`: one of ROLES. `inst`: of the process. `site`: 8 hex digits."""

    def __init__(
        self,
        dir: Path,
        role: str,
        inst: int,
        site: str,
        *,
        segment_bytes: int = 8 << 20,
        segment_ms: int = 300_000,
        strict: bool = False,
        now: Callable[[], int] = clock,
        spare: Path | None = None,
        more: Mapping[str, int] = NO_MORE,
        chain: Chain | None = None,
        retention: Retention = ALL,
        totals: Totals | None = None,
    ) -> None:
        """Closes what a dead process of the role has left open in `dir`.

        A segment is closed at `segment_bytes` or `segment_ms`. `strict`: a record that is not one
        of the schema raises AuditError; else it is logged as `log-fault`. `spare`: where there is
        space for what has to be written with a full disk, too. `more`: fields of policy families,
        and how long each may be. `chain`: seals each line (chain.py); None: nothing does.
        `retention`: which old segments of the role are deleted. `totals`: gets all that is counted.
        """
        if role not in ROLES or len(site) != 8 or set(site) - set("0123456789abcdef"):
            raise AuditError(f"no role or no site: {role!r}, {site!r}")
        self._folder, self._role, self._inst, self._site = dir, role, inst, site
        self._more = more
        self._bytes, self._ms, self._strict, self._now = segment_bytes, segment_ms, strict, now
        dir.mkdir(parents=True, exist_ok=True)
        self._began = _unused(dir, f"{role}-{inst:08d}", now())
        self._lines = self._files = self._lost = self._ids = 0
        self._chain, self._retention = chain, retention
        self.totals = totals
        if totals is not None:
            totals.newest_ms = newest_ms(dir, role)
        # What is deleted once `_lines` are on disk that say so.
        self._expiring: tuple[int, list[str]] = (0, [])
        self._seal: SegmentSeal | None = None
        # Of the segment before.
        self._sealed = 0
        self._done = 0
        # Lines that were written before others that had come earlier.
        self._early = 0
        self._reserve = None if spare is None else Reserve(spare)
        self._waiting: deque[Line] = deque()
        self._counts = Counts(now())
        # Counts since the table was last updated.
        self._counted: deque[Key] = deque()
        self._lock = threading.Lock()
        self._wake = threading.Condition(self._lock)
        self._syncs: list[Sync] = []
        self._closing = False
        self._segment: Segment | None = None
        self._segment_began = 0
        self._torn = False
        self.error: str | None = None
        """What is wrong with the disk, while it is."""
        for left in recover(dir, role):
            self.write(
                "log-recovered",
                segment=left.segment,
                lines=left.lines,
                dropped_bytes=left.dropped_bytes,
                count=left.after or None,
            )
        # The segments that others have by now, so that none of these is taken away unseen.
        self._seen = last_of_runs(dir, role)[-SEEN:] if chain is not None else []
        self._thread = threading.Thread(target=self._run, name="sealmq audit", daemon=True)
        self._thread.start()

    # For the process

    def write(self, event: str, **fields: Field | None) -> None:
        """One record. Fields that are None are left out, text that is too long is cut."""
        clean, wrong = check(event, fields, self._more)
        if wrong:
            self._fault(event, wrong)
            if clean is None:
                return
        now = self._now()
        with self._lock:
            self._turn(now)
            texts = clean or {}
            if self.totals is not None:
                self.totals.one(event, texts, now)
            client = str(texts.get("client", ""))
            peer = str(texts.get("peer", "")) if event in OF_PEERS else ""
            if event in LIMITED and not self._counts.single(event, client, peer):
                self._counts.add([("folded", event, client, str(texts.get("rule", "")), peer)])
                return
            self._put(event, clean or {}, now)

    def count_accepted(self, client: str, topic: str, label: str) -> None:
        """publish-accepted, one record a minute for each client and topic."""
        self._counted.append(("publish-accepted", client, topic, label))
        if len(self._counted) >= COUNTED:
            self._look()

    def count_delivered(self, client: str, topic: str, label: str, audit: Said = ()) -> None:
        """delivered, likewise, and for each that families say in their fields."""
        self._counted.append(("delivered", client, topic, label, audit))
        if len(self._counted) >= COUNTED:
            self._look()

    def count_denied(
        self,
        client: str,
        topic: str,
        rule: str,
        label: str = "",
        sender: str = "",
        audit: Said = (),
    ) -> None:
        """deliver-denied, one record a minute for each client, topic, rule and sender, and for each
        that families say in their fields. sender: "" where the mediator has not looked.
        """
        self._count(("deliver-denied", client, topic, rule, label, sender, audit))

    def count_unenforced(self, client: str, topic: str, rule: str, question: str) -> None:
        """unenforced: what `enforce = false` let through, counted likewise."""
        self._count(("unenforced", client, topic, rule, question))

    def part(self, filter: str) -> None:
        """Writes what was counted so far of readers of these topics. So the log has it before the
        change that follows, and not together with what is counted after that.
        """
        now = self._now()
        with self._lock:
            self._turn(now)
            self._put_counts(self._counts.part(filter), now)

    async def synced(self) -> None:
        """Returns when all that was written before is on disk (counts of this minute aside)."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        with self._lock:
            if self._done >= self._lines:
                return
            self._syncs.append((self._lines, loop, future))
        await future

    def close(self) -> None:
        """Write the counts out, fsync, rename the segment, end the thread. May be called twice."""
        with self._lock:
            if not self._closing:
                self._turn(self._now())
                self._flush_counts(self._now())
                if self._chain is not None:
                    self._put("log-ended", {}, self._now())
            self._closing = True
            self._wake.notify()
        self._thread.join()

    # Lines

    # Each message is counted several times, so a count takes neither the clock nor the lock: it is
    # only collected. A count may therefore fall into the minute before its own, if it came while
    # the thread slept.
    def _count(self, key: Key) -> None:
        self._counted.append(key)
        if len(self._counted) >= COUNTED:
            self._look()

    def _look(self) -> None:
        with self._lock:
            self._turn(self._now())

    def _turn(self, now: int) -> None:
        take = self._counted.popleft
        keys = [take() for _ in range(len(self._counted))]
        if self.totals is not None and keys:
            self.totals.many(keys)
        if self._counts.add(keys) or self._counts.over(now):
            self._flush_counts(now)

    def _flush_counts(self, now: int) -> None:
        self._put_counts(self._counts.take(now), now)

    def _put_counts(self, counts: list[tuple[str, dict[str, Field]]], now: int) -> None:
        for event, fields in counts:
            clean, wrong = check(event, fields, self._more)
            if clean is not None and not wrong:
                self._put(event, clean, now)

    def _put(self, event: str, fields: dict[str, Field], now: int) -> None:
        if self._closing:
            return
        if len(self._waiting) >= WAITING:
            self._lost += 1
            return
        self._lines += 1
        self._waiting.append(self._framed(event, fields, now))
        self._wake.notify()

    def _framed(self, event: str, fields: dict[str, Field], now: int) -> Line:
        self._ids += 1
        return {
            "v": VERSION,
            "id": f"{self._site}-{self._role}-{self._inst}-{self._began}-{self._ids}",
            "at_ms": now,
            "site": self._site,
            "role": self._role,
            "inst": self._inst,
            "event": event,
            **fields,
        }

    def _fault(self, event: str, wrong: str) -> None:
        if self._strict:
            raise AuditError(f"{event}: {wrong}")
        log.error("audit record %s: %s", event, wrong)
        clean, _ = check("log-fault", {"of": event, "reason": wrong})
        with self._lock:
            self._put("log-fault", clean or {}, self._now())

    # The thread

    def _run(self) -> None:
        if self._reserve is not None:
            self._reserve.fill()
        self._expire()
        while True:
            with self._lock:
                if not self._waiting and not self._closing:
                    self._wake.wait(RETRY_S)
                self._turn(self._now())
                last = self._closing
                batch = [self._waiting.popleft() for _ in range(min(BATCH, len(self._waiting)))]
            try:
                if batch:
                    if self._reserve is not None:
                        self._reserve.ordinary()
                    self._store(batch)
                    self._stored(batch)
                    batch = []
                self._rotate(last and not self._waiting)
                self.error = None
            except OSError as error:
                self._troubled(error, batch)
                if last:
                    break
            if self.totals is not None:
                self.totals.write(self.error)
            if last and not self._waiting:
                break
        if self.totals is not None:
            self.totals.write(self.error, last=True)
        self._leave()

    def _store(self, batch: list[Line]) -> None:
        if self._segment is None:
            self._segment = self._begun()
        elif self._torn:
            self._segment.undo()
        seal = None if self._seal is None else self._seal.copy()
        if seal is not None and self._chain is not None and not seal.lines:
            batch = [self._opened(self._chain.name), *batch]
        self._torn = True
        self._segment.append("".join(_text(line, seal) for line in batch).encode())
        self._torn = False
        # Until then the same lines may have to be sealed again.
        self._seal = seal

    # Numbers without a gap: a segment that is missing was taken away.
    def _begun(self) -> Segment:
        number = self._files + 1
        name = f"{self._role}-{self._inst:08d}-{self._began:013d}-{number:06d}"
        try:
            segment = Segment(self._folder, name)
        except FileExistsError:  # somebody else's; the next number may be free
            self._files = number
            raise
        self._files, self._segment_began = number, self._now()
        if self._chain is not None:
            self._seal = self._chain.segment(name, number)
        return segment

    # What a sealed segment begins with.
    def _opened(self, chain: str) -> Line:
        fields: dict[str, Field] = {"chain": chain, "lines": self._sealed}
        if self._seen:
            fields["notes"] = self._seen
        with self._lock:
            return self._framed("log-opened", fields, self._now())

    def _stored(self, batch: list[Line]) -> None:
        with self._lock:
            self._done += len(batch)
            if not self._waiting:
                self._done += self._early
                self._early = 0
            if self._lost:
                clean, _ = check("log-lost", {"count": self._lost})
                self._lost = 0
                self._put("log-lost", clean or {}, self._now())
            told = [sync for sync in self._syncs if sync[0] <= self._done]
            self._syncs = [sync for sync in self._syncs if sync[0] > self._done]
        _tell(told, None)
        said, names = self._expiring
        if names and self._done >= said:
            self._expiring = 0, []
            for name in names:
                try:
                    (self._folder / f"{name}{CLOSED}").unlink(missing_ok=True)
                except OSError as error:
                    # The batch is on disk. It is due again when the next segment is closed.
                    log.warning("an old audit segment is not deleted: %s", error)

    def _expire(self) -> None:
        if self._expiring[1]:
            return
        try:
            names = self._retention.due(self._folder, self._role, self._now())
        except OSError as error:
            log.warning("no old audit record is deleted: %s", error)
            return
        if names:
            with self._lock:
                before = self._lines
                self._put("log-expired", {"notes": names}, self._now())
                if self._lines > before:  # else too much waits, and nothing would say it
                    self._expiring = self._lines, names

    def _rotate(self, last: bool) -> None:
        segment = self._segment
        if segment is None:
            return
        # Also when the clock went back: readers take closed segments only.
        old = not 0 <= self._now() - self._segment_began < self._ms
        if last or old or segment.size >= self._bytes:
            segment.close()
            self._segment = None
            if self._seal is not None:
                self._sealed, self._seen = self._seal.lines, []
            if not last:
                self._expire()

    def _troubled(self, error: OSError, batch: list[Line]) -> None:
        if self.error is None:
            log.error("the audit log cannot be written: %s", error.strerror or error)
        self.error = error.strerror or str(error)
        with self._lock:
            self._waiting.extendleft(reversed(batch))
        self._store_urgent()
        with self._lock:
            self._wake.wait_for(lambda: self._closing, RETRY_S)

    def _store_urgent(self) -> None:
        """Writes what must not wait until there is space again."""
        if self._reserve is None:
            return
        with self._lock:
            urgent = [line for line in self._waiting if line["event"] in URGENT]
            if urgent:
                self._waiting = deque(ln for ln in self._waiting if ln["event"] not in URGENT)
        if not urgent:
            return
        self._reserve.urgent()
        try:
            self._store(urgent)
        except OSError:
            with self._lock:
                self._waiting.extendleft(reversed(urgent))
            return
        with self._lock:
            self._early += len(urgent)

    def _leave(self) -> None:
        if self._segment is not None:
            self._segment.abandon()
        if self._waiting or self._lost:
            count = len(self._waiting) + self._lost
            log.error("%d audit records are lost: %s", count, self.error)
        with self._lock:
            told, self._syncs = self._syncs, []
        _tell(told, AuditError("the audit log ended before the record was on disk"))


# ASCII: readers may split at line separators of Unicode, and terminals obey control characters.
def _text(line: Line, seal: SegmentSeal | None) -> str:
    if seal is None:
        return json.dumps(line, separators=(",", ":")) + "\n"
    body = json.dumps({**line, "line": seal.lines + 1}, separators=(",", ":"))
    return f'{body[:-1]},"mac":"{seal.of(body.encode())}"}}\n'


def _unused(folder: Path, stem: str, began: int) -> int:
    """A start time that no segment of the folder has: names and ids rest on it, and clocks jump."""
    while any(folder.glob(f"{stem}-{began:013d}-*")):
        began += 1
    return began


def _tell(syncs: list[Sync], error: AuditError | None) -> None:
    for _, loop, future in syncs:
        try:
            loop.call_soon_threadsafe(_resolve, future, error)
        except RuntimeError:  # the loop has ended; nobody waits any more
            continue


def _resolve(future: asyncio.Future[None], error: AuditError | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(None)
    else:
        future.set_exception(error)
