"""`sealmq board update`: another client, on trial until it has had a session with the mediator."""

from __future__ import annotations

import argparse
import concurrent.futures
import json
import sys
import threading
import time
from pathlib import Path
from typing import Any

from . import client_files
from .cli import alone
from .console import Console
from .enrolment import MDNS
from .errors import BoardError, UsageError, words
from .mpremote_run import first, stop, stopped, work
from .on_it import into_slot, look
from .ports import Port, add_patience, add_selectors, chosen, found, patience

HELP = "bring a newer client to boards, on trial until it has had a session"
EXAMPLES = """\
examples:
  sealmq board update --board 0001
  sealmq board update --board 0001 --board 0002 --set everything
  sealmq board update --all                    every board that is plugged in

The new files go to the place that is not in use and are checked there. The board starts with them,
and keeps them once they have had a session with the mediator; if they have none in --tries starts
of --wait seconds, it goes back to the old ones. Cut off at any moment, run it again.
exit codes: 0 kept (or had already), 1 failed before the trial, 3 rolled back, 4 not known yet
"""
ROLLED_BACK = 3
UNKNOWN = 4
# Between two starts of a trial: what main.py waits, starting, imports.
_BETWEEN_S = 20
_lock = threading.Lock()


def arguments(parser: argparse.ArgumentParser) -> None:
    """Its arguments."""
    add_selectors(parser, several="again for each further board")
    add_patience(parser)
    parser.add_argument("--all", action="store_true", help="every board that is plugged in")
    parser.add_argument(
        "--set",
        default="everything",
        help="which of the client's sets of modules; default: everything",
    )
    parser.add_argument(
        "--files", metavar="DIR", help="the folder of these sets, in place of those that came along"
    )
    parser.add_argument(
        "--tries",
        type=int,
        default=3,
        help="how many starts it has to reach the mediator; default: 3",
    )
    parser.add_argument(
        "--wait",
        type=int,
        default=180,
        metavar="SECONDS",
        help="how long each of them may take; default: 180",
    )
    parser.add_argument("--no-watch", action="store_true", help="do not wait for how it ends")
    parser.add_argument("--json", action="store_true", help="one object a board")


def run(args: argparse.Namespace) -> int:
    """All boards at once; the worst of their exit codes."""
    if not 1 <= args.tries <= 20 or not 5 <= args.wait <= 3600:
        raise UsageError("--tries 1 to 20, --wait 5 to 3600")
    ports = _ports(args)
    with concurrent.futures.ThreadPoolExecutor(len(ports)) as pool:
        try:
            results = list(pool.map(lambda port: _one(port, args), ports))
        except BaseException:
            # Ctrl-C: what a board has begun it goes on with; we only stop looking.
            stop()
            _show(
                "hint: a board that was being written to stands still now: run it again, "
                "or `sealmq board reset`"
            )
            raise
    for result in results:
        if args.json:
            print(json.dumps(result))
        else:
            print(f"{result['board']}: {result['text']}")
    codes = [int(result["code"]) for result in results]
    return next((code for code in (1, ROLLED_BACK, UNKNOWN) if code in codes), 0)


def _ports(args: argparse.Namespace) -> list[Port]:
    if not args.all:
        return chosen(args)
    if args.boards:
        raise UsageError("--all and boards by name", "one of them")
    ports = [Port(each.serial or each.port, each.port, patience(args)) for each in found()]
    if not ports:
        raise BoardError("no board is plugged in", hint="`sealmq board list`")
    return ports


# What became of one board; other boards go on whatever it was.
def _one(port: Port, args: argparse.Namespace) -> dict[str, Any]:
    try:
        outcome, text, version = _update(port, args)
    except Exception as error:
        line, hint = words(error)
        _show(line if hint is None else f"{line}\nhint: {hint}")
        outcome, text, version = "failed", line.removeprefix(f"{port.name}: "), ""
    codes = {"failed": 1, "rolled back": ROLLED_BACK, "unknown": UNKNOWN, "started": 0}
    return {
        "board": port.name,
        "outcome": outcome,
        "version": version,
        "text": text,
        "code": codes.get(outcome, 0),
    }


def _update(port: Port, args: argparse.Namespace) -> tuple[str, str, str]:
    there = look(port, digests=True)
    if not there.slots or not there.client:
        raise BoardError(
            f"{port.name}: this board was not provisioned", hint="sealmq board provision"
        )
    built = Path(args.files) if args.files else client_files.BUILT
    files = client_files.client_set(args.set, there.arch, built)
    if there.nvs.get("mediator") == MDNS:
        hint = "--set everything, or first sealmq board provision --mediator HOST:PORT"
        client_files.check_finds(
            f"{port.name} looks for its mediator, and the set {args.set}", files, hint
        )
    manifest = client_files.manifest(files)
    active = there.slots["active"]
    version = client_files.version(manifest)
    if there.versions.get(active) == version:
        with Console(port) as console:
            console.restart()
        return "same", f"has version {version} already", version
    name = "b" if active == "a" else "a"
    _show(f"{port.name}: version {version} goes to slot {name}, {_size(files):,} bytes")
    steps = into_slot(there, name, files, manifest, args.tries, args.wait)
    done = first(work(port, steps), "finished")
    if done.get("version") != version:
        raise BoardError(f"{port.name}: the board did not take the files", hint="run it again")
    with Console(port) as console:
        console.restart()
        if args.no_watch:
            return "started", f"version {version} is on trial; sealmq board info tells", version
        outcome = _watch(console, name, args)
    return _told(port, outcome, name, version)


# Until it says how it ended. "": it did not say.
def _watch(console: Console, name: str, args: argparse.Namespace) -> str:
    most = (args.tries + 1) * (args.wait + _BETWEEN_S)
    began = time.monotonic()
    for line in console.lines(most):
        if stopped():
            raise BoardError("stopped")
        if not line or not line.startswith("sealmq: "):
            continue
        _show(f"{console.port.name}: {line.removeprefix('sealmq: ')}")
        if line == f"sealmq: slot confirmed {name}":
            return "confirmed"
        if line.startswith(f"sealmq: rolled back {name}: "):
            return line.removeprefix(f"sealmq: rolled back {name}: ")
    _show(f"{console.port.name}: nothing said in {time.monotonic() - began:.0f} s")
    return ""


def _told(port: Port, outcome: str, name: str, version: str) -> tuple[str, str, str]:
    if not outcome:
        # Its line may have been lost; it still knows.
        there = look(port)
        with Console(port) as console:
            console.restart()
        if there.slots.get("active") == name:
            outcome = "confirmed"
        else:
            outcome = str(there.slots.get("last", "")).removeprefix(f"{name}: ")
    if outcome == "confirmed":
        return "confirmed", f"runs version {version} from slot {name}", version
    if outcome:
        return "rolled back", f"rolled back to what it had: {outcome}", version
    return "unknown", f"version {version} is on trial still; sealmq board info tells", version


def _size(files: dict[str, bytes]) -> int:
    return sum(len(raw) for raw in files.values())


def _show(text: str) -> None:
    with _lock:
        print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    alone(__spec__.name)
