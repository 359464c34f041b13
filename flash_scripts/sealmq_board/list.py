"""`sealmq board list`: what is plugged in, by USB serial number."""

from __future__ import annotations

import argparse
import json
import os
import sys

from .cli import alone
from .ports import Found, found

HELP = "the boards that are plugged in, by USB serial number"
EXAMPLES = """\
examples:
  sealmq board list
  sealmq board list --json | jq -r '.[].board'

The id goes to --board. A board without one is named by --port, best as /dev/serial/by-path/...
Virtual boards are not shown: they are named by the port that `sealmq vboard run` prints.
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Its arguments."""
    parser.add_argument("--json", action="store_true", help="a list of objects")


def run(args: argparse.Namespace) -> int:
    """Print them."""
    boards = found()
    if args.json:
        print(json.dumps([_as_json(each) for each in boards]))
        return 0
    if not boards:
        print("no board is plugged in (a cable that only charges shows nothing)", file=sys.stderr)
        return 0
    for each in boards:
        print(f"{each.serial or '(no id)'}  {each.port}  {each.name}")
        for word in (each.by_id, each.chip and f"chip: {each.chip}", _closed(each)):
            if word:
                print(f"    {word}")
    return 0


def _as_json(each: Found) -> dict[str, str]:
    return {
        "board": each.serial,
        "port": each.port,
        "by_id": each.by_id,
        "usb": each.usb,
        "name": each.name,
        "chip": each.chip,
    }


def _closed(each: Found) -> str:
    if os.access(each.port, os.R_OK | os.W_OK):
        return ""
    return "may not be opened by you: sudo usermod -aG dialout $USER, then log in again"


if __name__ == "__main__":
    alone(__spec__.name)
