"""Virtual boards to flash, what the flash must then hold, and an eye on every command line."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType

from sealmq_vboard import folder as folders
from sealmq_vboard.board import VirtualBoard
from sealmq_vboard.chips import CHIPS
from sealmq_vboard.firmware_image import firmware as stand_in

PATIENCE_S = 240.0
MIB = 1 << 20
# What lies on a board before: neither bytes of ours nor erased.
BEFORE = b"what was there before"


def firmware_file(folder: Path, chip: str = "esp32", size: int = 0) -> Path:
    """A stand-in for MicroPython's .bin, filled up to a size with what does not compress."""
    path = folder / f"{chip}.bin"
    path.write_bytes(stand_in(CHIPS[chip], size))
    return path


@contextmanager
def board(
    folder: Path, number: int = 1, chip: str = "esp32", **how: object
) -> Iterator[VirtualBoard]:
    """A board in its ROM loader whose flash is full of something else."""
    setup = folders.Setup(chip=chip, bits=64, mac=f"02:00:00:00:00:{number:02x}")
    folders.create(folder, setup)
    flash = folder / "flash.bin"
    flash.write_bytes((BEFORE * (4 * MIB // len(BEFORE) + 1))[: 4 * MIB])
    made = VirtualBoard(folder, **({"pty": True} | how))  # type: ignore[arg-type]
    made.start()
    try:
        if "rfc2217" not in how:
            made.ctl({"do": "download", "on": True})
        yield made
    finally:
        made.stop()


def cells(made: VirtualBoard, at: int = 0, size: int = 4 * MIB) -> bytes:
    """What the flash holds."""
    with (made.folder / "flash.bin").open("rb") as file:
        file.seek(at)
        return file.read(size)


def cannot_start(made: VirtualBoard) -> bool:
    """Whether the ROM finds no bootloader."""
    return cells(made, 0x1000, 4096) == b"\xff" * 4096


def check_whole(made: VirtualBoard, firmware: Path, nvs: bytes, vfs: bytes) -> None:
    """All of it is there, and what lies between is as it was."""
    raw = firmware.read_bytes()
    assert cells(made, 0x1000, 0x1000) == raw[:0x1000]  # the stand-in's bootloader has less
    assert cells(made, 0x8000, 0x1000) == raw[0x7000:0x8000]
    assert cells(made, 0x10000, len(raw) - 0xF000) == raw[0xF000:]
    assert cells(made, 0x9000, 0x6000) == nvs
    assert digest(cells(made, 0x200000, 0x200000)) == digest(vfs)
    was = (BEFORE * 4000)[:0x10000]
    assert cells(made, 0xF000, 0x1000) == was[0xF000:]
    assert cells(made, 0, 0x1000) == was[:0x1000]


def digest(raw: bytes) -> str:
    """For a short message when two images differ."""
    return hashlib.sha256(raw).hexdigest()


def start(
    *words: str | Path, umask: int = -1, env: dict[str, str] | None = None
) -> subprocess.Popen[str]:
    """`sealmq board` in the background, its output in pipes."""
    return subprocess.Popen(
        [sys.executable, "-m", "sealmq_board", *map(str, words)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        umask=umask,
        env=env,
    )


def esptool_for(port: str, command: str) -> int:
    """The process of that esptool, once it runs."""
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        for pid, words in _commands():
            if "esptool" in words and port in words and command in words:
                return pid
        time.sleep(0.05)
    raise TimeoutError(f"no esptool {command} on {port}")


def until_programmed(made: VirtualBoard, pages: int) -> None:
    """Waits until so many pages were written since the start."""
    end = time.monotonic() + PATIENCE_S
    while made.ctl({"do": "status"})["flash"]["programs"] < pages:
        if time.monotonic() > end:
            raise TimeoutError(f"fewer than {pages} pages were written")
        time.sleep(0.03)


class Watch:
    """Reads all command lines and environments that this user may read, again and again."""

    def __init__(self, *secrets: str) -> None:
        self._secrets = [secret.encode() for secret in secrets]
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.found: set[str] = set()
        self.looks = 0

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(0.25):
            self.looks += 1
            for name in filter(str.isdigit, os.listdir("/proc")):
                for what in ("cmdline", "environ"):
                    with suppress(OSError):
                        raw = Path(f"/proc/{name}/{what}").read_bytes()
                        if any(secret in raw for secret in self._secrets):
                            self.found.add(raw.decode(errors="replace"))


def _commands() -> list[tuple[int, list[str]]]:
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        with suppress(OSError):
            words = Path(f"/proc/{name}/cmdline").read_bytes().decode(errors="replace")
            found.append((int(name), words.split("\0")))
    return found
