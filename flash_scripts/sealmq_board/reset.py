"""`sealmq board reset`: starts a board again."""

from __future__ import annotations

import argparse
import json

from .cli import alone
from .console import Console
from .ports import add_patience, add_selectors, chosen

HELP = "start boards again"
EXAMPLES = """\
examples:
  sealmq board reset --board 0001
  sealmq board reset --board 0001 --board 0002 --soft      MicroPython alone, Wi-Fi stays up

MicroPython is told to; where it does not answer, the reset pin is pulled, if the port has one, and
else its next wake is waited for. It is said to start again when it does.
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Its arguments."""
    add_selectors(parser, several="again for each further board")
    add_patience(parser)
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--hard", action="store_true", help="the chip; this is the default")
    how.add_argument("--soft", action="store_true", help="MicroPython alone")
    parser.add_argument("--json", action="store_true", help="one object a board")


def run(args: argparse.Namespace) -> int:
    """One after the other."""
    for port in chosen(args):
        with Console(port) as console:
            console.restart(soft=args.soft)
        if args.json:
            print(json.dumps({"board": port.name, "outcome": "starts"}), flush=True)
        else:
            print(f"{port.name}: starts again")
    return 0


if __name__ == "__main__":
    alone(__spec__.name)
