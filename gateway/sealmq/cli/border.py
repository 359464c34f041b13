"""`sealmq border list`: what is opened at this site's edge and sealed again, and how that fares."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sealmq.site.layout import Layout
    from sealmq.site.model import Border

_EXAMPLES = """\
examples:
  sealmq border list north
  sealmq border list north --json | jq '.borders[] | select(.declassify) | .name'

A border opens what is published under one label, on topics that its table lists, and publishes it
again under another one, for readers at another site that have no key of the first:

  [borders.outlet]
  from = "machine"                     a label that no peer has
  to = "shared"                        one that is exported
  topics = ["machine/1/temperature"]
  declassify = true                    said where readers come in who could not read it before

The other way round, `from` is LABEL@PEER. What it publishes stands below border/NAME/. A table
counts from the next start on; without one, no border runs. BRIDGE.md tells more.
"""


def add(sub: argparse._SubParsersAction[Any]) -> None:
    """sealmq border list"""
    parser = sub.add_parser(
        "border",
        help="borders: messages that are opened and sealed again for readers of another label",
        description="Borders of a site, as sealmq.toml has them.",
        epilog=_EXAMPLES,
    )
    verbs = parser.add_subparsers(dest="verb", metavar="list", required=True, help="what to do")
    listing = verbs.add_parser(
        "list", help="list borders", description="List the borders.", epilog=_EXAMPLES
    )
    listing.add_argument("site", metavar="SITE", help="the site's folder")
    listing.add_argument("--json", action="store_true", help="as JSON, for scripts")


def run(args: argparse.Namespace) -> int:
    """List them."""
    from sealmq.site.layout import Layout

    from . import in_force
    from .tables import table

    layout = Layout.open(args.site)
    config = in_force.policy(layout)
    rows = [_row(layout, border) for border in config.borders.values()]
    if args.json:
        print(json.dumps({"site": config.site.name, "borders": rows}))
    elif not rows:
        print("no borders; sealmq border --help")
    else:
        titles = (
            "NAME",
            "FROM",
            "TO",
            "DECLASSIFIES",
            "STATE",
            "SINCE",
            "WAITING",
            "DROPPED",
            "TOPICS",
        )
        for line in table(titles, [_cells(row) for row in rows]):
            print(line)
    return 0


def _row(layout: Layout, border: Border) -> dict[str, Any]:
    from sealmq.bridge import told
    from sealmq.site.layout import border_role

    return {
        "name": border.name,
        "from": border.label_in,
        "to": border.label_out,
        "topics": list(border.topics),
        "declassify": border.declassify,
        **told.line(layout, border.name, border_role(border.name)),
    }


def _cells(row: dict[str, Any]) -> list[str]:
    from .tables import moment_s

    return [
        row["name"],
        row["from"],
        row["to"],
        "yes" if row["declassify"] else "no",
        row["line"],
        moment_s(row["since"]),
        str(row["waiting"]),
        str(sum(row["dropped"].values())),
        " ".join(row["topics"]),
    ]
