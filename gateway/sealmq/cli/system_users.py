"""`sealmq system-users`: the system users that separate the processes of a site."""

from __future__ import annotations

import argparse
from typing import Any

_EXAMPLES = """\
examples:
  sudo sealmq system-users
  sudo sealmq up /var/lib/sealmq/factory     runs each process as its own user from now on

Makes the users sealmq-kg, sealmq-mediator, sealmq-broker, sealmq-bridge and sealmq-border, and the
group sealmq of all but the broker; what is there already stays as it is. The users need to reach
the site's folder and SealMQ's own: a site below /root or a closed home will not do.
"""


def add(sub: argparse._SubParsersAction[Any]) -> None:
    """Add the parser."""
    sub.add_parser(
        "system-users",
        help="make the system users that keep a site's processes apart (as root)",
        epilog=_EXAMPLES,
    )


def run(args: argparse.Namespace) -> int:
    """Make what is missing."""
    from sealmq.run import users

    made = users.create()
    print("\n".join(f"made {what}" for what in made) if made else "all users are there already")
    return 0
