"""`sealmq status SITE`: which processes run, and whether they really serve."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING, Any

from .errors import FAILED, OK

if TYPE_CHECKING:
    from sealmq.run.status import Status
    from sealmq.site.layout import Layout

_EXAMPLES = """\
examples:
  sealmq status factory
  sealmq status factory --json | jq -r '.processes[] | select(.ready | not) | .role'

Where sealmq.toml has a mistake, the site goes on by the policy that was taken over last, also when
one of its processes is started again; status says so, and shows that policy.
The exit code is 0 only when each part is ready: key generator, broker and mediator, and what
sealmq.toml has besides (bridge, borders, metrics, mDNS). The first three are asked by a connection
each: the broker has to answer an MQTT CONNECT, the others have to end one on which nothing comes,
so one that was stopped or hangs is not ready. A bridge is ready while a peer's line is down, which
is named, with since when: what is this site's own serves all the same.
"""


def add(sub: argparse._SubParsersAction[Any]) -> None:
    """Add the parser."""
    parser = sub.add_parser(
        "status",
        help="are key generator, broker and mediator ready?",
        description="Say whether key generator, broker and mediator are ready.",
        epilog=_EXAMPLES,
    )
    parser.add_argument("site", metavar="SITE", help="the site's folder")
    parser.add_argument("--json", action="store_true", help="print JSON, for scripts")


def run(args: argparse.Namespace) -> int:
    """Look, print, and tell by the exit code."""
    from sealmq.site.layout import Layout

    status = seen(Layout.open(args.site))
    if args.json:
        print(json.dumps(status.to_json()))
    else:
        _print(status)
    return OK if status.ready else FAILED


def seen(layout: Layout) -> Status:
    """The site, by the policy in force; with what is wrong with sealmq.toml."""
    from sealmq.run.status import look
    from sealmq.site.errors import ConfigError

    from . import in_force

    try:
        config, fault = in_force.policy_and_fault(layout)
    except ConfigError as error:
        return look(layout, None, f"{error}; {error.hint}" if error.hint else str(error))
    if fault is None:
        return look(layout, config)
    return look(layout, config, in_force.words(fault))


def _print(status: Any) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(title=f"site {status.site}", title_justify="left", box=None, pad_edge=False)
    for column in ("role", "ready", "pid", "address", "user", ""):
        table.add_column(column, overflow="fold")
    for process in status.processes:
        table.add_row(
            process.role,
            Text("yes", "green") if process.ready else Text("NO", "bold red"),
            "" if process.pid is None else str(process.pid),
            Text(process.address or ""),
            process.user or "",
            Text(process.note or ""),
        )
    console = Console(highlight=False, soft_wrap=True)
    console.print(table)
    if status.shared_user:
        console.print(
            "shared user: the processes run as one user and are not protected from one another",
            style="yellow",
        )
    if status.clients is not None:
        console.print(Text(f"clients connect to {status.clients}"))
    if status.astray is not None:
        console.print(Text(f"warning: {status.astray}", "yellow"))
    if status.enforce is False:
        console.print(
            "POLICY NOT ENFORCED: every denial is let through (enforce = false)", style="bold red"
        )
    for closed in filter(None, (process.closed for process in status.processes)):
        console.print(Text(f"THE SITE IS CLOSED: {closed}; see: sealmq reopen --help", "bold red"))
    if status.note:
        console.print(Text(status.note, "bold red"))
