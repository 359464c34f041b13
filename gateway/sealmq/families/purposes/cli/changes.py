"""How reservations changed, and what was delivered and withheld from each change to the next.

The mediator writes the record of a change when it is stored, and in the same step it takes
effect: every delivery that is decided after the record is judged by it. What was counted of its
topics until then it writes down before it (`parted`), so its place in the log tells before from
after, message by message. In logs of earlier versions only minutes tell; what lies in the minute of
the change is `unsure`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from sealmq_spec.topics import matches

from .disclosure import LOG_ITSELF, Gaps, TooMany, changed

CHANGES = frozenset({"command"})
COUNTED = LOG_ITSELF | {"command", "delivered", "deliver-denied"}
# Of all reservations together: what bounds the memory.
MOST_CHANGES = 100_000
_RULES = "purposes."


@dataclass
class Counted:
    """Messages, each counted once for each reader. under: of those delivered, what the filter's own
    reservation allowed, and not another one. withheld: for want of an allowed purpose."""

    delivered: int = 0
    under: int = 0
    withheld: int = 0


@dataclass
class Change:
    """One change of a filter's reservation. at_ms: when it was stored and in force.

    until_ms: the filter's next change, None while it holds. before: from the change before, or the
    log's begin, to this one; since: from this one to the next; unsure: in the minute of this
    change, in a log that does not tell whether before or after.
    """

    at_ms: int
    verb: str
    filter: str
    by: str
    rule: str
    detail: str
    parted: bool
    before: Counted
    since: Counted
    unsure: Counted
    until_ms: int | None = None


class History(Gaps):
    """Of the reservations that `wanted` says; `changes` oldest first.

    First fed with the log's changes, then with all that is counted, each in the log's order.
    """

    def __init__(self) -> None:
        super().__init__()
        self.changes: list[Change] = []
        # Filter -> its changes, and how many of them counting has passed.
        self._of: dict[str, list[Change]] = {}
        self._passed: dict[str, int] = {}

    def found(self, records: Iterable[Mapping[str, Any]], wanted: Callable[[str], bool]) -> None:
        """Take in the changes. wanted: filter -> whether it is asked for. TooMany."""
        for record in records:
            verb, filter = changed(record)
            if not verb or not wanted(filter):
                continue
            if len(self.changes) >= MOST_CHANGES:
                raise TooMany
            mine = self._of.setdefault(filter, [])
            since = Counted()
            before = mine[-1].since if mine else Counted()
            change = Change(
                record["at_ms"],
                verb,
                filter,
                record["client"],
                record.get("rule", ""),
                record["detail"].partition(" ")[2],
                bool(record.get("parted")),
                before,
                since,
                Counted(),
            )
            if mine:
                mine[-1].until_ms = change.at_ms
            mine.append(change)
            self.changes.append(change)

    def count(self, records: Iterable[Mapping[str, Any]], about: Callable[[str], bool]) -> None:
        """Take in what was counted. about: topic -> whether it is asked for."""

        @lru_cache(maxsize=65536)
        def filters(topic: str) -> tuple[str, ...]:
            return tuple(f for f in self._of if about(topic) and matches(f, topic))

        for record in records:
            event = record["event"]
            if event in LOG_ITSELF:
                self.log_itself(event, record, True)
            elif event == "command":
                filter = changed(record)[1]
                # What came after the first reading is not in it.
                if self._passed.get(filter, 0) < len(self._of.get(filter, ())):
                    self._passed[filter] = self._passed.get(filter, 0) + 1
            elif event == "delivered" or record["rule"].startswith(_RULES):
                for filter in filters(record["topic"]):
                    self._count(filter, event, record)

    def _count(self, filter: str, event: str, record: Mapping[str, Any]) -> None:
        passed = self._passed.get(filter, 0)
        to = self._of[filter][0].before
        if passed:
            last = self._of[filter][passed - 1]
            mixed = not last.parted and record["minute_ms"] < last.at_ms
            to = last.unsure if mixed else last.since
        if event == "delivered":
            to.delivered += record["count"]
            to.under += record["count"] if record.get("under") == filter else 0
        else:
            to.withheld += record["count"]
