"""`sealmq purposes report`: who got which data, for which purpose, under whose reservation.

It reads the mediator's audit log, closed segments and the whole lines of the open one.
"""

from __future__ import annotations

import argparse
import csv
import json
import re
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from .errors import OK, OperatorError, UsageError

if TYPE_CHECKING:
    from sealmq.audit.disclosure import Disclosure, Key, Made, Row
    from sealmq.audit.reading import Log, Told
    from sealmq.site.layout import Layout

_EXAMPLES = """\
examples:
  sealmq purposes report factory --topic 'machine/1/#' --since 24h
  sealmq purposes report factory --topic staff/badge --since 2026-01-01 --until 2026-02-01 --csv
  sealmq purposes report factory --topic '#' --since 7d --by-topic --json | jq '.rows[0]'

--since and --until take 90s, 30m, 24h, 7d, 2w (so long ago), a date, or a date and time (ISO 8601;
UTC unless it says otherwise). Deliveries are counted by the minute, and a minute is written down
when it is over: the present one is missing. UNDER is the reservation that allowed it, RESERVED BY
and AT who made that and when, as the log tells it.
"""

_AGO = re.compile(r"(\d{1,9})([smhdw])")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
# Shorter than this, nobody needs to see that it goes on.
_BAR_S = 2.0
# A spreadsheet takes what begins with these for a formula.
_FORMULA = ("=", "+", "-", "@", "\t", "\r")
_FOREVER = 1 << 62


def add(verbs: argparse._SubParsersAction[Any]) -> None:
    """sealmq purposes report SITE --topic FILTER --since T"""
    parser = verbs.add_parser(
        "report",
        help="who got which data, for which purpose, under which reservation",
        description="Report from the audit log who got data, for which purpose, under which "
        "reservation, when and how much.",
        epilog=_EXAMPLES,
    )
    parser.add_argument("site", metavar="SITE", help="the site's folder")
    parser.add_argument(
        "-t", "--topic", metavar="FILTER", required=True, help="the topic, or a filter of topics"
    )
    parser.add_argument("--since", metavar="TIME", required=True, help="from when on")
    parser.add_argument("--until", metavar="TIME", help="up to when (default: now)")
    parser.add_argument(
        "--by-topic", action="store_true", help="a row for each topic (default: topics together)"
    )
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="as JSON, for scripts")
    form.add_argument("--csv", action="store_true", help="as CSV, for a spreadsheet")


def run(args: argparse.Namespace) -> int:
    """Read, add up, print."""
    from sealmq.audit.disclosure import EVENTS, MOST_ROWS, Disclosure, TooMany
    from sealmq.audit.reading import Log
    from sealmq.site.layout import Layout

    from .purposes_view import checked_filter

    checked_filter(args.topic)
    now_ms = time.time_ns() // 1_000_000
    since, until = _moment(args.since, now_ms), _FOREVER
    if args.until is not None:
        until = _moment(args.until, now_ms)
    if since >= min(until, now_ms + 60_000):
        raise UsageError("the report's time is over before it begins", "--since before --until")
    layout = Layout.open(args.site)
    log = Log(layout.audit("mediator"), "mediator")
    found = Disclosure(args.topic, since, until, _holds(layout), by_topic=args.by_topic)
    try:
        with _bar(log.told) as progress:
            found.feed(log.records(EVENTS, progress))
    except TooMany:
        hint = "a narrower --topic, a shorter time" + (", no --by-topic" if args.by_topic else "")
        raise OperatorError(f"more than {MOST_ROWS} rows", hint=hint) from None
    if args.json:
        print(json.dumps(_as_json(args, since, until, found, log)))
        return OK
    if args.csv:
        _csv(found)
    else:
        for line in _lines(args, since, until, found):
            print(line)
    for note in _notes(since, found, log):
        print(f"sealmq: {note}", file=sys.stderr)
    return OK


def _moment(text: str, now_ms: int) -> int:
    """Unix ms. UsageError."""
    ago = _AGO.fullmatch(text)
    if ago is not None:
        return max(0, now_ms - int(ago[1]) * _SECONDS[ago[2]] * 1000)
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        right = "24h, 7d, 2026-01-31 or 2026-01-31T12:00"
        raise UsageError(f"{text!r} is no time", right) from None
    return max(0, int((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * 1000))


def _holds(layout: Layout) -> Callable[[str, int], Made]:
    """Who has made a filter's reservation, after sealmq.toml and the store, read when needed."""
    from sealmq.audit.disclosure import Made

    found: dict[str, Made] = {}
    site: set[str] = set()
    read = False

    def holds(filter: str, before_ms: int) -> Made:
        nonlocal read
        if not read:
            read = True
            _read_holds(layout, found, site)
        made = found.get(filter)
        if made is not None and made.at_ms is not None and made.at_ms < before_ms:
            return made
        return Made("", None) if filter in site else Made(None, None)

    return holds


def _read_holds(layout: Layout, found: dict[str, Made], site: set[str]) -> None:
    from sealmq.audit.disclosure import Made
    from sealmq.families.purposes.records import NAME, RESERVATION, origin
    from sealmq.families.records import FamilyRecord
    from sealmq.site.config import load
    from sealmq.store import Reader

    site.update(load(layout.config).families.get(NAME, {}).get("reserve", {}))
    if not layout.mediator_db.exists():
        return
    reader = Reader.open_readonly(layout.mediator_db)
    try:
        for record in reader.records():
            if isinstance(record, FamilyRecord) and record.family == NAME and record.value:
                if record.key.startswith(RESERVATION):
                    found[record.key.removeprefix(RESERVATION)] = Made(*origin(record.value))
    finally:
        reader.close()


@contextmanager
def _bar(told: Told) -> Iterator[Callable[[Told], None] | None]:
    """A bar on the terminal, once it takes longer than a moment."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

    begun = time.monotonic()
    task: TaskID | None = None
    bar = Progress(
        TextColumn("reading the audit log"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f} %"),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
    )

    def progress(told: Told) -> None:
        nonlocal task
        if task is None and time.monotonic() - begun > _BAR_S:
            task = bar.add_task("", total=max(told.size, 1))
            bar.start()
        if task is not None:
            bar.update(task, completed=min(told.done, told.size))

    try:
        yield progress
    finally:
        if task is not None:
            bar.stop()


# --- what is printed ----------------------------------------------------------------------------

_TITLES = ("CLIENT", "PURPOSE", "UNDER", "RESERVED BY", "AT", "TOPIC", "FIRST", "LAST", "MESSAGES")


def _sorted(found: Disclosure) -> list[tuple[Key, Row]]:
    def order(item: tuple[Key, Row]) -> tuple[Any, ...]:
        key, row = item
        return key.client, key.purpose, key.under, key.topic, row.first_ms, row.last_ms

    return sorted(found.rows.items(), key=order)


def _topics(key: Key, row: Row) -> str:
    from sealmq.audit.disclosure import TOPICS

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


def _lines(args: argparse.Namespace, since: int, until: int, found: Disclosure) -> list[str]:
    from .policy_view import plain
    from .tables import minute, moment, table

    upto = f" up to {minute(until)}" if until != _FOREVER else ""
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


def _notes(since: int, found: Disclosure, log: Log) -> list[str]:
    """What somebody who relies on the report has to know."""
    from .tables import minute

    told = log.told
    notes = []
    if told.files == 0:
        notes.append("there is no audit log yet: the mediator has not run")
    elif log.begins_ms is not None and log.begins_ms > since + 60_000:
        notes.append(f"the log begins at {minute(log.begins_ms)}; what was before is not in it")
    if told.unreadable:
        notes.append(f"{told.unreadable} of {told.lines} lines cannot be read, and are left out")
    if found.lost:
        notes.append(f"{found.lost} records were lost when they could not be written")
    if found.torn_bytes:
        notes.append(f"{found.torn_bytes} bytes were torn off when the mediator was killed")
    if found.killed:
        times = "once" if found.killed == 1 else f"{found.killed} times"
        notes.append(f"the mediator was killed {times}; what it had counted in that minute is gone")
    if found.unenforced:
        notes.append(
            f"{found.unenforced} deliveries were denied and went all the same, without a purpose: "
            "[policy] enforce = false"
        )
    if told.vanished:
        notes.append(f"{told.vanished} segments were taken away meanwhile")
    if found.forgotten:
        notes.append("too many reservations to say of each who made it")
    return notes


def _as_json(
    args: argparse.Namespace, since: int, until: int, found: Disclosure, log: Log
) -> dict[str, Any]:
    return {
        "topic": args.topic,
        "since_ms": since,
        "until_ms": None if until == _FOREVER else until,
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
        "notes": _notes(since, found, log),
    }


def _csv(found: Disclosure) -> None:
    """For a spreadsheet: ISO times, and nothing that it could take for a formula."""
    from .tables import utc

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
        out.writerow(f"'{cell}" if cell.startswith(_FORMULA) else cell for cell in cells)
