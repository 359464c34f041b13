"""`sealmq board flash`: firmware, file system and NVS onto one board, or several at once; with
--csv or --archive onto many, one after the other (series.py)."""

from __future__ import annotations

import argparse
import collections
import concurrent.futures
import contextlib
import functools
import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from . import build, bundle, fetch, firmware, onto_board, series
from .bundle import Bundle
from .cli import alone
from .errors import BoardError, Terminated, UsageError, words
from .esptool_run import EsptoolError, Runner, Ways
from .firmware import Firmware
from .onto_board import Board
from .ports import Port, add_selectors, chosen, is_pico
from .showing import Showing

HELP = "write MicroPython, the client and its secret onto boards"
EXAMPLES = """\
examples:
  sealmq board flash m1.board --board 0001 --firmware ESP32_GENERIC.bin
  sealmq board flash m1.board m2.board --board 0001 --board 0002 --firmware ESP32_GENERIC.bin
  sealmq board flash m1.board --board 0001 --firmware https://... --sha256 ...
  sealmq board flash m1.board --port /dev/pts/5 --firmware stand-in.bin       a virtual board
  sealmq board flash --csv clients.csv --enrolments /media/stick --wifi wifi.json \\
      --topic '%c/temperature' --firmware ESP32_GENERIC.bin --port /dev/serial/by-path/...
  sealmq board flash --archive clients.tar.age --identity key.txt --wifi wifi.json ...

Firmware: the .bin of micropython.org/download for the board. Cut off at any moment, run it again.
A board that already holds the enrolment of another client is asked about first (--replace: yes).
m1.board's secret is removed once it is on the board and was read back, unless --keep.

--csv and --archive: each board that is plugged in at --port gets the next client, until all have
one. Which board has which stands in FILE.flashed.jsonl; run it again to go on where it was.
"""
_BEFORE = ("default-reset", "usb-reset", "no-reset", "no-reset-no-sync")
_AFTER = ("hard-reset", "watchdog-reset", "no-reset")
_CUT_OFF = """\
sealmq board: stopped; a board that was being written to does not start as it is
hint: run the same command again"""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Its arguments."""
    parser.add_argument("bundles", metavar="NAME.board", nargs="*", help="one for each board")
    parser.add_argument("--firmware", metavar="FILE|URL", required=True, help="MicroPython's .bin")
    parser.add_argument("--sha256", metavar="HEX", help="its digest; needed for a URL")
    add_selectors(parser, several="one for each bundle, in their order")
    parser.add_argument("--baud", type=int, default=460800, help="default: 460800")
    parser.add_argument("--before", choices=_BEFORE, help="how the board gets into its loader")
    parser.add_argument("--after", choices=_AFTER, help="how it starts; default: hard-reset")
    parser.add_argument(
        "--replace", action="store_true", help="overwrite another client's enrolment without asking"
    )
    parser.add_argument("--keep", action="store_true", help="keep the secret in the bundle")
    parser.add_argument("--json", action="store_true", help="what became of each board, on stdout")
    many = parser.add_argument_group("many boards, one after the other")
    many.add_argument(
        "--csv", metavar="FILE", help="the file of `sealmq client add --from`: all its clients"
    )
    many.add_argument(
        "--enrolments", metavar="DIR", help="with --csv: the folder with their enrolment files"
    )
    many.add_argument(
        "--archive",
        metavar="FILE",
        help="in place of both: what `sealmq client add --seal-to` wrote",
    )
    many.add_argument(
        "--identity", metavar="FILE", help="age's identity, or an SSH key, which opens the archive"
    )
    many.add_argument(
        "--record", metavar="FILE", help="which board has which client; default: FILE.flashed.jsonl"
    )
    many.add_argument(
        "--timeout", type=float, metavar="SECONDS", help="end when no board comes for so long"
    )
    images = parser.add_argument_group(
        "what these boards get (`sealmq board build --help` says more)"
    )
    build.image_arguments(images)
    # Of one bundle they are its own, and none of them may be said in vain.
    parser.set_defaults(
        of_many={a.dest: a.default for a in (*many._group_actions, *images._group_actions)}
    )


def run(args: argparse.Namespace) -> int:
    """Write them all; the exit code is 1 when one of them failed."""
    if args.csv or args.archive:
        with _told_of_a_cut():
            return series.run(args, functools.partial(_board, args), _objection)
    vain = [name for name, default in args.of_many.items() if getattr(args, name) != default]
    if vain or not args.bundles:
        raise UsageError(
            f"--{vain[0]} without --csv or --archive" if vain else "nothing to flash",
            "NAME.board for each board, or --csv FILE, or --archive FILE",
        )
    ports = chosen(args)
    if len(ports) != len(args.bundles):
        raise UsageError(
            f"{len(args.bundles)} bundles and {len(ports)} boards",
            "one bundle for each board",
            hint="flash m1.board m2.board --board FIRST --board SECOND",
        )
    with contextlib.ExitStack() as stack:
        # First, as `build --replace` would put another secret in the place of what was read.
        for path in {os.path.realpath(path): path for path in args.bundles}.values():
            stack.enter_context(bundle.held(Path(path)))
        bundles = [bundle.read(Path(path)) for path in args.bundles]
        _check_clients(bundles)
        for taken, port in zip(bundles, ports, strict=True):
            _check_arch(taken, port)
        showing = stack.enter_context(Showing())
        raw = fetch.load(args.firmware, args.sha256, showing.fetched)
        made = {each.chip.name: firmware.checked(raw, each.chip) for each in bundles}
        boards = [
            _board(args, port, taken, made[taken.chip.name], showing)
            for port, taken in zip(ports, bundles, strict=True)
        ]
        runner = Runner()
        _each(runner, boards, lambda board: board.look(runner))
        _check_macs(boards)
        for board in boards:
            if board.error is None:
                board.error = _objection(board, args.replace, showing)
        with _told_of_a_cut():
            _each(runner, boards, lambda board: board.bring(runner, args.keep))
    return _tell(boards, args)


@contextlib.contextmanager
def _told_of_a_cut() -> Iterator[None]:
    try:
        yield
    except (KeyboardInterrupt, Terminated):
        print(_CUT_OFF, file=sys.stderr)
        raise


def _board(
    args: argparse.Namespace, port: Port, taken: Bundle, made: Firmware, showing: Showing
) -> Board:
    _check_arch(taken, port)
    return Board(port.name, _ways(args, taken, port), taken, made, showing.board(port.name))


def _ways(args: argparse.Namespace, taken: Bundle, port: Port) -> Ways:
    before = args.before or ("default-reset" if port.has_lines else "no-reset")
    after = args.after or ("hard-reset" if port.has_lines else "no-reset")
    return Ways(port, taken.chip.name, args.baud, before, after)


# Does it for all that are well, at once; what one raises is that board's alone.
def _each(runner: Runner, boards: list[Board], job: Callable[[Board], None]) -> None:
    well = [board for board in boards if board.error is None]
    if not well:
        return
    with concurrent.futures.ThreadPoolExecutor(len(well)) as pool:
        tasks = {pool.submit(job, board): board for board in well}
        try:
            for task in concurrent.futures.as_completed(tasks):
                error = task.exception()
                if isinstance(error, Exception):
                    tasks[task].error = error
        except BaseException:
            runner.stop()
            raise


def _check_arch(taken: Bundle, port: Port) -> None:
    if is_pico(port):
        raise BoardError(f"{port.name} is no ESP32 but a Raspberry Pi Pico", hint=firmware.PICO)
    real = port.url.startswith("/dev/") and not os.path.realpath(port.url).startswith("/dev/pts/")
    if taken.about["arch"] != taken.chip.arch and real:
        raise BoardError(
            f"{taken.path} is for a virtual board ({taken.about['arch']}), {port.url} is real",
            hint="`sealmq board build` without --arch",
        )


# One secret on two boards: each would put the other's sessions out.
def _check_clients(bundles: list[Bundle]) -> None:
    given = collections.Counter(
        (each.about["client"]["site"], each.about["client"]["number"]) for each in bundles
    )
    for each in bundles:
        if given[each.about["client"]["site"], each.about["client"]["number"]] > 1:
            raise UsageError(
                f"{each.path} and another bundle are of the same {each.client}",
                "each board is a client of its own",
                hint="`sealmq client add` for each, then `sealmq board build`",
            )


def _check_macs(boards: list[Board]) -> None:
    macs = collections.Counter(board.mac for board in boards if board.error is None)
    for board in boards:
        if board.error is None and macs[board.mac] > 1:
            board.error = BoardError(f"another port leads to this board too ({board.mac})")


def _objection(board: Board, replace: bool, showing: Showing) -> BoardError | None:
    taken = board.bundle
    if not onto_board.is_new(taken.path, board.mac):
        return BoardError(
            f"{taken.path} was given to the board {bundle.given_to(taken.path)}, this is "
            f"{board.mac}",
            "one secret for one board",
            hint="`sealmq client add` makes another client; if that board is no more, "
            "`sealmq client rotate` and build again",
        )
    held = board.holds
    if onto_board.same(board) or held is None or replace:
        return None
    whose = f"the enrolment of client {held.client} ({held.name}) of site {held.site}"
    if showing.ask(f"{board.name} holds {whose}. Put {taken.client} in its place?"):
        return None
    return BoardError(
        f"it holds {whose}", "left as it was", hint="--replace puts the new client in its place"
    )


def _tell(boards: list[Board], args: argparse.Namespace) -> int:
    for board in boards:
        if isinstance(board.error, EsptoolError) and os.environ.get("SEALMQ_DEBUG") == "1":
            print(board.error.said, file=sys.stderr)
    if args.json:
        print(json.dumps([_as_json(board) for board in boards]))
        return 0 if all(board.done for board in boards) else 1
    for board in boards:
        if board.done:
            print(
                f"{board.name}: {board.bundle.client} is on the board {board.mac} "
                f"({board.seconds:.0f} s)"
            )
            if args.keep:
                print(f"{board.bundle.path} still holds its secret")
        elif board.error is not None:
            text, hint = words(board.error)
            print(f"sealmq board: {board.name}: {text}", file=sys.stderr)
            if hint:
                print(f"hint: {hint}", file=sys.stderr)
    return 0 if all(board.done for board in boards) else 1


def _as_json(board: Board) -> dict[str, Any]:
    text, hint = words(board.error) if board.error else ("", None)
    return {
        "board": board.name,
        "bundle": str(board.bundle.path),
        "client": board.bundle.about["client"]["number"],
        "mac": board.mac,
        "outcome": "done" if board.done else "failed",
        "error": text,
        "hint": hint or "",
        "seconds": round(board.seconds, 1),
    }


if __name__ == "__main__":
    alone(__spec__.name)
