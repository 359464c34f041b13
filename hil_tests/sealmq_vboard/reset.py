"""The reset circuit of a usual board: two transistors from DTR and RTS to EN and IO0.

EN is low while RTS is on and DTR is not; IO0 is low while DTR is on and RTS is not; with both on or
both off, neither is. A capacitor at EN lets it rise slowly: a host that goes from "EN low" to
"IO0 low" through "both on" still meets a chip that has not yet looked at IO0. Sans-IO.
"""

from __future__ import annotations

import enum

# How long the capacitor is given when both are on; a USB bridge is faster, a network slower.
CAPACITOR_S = 0.5


class Act(enum.Enum):
    NOTHING = "nothing"
    HOLD = "hold"  # EN is low: the chip stands still
    WAIT = "wait"  # EN rises: call `risen` after CAPACITOR_S, if nothing else comes
    DOWNLOAD = "download"  # out of reset with IO0 low
    BOOT = "boot"


class ResetCircuit:
    def __init__(self) -> None:
        self.dtr = False
        self.rts = False
        self._held = False
        self._rising = False

    @property
    def held(self) -> bool:
        return self._held

    def lines(self, dtr: bool, rts: bool) -> Act:
        """The host has set its lines."""
        self.dtr, self.rts = dtr, rts
        if rts and not dtr:
            self._rising = False
            if self._held:
                return Act.NOTHING
            self._held = True
            return Act.HOLD
        if not self._held and not self._rising:
            return Act.NOTHING
        self._held = False
        if rts:  # and dtr
            self._rising = True
            return Act.WAIT
        self._rising = False
        return Act.DOWNLOAD if dtr else Act.BOOT

    def risen(self) -> Act:
        """The capacitor is full: the chip looks at IO0, which "both on" leaves high."""
        if not self._rising:
            return Act.NOTHING
        self._rising = False
        return Act.BOOT
