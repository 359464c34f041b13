"""`python -m sealmq.demo`: exit code 0 when everything held, 1 when something did not (also a demo
that could not be played), 2 for a wrong command line, 130 after Ctrl-C.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from rich.console import Console

from . import broker, report
from .board import Board
from .errors import DemoError
from .live import Screen
from .places import REPO, Places
from .plain import Lines
from .play import Options, play

_EXAMPLES = """\
examples:
  python -m sealmq.demo                  what `make demo` runs
  python -m sealmq.demo --seconds 60     a longer look
  python -m sealmq.demo --keep           then: sealmq up build/demo/site
  python -m sealmq.demo --policy-off     has to end with exit code 1: the demo tests itself
"""


def main(argv: list[str] | None = None) -> int:
    """Play and judge."""
    args = _parser().parse_args(argv)
    kinds = broker.kinds()
    options = Options(args.seconds, not args.policy_off, args.broker or kinds[0], args.keep)
    places = Places(args.dir.absolute())
    console = Console(highlight=False)
    plain = args.plain or not console.is_terminal

    def show(text: str, at: float) -> None:
        if plain:
            print(f"{at:5.1f} s  {text}", flush=True)

    board = Board(show)
    try:
        told = asyncio.run(_run(places, options, board, None if plain else console))
    except DemoError as error:
        print(f"demo: {error}", file=sys.stderr)
        if error.hint:
            print(error.hint, file=sys.stderr)
        print(f"logs: {places.logs}", file=sys.stderr)
        return 1
    except (KeyboardInterrupt, asyncio.CancelledError):
        print("demo: interrupted; everything it started has ended", file=sys.stderr)
        return 130
    report.show(console, told, places.summary)
    return 0 if told["verdict"] == "pass" else 1


async def _run(
    places: Places, options: Options, board: Board, console: Console | None
) -> dict[str, Any]:
    async with _ended_by_sigterm():
        async with Lines(board) if console is None else Screen(board, console):
            return await play(places, options, board)


# SIGTERM and SIGHUP (a closed terminal) cancel the run as Ctrl-C does, so that it cleans up.
@contextlib.asynccontextmanager
async def _ended_by_sigterm() -> AsyncIterator[None]:
    task = asyncio.current_task()
    loop = asyncio.get_running_loop()
    if task is None:
        raise RuntimeError("runs in a task")
    for number in (signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, task.cancel)
    yield


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m sealmq.demo",
        description="A protected factory with MicroPython clients, attacked, and judged by its "
        "audit log and a capture at the broker.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument(
        "--seconds", type=_seconds, default=16.0, help="how long the factory works (default: 16)"
    )
    parser.add_argument("--plain", action="store_true", help="lines instead of a live display")
    parser.add_argument(
        "--keep", action="store_true", help="keep the site and the clients' secrets"
    )
    parser.add_argument(
        "--policy-off", action="store_true", help="[policy] enforce = false: it must fail then"
    )
    parser.add_argument(
        "--broker", choices=("mosquitto", "amqtt"), help="default: mosquitto if it is installed"
    )
    parser.add_argument(
        "--dir",
        type=Path,
        default=REPO / "build" / "demo",
        metavar="DIR",
        help="the demo's folder (default: build/demo), emptied first",
    )
    return parser


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= 3600:
        raise argparse.ArgumentTypeError(f"{text!r} is not 0 to 3600")
    return seconds


if __name__ == "__main__":
    os.umask(0o077)
    sys.exit(main())
