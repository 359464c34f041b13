"""A virtual board that runs MicroPython, in this process, and `sealmq board` beside it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sealmq_vboard import folder as folders
from sealmq_vboard.board import VirtualBoard
from sealmq_vboard.chips import CHIPS
from sealmq_vboard.firmware_image import firmware

import board_things
from sealmq_board import nvs_image
from sealmq_board.chips import NVS_SIZE

PATIENCE_S = 90.0
WIFI = [{"ssid": "workshop", "key": board_things.WIFI_KEY}]
_NVS = 0x9000


def until(what: str, look: Callable[[], object]) -> None:
    """Waits for a condition."""
    end = time.monotonic() + PATIENCE_S
    while not look():
        assert time.monotonic() < end, f"waited in vain for {what}"
        time.sleep(0.02)


class Living:
    """One board: its power, its flash, and the commands of the operator."""

    def __init__(self, folder: Path, made: VirtualBoard) -> None:
        self.folder = folder
        self.made = made

    @property
    def port(self) -> str:
        assert self.made.pty is not None
        return self.made.pty

    def ctl(self, **request: Any) -> dict[str, Any]:
        answer = self.made.ctl(request)
        assert answer["ok"], answer
        return answer

    def status(self) -> dict[str, Any]:
        return self.ctl(do="status")

    def writes(self) -> int:
        """Programs and erases since the board was made."""
        flash = self.status()["flash"]
        return int(flash["programs"]) + int(flash["erases"])

    def start(self, name: str, *words: object) -> subprocess.Popen[str]:
        """`sealmq board NAME` for this board, under way."""
        command = [sys.executable, "-m", "sealmq_board", name, "--port", self.port]
        return subprocess.Popen(
            [*command, *map(str, words)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def run(self, name: str, *words: object) -> subprocess.CompletedProcess[str]:
        """`sealmq board NAME` for this board; no secret of a test is ever in what it prints."""
        done = board_things.command(name, "--port", self.port, *map(str, words))
        for secret in (board_things.SECRET[:-2], board_things.WIFI_KEY):
            assert secret not in done.stdout + done.stderr
        return done

    def well(self, name: str, *words: object) -> str:
        """As run(), and it went well: what it printed."""
        done = self.run(name, *words)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def info(self, *words: object) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.well("info", "--json", *words))
        return found

    def power_back(self) -> None:
        """Behind a cut: on again."""
        self.ctl(do="cut", after=None)
        self.ctl(do="power", on=False)
        self.ctl(do="power", on=True)

    def image(self) -> bytes:
        """All of its flash."""
        return (self.folder / "flash.bin").read_bytes()

    def nvs(self) -> dict[str, Any]:
        """Our entries of NVS, by a parser that is not the board's."""
        raw = self.image()[_NVS : _NVS + NVS_SIZE]
        found = nvs_image.read(raw)
        return {key: value for (space, key), value in found.items() if space == "sealmq"}

    def says(self, text: str, *words: object) -> str:
        """What it prints until a line has `text`."""
        return self.well("logs", "--until", text, "--timeout", PATIENCE_S, *words)


@contextmanager
def living_board(folder: Path, bits: int = 64) -> Iterator[Living]:
    """A new board that runs MicroPython and has nothing else yet."""
    setup = folders.Setup("esp32", bits, "02:00:00:00:00:01", wifi=WIFI)
    folders.create(folder, setup)
    chip = CHIPS[setup.chip]
    with (folder / "flash.bin").open("r+b") as file:
        file.seek(chip.bootloader)
        file.write(firmware(chip))
    made = VirtualBoard(folder, pty=True)
    made.start()
    try:
        yield Living(folder, made)
    finally:
        made.stop()


def version(printed: str) -> str:
    """Of the client, in a boot line."""
    found = re.search(r"sealmq: boot slot=. ver=(\w{8})", printed)
    assert found, printed
    return found[1]
