"""`sealmq system-users`: the system users that separate a site's processes; systemd's units."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

_SYSTEMD = Path(__file__).parents[1] / "systemd"
"""Where a wheel has the units."""
_TREE = Path(__file__).parents[2] / "systemd"
"""Where a checkout has them."""
_PROGRAM = "/opt/sealmq/bin/sealmq"
"""What they start, as they stand."""

_EXAMPLES = """\
examples:
  sudo sealmq system-users
  sudo sealmq system-users --units /etc/systemd/system
  sudo sealmq up /var/lib/sealmq/factory     runs each process as its own user from now on

Makes the users sealmq-kg, sealmq-mediator, sealmq-broker, sealmq-bridge, sealmq-border,
sealmq-metrics and sealmq-mdns, and the group sealmq of all but the broker and the last; what is
there already stays as it is. The users need to reach the site's folder and SealMQ's own: a site
below /root or a closed home will not do.
"""


def add(sub: argparse._SubParsersAction[Any]) -> None:
    """Add the parser."""
    parser = sub.add_parser(
        "system-users",
        help="make the system users that keep a site's processes apart (as root)",
        description="Make the system users that keep a site's processes apart (as root).",
        epilog=_EXAMPLES,
    )
    parser.add_argument(
        "--units",
        metavar="DIR",
        type=Path,
        help="write systemd's units for sites and agents there, too; they start this sealmq",
    )
    parser.add_argument("--json", action="store_true", help="say what was made as JSON")


def run(args: argparse.Namespace) -> int:
    """Make what is missing."""
    from sealmq.run import users

    made = users.create()
    units: list[str] = []
    if args.units is not None:
        for unit in sorted((_SYSTEMD if _SYSTEMD.is_dir() else _TREE).glob("*.service")):
            text = unit.read_text(encoding="utf-8").replace(_PROGRAM, str(_here()))
            (args.units / unit.name).write_text(text, encoding="utf-8")
            units.append(str(args.units / unit.name))
    if args.json:
        print(json.dumps({"made": made, "units": units}))
        return 0
    print("\n".join(f"made {what}" for what in made) if made else "all users are there already")
    for written in units:
        print(f"wrote {written}")
    if units:
        print("next      systemctl daemon-reload")
    return 0


def _here() -> Path:
    """The command of this virtualenv, whatever it was started by."""
    return Path(sys.prefix) / "bin" / "sealmq"
