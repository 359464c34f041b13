"""`sealmq backup SITE FILE`: all that decides, in one sealed file, while the site runs or not."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from . import in_force, keygen

_EXAMPLES = """\
examples:
  sealmq backup site /media/stick/site-$(date +%F).backup
  sealmq backup site /mnt/nas/site.backup --json | jq .bytes

One file (mode 0600): the key generator's keys, the mediator's labels of topics, reservations and
sessions, and sealmq.toml, each as of one moment. The site may run. All of it is sealed under the
key file, of which you keep a copy apart: without it nobody opens the backup, you neither. Nothing
is overwritten. What is decided later is not in it: make one after each change that must not be
lost, at least every night.
"""


def add(sub: argparse._SubParsersAction[Any]) -> None:
    """sealmq backup SITE FILE"""
    parser = sub.add_parser(
        "backup",
        help="a whole site into one sealed file",
        description="Write a backup of a site.",
        epilog=_EXAMPLES,
    )
    parser.add_argument("site", metavar="SITE", help="the site's folder")
    parser.add_argument("file", metavar="FILE", help="the backup, a new file")
    keygen.add_key_file(parser)
    parser.add_argument("--json", action="store_true", help="say what was done as JSON")


def run(args: argparse.Namespace) -> int:
    """Write it."""
    from sealmq.backup.make import backup
    from sealmq.site import masterkey
    from sealmq.site.layout import Layout, give_back

    layout = Layout.open(args.site)
    config = in_force.policy(layout)
    key_file = masterkey.find(config, layout.root, keygen.key_file(args))
    file = Path(args.file).absolute()
    try:
        made = backup(layout, config.site.id, key_file, file)
    finally:
        give_back(layout)
    if args.json:
        print(json.dumps({"file": str(file), "bytes": made.size, "mediator": made.whole}))
        return 0
    print(f"backup (sealed, mode 0600): {file}")
    print(f"it opens with the site's key file; keep a copy of {key_file} apart from it")
    if not made.whole:
        print("note: the mediator has no store yet, so no labels or reservations are in it")
    return 0
