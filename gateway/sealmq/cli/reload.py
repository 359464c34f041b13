"""`sealmq reload SITE`: a running site takes over sealmq.toml as it stands now."""

from __future__ import annotations

import argparse
import asyncio
import json
from typing import TYPE_CHECKING, Any

from . import settled
from .errors import OK, OperatorError

if TYPE_CHECKING:
    from sealmq.kglink import Applied
    from sealmq.site.layout import Layout

_EXAMPLES = """\
examples:
  sealmq reload factory
  sealmq reload factory --json | jq -r '.differences[].key'

After an edit of sealmq.toml by hand: says what has changed since it was read last, by key, or why
the file is refused; then what was in force stays in force as a whole. Comes back when key generator
and mediator have taken it over. SIGHUP to `sealmq up` (`systemctl reload`) does the same, and says
what came of it in the log. Commands that edit sealmq.toml need no reload.

exit codes: 0 taken over; 1 refused, or the site is not up; 27 taken over, but the mediator has not
confirmed it in time
"""
_TAKEN_OVER_S = 30.0


def add(sub: argparse._SubParsersAction[Any]) -> None:
    """Add the parser."""
    parser = sub.add_parser(
        "reload",
        help="take over an edited sealmq.toml, and say what changed",
        description="Take over an edited sealmq.toml, and say what changed.",
        epilog=_EXAMPLES,
    )
    parser.add_argument("site", metavar="SITE", help="the folder of a site that is up")
    parser.add_argument("--json", action="store_true", help="print JSON, for scripts")


def run(args: argparse.Namespace) -> int:
    """Check, hand over, wait, tell."""
    from sealmq.kglink import KgError
    from sealmq.run import lock
    from sealmq.site.config import load
    from sealmq.site.errors import ConfigError
    from sealmq.site.layout import Layout

    layout = Layout.open(args.site)
    try:
        config = load(layout.config)
        if lock.supervisor(layout.up_lock) is None:
            raise OperatorError(
                f"{args.site} is not up; sealmq.toml has no mistake, and is read at the start",
                hint=f"sealmq up {args.site} --detach",
            )
        done = asyncio.run(_keys(layout))
    except (ConfigError, KgError) as error:
        raise OperatorError(
            f"sealmq.toml is not taken over: {error}; what was in force stays",
            hint=getattr(error, "hint", None),
        ) from None
    found = settled.settle(layout, _TAKEN_OVER_S, done.kseq, config.digest)
    _tell(done, layout, args)
    settled.check(found, "sealmq.toml is taken over", f"sealmq reload {args.site}")
    return OK


async def _keys(layout: Layout) -> Applied:
    from sealmq.kglink import KgClient

    async with await KgClient.connect(layout.kg_socket) as kg:
        return await kg.reload()


def _tell(done: Applied, layout: Layout, args: argparse.Namespace) -> None:
    from sealmq.plain import plain

    from . import depends, keygen

    gone = depends.labels_gone(layout, done.differences)
    if args.json:
        rows = [{**row._asdict(), "at_next_start": row.at_next_start} for row in done.differences]
        told = {"differences": rows, "labels_gone": {n: m.to_json() for n, m in gone.items()}}
        print(json.dumps(told | keygen.as_json(done)))
        return
    if not done.differences:
        print("nothing has changed in sealmq.toml since it was read last")
    for row in done.differences:
        print(plain(row.words()))
    for line in depends.words(gone):
        print(line)
    for client, label, why in done.left:
        print(f"{client} has left {label}: {why}")
    if done.epochs:
        keygen.say_epochs(done)
