"""Which board: by the serial number of its USB chip, or a port that somebody names. Never the first
port that is there."""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path
from typing import NamedTuple

from .errors import BoardError, UsageError

_BY_ID = Path("/dev/serial/by-id")
_PICO = "rp2040 or rp2350, with MicroPython"
_URLS = ("socket://", "rfc2217://")
# More than the README's board sleeps.
_PATIENCE_S = 330.0
_LOOK_S = 0.1


class Found(NamedTuple):
    """A serial port of this host with a USB chip behind it."""

    port: str
    serial: str  # the USB serial number; empty when the chip has none
    by_id: str  # its name in /dev/serial/by-id, whole; empty when there is none
    usb: str  # vid:pid
    name: str  # what the chip calls itself
    chip: str  # what that says about the board's chip; mostly nothing


class Port(NamedTuple):
    """A board that was chosen: what to call it, what to open, and for how many seconds to wait for
    it if it sleeps; 0: its program is not waited for at all."""

    name: str
    url: str
    patience: float = 0.0

    @property
    def has_lines(self) -> bool:
        """Whether DTR and RTS reach the board, so that it can be reset from here."""
        real = os.path.realpath(self.url)
        return not self.url.startswith("socket://") and not real.startswith("/dev/pts/")

    @property
    def hint(self) -> str:
        """What to do when it does not open."""
        if self.url.startswith(_URLS):
            return "is that its address? start the virtual board or the serial server"
        return "end what else reads it (logs, a terminal); your user has to be in the group dialout"


def found() -> list[Found]:
    """All USB serial ports, by port."""
    from serial.tools.list_ports import comports

    by_id = {os.path.realpath(link): str(link) for link in sorted(_BY_ID.glob("*"))}
    boards = [
        Found(
            each.device,
            each.serial_number or "",
            by_id.get(os.path.realpath(each.device), ""),
            f"{each.vid:04x}:{each.pid:04x}",
            each.product or each.description or "",
            _chip(each.vid, each.pid),
        )
        for each in comports()
        if each.vid is not None and each.pid is not None
    ]
    return sorted(boards)


# A chip's own USB tells the chip, or that it is one of several; a bridge chip tells nothing.
def _chip(vid: int, pid: int) -> str:
    return {
        (0x303A, 0x0002): "esp32s2",
        (0x303A, 0x1001): "esp32s3, c3 or c6",
        (0x2E8A, 0x0005): _PICO,
    }.get((vid, pid), "")


def is_pico(port: Port) -> bool:
    """Whether a Raspberry Pi's chip with MicroPython is plugged in there."""
    real = os.path.realpath(port.url)
    return any(os.path.realpath(each.port) == real and each.chip == _PICO for each in found())


def add_selectors(parser: argparse.ArgumentParser, several: str = "") -> None:
    """--board and --port; `several`: each may be given more than once, and how."""
    again = f" ({several})" if several else ""
    parser.add_argument(
        "--board",
        metavar="ID",
        action=_Chosen,
        dest="boards",
        help=f"the USB serial number that `sealmq board list` shows{again}",
    )
    parser.add_argument(
        "--port",
        metavar="PORT",
        action=_Chosen,
        dest="boards",
        help=f"/dev/..., socket://host:port or rfc2217://host:port{again}",
    )
    parser.set_defaults(boards=[], several=bool(several))


def add_patience(parser: argparse.ArgumentParser) -> None:
    """--patience, of commands that a board has to be awake for."""
    parser.add_argument(
        "--patience",
        type=_seconds,
        metavar="SECONDS",
        help=f"wait so long for a board that sleeps to wake (default: {_PATIENCE_S:.0f}); "
        "if given, also for a port that is there only while it is awake",
    )


def patience(args: argparse.Namespace) -> float:
    """What --patience says, or what is usual."""
    given: float | None = getattr(args, "patience", None)
    return _PATIENCE_S if given is None else given


def _seconds(word: str) -> float:
    seconds = float(word)
    if not 0 <= seconds <= 7 * 86400:
        raise argparse.ArgumentTypeError(f"{word} is not from 0 to 604800 seconds")
    return seconds


class _Chosen(argparse.Action):
    def __call__(self, parser, namespace, values, option_string=None):  # type: ignore[no-untyped-def]
        chosen = [*namespace.boards, (option_string.lstrip("-"), values)]
        namespace.boards = chosen


def chosen(args: argparse.Namespace) -> list[Port]:
    """The boards that were named, each once. UsageError: none; BoardError: not there."""
    if not args.boards:
        raise UsageError(
            "no board was named",
            "--board ID or --port PORT",
            hint="`sealmq board list` shows what is plugged in",
        )
    if not args.several and len(args.boards) > 1:
        raise UsageError(
            f"{len(args.boards)} boards were named",
            "this command takes one",
            hint="run it once for each",
        )
    wait = getattr(args, "patience", None) or 0.0
    ports = [_there(way, word, wait)._replace(patience=patience(args)) for way, word in args.boards]
    seen: dict[str, str] = {}
    for port in ports:
        at = port.url if port.url.startswith(_URLS) else os.path.realpath(port.url)
        if at in seen:
            raise UsageError(
                f"{port.name} and {seen[at]} are the same board",
                hint="name each board once; `sealmq board list` shows them",
            )
        seen[at] = port.name
    return ports


def one(args: argparse.Namespace) -> Port:
    """The one board that was named."""
    return chosen(args)[0]


# A chip's own USB goes when the chip sleeps.
def _there(way: str, word: str, wait: float) -> Port:
    end = time.monotonic() + wait
    while True:
        try:
            return _by_id(word) if way == "board" else _by_port(word)
        except BoardError:
            if time.monotonic() >= end:
                raise
            time.sleep(_LOOK_S)


def _by_id(word: str) -> Port:
    here = found()
    matching = [each for each in here if word and word in (each.serial, Path(each.by_id).name)]
    if len(matching) > 1:
        raise BoardError(
            f"{len(matching)} boards have the id {word}: {', '.join(e.port for e in matching)}",
            hint="their USB chips share one number; give --port /dev/serial/by-path/...",
        )
    if not matching:
        ids = ", ".join(sorted(each.serial for each in here if each.serial))
        raise BoardError(
            f"no board with the id {word} is plugged in",
            f"there is {ids}" if ids else "there is none at all",
            hint="`sealmq board list`; a cable that only charges shows nothing",
        )
    return Port(word, matching[0].port)


def _by_port(word: str) -> Port:
    if word.startswith(_URLS):
        return Port(word, word)
    if "://" in word:
        raise UsageError(
            f"--port {word}",
            "a device, socket://host:port or rfc2217://host:port",
            hint="--port /dev/serial/by-id/...",
        )
    if not os.path.exists(word):
        raise BoardError(
            f"there is no port {word}", hint="`sealmq board list` shows what is plugged in"
        )
    return Port(word, word)
