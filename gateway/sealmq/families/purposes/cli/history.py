"""`sealmq purposes history`: how reservations changed, and what readers got before and after.

It reads the mediator's audit log, as `sealmq purposes report` does.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from typing import TYPE_CHECKING, Any

from sealmq.cli.errors import OK, OperatorError, UsageError

if TYPE_CHECKING:
    from .changes import Change, Counted

_EXAMPLES = """\
examples:
  sealmq purposes history factory                                all reservations, as they changed
  sealmq purposes history factory -t machine/1/temperature       those of one topic
  sealmq purposes history factory -t 'staff/#' --since 7d --json | jq '.changes[-1]'

AT is when a change was stored and in force, to the millisecond: every delivery that was decided
later was judged by it. LEAVE is the rule by which BY might change it. DELIVERED and WITHHELD count
messages to readers from that change to the filter's next one, BEFORE those delivered from the
change before it; a message to two readers counts twice. "3, 0 under it": another reservation
allowed them. What a client's connection had been handed before stays delivered. Counts of the
present minute are written down when it is over. --since and --until choose changes, and take what
`sealmq purposes report` takes.
"""

_TITLES = ("AT", "CHANGE", "FILTER", "FOR", "BY", "LEAVE", "BEFORE", "DELIVERED", "WITHHELD")


def add(verbs: argparse._SubParsersAction[Any]) -> None:
    """sealmq purposes history SITE"""
    parser = verbs.add_parser(
        "history",
        help="when reservations changed, by whom, and what was delivered and withheld since",
        description="Prove from the audit log when a reservation was made or withdrawn, by whose "
        "leave, and what readers got before and after.",
        epilog=_EXAMPLES,
    )
    parser.add_argument("site", metavar="SITE", help="the site's folder")
    parser.add_argument(
        "-t", "--topic", metavar="FILTER", default="#", help="a topic, or a filter (default: all)"
    )
    parser.add_argument("--since", metavar="TIME", help="changes from when on (default: all)")
    parser.add_argument("--until", metavar="TIME", help="changes up to when (default: now)")
    parser.add_argument("--json", action="store_true", help="as JSON, for scripts")


def run(args: argparse.Namespace) -> int:
    """Read twice, first the changes, then what was counted; print."""
    from functools import partial

    from sealmq.audit.reading import Log
    from sealmq.cli.tables import moment_of
    from sealmq.site.layout import Layout
    from sealmq_spec.topics import matches

    from ...filters import crosses
    from .changes import CHANGES, COUNTED, History
    from .disclosure import TooMany
    from .report import progress_bar
    from .told import FOREVER, gaps
    from .view import checked_filter

    checked_filter(args.topic)
    now_ms = time.time_ns() // 1_000_000
    since = 0 if args.since is None else moment_of(args.since, now_ms)
    until = FOREVER if args.until is None else moment_of(args.until, now_ms)
    if since >= until:
        raise UsageError("the time is over before it begins", "--since before --until")
    folder = Layout.open(args.site).audit("mediator")
    history = History()
    try:
        history.found(Log(folder, "mediator").records(CHANGES), partial(crosses, args.topic))
    except TooMany:
        raise OperatorError("too many changes", hint="a narrower --topic") from None
    log = Log(folder, "mediator")
    with progress_bar(log.told) as progress:
        history.count(log.records(COUNTED, progress), partial(matches, args.topic))
    chosen = [change for change in history.changes if since <= change.at_ms < until]
    notes = gaps(history, log)
    if log.told.files:
        notes.append("what sealmq.toml reserves changes with that file, and is not listed here")
    if args.json:
        found = {
            "topic": args.topic,
            "log_begins_ms": log.begins_ms,
            "changes": [_as_json(change) for change in chosen],
            "notes": notes,
        }
        print(json.dumps(found))
        return OK
    for line in _lines(args.topic, chosen):
        print(line)
    for note in notes:
        print(f"sealmq: {note}", file=sys.stderr)
    return OK


def _lines(topic: str, chosen: list[Change]) -> list[str]:
    from sealmq.cli.tables import table
    from sealmq.plain import plain

    if not chosen:
        return [f"no reservation of {plain(topic)} was changed by a command in that time"]
    said = table(_TITLES, [_cells(change) for change in chosen])
    unsure = sum(c.unsure.delivered + c.unsure.withheld for c in chosen)
    if unsure:
        said += [
            "",
            f"{unsure} messages lie in the minute of a change; this log, of an earlier version, "
            "does not tell whether before or after it: --json has them",
        ]
    return said


def _cells(change: Change) -> tuple[str, ...]:
    return (
        _at(change.at_ms),
        change.verb,
        change.filter,
        change.detail or "nothing",
        change.by,
        change.rule,
        _delivered(change.before),
        _delivered(change.since),
        str(change.since.withheld),
    )


def _delivered(of: Counted) -> str:
    return str(of.delivered) if of.under == of.delivered else f"{of.delivered}, {of.under} under it"


def _at(at_ms: int) -> str:
    from sealmq.cli.tables import utc

    return f"{utc(at_ms, '%Y-%m-%d %H:%M:%S')}.{at_ms % 1000:03}Z"


def _as_json(change: Change) -> dict[str, Any]:
    def counted(of: Counted) -> dict[str, int]:
        return {"delivered": of.delivered, "under": of.under, "withheld": of.withheld}

    return {
        "at_ms": change.at_ms,
        "until_ms": change.until_ms,
        "change": change.verb,
        "filter": change.filter,
        "detail": change.detail,
        "by": change.by,
        "rule": change.rule,
        "before": counted(change.before),
        "since": counted(change.since),
        "unsure": counted(change.unsure),
    }
