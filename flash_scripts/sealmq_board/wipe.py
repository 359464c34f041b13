"""`sealmq board wipe`: a board leaves the site. Its keys go, and its client is disabled."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys

from . import private
from .cli import alone
from .console import Console
from .errors import BoardError, NoAnswer, UsageError
from .esptool_run import Runner, Ways
from .mpremote_run import Run, first, work
from .on_it import look
from .ports import Port, add_patience, add_selectors, one

HELP = "take a board out of the site: erase its keys, disable its client"
EXAMPLES = """\
examples:
  sealmq board wipe --board 0001 --site factory
  sealmq board wipe --board 0001 --site factory --yes
  sealmq board wipe --board 0001 --loader --client m1-temp-sensor --site factory
  sealmq board wipe --board 0001 --keep-enabled        the board alone

First the client is disabled at the site: that counts whatever becomes of the board. Then the flash
of its NVS and of its files is erased and read back, not only the entries: those stay in flash when
they are overwritten. MicroPython stays. A board whose MicroPython does not answer is erased through
the chip's loader (--loader), where DTR and RTS reach it or its BOOT button is held.
"""
# Offset and size, for the loader: as the official MicroPython for 4 MiB has them.
_NVS = (0x9000, 0x6000)
_FILES = (0x200000, 0x200000)
# Of `sealmq client disable`: the client is out, and a mediator has not confirmed it yet.
_NOT_KNOWN = 27
_NOT_DISABLED = "the client was not disabled, and nothing was erased"
_NOBODY = "this board"


def arguments(parser: argparse.ArgumentParser) -> None:
    """Its arguments."""
    add_selectors(parser)
    add_patience(parser)
    site = parser.add_mutually_exclusive_group(required=True)
    site.add_argument("--site", metavar="FOLDER", help="where its client is disabled")
    site.add_argument("--keep-enabled", action="store_true", help="the client stays enabled")
    parser.add_argument("--client", metavar="NAME", help="for --loader: whose board it is")
    parser.add_argument("--loader", action="store_true", help="erase through the chip's loader")
    parser.add_argument("--yes", action="store_true", help="do not ask")
    parser.add_argument("--json", action="store_true", help="one object")


def run(args: argparse.Namespace) -> int:
    """Ask, disable, erase."""
    port = one(args)
    if args.loader:
        if args.site and not args.client:
            raise UsageError("--loader cannot read whose board it is", "--client NAME")
        name, site = args.client or _NOBODY, ""
    else:
        name, site = _whose(port, args.client, args.keep_enabled)
    if args.site and site:
        _check_site(port, args.site, site)
    _ask(port, name, args.yes)
    if args.site:
        # Behind --: a board may call itself anything.
        print(_client("disable", "--", args.site, name), end="", file=sys.stderr)
    erased = _by_loader(port) if args.loader else _by_micropython(port)
    disabled = name if args.site else None
    if args.json:
        print(json.dumps({"board": port.name, "disabled": disabled, "erased": erased}))
        return 0
    total = sum(erased.values())
    print(f"{port.name}: {total:,} bytes of flash erased ({', '.join(erased)})")
    whose = "its client, if it had one," if name == _NOBODY else name
    print(f"{name} is disabled" if disabled else f"{whose} is still enabled at its site")
    return 0


# The client's name, and its site in hexadecimal; that is empty where the board does not know.
def _whose(port: Port, wanted: str | None, nobodys: bool) -> tuple[str, str]:
    try:
        there = look(port)
    except NoAnswer as error:
        raise NoAnswer(str(error), hint="--loader erases it without MicroPython") from None
    found = there.client.get("name") or ""
    if wanted and found and wanted != found:
        raise BoardError(f"{port.name}: the board is {found}, not {wanted}")
    if not (found or wanted or nobodys):
        raise BoardError(
            f"{port.name}: the board does not say whose it is",
            hint="--client NAME; or --keep-enabled, if it is nobody's",
        )
    return str(found or wanted or _NOBODY), str(there.client.get("site") or "")


def _ask(port: Port, name: str, yes: bool) -> None:
    if yes:
        return
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise UsageError("nobody is here to ask", "--yes")
    print(f"All that {port.name} knows will be erased. Type its name, {name}: ", end="",
          file=sys.stderr, flush=True)  # fmt: skip
    if sys.stdin.readline().strip() != name:
        raise BoardError("that is another name: nothing was done")


# Another site may have a client of the same name, who has nothing to do with this board.
def _check_site(port: Port, folder: str, wanted: str) -> None:
    found = json.loads(_client("list", "--json", "--", folder))["site"]
    if found != wanted.lower():
        raise BoardError(
            f"{port.name}: the board is of site {wanted}, {folder} is {found}; nothing was done",
            hint="--site FOLDER of its own site",
        )


# The gateway is a program of its own; this package knows its command line and nothing else.
def _client(*words: str) -> str:
    command = [sys.executable, "-P", "-m", "sealmq.cli", "client", *words]
    done = subprocess.run(  # noqa: S603
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    if done.returncode:
        text = done.stderr.strip().splitlines()
        what = "nothing was erased" if done.returncode == _NOT_KNOWN else _NOT_DISABLED
        raise BoardError(
            f"{what}: {text[0] if text else '?'}",
            hint=text[1].removeprefix("hint: ") if len(text) > 1 else None,
        )
    return done.stdout


def _by_micropython(port: Port) -> dict[str, int]:
    answers = work(port, [Run("erase")])
    if not first(answers, "wiped"):
        raise BoardError(f"{port.name}: the board did not say that all is erased", hint="again")
    with Console(port) as console:
        console.restart()
    return {answer["erased"]: answer["bytes"] for answer in answers if "erased" in answer}


def _by_loader(port: Port) -> dict[str, int]:
    before = "default-reset" if port.has_lines else "no-reset"
    ways = Ways(port, "auto", 460800, before, "hard-reset")
    runner = Runner()
    for start, size in (_NVS, _FILES):
        runner.run(ways, ["erase-region", hex(start), hex(size)], _nothing)
    # What matters most is read back.
    with private.folder() as folder:
        copy = folder / "read.bin"
        words = ["read-flash", *map(hex, _NVS), str(copy)]
        runner.run(ways, words, _nothing, last=True)
        if copy.read_bytes().strip(b"\xff"):
            raise BoardError(f"{port.name}: NVS is not empty behind its erasure", hint="again")
    return {"nvs": _NVS[1], "vfs": _FILES[1]}


def _nothing(line: str) -> None:
    pass


if __name__ == "__main__":
    alone(__spec__.name)
