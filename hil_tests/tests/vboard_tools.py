"""A virtual board in this process, and the unmodified esptool beside it."""

from __future__ import annotations

import os
import select
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sealmq_vboard import folder as folders
from sealmq_vboard.board import VirtualBoard
from sealmq_vboard.slip import frame

_PATIENCE_S = 120.0
MAC = "02:00:00:c0:ff:db"  # with SLIP's and telnet's special bytes in it


SYNC = frame(struct.pack("<BBHI", 0, 8, 36, 0) + b"\x07\x07\x12\x20" + b"\x55" * 32)
SYNCED = frame(struct.pack("<BBHI", 1, 8, 4, 0x55201207) + bytes(4)) * 8


@contextmanager
def board(
    folder: Path, *, chip: str = "esp32", mac: str = MAC, **how: Any
) -> Iterator[VirtualBoard]:
    """A new board, on. `how`: pty, tcp, rfc2217, download."""
    folders.create(folder, folders.Setup(chip=chip, bits=64, mac=mac))
    made = VirtualBoard(folder, **how)
    made.start()
    try:
        yield made
    finally:
        made.stop()


def command(port: str, *words: str, reset: bool = False) -> list[str]:
    front = [sys.executable, "-m", "esptool", "--port", port]
    if not reset:
        front += ["--before", "no-reset", "--after", "no-reset"]
    return [*front, *words]


def esptool(port: str | None, *words: str, reset: bool = False, fails: bool = False) -> str:
    """One run of it: all it printed."""
    assert port is not None
    done = subprocess.run(
        command(port, *words, reset=reset),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=_PATIENCE_S,
        check=False,
    )
    assert (done.returncode != 0) == fails, done.stdout
    return done.stdout


def until(what: Callable[[], bool]) -> None:
    end = time.monotonic() + _PATIENCE_S
    while not what():
        assert time.monotonic() < end, "it did not come to that"
        time.sleep(0.005)


def cells(made: VirtualBoard, at: int, length: int) -> bytes:
    """What the flash holds, read from its file."""
    with (made.folder / "flash.bin").open("rb") as file:
        file.seek(at)
        return file.read(length)


def mode(made: VirtualBoard) -> str:
    return str(made.ctl({"do": "status"})["mode"])


def hear(descriptor: int, wanted: bytes) -> bytes:
    """Reads until that was said."""
    heard = b""
    end = time.monotonic() + 60
    while wanted not in heard:
        assert time.monotonic() < end, heard
        if select.select([descriptor], [], [], 0.2)[0]:
            try:
                heard += os.read(descriptor, 65536)
            except BlockingIOError:
                continue
    return heard


def connect(url: str | None) -> socket.socket:
    assert url is not None
    host, port = url.split("//")[1].split(":")
    return socket.create_connection((host, int(port)), timeout=60)
