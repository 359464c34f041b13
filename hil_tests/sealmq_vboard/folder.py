"""A board's folder: flash.bin, the chip's cells, and board.json, what it is."""

from __future__ import annotations

import json
import re
import secrets
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from .chips import CHIPS
from .errors import BoardError
from .flash import Flash

_FORMAT = 1


@dataclass(frozen=True)
class Setup:
    """What a board is."""

    chip: str
    bits: int
    mac: str
    micropython: str | None = None  # path of the interpreter; None: the one this checkout built
    heap: int | None = None  # bytes the program has; None: as an ESP32 without PSRAM
    # The networks in reach: {"ssid", "key"} each.
    wifi: list[dict[str, str]] = field(default_factory=list)

    @property
    def mac_bytes(self) -> bytes:
        return bytes.fromhex(self.mac.replace(":", ""))


def random_mac() -> str:
    """Locally administered: it belongs to no maker."""
    return ":".join(f"{byte:02x}" for byte in (0x02, *secrets.token_bytes(5)))


def check(setup: Setup) -> Setup:
    if setup.chip not in CHIPS:
        raise BoardError(f"chip {setup.chip!r}; one of {', '.join(CHIPS)}")
    if setup.bits not in (32, 64):
        raise BoardError(f"{setup.bits} bits; 64 or 32")
    if not re.fullmatch(r"[0-9a-f]{2}(:[0-9a-f]{2}){5}", setup.mac):
        raise BoardError(f"MAC {setup.mac!r}; six bytes such as 02:00:00:00:00:01, in lower case")
    if setup.mac_bytes[0] & 1:
        raise BoardError(f"MAC {setup.mac} is a group's; the first byte has to be even")
    networks: list[Any] = list(setup.wifi)
    if not all(isinstance(net, dict) and isinstance(net.get("ssid"), str) for net in networks):
        raise BoardError('a network is {"ssid": …, "key": …}')
    return setup


def create(folder: Path, setup: Setup) -> None:
    """A new board, erased. BoardError: there is one already."""
    check(setup)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if (folder / "board.json").exists() or (folder / "flash.bin").exists():
        raise BoardError(
            f"{folder} has a board already", hint="take another folder, or remove this one"
        )
    Flash.create(folder / "flash.bin")
    text = json.dumps({"format": _FORMAT, **asdict(setup)}, indent=2) + "\n"
    path = folder / "board.json"
    path.touch(0o600)  # a network's key may stand in it
    path.write_text(text, encoding="utf-8")


def load(folder: Path) -> Setup:
    path = folder / "board.json"
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(found, dict) or found.pop("format", None) != _FORMAT:
            raise BoardError(f"{path} is no board of this version")
        return check(Setup(**found))
    except FileNotFoundError:
        raise BoardError(
            f"{folder} holds no board", hint=f"sealmq vboard new {folder} makes one"
        ) from None
    except (ValueError, TypeError) as error:
        raise BoardError(f"{path} cannot be read: {error}") from None
