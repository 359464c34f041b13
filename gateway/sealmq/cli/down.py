"""`sealmq down SITE`: end what `sealmq up` has started, and wait until it has ended."""

from __future__ import annotations

import argparse
import json
from typing import Any

_EXAMPLES = """\
examples:
  sealmq down factory

Ends the `sealmq up` of this site, wherever it was started, and comes back once all its processes
have ended and have written down what they keep. A site that is not up is down: exit code 0 again.
Where systemd has started it, `systemctl stop sealmq@factory` does the same.

exit codes: 0 it is down; 1 something still runs, or is somebody else's
"""


def add(sub: argparse._SubParsersAction[Any]) -> None:
    """Add the parser."""
    parser = sub.add_parser(
        "down",
        help="stop a site that is up",
        description="Stop a site that is up.",
        epilog=_EXAMPLES,
    )
    parser.add_argument("site", metavar="SITE", help="the site's folder")
    parser.add_argument("--json", action="store_true", help="say what was done as JSON")


def run(args: argparse.Namespace) -> int:
    """Stop it."""
    from sealmq.run.lock import stop
    from sealmq.site.layout import Layout

    layout = Layout.open(args.site)
    stopped = stop(layout.up_lock)
    if args.json:
        print(json.dumps({"site": args.site, "stopped": stopped}))
    else:
        print(f"{args.site} {'is down' if stopped else 'was not up'}")
    return 0
