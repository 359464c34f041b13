"""What `sealmq purposes report` prints: a table, JSON or CSV, and what the log does not know."""

from __future__ import annotations

import argparse
import csv
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sealmq.audit.reading import Log

    from .disclosure import Disclosure, Gaps, Key, Made, Row

FOREVER = 1 << 62
"""No `until`."""
# A spreadsheet takes what begins with these for a formula.
_FORMULA = ("=", "+", "-", "@", "\t", "\r")
_TITLES = ("CLIENT", "PURPOSE", "UNDER", "RESERVED BY", "AT", "TOPIC", "FIRST", "LAST", "MESSAGES")


def _sorted(found: Disclosure) -> list[tuple[Key, Row]]:
    def order(item: tuple[Key, Row]) -> tuple[Any, ...]:
        key, row = item
        return key.client, key.purpose, key.under, key.topic, row.first_ms, row.last_ms

    return sorted(found.rows.items(), key=order)


def _topics(key: Key, row: Row) -> str:
    from .disclosure import TOPICS

    if key.topic:
        return key.topic
    if len(row.topics) == 1:
        return next(iter(row.topics))
    return f"{len(row.topics)} topics" if len(row.topics) <= TOPICS else f"{TOPICS + 1} or more"


def _by(made: Made, under: str) -> str:
    if not under:
        return "-"
    if made.by is None:
        return "(not in the log)"
    return made.by or "sealmq.toml"


def lines(args: argparse.Namespace, since: int, until: int, found: Disclosure) -> list[str]:
    """For people: a table, and what it comes to."""
    from sealmq.cli.tables import minute, moment, table
    from sealmq.plain import plain

    upto = f" up to {minute(until)}" if until != FOREVER else ""
    about = f"{plain(args.topic)}, since {minute(since)}{upto}"
    # Whoever has just received something looks for it.
    later = "" if upto else "; the present minute is written down when it is over"
    if not found.rows:
        return [f"nobody got {about}{later}"]
    rows = _sorted(found)
    cells = [
        (
            key.client,
            key.purpose or "(none)",
            key.under or "(no reservation)",
            _by(key.made, key.under),
            moment(key.made.at_ms),
            _topics(key, row),
            minute(row.first_ms),
            minute(row.last_ms),
            str(row.count),
        )
        for key, row in rows
    ]
    total = sum(row.count for _, row in rows)
    clients = len({key.client for key, _ in rows})
    who = "one client" if clients == 1 else f"{clients} clients"
    messages = "one message" if total == 1 else f"{total} messages"
    return [f"who got {about}", "", *table(_TITLES, cells), "", f"{messages} to {who}{later}"]


def notes(since: int, found: Disclosure, log: Log) -> list[str]:
    """What somebody who relies on the report has to know."""
    said = gaps(found, log, since)
    if found.unenforced:
        said.append(
            f"{found.unenforced} deliveries were denied and went all the same, without a purpose: "
            "[policy] enforce = false"
        )
    if found.forgotten:
        said.append("too many reservations to say of each who made it")
    return said


def gaps(found: Gaps, log: Log, since: int = 0) -> list[str]:
    """What the log does not hold, from `since` on."""
    from sealmq.cli.tables import minute

    told = log.told
    said = []
    if told.files == 0:
        said.append("there is no audit log yet: the mediator has not run")
    elif log.begins_ms is not None and log.begins_ms > since + 60_000:
        said.append(f"the log begins at {minute(log.begins_ms)}; what was before is not in it")
    if told.unreadable:
        said.append(f"{told.unreadable} of {told.lines} lines cannot be read, and are left out")
    if found.lost:
        said.append(f"{found.lost} records were lost when they could not be written")
    if found.torn_bytes:
        said.append(f"{found.torn_bytes} bytes were torn off when the mediator was killed")
    if found.killed:
        times = "once" if found.killed == 1 else f"{found.killed} times"
        said.append(f"the mediator was killed {times}; what it had counted in that minute is gone")
    if told.vanished:
        said.append(f"{told.vanished} segments were taken away meanwhile")
    return said


def as_json(
    args: argparse.Namespace, since: int, until: int, found: Disclosure, log: Log
) -> dict[str, Any]:
    """For scripts."""
    return {
        "topic": args.topic,
        "since_ms": since,
        "until_ms": None if until == FOREVER else until,
        "rows": [
            {
                "client": key.client,
                "purpose": key.purpose,
                "under": key.under,
                "reserved_by": key.made.by,
                "reserved_at_ms": key.made.at_ms,
                "topics": [key.topic] if key.topic else sorted(row.topics),
                "first_ms": row.first_ms,
                "last_ms": row.last_ms,
                "count": row.count,
            }
            for key, row in _sorted(found)
        ],
        "lines": log.told.lines,
        "unreadable": log.told.unreadable,
        "notes": notes(since, found, log),
    }


def write_csv(found: Disclosure) -> None:
    """For a spreadsheet: ISO times, nothing that it could take for a formula, one line a row.

    What is not printable is escaped, also in a file: nobody reads it byte by byte.
    """
    from sealmq.cli.tables import utc
    from sealmq.plain import plain

    def iso(at_ms: int) -> str:
        return utc(at_ms, "%Y-%m-%dT%H:%M:%SZ")

    out = csv.writer(sys.stdout)
    out.writerow(title.lower().replace(" ", "_") for title in _TITLES)
    for key, row in _sorted(found):
        by = "" if key.made.by is None else key.made.by or "sealmq.toml"
        texts = (key.client, key.purpose, key.under, by if key.under else "")
        at = "" if key.made.at_ms is None else iso(key.made.at_ms)
        times = iso(row.first_ms), iso(row.last_ms)
        cells = (*texts, at, _topics(key, row), *times, str(row.count))
        shown = [plain(cell) for cell in cells]
        out.writerow(f"'{cell}" if cell.startswith(_FORMULA) else cell for cell in shown)
