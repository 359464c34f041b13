"""How far a board is, and the way from one state to another (labgrid's idea of a strategy).

A behaviour says in which state it begins; what it leaves behind it says too, or `lost()` when it
does not know. From an unknown state every way begins with power or reset, and new images.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Protocol


class State(enum.Enum):
    """In this order a board gets there."""

    OFF = "off"
    LOADER = "loader"  # answers esptool
    FLASHED = "flashed"  # MicroPython answers; no client, no secret
    PROVISIONED = "provisioned"  # client and secret are there; it runs
    PUBLISHING = "publishing"  # what it publishes is read


class Steps(Protocol):
    """What the strategy does to a board; each step leads to the state of its name."""

    def off(self) -> None: ...
    def loader(self) -> None: ...
    def flashed(self) -> None: ...
    def provisioned(self, fresh: bool) -> None:
        """fresh: the board has MicroPython alone, and is not flashed again for this."""

    def publishing(self, running: bool) -> None:
        """running: it was there before; it is looked at, not started again."""


class Strategy:
    """One board's. state: None when nobody knows."""

    def __init__(self, steps: Steps) -> None:
        self._steps = steps
        self.state: State | None = None

    def transition(self, to: State) -> None:
        """Goes there; what is there already is only made sure of. Raises what the steps raise."""
        was, self.state = self.state, None
        ways: dict[State, Callable[[], None]] = {
            State.OFF: self._steps.off,
            State.LOADER: self._steps.loader,
            State.FLASHED: lambda: self._flashed(was),
            State.PROVISIONED: lambda: self._provisioned(was),
            State.PUBLISHING: lambda: self._publishing(was),
        }
        ways[to]()
        self.state = to

    def _flashed(self, was: State | None) -> None:
        if was is not State.FLASHED:
            self._steps.flashed()

    def _provisioned(self, was: State | None) -> None:
        if was not in (State.PROVISIONED, State.PUBLISHING):
            self._steps.provisioned(fresh=was is State.FLASHED)

    def _publishing(self, was: State | None) -> None:
        self._provisioned(was)
        self._steps.publishing(running=was is State.PUBLISHING)

    def is_now(self, state: State) -> None:
        """A behaviour has led there by itself."""
        self.state = state

    def lost(self) -> None:
        """Whatever it was, it may not be any more."""
        self.state = None
