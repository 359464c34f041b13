"""`sealmq vboard …`: one table of commands, one place where errors are told."""

from __future__ import annotations

import argparse
import json
import signal
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from . import ctl_cli
from . import folder as folders
from .board import VirtualBoard
from .chips import CHIPS
from .errors import OK, BoardError, report
from .firmware_image import firmware
from .limits import NOT_MODELLED

_EPILOG = """\
examples:
  sealmq vboard new /tmp/one --firmware      a board, with a stand-in firmware in its flash
  sealmq vboard run /tmp/one --rfc2217 0     its ports, one a line, then `ready`
  esptool --port rfc2217://127.0.0.1:PORT flash-id
  esptool --port /dev/pts/N --before no-reset --after no-reset flash-id
      (a pseudo-terminal cannot reset: first `sealmq vboard ctl /tmp/one download on`)

not modelled:
""" + "".join(f"  {line}\n" for line in NOT_MODELLED)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="sealmq vboard",
        description="a virtual board that esptool and mpremote take for a real one",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    sub = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    _add_new(sub)
    _add_run(sub)
    _add_firmware(sub)
    ctl_cli.add(sub)
    return parser


def _add_new(sub: argparse._SubParsersAction[Any]) -> None:
    new = sub.add_parser(
        "new",
        help="make a board's folder: an erased flash and what the board is",
        description="make a board's folder: an erased flash and what the board is",
        epilog="example: sealmq vboard new /tmp/one --chip esp32s3 --bits 32",
    )
    new.add_argument("folder", type=Path, metavar="DIR")
    new.add_argument("--chip", choices=CHIPS, default="esp32")
    new.add_argument("--bits", type=int, choices=(64, 32), default=64, help="of its interpreter")
    new.add_argument("--mac", help="default: drawn, locally administered")
    new.add_argument("--micropython", metavar="PATH", help="its interpreter; default: build/…")
    new.add_argument("--wifi", type=Path, metavar="FILE", help='network in reach: {"ssid","key"}')
    new.add_argument("--firmware", action="store_true", help="write the stand-in firmware, too")
    new.add_argument("--json", action="store_true", help="say what was made as JSON")
    new.set_defaults(run=_new)


def _new(args: argparse.Namespace) -> int:
    setup = folders.Setup(
        chip=args.chip,
        bits=args.bits,
        mac=(args.mac or folders.random_mac()).lower(),
        micropython=args.micropython,
        wifi=_networks(args.wifi) if args.wifi else [],
    )
    folders.create(args.folder, setup)
    if args.firmware:
        chip = CHIPS[setup.chip]
        with (args.folder / "flash.bin").open("r+b") as file:
            file.seek(chip.bootloader)
            file.write(firmware(chip))
    if args.json:
        made = {"folder": str(args.folder), "chip": setup.chip, "mac": setup.mac}
        print(json.dumps(made | {"bits": setup.bits}))
        return OK
    print(f"{args.folder}: {setup.chip}, {setup.mac}, {setup.bits}-bit interpreter")
    print(f"next: sealmq vboard run {args.folder}")
    return OK


def _networks(path: Path) -> list[dict[str, str]]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise BoardError(f"{path} is no JSON: {error}") from None
    return found if isinstance(found, list) else [found]


def _add_run(sub: argparse._SubParsersAction[Any]) -> None:
    run = sub.add_parser(
        "run",
        help="switch a board on; prints its ports, then `ready`; Ctrl-C switches it off",
        description="switch a board on; prints its ports, one a line, then `ready`",
        epilog="example: sealmq vboard run /tmp/one --tcp 0 --rfc2217 4000",
    )
    run.add_argument("folder", type=Path, metavar="DIR")
    run.add_argument("--pty", action="store_true", help="a pseudo-terminal; default if no other")
    run.add_argument("--tcp", type=int, metavar="PORT", help="socket://, 0: any free port")
    run.add_argument("--rfc2217", type=int, metavar="PORT", help="rfc2217://, with DTR and RTS")
    run.add_argument("--download", action="store_true", help="IO0 held low: into download mode")
    run.add_argument("--json", action="store_true", help="its ports as JSON, once it is on")
    run.set_defaults(run=_run)


def _run(args: argparse.Namespace) -> int:
    for port in (args.tcp, args.rfc2217):
        if port is not None and not 0 <= port <= 65535:
            raise BoardError(f"port {port}; 0 to 65535", code=2)
    board = VirtualBoard(
        args.folder,
        pty=args.pty or (args.tcp is None and args.rfc2217 is None),
        tcp=args.tcp,
        rfc2217=args.rfc2217,
        download=args.download,
    )
    ended = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ended.set())
    board.start()
    try:
        ports = {"pty": board.pty, "tcp": board.url_tcp, "rfc2217": board.url_rfc2217}
        if args.json:
            print(json.dumps(ports), flush=True)
        else:
            for kind, where in ports.items():
                if where is not None:
                    print(kind, where)
            print("ready", flush=True)
        ended.wait()
    finally:
        board.stop()
    return OK


def _add_firmware(sub: argparse._SubParsersAction[Any]) -> None:
    make = sub.add_parser(
        "firmware",
        help="write a stand-in firmware, for virtual boards only",
        description="write a file that stands in for the official firmware on a virtual board: "
        "valid headers, partition table and checksums, and no program",
        epilog="example: sealmq vboard firmware /tmp/stand-in.bin --chip esp32",
    )
    make.add_argument("file", type=Path, metavar="FILE")
    make.add_argument("--chip", choices=CHIPS, default="esp32")
    make.add_argument("--size", type=int, default=0, help="fill it up to about this many bytes")
    make.add_argument("--json", action="store_true", help="say what was made as JSON")
    make.set_defaults(run=_firmware)


def _firmware(args: argparse.Namespace) -> int:
    if not 0 <= args.size <= 0x1F0000:
        raise BoardError(f"--size {args.size}; at most {0x1F0000}", code=2)
    chip = CHIPS[args.chip]
    args.file.write_bytes(firmware(chip, args.size))
    if args.json:
        print(json.dumps({"file": str(args.file), "chip": chip.name, "offset": chip.bootloader}))
        return OK
    print(f"{args.file}: stand-in for {chip.title}, to be written at {chip.bootloader:#x}")
    print("it is none of Espressif's or MicroPython's, and runs on nothing but virtual boards")
    return OK


def main(words: Sequence[str] | None = None) -> int:
    try:
        args = _parser().parse_args(words)
        code: int = args.run(args)
        sys.stdout.flush()
        return code
    except (Exception, KeyboardInterrupt) as error:
        return report(error)
