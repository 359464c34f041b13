"""The chip with its flash: power, reset, what the straps lead to, and what boots.

The way is a real one's: power -> reset -> the straps decide: download mode (the loader) or booting
from flash (the checks of the ROM and the bootloader, then the interpreter). All of it runs on the
board's loop, and nothing blocks.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .child import Child
from .chips import CHIPS
from .flash import Flash, PowerLost
from .folder import Setup
from .image import NoBoot, check_flash
from .loader import Loader
from .reset import CAPACITOR_S, Act, ResetCircuit

# A flash that does not boot is tried again and again, as on a real chip, but not as fast.
_AGAIN_S = 1.0
# A program that resets the chip at once may do so this often.
_LEAST_RUN_S = 0.2

_CAUSES = {
    "power": "rst:0x1 (POWERON_RESET)",
    "pin": "rst:0x1 (POWERON_RESET)",
    "reset": "rst:0xc (SW_CPU_RESET)",
    "sleep": "rst:0x5 (DEEPSLEEP_RESET)",
    "watchdog": "rst:0x10 (RTCWDT_RTC_RESET)",
}


class Soc:
    def __init__(
        self,
        folder: Path,
        setup: Setup,
        flash: Flash,
        console: Callable[[bytes], None],
        *,
        download: bool,
    ) -> None:
        self.chip = CHIPS[setup.chip]
        self.flash = flash
        flash.on_cut = self._cut
        self.loader = Loader(self.chip, flash, setup.mac_bytes)
        self.child = Child(folder, flash, console, self._ended)
        # off, held (EN is low), download, run, over (the interpreter ended; it boots again soon),
        # empty (nothing that boots)
        self.mode = "off"
        self.download = download  # IO0 held low by hand
        self.boots = 0
        self.cuts: list[dict[str, Any]] = []  # where each power cut fell
        self._console = console
        self._circuit = ResetCircuit()
        self._loop = asyncio.get_running_loop()
        self._later: asyncio.TimerHandle | None = None
        self._rising: asyncio.TimerHandle | None = None
        self._booted_at = 0.0

    # -- the serial line

    def received(self, data: bytes) -> None:
        if self.mode == "download":
            try:
                out = self.loader.feed(data)
            except PowerLost:
                return
            self._console(out)
            if self.loader.leaving == "run":
                self._boot("reset")
            elif self.loader.leaving == "reset":
                self.reset("reset")
        elif self.mode == "run":
            self.child.write(data)

    def lines(self, dtr: bool, rts: bool) -> None:
        act = self._circuit.lines(dtr, rts)
        if act is Act.NOTHING:
            return
        if self._rising is not None:
            self._rising.cancel()
            self._rising = None
        if self.mode == "off":
            return
        if act is Act.HOLD:
            self._stop()
            self.mode = "held"
        elif act is Act.WAIT:
            self._rising = self._loop.call_later(CAPACITOR_S, self._risen)
        elif act is Act.DOWNLOAD:
            self._enter_download("pin")
        else:
            self.reset("pin")

    def _risen(self) -> None:
        self._rising = None
        if self._circuit.risen() is Act.BOOT and self.mode == "held":
            self.reset("pin")

    # -- power and reset

    def power(self, on: bool) -> None:
        self._stop()
        self.mode = "off"
        if not on:
            self.flash.power_off()
            return
        self.flash.power_on()
        if self._circuit.held:
            self.mode = "held"
        else:
            self.reset("power")

    def reset(self, cause: str = "pin") -> None:
        if self.download or self.loader.registers.forced_download():
            self._enter_download(cause)
        else:
            self._boot(cause)

    def close(self) -> None:
        self._stop()
        self.mode = "off"
        self.child.close()

    def _stop(self) -> None:
        """Nothing of the chip runs any more."""
        if self._later is not None:
            self._later.cancel()
            self._later = None
        self.child.kill()

    def _cut(self) -> None:
        """The flash lost its power in the middle of a write, and with it the board."""
        by = "loader" if self.mode == "download" else "program"
        self.cuts.append({"by": by, "done": 0, **(self.flash.last_cut or {})})
        self._stop()
        self.mode = "off"

    def _enter_download(self, cause: str) -> None:
        self._stop()
        self.loader.reset()
        self.loader.registers.download = True
        self.mode = "download"
        self._say(f"\r\n{_CAUSES[cause]},{self.chip.boot_lines[1]}\r\nwaiting for download\r\n")

    def _boot(self, cause: str) -> None:
        if self.mode != "over":
            self._stop()
        self.loader.reset()
        self.loader.registers.download = False
        self.boots += 1
        self._say(f"\r\n{_CAUSES[cause]},{self.chip.boot_lines[0]}\r\n")
        try:
            check_flash(self.flash.read, self.flash.size, self.chip)
        except NoBoot as error:
            self.mode = "empty"
            self._say(f"{error}\r\n")
            self._after(_AGAIN_S, "watchdog")
            return
        self.mode = "run"
        self._booted_at = time.monotonic()
        try:
            self.child.start()
        except PowerLost:
            return
        except OSError as error:
            self._ended(f"it cannot be started: {error}")

    def _ended(self, why: str) -> None:
        """The interpreter's process is gone by itself: reset, sleep, watchdog, or what happened."""
        if self.mode != "run":
            return
        self.mode = "over"
        if why in _CAUSES:
            ran = time.monotonic() - self._booted_at
            self._after(max(0.0, _LEAST_RUN_S - ran), why)
        else:
            self._say(f"\r\nvirtual board: the interpreter ended: {why}\r\n")
            self._after(_AGAIN_S, "reset")

    def _after(self, seconds: float, cause: str) -> None:
        self._later = self._loop.call_later(seconds, self._again, cause)

    def _again(self, cause: str) -> None:
        self._later = None
        self.reset(cause)

    def _say(self, text: str) -> None:
        self._console(text.encode("ascii", "replace"))
