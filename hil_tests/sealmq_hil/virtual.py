"""A virtual board: `sealmq vboard run` as a process, and its control socket."""

from __future__ import annotations

import subprocess
import threading
from pathlib import Path
from typing import Any

from sealmq_vboard.control import ask
from sealmq_vboard.errors import BoardError

from .board import CUT, POWER, WIFI, Board, Place
from .errors import Failed, RigError
from .processes import module, ordered, until

_START_S = 60.0


class VirtualBoard(Board):
    """On a pseudo-terminal: esptool cannot reset it there, `loader` does."""

    esptool_before = esptool_after = "no-reset"
    means = frozenset({POWER, WIFI, CUT})

    def __init__(
        self, name: str, folder: Path, wifi: Path, chip: str = "esp32", bits: int = 64
    ) -> None:
        """wifi: the network in its reach, as boards are told it."""
        super().__init__(name, "virtual", chip)
        self.folder, self._wifi, self._bits = folder, wifi, bits
        self._process: subprocess.Popen[str] | None = None
        self._armed = 0
        self._missing: list[str] = []

    def start(self) -> None:
        """A new, erased board, switched on."""
        words = ["new", str(self.folder), "--chip", self.chip, "--bits", str(self._bits)]
        words += ["--wifi", str(self._wifi)]
        ordered(module("sealmq_vboard", *words), timeout=_START_S)
        with (self.folder / "run.log").open("w") as log:
            process = self._process = subprocess.Popen(  # noqa: S603 - our own words
                module("sealmq_vboard", "run", str(self.folder), "--pty"),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        watch = threading.Timer(_START_S, process.kill)
        watch.start()
        try:
            self.port = self._ports(process)
        finally:
            watch.cancel()
        until("its control socket", lambda: (self.folder / "control.sock").exists(), _START_S)
        self._missing = [str(line) for line in self.ctl("status").get("not_modelled", [])]

    def _ports(self, process: subprocess.Popen[str]) -> str:
        port = ""
        for line in process.stdout or ():
            kind, _, where = line.strip().partition(" ")
            if kind == "pty":
                port = where
            if kind == "ready" and port:
                return port
        log = (self.folder / "run.log").read_text()[-300:].strip()
        raise RigError(f"{self.name}: `sealmq vboard run` ended: {log or 'without a word'}")

    def stop(self) -> None:
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(20)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            if self._process.stdout is not None:
                self._process.stdout.close()
            self._process = None

    def ctl(self, do: str, **fields: object) -> dict[str, Any]:
        """One request to the board's control socket. Failed: what it answers."""
        try:
            return ask(self.folder, {"do": do, **fields})
        except (BoardError, OSError) as error:
            raise Failed(f"{self.name}: {do}: {error}") from None

    def power(self, on: bool) -> None:
        self.ctl("power", on=on)

    def wifi(self, on: bool) -> None:
        self.ctl("wifi", on=on)

    def loader(self, on: bool) -> None:
        self.ctl("download", on=on)

    def reset(self) -> None:
        self.ctl("reset")

    def arm(self, after: int, inside: bool, seed: int) -> None:
        self._armed = after
        self.ctl("cut", after=after, inside=inside, seed=seed)

    def disarm(self) -> None:
        self.ctl("cut", after=None)

    def place(self) -> Place | None:
        status = self.ctl("status")
        flash = status["flash"]
        if flash["cut_armed"] is not None or status["mode"] != "off":
            return None
        cut = flash["last_cut"]
        if cut is None:
            return None
        return Place(
            after=self._armed + 1,
            op=cut["what"],
            address=cut["at"],
            size=cut["length"],
            done=cut.get("done", 0),
            inside=cut["inside"],
        )

    def changes(self) -> int:
        flash = self.ctl("status")["flash"]
        return int(flash["programs"]) + int(flash["erases"])

    def arch(self) -> str:
        return "x86" if self._bits == 32 else "x64"

    def interpreter(self) -> str:
        return f"MicroPython of this host, {self._bits} bits"

    def not_modelled(self) -> list[str]:
        return self._missing
