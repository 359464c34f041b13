"""`sealmq board provision`: a board that runs MicroPython gets the client and its secret."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from . import build, client_files, enrolment
from .chips import HOST_ARCHS
from .cli import alone
from .console import Console
from .enrolment import Enrolment
from .errors import BoardError, UsageError
from .mpremote_run import Copy, Run, first, work
from .on_it import OnIt, beside, into_slot, look, missing
from .ports import add_patience, add_selectors, one

HELP = "bring the client and its secret to a board that runs MicroPython"
EXAMPLES = """\
examples:
  sealmq board provision --board 0001 --enrolment m1.sealmq.json --wifi wifi.json --topic machine/1
  sealmq board provision --board 0001 --wifi ask            another Wi-Fi, nothing else
  sealmq board provision --port /dev/pts/5 --enrolment m1.sealmq.json --topic machine/1/t

Nothing is flashed: files and NVS entries are written by mpremote, and what is there already is not
written again. Cut off at any moment, run it again. A board that holds the enrolment of another
client, or a program of somebody else, is refused unless --replace.
"""
_SLOTS = "/sealmq_slots.py"
_MANIFEST = client_files.MANIFEST


def arguments(parser: argparse.ArgumentParser) -> None:
    """Its arguments."""
    add_selectors(parser)
    add_patience(parser)
    enrolment.add_arguments(parser)
    parser.add_argument(
        "--wifi", metavar="FILE", help='{"ssid", "key"}; `-` reads stdin, `ask` asks'
    )
    parser.add_argument(
        "--mediator",
        metavar="HOST:PORT",
        help="in place of the address in the enrolment; mdns: the board looks for it by itself",
    )
    parser.add_argument(
        "--set",
        default="everything",
        help="which of the client's sets of modules; default: everything",
    )
    parser.add_argument(
        "--files", metavar="DIR", help="the folder of these sets, in place of those that came along"
    )
    build.app_arguments(parser)
    parser.add_argument(
        "--replace", action="store_true", help="overwrite another client's enrolment or program"
    )
    parser.add_argument(
        "--no-start", action="store_true", help="leave the board at its prompt (REPL)"
    )
    parser.add_argument("--json", action="store_true", help="what was written, on stdout")


def run(args: argparse.Namespace) -> int:
    """Bring it all, then start the board."""
    port = one(args)
    who = enrolment.given(args)
    there = look(port, digests=True)
    _check(there, who, args.replace)
    secrets = _secrets(args, who)
    # At the same site it keeps the address that it was given in place of the enrolment's.
    stays = who and there.client.get("site") == who.site
    told = args.mediator or (stays and there.nvs.get("mediator"))
    if who and not told and there.arch not in HOST_ARCHS:
        build.warn_of_address(who)
    steps = [*_files(there, args), Run("secrets", secrets)]
    answers = work(port, steps)
    refused = first(answers, "other")
    if refused:
        raise _another(port.name, refused["other"])
    if first(answers, "no_enrolment"):
        raise BoardError(
            f"{port.name}: the board holds no enrolment that {args.mediator} can be written into",
            hint="give both: --enrolment FILE --mediator HOST:PORT",
        )
    if not first(answers, "secrets"):
        raise BoardError(
            f"{port.name}: the board did not say that all is done", hint="run it again"
        )
    if not args.no_start:
        with Console(port) as console:
            console.restart()
    written = [a["written"] for a in answers if "written" in a]
    copied = sum(len(step.files) for step in steps if isinstance(step, Copy))
    _tell(args, there, who, copied, written)
    return 0


def _secrets(args: argparse.Namespace, who: Enrolment | None) -> dict[str, Any]:
    return {
        "enrolment": who.raw if who else None,
        "wifi": enrolment.wifi(args.wifi) if args.wifi else None,
        "mediator": enrolment.mediator(args.mediator).encode() if args.mediator else None,
        "replace": args.replace,
    }


# Before anything is written; the board checks the client once more.
def _check(there: OnIt, who: Enrolment | None, replace: bool) -> None:
    if there.about.get("network") is False:
        raise BoardError(
            f"{there.name}: {there.about.get('machine') or 'the board'} has no network",
            "a Pico W, say, and MicroPython for it",
        )
    if who is None and not there.nvs.get("enrolled"):
        raise UsageError(f"{there.name} is no client yet", "--enrolment FILE")
    if replace:
        return
    if who and there.nvs.get("enrolled"):
        held = there.client
        if (held.get("site"), held.get("client")) != (who.site, who.client):
            raise _another(there.name, held)
    foreign = [name for name, whose in there.programs.items() if whose == "foreign"]
    if foreign:
        names = " and ".join(foreign)
        raise BoardError(
            f"{there.name}: the board has a program of its own ({names})",
            hint="mpremote cp :main.py . keeps it; --replace overwrites it",
        )


def _another(name: str, held: dict[str, Any]) -> BoardError:
    called = held.get("name") or f"number {held.get('client')}"
    return BoardError(
        f"{name}: the board is the client {called}, and not this one",
        hint="is it the right board? --replace makes it another client; `sealmq client disable` "
        "puts the old one out",
    )


def _files(there: OnIt, args: argparse.Namespace) -> list[Run | Copy]:
    own = {"/boot.py": (client_files.BOARD / "boot.py").read_bytes()}
    if args.main:
        own["/main.py"] = Path(args.main).read_bytes()
    elif args.replace or there.programs.get("main.py") != "own":
        own["/main.py"] = (client_files.BOARD / "main.py").read_bytes()
    else:
        print(
            f"{there.name}: it keeps a main.py of your own\n"
            "hint: --main brings another, --replace ours",
            file=sys.stderr,
        )
    if there.app is None or build.app_given(args):
        settings = build.app_settings(args, there.app)
        own = {"/app.json": client_files.as_json(settings), **own}
    slots = {_SLOTS: (client_files.BOARD / "sealmq_slots.py").read_bytes()}
    return [
        *beside(missing(there, slots)),
        *_client(there, args),
        # The program last: nothing runs before all of it is there.
        *beside(missing(there, own)),
    ]


# files: what it will have; None: it keeps what is in that slot.
def _check_finds(there: OnIt, name: str, slot: str, files: dict[str, bytes] | None) -> None:
    if files is not None:
        client_files.check_finds(f"the set {name}", files)
        return
    kept = [path.removeprefix(f"/sealmq/{slot}/") for path in there.files]
    hint = "sealmq board update --set everything first, or --mediator HOST:PORT"
    client_files.check_finds(f"{there.name}: the set that it runs", kept, hint)


# The client, where there is none: in use, complete, is left to `update`.
def _client(there: OnIt, args: argparse.Namespace) -> list[Run | Copy]:
    built = Path(args.files) if args.files else client_files.BUILT
    ours = not args.main and there.programs.get("main.py") != "own"
    files = client_files.client_set(args.set, there.arch, built, ours)
    manifest = client_files.manifest(files)
    active = there.slots.get("active", "a")
    have = there.files.get(f"/sealmq/{active}/{_MANIFEST}")
    if args.mediator == enrolment.MDNS:
        _check_finds(there, args.set, active, files if have is None else None)
    if have is None:
        return into_slot(there, active, files, manifest, tries=0, wait=0)
    if missing(there, {f"/sealmq/{active}/{_MANIFEST}": manifest}):
        print(
            f"{there.name}: it keeps the version of the client's files that it runs\n"
            "hint: sealmq board update brings another, on trial",
            file=sys.stderr,
        )
    return []


def _tell(
    args: argparse.Namespace, there: OnIt, who: Enrolment | None, copied: int, written: list[str]
) -> None:
    name = (who.name or f"client {who.client}") if who else there.called
    if args.json:
        print(json.dumps({"board": there.name, "client": name, "files": copied, "nvs": written}))
        return
    entries = ", ".join(written) or "nothing new"
    print(f"{there.name}: {name}; {copied} files written, in NVS: {entries}")
    if not args.no_start:
        print("it starts now; sealmq board logs shows what it says")


if __name__ == "__main__":
    alone(__spec__.name)
