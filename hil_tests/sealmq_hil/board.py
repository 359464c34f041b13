"""The port to a board: what the rig can do to one, whatever it is made of.

What a board has no means for is Skipped, by name: a behaviour that needs it is counted as skipped.
"""

from __future__ import annotations

from dataclasses import dataclass

from .errors import Skipped
from .line import Line

POWER, WIFI, CUT = "power", "wifi", "cut"
MEANS = {
    POWER: "a power switch",
    WIFI: "a switch for its Wi-Fi",
    CUT: "a flash whose writes can be counted",
}


@dataclass(frozen=True, slots=True)
class Place:
    """Where the power went. after: whole changes of the flash before it (ms for op "time")."""

    after: int
    op: str
    address: int = 0
    size: int = 0
    done: int = 0
    inside: bool = False


class Board:
    """A board's name, how its serial line is reached, and what can be done to it."""

    # For esptool: whether its auto-reset works on this line.
    esptool_before = "default-reset"
    esptool_after = "hard-reset"
    means: frozenset[str] = frozenset()
    # Its serial line, as the bench has it.
    line: Line

    def __init__(self, name: str, kind: str, chip: str) -> None:
        self.name, self.kind, self.chip = name, kind, chip
        self.port = ""

    def start(self) -> None:
        """There it is: `port` can be opened from now on. RigError."""

    def stop(self) -> None:
        """The rig needs it no more."""

    def power(self, on: bool) -> None:
        """Off at once; on as from a cold start."""
        raise self._without(POWER)

    def wifi(self, on: bool) -> None:
        """Its access point goes, or comes back."""
        raise self._without(WIFI)

    def loader(self, on: bool) -> None:
        """Into the chip's loader, or out of it into the program. esptool does it where it can."""

    def reset(self) -> None:
        """As by its button."""
        raise NotImplementedError

    def arm(self, after: int, inside: bool, seed: int) -> None:
        """The power goes when `after` more changes of the flash are done, or inside of the next."""
        raise self._without(CUT)

    def disarm(self) -> None:
        """It does not, if it has not yet."""
        raise self._without(CUT)

    def place(self) -> Place | None:
        """Where the last cut was; None: there was none since it was armed."""
        raise self._without(CUT)

    def changes(self) -> int:
        """Changes of the flash so far: pages programmed and sectors erased."""
        raise self._without(CUT)

    def arch(self) -> str:
        """Of the .mpy files of a host's interpreter; "": the chip's own."""
        return ""

    def interpreter(self) -> str:
        """What runs on it, if the rig knows without asking it."""
        return ""

    def not_modelled(self) -> list[str]:
        """What a pass on this board says nothing about."""
        return []

    def _without(self, means: str) -> Skipped:
        return Skipped(f"{self.name} has not {MEANS[means]}")
