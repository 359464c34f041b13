"""`sealmq hil`: run behaviours on boards, list them."""

from __future__ import annotations

import argparse
import json
import os
import secrets
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from sealmq_board.chips import CHIPS

from . import rig as rigs
from .behaviour import NAMES, find
from .errors import FAILED, INTERRUPTED, OK, USAGE, RigError, words
from .rig import BoardEntry, Rig
from .site import BROKERS, MOSQUITTO

_EXAMPLES = """\
examples:
  sealmq hil run --board virtual --boards 3                  three virtual boards, everything
  sealmq hil run --behaviour flash --behaviour publish       one virtual board, two behaviours
  sealmq hil run --boards 10 --cuts 200 --seed 4711          200 power cuts, drawn as before
  sealmq hil run --rig rig.toml --out results                the boards of a file
  sealmq hil run --board /dev/serial/by-id/usb-... --rig rig.toml --json
  sealmq hil list

Results are JSON lines after shared_spec/hil.schema.json, and after nonce.schema.json for each
sealed packet that was seen; `sealmq report` reads both. Exit code 0: nothing failed. 1: something
did. 2: usage. What a board has no means for (a power switch, ...) is skipped, counted and shown.
"""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise RigError(message, f"{self.prog} --help", USAGE)


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = _Parser(
        prog="sealmq hil",
        description="The rig: what boards, real or virtual, do when things happen to them.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    sub = made.add_subparsers(dest="command", metavar="COMMAND", required=True)
    run = sub.add_parser(
        "run",
        help="run behaviours on boards",
        description="Run behaviours on boards, all boards at once.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    run.add_argument(
        "--board",
        action="append",
        default=[],
        metavar="BOARD",
        help="virtual, /dev/serial/by-id/..., rfc2217://HOST:PORT, or a name of rig.toml; may be "
        "repeated (default: all of rig.toml, else virtual)",
    )
    run.add_argument("--boards", type=int, metavar="N", help="so many virtual ones (default: 1)")
    run.add_argument("--bits", type=int, choices=(64, 32), default=64, help="of virtual ones")
    run.add_argument("--chip", choices=CHIPS, default="esp32", help="of boards not in rig.toml")
    run.add_argument("--rig", type=Path, metavar="FILE", help="rig.toml: boards, power, Wi-Fi")
    run.add_argument(
        "--behaviour",
        action="append",
        default=[],
        metavar="NAME",
        help="of `sealmq hil list`; may be repeated (default: all)",
    )
    run.add_argument("--cuts", type=int, metavar="N", help="power cuts in all (default: 4 a board)")
    run.add_argument("--seed", type=int, help="draws the same again (default: a fresh one)")
    run.add_argument("--broker", choices=BROKERS, default=MOSQUITTO, help="behind the mediator")
    run.add_argument("--jobs", type=int, metavar="N", help="flashed at once (default: the cores)")
    run.add_argument("--files", type=Path, metavar="DIR", help="in place of build/firmware")
    run.add_argument("--out", type=Path, metavar="DIR", help="result and nonce segments go there")
    run.add_argument("--json", action="store_true", help="result lines on stdout as they come")
    run.add_argument("--keep", action="store_true", help="keep site, boards and logs")
    listing = sub.add_parser("list", help="what there is to run", allow_abbrev=False)
    listing.add_argument("--json", action="store_true", help="as JSON")
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit code."""
    try:
        args = parser().parse_args(arguments)
        return listed(args) if args.command == "list" else run(args)
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    except Exception as error:
        if os.environ.get("SEALMQ_DEBUG") == "1":
            raise
        print(f"sealmq hil: {words(error)}", file=sys.stderr)
        if hint := getattr(error, "hint", ""):
            print(f"hint: {hint}", file=sys.stderr)
        return error.code if isinstance(error, RigError) else FAILED


def listed(args: argparse.Namespace) -> int:
    """Every behaviour, a line each."""
    found = [find(name) for name in NAMES]
    if args.json:
        rows = [{"name": b.name, "text": b.text, "needs": sorted(b.needs)} for b in found]
        print(json.dumps(rows))
        return OK
    for behaviour in found:
        needs = f"   needs {', '.join(sorted(behaviour.needs))}" if behaviour.needs else ""
        print(f"{behaviour.name:18}{behaviour.text}{needs}")
    return OK


def entries(args: argparse.Namespace, rig: Rig) -> list[BoardEntry]:
    """The boards that are asked for. RigError."""
    if args.boards is not None and not 1 <= args.boards <= 100:
        raise RigError(f"--boards {args.boards}", "1 to 100", USAGE)
    wanted = list(args.board) or ([] if rig.boards else [rigs.VIRTUAL])
    known = {board.name: board for board in rig.boards}
    found: list[BoardEntry] = [] if wanted else list(rig.boards)
    for word in wanted:
        if word in known:
            found.append(known[word])
        elif word == rigs.VIRTUAL:
            count = args.boards or 1
            names = [f"virtual-{n}" for n in range(1, count + 1)]
            found += [BoardEntry(name, word, args.chip, args.bits) for name in names]
        else:
            rigs.check_port("--board", word)
            found.append(
                next(
                    (board for board in rig.boards if board.port == word),
                    BoardEntry(f"board-{len(found) + 1}", word, args.chip),
                )
            )
    if args.boards and rigs.VIRTUAL not in wanted:
        raise RigError("--boards counts virtual boards", "--board virtual --boards N", USAGE)
    names = [entry.name for entry in found]
    if len(set(names)) < len(names):
        raise RigError("a board is named twice", "each --board once", USAGE)
    return found


def run(args: argparse.Namespace) -> int:
    """Everything, and the verdict."""
    from .tools import BUILT
    from .whole import Settings, whole

    rig = rigs.load(args.rig) if args.rig is not None else Rig()
    boards = entries(args, rig)
    for name in args.behaviour:
        find(name)
    for name, value, least in (("--cuts", args.cuts, 0), ("--jobs", args.jobs, 1)):
        if value is not None and value < least:
            raise RigError(f"{name} {value}", f"at least {least}", USAGE)
    if args.seed is not None and not 0 <= args.seed < 1 << 53:
        raise RigError(f"--seed {args.seed}", "0 to 9007199254740991", USAGE)
    if args.files is not None and not args.files.is_dir():
        raise RigError(f"--files {args.files} is no folder", "make firmware leaves one", USAGE)
    settings = Settings(
        behaviours=args.behaviour,
        cuts=4 * len(boards) if args.cuts is None else args.cuts,
        seed=secrets.randbelow(1 << 31) if args.seed is None else args.seed,
        broker=args.broker,
        jobs=args.jobs or os.cpu_count() or 1,
        out=args.out,
        as_json=args.json,
        keep=args.keep,
        files=args.files or BUILT,
    )
    return whole(boards, rig, settings)
