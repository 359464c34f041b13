"""`sealmq purposes report`: who got which data, for which purpose, under whose reservation.

It reads the mediator's audit log, closed segments and the whole lines of the open one.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from sealmq.cli.errors import OK, OperatorError, UsageError

if TYPE_CHECKING:
    from sealmq.audit.reading import Told
    from sealmq.site.layout import Layout

    from .disclosure import Made

_EXAMPLES = """\
examples:
  sealmq purposes report factory --topic 'machine/1/#' --since 24h
  sealmq purposes report factory --topic staff/badge --since 2026-01-01 --until 2026-02-01 --csv
  sealmq purposes report factory --topic '#' --since 7d --by-topic --json | jq '.rows[0]'

--since and --until take 90s, 30m, 24h, 7d, 2w (so long ago), a date, or a date and time (ISO 8601;
UTC unless it says otherwise). Deliveries are counted by the minute, and a minute is written down
when it is over: the present one is missing. UNDER is the reservation that allowed it, RESERVED BY
and AT who made that and when, as the log tells it: of one that changed within a minute the newest.
A message that a client may have for several of its purposes counts once, for one of them.
"""

# Shorter than this, nobody needs to see that it goes on.
_BAR_S = 2.0


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
    from sealmq.audit.reading import Log
    from sealmq.cli.tables import moment_of
    from sealmq.site.layout import Layout

    from .disclosure import EVENTS, MOST_ROWS, Disclosure, TooMany
    from .told import FOREVER, as_json, lines, notes, write_csv
    from .view import checked_filter

    checked_filter(args.topic)
    now_ms = time.time_ns() // 1_000_000
    since, until = moment_of(args.since, now_ms), FOREVER
    if args.until is not None:
        until = moment_of(args.until, now_ms)
    if since >= min(until, now_ms + 60_000):
        raise UsageError("the report's time is over before it begins", "--since before --until")
    layout = Layout.open(args.site)
    log = Log(layout.audit("mediator"), "mediator")
    found = Disclosure(args.topic, since, until, _holds(layout), by_topic=args.by_topic)
    try:
        with progress_bar(log.told) as progress:
            found.feed(log.records(EVENTS, progress))
    except TooMany:
        hint = "a narrower --topic, a shorter time" + (", no --by-topic" if args.by_topic else "")
        raise OperatorError(f"more than {MOST_ROWS} rows", hint=hint) from None
    if args.json:
        print(json.dumps(as_json(args, since, until, found, log)))
        return OK
    if args.csv:
        write_csv(found)
    else:
        for line in lines(args, since, until, found):
            print(line)
    for note in notes(since, found, log):
        print(f"sealmq: {note}", file=sys.stderr)
    return OK


def _holds(layout: Layout) -> Callable[[str, int], Made]:
    """Who has made a filter's reservation, after sealmq.toml and the store, read when needed."""
    from .disclosure import Made

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
    from sealmq.cli import in_force
    from sealmq.store import Reader

    from ...records import FamilyRecord
    from ..records import NAME, RESERVATION, origin
    from .disclosure import Made

    site.update(in_force.policy(layout).families.get(NAME, {}).get("reserve", {}))
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
def progress_bar(told: Told) -> Iterator[Callable[[Told], None] | None]:
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
