"""A virtual board that has files in its flash, its serial line, and the unmodified mpremote."""

from __future__ import annotations

import re
import select
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from littlefs import LittleFS

from sealmq_vboard import folder as folders
from sealmq_vboard.board import VirtualBoard
from sealmq_vboard.chips import CHIPS
from sealmq_vboard.firmware_image import firmware

VFS, VFS_SIZE = 0x200000, 0x200000
NETWORK = {"ssid": "factory floor", "key": "not so secret"}
_PATIENCE_S = 60.0


def image(files: Mapping[str, str | bytes]) -> bytes:
    """The partition `vfs`, as the tools for real boards make it."""
    fs = LittleFS(block_size=4096, block_count=512, prog_size=256, read_size=32, lookahead_size=32)
    for name, content in files.items():
        for parent in reversed(Path(name).parents):
            if str(parent) not in (".", "/"):
                fs.makedirs(str(parent), exist_ok=True)
        with fs.open(name, "wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
    return bytes(fs.context.buffer)


class Line:
    """The board's UART, by TCP."""

    def __init__(self, board: VirtualBoard) -> None:
        self.board = board
        where = re.fullmatch(r"socket://([\d.]+):(\d+)", board.url_tcp or "")
        assert where is not None
        self._socket = socket.create_connection((where[1], int(where[2])), timeout=_PATIENCE_S)
        self._buffer = b""

    def close(self) -> None:
        self._socket.close()

    def send(self, data: bytes) -> None:
        self._socket.sendall(data)

    def until(self, end: bytes) -> str:
        """All that comes up to and with `end`."""
        while end not in self._buffer:
            more = self._socket.recv(65536)
            assert more, self._buffer
            self._buffer += more
        found, _, self._buffer = self._buffer.partition(end)
        return (found + end).decode("utf-8", "backslashreplace")

    def heard(self) -> None:
        """Until the board, in download mode, knows this line: it speaks at each reset."""
        while not select.select([self._socket], [], [], 0.02)[0]:
            self.board.ctl({"do": "reset"})

    def raw(self) -> None:
        """Into the raw REPL, whatever runs."""
        self.send(b"\r\x03")
        self.send(b"\r\x01")
        self.until(b"raw REPL; CTRL-B to exit\r\n>")

    def begin(self, code: str) -> None:
        self.send(code.encode() + b"\x04")
        self.until(b"OK")

    def end(self) -> tuple[str, str]:
        """What it printed, and its traceback."""
        out = self.until(b"\x04")[:-1]
        error = self.until(b"\x04")[:-1]
        self.until(b">")
        return out, error

    def run(self, code: str) -> str:
        """What it prints, without the line ends; it must not raise."""
        self.begin(code)
        out, error = self.end()
        assert not error, error
        return out.replace("\r\n", "\n").rstrip("\n")

    def fails(self, code: str) -> str:
        """The last line of its traceback."""
        self.begin(code)
        _, error = self.end()
        assert error, "it raised nothing"
        return error.replace("\r\n", "\n").rstrip("\n").rpartition("\n")[2]


@contextmanager
def booted(
    folder: Path, bits: int = 64, files: Mapping[str, str | bytes] | None = None, **how: Any
) -> Iterator[Line]:
    """A board that boots with these files, and its line, on which nothing was missed."""
    setup = folders.Setup(chip="esp32", bits=bits, mac="02:00:00:00:00:01", wifi=[NETWORK])
    folders.create(folder, setup)
    chip = CHIPS["esp32"]
    with (folder / "flash.bin").open("r+b") as file:
        file.seek(chip.bootloader)
        file.write(firmware(chip))
        if files is not None:
            file.seek(VFS)
            file.write(image(files))
    board = VirtualBoard(folder, tcp=0, download=True, **{"pty": False, **how})
    board.start()
    try:
        line = Line(board)
        line.heard()
        board.ctl({"do": "download", "on": False})
        yield line
        line.close()
    finally:
        board.stop()


def mpremote(port: str | None, *words: str, fails: bool = False) -> str:
    """One run of it: all it printed."""
    assert port is not None
    done = subprocess.run(
        [sys.executable, "-m", "mpremote", "connect", port, *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=_PATIENCE_S,
        check=False,
    )
    assert (done.returncode != 0) == fails, done.stdout
    return done.stdout
