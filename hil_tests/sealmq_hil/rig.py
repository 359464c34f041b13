"""rig.toml: the boards of a rig, how their power is switched, and the Wi-Fi that they join.

Commands are lists of words and run without a shell. Boards are named by the serial id of their
USB chip: the number of a /dev/ttyUSB says nothing about which board that is.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sealmq_board.chips import CHIPS

from .errors import RigError

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,31}")
VIRTUAL = "virtual"
BY_ID = "/dev/serial/by-id/"
_UNSTABLE = re.compile(r"/dev/(tty|cu\.)")

Words = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class BoardEntry:
    """One board. port: virtual, /dev/serial/by-id/…, rfc2217://HOST:PORT. bits: of a virtual one's
    interpreter. arch: of one that is virtual elsewhere. power_off, power_on: commands, or none.
    """

    name: str
    port: str
    chip: str = "esp32"
    bits: int = 64
    arch: str = ""
    power_off: Words = ()
    power_on: Words = ()

    @property
    def kind(self) -> str:
        """As result lines have it."""
        if self.port == VIRTUAL:
            return VIRTUAL
        return "rfc2217" if self.port.startswith("rfc2217://") else "serial"


@dataclass(frozen=True, slots=True)
class Rig:
    """wifi: the file that boards get. gateway: this machine's address as boards see it. firmware:
    by chip. wifi_off, wifi_on: commands that take the access point away and bring it back.
    """

    boards: tuple[BoardEntry, ...] = ()
    wifi: Path | None = None
    gateway: str = "127.0.0.1"
    firmware: Mapping[str, Path] = field(default_factory=dict)
    wifi_off: Words = ()
    wifi_on: Words = ()


class _Table:
    """One table of the file: each key is asked for once, unknown ones are refused."""

    def __init__(self, where: str, table: object) -> None:
        if not isinstance(table, dict):
            raise RigError(f"{where} is {_kind(table)}; a table was expected", _HINT)
        self._where, self._rest = where, dict(table)

    def take(self, key: str, kind: type, default: Any = None) -> Any:
        """The value, of this type; the default where it is missing."""
        if key not in self._rest:
            if default is None:
                raise RigError(f"{self._where} has no {key}", _HINT)
            return default
        value = self._rest.pop(key)
        if type(value) is not kind:
            raise RigError(f"{self._where}: {key} is {_kind(value)}; {_NAMES[kind]} was expected")
        return value

    def words(self, key: str) -> Words:
        """A command."""
        value = self.take(key, list, [])
        if key in self._rest or not all(isinstance(w, str) and w for w in value):
            raise RigError(
                f'{self._where}: {key} is no list of words, like ["uhubctl", "-a", "off"]'
            )
        return tuple(value)

    def end(self) -> None:
        """Nothing may be left."""
        if self._rest:
            raise RigError(f"{self._where}: {', '.join(sorted(self._rest))} is not known", _HINT)


_HINT = "hil_tests/rig.example.toml has all that may stand there"
_NAMES = {str: "a text", int: "a number", list: "a list", dict: "a table"}


def load(path: Path) -> Rig:
    """RigError: what is wrong, and where."""
    try:
        text = path.read_bytes().decode()
    except OSError as error:
        raise RigError(f"{path}: {error.strerror}", "give the path with --rig") from None
    except UnicodeDecodeError:
        raise RigError(f"{path} is no text") from None
    try:
        doc = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise RigError(f"{path}: {error}") from None
    return parse(doc, path.parent)


def parse(doc: Mapping[str, Any], folder: Path) -> Rig:
    """Paths count from the file's folder."""
    top = _Table("the file", doc)
    head = _Table("[rig]", top.take("rig", dict, {}))
    entries = top.take("board", list, [])
    top.end()
    wifi = head.take("wifi", str, "")
    firmware = head.take("firmware", dict, {})
    rig = Rig(
        boards=tuple(_board(n, entry) for n, entry in enumerate(entries, 1)),
        wifi=_private(folder / wifi) if wifi else None,
        gateway=head.take("gateway", str, "127.0.0.1"),
        firmware={chip: _firmware(chip, folder, file) for chip, file in firmware.items()},
        wifi_off=head.words("wifi_off"),
        wifi_on=head.words("wifi_on"),
    )
    head.end()
    _both("[rig]", "wifi", rig.wifi_off, rig.wifi_on)
    _different(rig)
    return rig


def _board(n: int, entry: object) -> BoardEntry:
    where = f"board {n}"
    table = _Table(where, entry)
    made = BoardEntry(
        name=table.take("name", str),
        port=table.take("port", str),
        chip=table.take("chip", str, "esp32"),
        bits=table.take("bits", int, 64),
        arch=table.take("arch", str, ""),
        power_off=table.words("power_off"),
        power_on=table.words("power_on"),
    )
    table.end()
    if not NAME.fullmatch(made.name):
        raise RigError(f"{where}: the name {made.name!r} is not of letters, digits, . _ -")
    where = f"board {made.name}"
    check_port(where, made.port)
    if made.chip not in CHIPS:
        raise RigError(f"{where}: no chip {made.chip!r}; there are {', '.join(CHIPS)}")
    if made.arch not in ("", "x64", "x86"):
        raise RigError(f"{where}: arch is {made.arch!r}; x64 or x86, of a virtual board elsewhere")
    if made.bits not in (32, 64):
        raise RigError(f"{where}: bits is {made.bits}; 32 or 64")
    _both(where, "power", made.power_off, made.power_on)
    return made


def check_port(where: str, port: str) -> None:
    """RigError unless it says which board is meant."""
    if port == VIRTUAL or port.startswith("rfc2217://"):
        return
    if _UNSTABLE.match(port):
        raise RigError(
            f"{where}: {port} may be another board tomorrow",
            f"`sealmq board list` shows the names below {BY_ID}",
        )
    if not port.startswith("/dev/"):
        raise RigError(
            f"{where}: no port {port!r}",
            f"it is virtual, {BY_ID}…, or rfc2217://HOST:PORT",
        )


def _both(where: str, what: str, off: Words, on: Words) -> None:
    if bool(off) != bool(on):
        raise RigError(f"{where}: {what}_off and {what}_on belong together")


def _different(rig: Rig) -> None:
    names = [board.name for board in rig.boards]
    ports = [board.port for board in rig.boards if board.port != VIRTUAL]
    for what, values in (("name", names), ("port", ports)):
        double = sorted({value for value in values if values.count(value) > 1})
        if double:
            raise RigError(f"two boards have the {what} {double[0]}")


def _private(path: Path) -> Path:
    try:
        mode = os.stat(path).st_mode
    except OSError as error:
        raise RigError(f"{path}: {error.strerror}") from None
    if mode & 0o077:
        raise RigError(f"{path} can be read by others", f"chmod 600 {path}")
    return path


def _firmware(chip: str, folder: Path, file: object) -> Path:
    if chip not in CHIPS:
        raise RigError(f"[rig] firmware: no chip {chip!r}; there are {', '.join(CHIPS)}")
    if not isinstance(file, str) or not (folder / file).is_file():
        raise RigError(f"[rig] firmware of {chip}: there is no file {file!r}")
    return folder / file


def _kind(value: object) -> str:
    return {bool: "true or false", **_NAMES}.get(type(value), type(value).__name__)
