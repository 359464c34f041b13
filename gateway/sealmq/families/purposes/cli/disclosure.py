"""Who got what, for which purpose, under which reservation: sums over the audit log's records.

What a data-protection officer asks (HivePBAC, section I, on Articles 5 and 15 of the GDPR). Counts
are by the minute, as they stand in the log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple

from sealmq.audit.counts import MINUTE_MS
from sealmq_spec.topics import matches

from ..texts import RELEASE, RESERVE

LOG_ITSELF = frozenset({"log-lost", "log-recovered", "start", "stop", "worker-ended"})
EVENTS = LOG_ITSELF | {"delivered", "command", "unenforced"}
# Rows, and reservations that are remembered: what bounds the memory.
MOST_ROWS = 100_000
MOST_FILTERS = 200_000
# Of one filter: as many as may count within one minute and a little more.
_VERSIONS = 16
# Topics of one row that are told by name.
TOPICS = 5


class TooMany(Exception):
    """More rows than fit; a narrower question is needed."""


class Made(NamedTuple):
    """Who made a reservation, and when (Unix ms). `by` "" is sealmq.toml, None is not known."""

    by: str | None
    at_ms: int | None


class Key(NamedTuple):
    """What a row is about. `topic` is "" unless rows are asked for by topic."""

    client: str
    purpose: str
    under: str
    made: Made
    topic: str


@dataclass
class Row:
    """Deliveries of one kind; the minutes of the first and of the last, Unix ms."""

    first_ms: int
    last_ms: int
    count: int = 0
    topics: set[str] = field(default_factory=set)
    """At most TOPICS + 1 of them: then there are more."""


def changed(record: Mapping[str, Any]) -> tuple[str, str]:
    """(RESERVE or RELEASE, filter) of a command that changed a reservation; else ("", "")."""
    verb = record.get("detail", "").partition(" ")[0]
    filter = record.get("topic", "")
    mine = record["family"] == "purposes" and "reason" not in record
    return (verb, filter) if mine and filter and verb in (RESERVE, RELEASE) else ("", "")


class Gaps:
    """What a log says of what it does not hold."""

    def __init__(self) -> None:
        self.lost = 0
        self.torn_bytes = 0
        self.killed = 0
        """Starts after a run that did not end by itself, and workers that did not: what they had
        counted in their last minute was not written down."""
        self._runs = False

    def log_itself(self, event: str, record: Mapping[str, Any], counts: bool) -> None:
        """A record of LOG_ITSELF; counts: of the time that is asked for."""
        if event in ("start", "stop"):
            self.killed += event == "start" and self._runs and counts
            self._runs = event == "start"
        elif event == "worker-ended":
            self.killed += counts
        elif event == "log-lost":
            self.lost += record["count"] if counts else 0
        else:
            self.torn_bytes += record["dropped_bytes"] if counts else 0


class Disclosure(Gaps):
    """Fed with records in the order in which they were written; then `rows`.

    since, until: Unix ms; a minute counts if it overlaps. holds: who had made the reservation of a
    filter by then, as sealmq.toml and the store say, for what the log no longer holds.
    """

    def __init__(
        self,
        filter: str,
        since_ms: int,
        until_ms: int,
        holds: Callable[[str, int], Made],
        *,
        by_topic: bool = False,
    ) -> None:
        super().__init__()
        self.rows: dict[Key, Row] = {}
        self.unenforced = 0
        """Deliveries that policy denied, and `enforce = false` let through."""
        self.forgotten = 0
        """Reservations' changes that did not fit."""
        self._since, self._until, self._holds = since_ms, until_ms, holds
        self._by_topic = by_topic
        # filter -> (at, by) of those made and (at, None) of those taken away, oldest first.
        self._changes: dict[str, list[tuple[int, str | None]]] = {}
        self._about = lru_cache(maxsize=65536)(lambda topic: matches(filter, topic))

    def feed(self, records: Iterable[Mapping[str, Any]]) -> None:
        """Take them in. TooMany."""
        for record in records:
            at_ms = record["at_ms"]
            event = record["event"]
            if event == "delivered":
                self._delivered(record)
            elif event == "command":
                self._changed(record)
            elif event == "unenforced":
                if record["question"] == "deliver" and self._asked_for(record):
                    self.unenforced += record["count"]
            else:
                self.log_itself(event, record, self._since <= at_ms < self._until)

    def _asked_for(self, record: Mapping[str, Any]) -> bool:
        minute: int = record["minute_ms"]
        if minute + MINUTE_MS <= self._since or minute >= self._until:
            return False
        return self._about(record["topic"])

    def _delivered(self, record: Mapping[str, Any]) -> None:
        if not self._asked_for(record):
            return
        minute, topic = record["minute_ms"], record["topic"]
        under = record.get("under", "")
        made = self._made(under, minute + MINUTE_MS) if under else Made(None, None)
        by_topic = topic if self._by_topic else ""
        key = Key(record["client"], record.get("purpose", ""), under, made, by_topic)
        row = self.rows.get(key)
        if row is None:
            if len(self.rows) >= MOST_ROWS:
                raise TooMany
            row = self.rows[key] = Row(minute, minute)
        row.first_ms = min(row.first_ms, minute)
        row.last_ms = max(row.last_ms, minute)
        row.count += record["count"]
        if len(row.topics) <= TOPICS:
            row.topics.add(topic)

    def _changed(self, record: Mapping[str, Any]) -> None:
        """A reservation that was made or taken away."""
        verb, filter = changed(record)
        if not verb:
            return
        changes = self._changes.get(filter)
        if changes is None:
            if len(self._changes) >= MOST_FILTERS:
                self.forgotten += 1
                return
            changes = self._changes[filter] = []
        changes.append((record["at_ms"], record["client"] if verb == RESERVE else None))
        del changes[:-_VERSIONS]

    def _made(self, filter: str, before_ms: int) -> Made:
        """The newest reservation of the filter that was made before then.

        One that was taken away within that minute counts still: something was delivered under it.
        """
        for at_ms, by in reversed(self._changes.get(filter, ())):
            if at_ms >= before_ms:
                continue
            if by is not None:
                return Made(by, at_ms)
            if at_ms < before_ms - MINUTE_MS:
                break  # taken away before: then it is another's
        return self._holds(filter, before_ms)
