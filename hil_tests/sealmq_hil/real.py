"""A real board: its serial port, and commands of rig.toml for its power and its Wi-Fi."""

from __future__ import annotations

import threading
import time
from pathlib import Path

from .board import POWER, WIFI, Board
from .errors import RigError
from .processes import ordered, until
from .rig import BoardEntry, Rig

_SWITCH_S = 60.0
_DISCHARGE_S = 1.0
# The access point is one for all boards.
_wifi = threading.Lock()


class RealBoard(Board):
    """Silicon. Nobody counts its flash writes, so a cut falls at a time."""

    def __init__(self, entry: BoardEntry, rig: Rig) -> None:
        super().__init__(entry.name, entry.kind, entry.chip)
        self._entry, self._rig = entry, rig
        self.port = entry.port
        means = {POWER} if entry.power_on else set()
        self.means = frozenset(means | ({WIFI} if rig.wifi_on else set()))

    def start(self) -> None:
        """RigError where it is not plugged in."""
        if self._entry.kind == "serial" and not Path(self.port).exists():
            raise RigError(
                f"{self.name}: {self.port} is not there", "`sealmq board list` shows what is"
            )
        if POWER in self.means:
            self.power(True)

    def power(self, on: bool) -> None:
        if POWER not in self.means:
            raise self._without(POWER)
        words = self._entry.power_on if on else self._entry.power_off
        ordered(words, timeout=_SWITCH_S)
        if not on:
            time.sleep(_DISCHARGE_S)  # capacitors keep a board alive for a while
        elif self._entry.kind == "serial":
            until(f"{self.port} to come back", lambda: Path(self.port).exists())

    def wifi(self, on: bool) -> None:
        if WIFI not in self.means:
            raise self._without(WIFI)
        with _wifi:
            ordered(self._rig.wifi_on if on else self._rig.wifi_off, timeout=_SWITCH_S)

    def loader(self, on: bool) -> None:
        """esptool's own reset goes in; its last one may have been before anybody listened."""
        if not on:
            self.reset()

    def arch(self) -> str:
        return self._entry.arch

    def not_modelled(self) -> list[str]:
        if not self._entry.arch:
            return []
        return [f"{self.name} is one elsewhere: `sealmq vboard report` has the list there"]

    def reset(self) -> None:
        self.line.pulse()
