"""`sealmq owners confirm SITE`, by the operator: what a backup has put back and nobody confirmed.

It writes into the store of a site that is stopped, so that nobody has judged by the rows meanwhile.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator
from typing import Any

from sealmq.cli.errors import OK, OperatorError, UsageError
from sealmq.cli.tables import moment, table
from sealmq.plain import plain
from sealmq.run.lock import stopped
from sealmq.site.layout import Layout, give_back
from sealmq.store import Reader
from sealmq.store.database import rewrite

from ...records import FamilyRecord as Row
from .. import records as rows
from .shown import in_words

_TITLES = ("ID", "WHO", "WHAT", "SUSPENDED SINCE")


def run(args: argparse.Namespace) -> int:
    """Show what waits, or confirm it."""
    layout = Layout.open(args.site)
    if not layout.mediator_db.exists():
        raise OperatorError("the site has no store yet", hint=f"sealmq up {args.site}")
    if args.all and (args.id or args.by):
        raise UsageError("--all with --id or --by", "all is all; leave the others out")
    if not (args.all or args.id or args.by):
        reader = Reader.open_readonly(layout.mediator_db)
        try:
            waits = [_said(row) for row in _suspended(reader.rows)]
        finally:
            reader.close()
        return _show(args, "waiting", waits)
    done: list[dict[str, Any]] = []

    def change(held: Callable[[str], list[Row]]) -> Iterator[Row]:
        now_ms = time.time_ns() // 1_000_000
        chosen = [row for row in _suspended(held) if _is_chosen(args, _said(row))]
        done.extend(map(_said, chosen))
        missing = sorted(set(args.id) - {one["id"] for one in done})
        if missing:
            raise OperatorError(
                plain(f"nothing of the id {missing[0]} waits; nothing was changed"),
                hint=f"sealmq owners confirm {args.site}",
            )
        return (found for row in chosen if (found := rows.confirmed(row, now_ms)))

    with stopped(layout.root, layout.run, args.site):
        try:
            rewrite(layout.mediator_db, change)
        finally:
            give_back(layout)
    return _show(args, "confirmed", done)


def _suspended(held: Callable[[str], list[Row]]) -> Iterator[Row]:
    return (row for row in held(rows.NAME) if rows.is_open(rows.spans(row.value or b"")))


def _is_chosen(args: argparse.Namespace, said: dict[str, Any]) -> bool:
    return args.all or said["id"] in args.id or (bool(args.by) and said["by"] == args.by)


def _said(record: Row) -> dict[str, Any]:
    """id: of a signed contract its address."""
    kind, rest = record.key[:2], record.key[2:]
    row = rows.decoded(record.value or b"")
    since = row["suspended"][-1][0]
    if kind == rows.ASSERTION:
        by, id, what = row["authorizer"], rest, in_words(row)
    elif kind == rows.TYPE:
        by, id, what = row["by"], rest, f"the event type of {row['topic']}"
    else:
        by, id = rest.partition("/")[0], row["address"]
        what = "has signed this contract"
    return {"id": id, "by": by, "what": what, "since_ms": since}


def _show(args: argparse.Namespace, word: str, found: list[dict[str, Any]]) -> int:
    if args.json:
        print(json.dumps({word: found}))
        return OK
    if word == "confirmed":
        for one in found:
            print(plain(f"{one['id']}: confirmed, {one['what']}"))
    cells = [(one["id"], one["by"], one["what"], moment(one["since_ms"])) for one in found]
    if not found:
        print("nothing waits to be confirmed" if word == "waiting" else "nothing of these waits")
    elif word == "waiting":
        for line in table(_TITLES, cells):
            print(line)
    return OK
