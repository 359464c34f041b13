"""`sealmq policy check`: whether sealmq.toml is right, and what taking it over would change."""

from __future__ import annotations

import argparse
import json
from typing import Any

from .errors import OK

_EXAMPLES = """\
examples:
  sealmq policy check factory
  sealmq policy check factory --json | jq -r '.differences[].key'

`sealmq reload SITE` takes it over. Nothing is changed here.
"""
_CHECK_EXAMPLES = """\
examples:
  sealmq policy check factory
  sealmq policy check factory --json | jq -r '.labels_gone | keys[]'

What differs is told by key, against what was taken over last. Of a label that would be gone it is
told what hangs on it: topics that have learned it, and what else clients have made. Works whether
the site is up or down.

exit codes: 0 it is right; 1 it has a mistake, named with its line
"""


def add(sub: argparse._SubParsersAction[Any]) -> None:
    """sealmq policy check"""
    parser = sub.add_parser(
        "policy",
        help="check an edited sealmq.toml, and see what it would change",
        description="The policy in sealmq.toml.",
        epilog=_EXAMPLES,
    )
    verbs = parser.add_subparsers(dest="verb", metavar="check", required=True, help="what to do")
    checking = verbs.add_parser(
        "check",
        help="is sealmq.toml right, and what would it change",
        description="Check sealmq.toml; say what taking it over would change.",
        epilog=_CHECK_EXAMPLES,
    )
    checking.add_argument("site", metavar="SITE", help="the site's folder")
    checking.add_argument("--json", action="store_true", help="as JSON, for scripts")


def run(args: argparse.Namespace) -> int:
    """Check."""
    from sealmq.plain import plain
    from sealmq.site.config import load
    from sealmq.site.differences import differences
    from sealmq.site.layout import Layout

    from . import depends, in_force

    layout = Layout.open(args.site)
    config = load(layout.config)
    before = in_force.last(layout)
    found = [] if before is None else differences(before, config)
    gone = depends.labels_gone(layout, found)
    if args.json:
        rows = [{**row._asdict(), "at_next_start": row.at_next_start} for row in found]
        made = {name: one.to_json() for name, one in gone.items()}
        print(json.dumps({"differences": rows, "labels_gone": made}))
        return OK
    print("sealmq.toml has no mistake" + ("" if found else ", and nothing in it has changed"))
    for row in found:
        print(plain(row.words()))
    for line in depends.words(gone):
        print(line)
    return OK
