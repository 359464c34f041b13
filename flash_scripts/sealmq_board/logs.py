"""`sealmq board logs`: follows what a board prints. It is not reset, nor its program stopped."""

from __future__ import annotations

import argparse
import datetime
import json
import sys

from .cli import alone
from .console import Console
from .errors import BoardError, UsageError
from .ports import add_selectors, one

HELP = "follow what a board prints"
EXAMPLES = """\
examples:
  sealmq board logs --board 0001
  sealmq board logs --board 0001 --time --lines 20
  sealmq board logs --board 0001 --reset --until "published" --timeout 60    exit code 1: not seen

Ctrl-C ends it. The board goes on as it is, unless --reset starts it again first.
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Its arguments."""
    add_selectors(parser)
    parser.add_argument("--time", action="store_true", help="this host's time before each line")
    parser.add_argument("--lines", type=int, metavar="N", help="end after so many")
    parser.add_argument("--until", metavar="TEXT", help="end after a line that has it")
    parser.add_argument("--timeout", type=float, metavar="SECONDS", help="end after that time")
    parser.add_argument("--reset", action="store_true", help="start the board again first")
    parser.add_argument("--json", action="store_true", help="one object a line, with the time")


def run(args: argparse.Namespace) -> int:
    """Follow it."""
    for name in ("lines", "timeout"):
        if getattr(args, name) is not None and getattr(args, name) <= 0:
            raise UsageError(f"--{name} {getattr(args, name)}", "more than 0")
    port = one(args)
    shown = 0
    with Console(port) as console:
        if args.reset:
            console.restart()
        for line in console.lines(args.timeout):
            if not line:
                continue
            now = datetime.datetime.now(datetime.UTC)
            if args.json:
                at = now.isoformat(timespec="milliseconds").replace("+00:00", "Z")
                print(json.dumps({"board": port.name, "at": at, "line": line}), flush=True)
            else:
                stamp = now.astimezone().strftime("%H:%M:%S.%f")[:-3] + " " if args.time else ""
                print(stamp + line, flush=True)
            shown += 1
            if args.until is not None and args.until in line:
                return 0
            if args.lines is not None and shown >= args.lines:
                break
    if args.until is not None:
        raise BoardError(f"{port.name}: {args.until!r} did not come in {shown} lines")
    if not shown:
        print(
            f"sealmq board: {port.name}: it said nothing\n"
            "hint: is it switched on? --reset starts it again",
            file=sys.stderr,
        )
    sys.stdout.flush()
    return 0


if __name__ == "__main__":
    alone(__spec__.name)
