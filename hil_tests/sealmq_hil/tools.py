"""The programs that a board is handled with: esptool, `sealmq board`. Each is a process."""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sealmq_board.chips import CHIPS

from .board import Board
from .errors import Failed, RigError
from .processes import last_words, module, ordered, run

NVS_AT, VFS_AT = 0x9000, 0x200000
PARTITIONS = (
    ("bootloader", 0x0, 0x8000),
    ("partitions", 0x8000, 0x1000),
    ("nvs", 0x9000, 0x6000),
    ("phy_init", 0xF000, 0x1000),
    ("factory", 0x10000, 0x1F0000),
    ("vfs", 0x200000, 0x200000),
)
_BAUD = "460800"
_PATIENCE_S = 300.0
BUILT = Path(__file__).resolve().parents[2] / "build/firmware"
_HEAP = "import gc; gc.collect(); print(gc.mem_free())"


def partition(address: int) -> str:
    """Whose place an address is, in MicroPython's own layout."""
    return next((n for n, at, size in PARTITIONS if at <= address < at + size), "beyond")


@dataclass(frozen=True, slots=True)
class Bundle:
    """What `sealmq board build` made. image: the digest over what is no secret."""

    folder: Path
    nvs: Path
    vfs: Path
    image: str


@dataclass(frozen=True, slots=True)
class Written:
    """What a flashing did."""

    image: str
    bytes: int


# Where the first bytes of a firmware file go.
def _begin(board: Board) -> str:
    return f"{CHIPS[board.chip].boot_offset:#x}"


class Tools:
    """Of one run. firmware: by chip; of a virtual board a stand-in is made once. files: what `make
    firmware` leaves. every: seconds between two messages of a board.
    """

    def __init__(
        self,
        folder: Path,
        firmware: dict[str, Path],
        wifi: Path | None,
        files: Path = BUILT,
        every: float = 1.0,
    ) -> None:
        self.folder, self._firmware, self._wifi = folder, firmware, wifi
        self.files, self.every = files, every
        self._lock = threading.Lock()

    def firmware(self, board: Board) -> Path:
        """The file for this board. RigError where there is none."""
        if board.kind != "virtual":
            if board.chip not in self._firmware:
                raise RigError(
                    f"no firmware for {board.chip}",
                    "firmware under [rig] in rig.toml: MicroPython's .bin for this chip",
                )
            return self._firmware[board.chip]
        with self._lock:
            file = self.folder / f"stand-in-{board.chip}.bin"
            if not file.exists():
                ordered(
                    module("sealmq_vboard", "firmware", str(file), "--chip", board.chip),
                    timeout=120,
                )
            return file

    def bundle(self, board: Board, enrolment: Path, topic: str) -> Bundle:
        """The images of one board, made anew."""
        folder = enrolment.parent / f"{board.name}.board"
        words = ["build", "--enrolment", str(enrolment), "--chip", board.chip, "--replace"]
        words += ["--topic", topic, "--every", f"{self.every:g}", "-o", str(folder)]
        words += ["--files", str(self.files), *self._network(board)]
        if board.arch():
            words += ["--arch", board.arch()]
        ordered(module("sealmq_board", *words), timeout=300)
        about = json.loads((folder / "bundle.json").read_text())
        image = hashlib.sha256(self.firmware(board).read_bytes())
        image.update(bytes.fromhex(about["sha256"]["vfs.bin"]))
        return Bundle(folder, folder / "nvs.bin", folder / "vfs.bin", image.hexdigest())

    def wifi(self, kind: str) -> Path:
        """The file of the network that such boards join. RigError where there is none."""
        if kind != "virtual":
            if self._wifi is None:
                raise RigError("real boards need Wi-Fi", "wifi under [rig] in rig.toml")
            return self._wifi
        file = self.folder / "wifi.json"
        with self._lock:
            if not file.exists():
                file.touch(mode=0o600)
                file.write_text('{"ssid": "virtual", "key": "not-a-secret"}')
        return file

    def _network(self, board: Board) -> list[str]:
        return ["--wifi", str(self.wifi(board.kind))]

    # --- esptool, by its plain command line ------------------------------------------------------

    def esptool(self, board: Board, *words: str, after: str = "", timeout: float = 600) -> str:
        """Runs it on the board's port; what it printed. Failed."""
        line = ["--chip", board.chip, "--port", board.port, "--baud", _BAUD]
        line += ["--before", board.esptool_before, "--after", after or board.esptool_after]
        done = run(module("esptool", *line, *words), timeout=timeout)
        if done.returncode:
            raise Failed(f"esptool {words[0]} ended with {done.returncode}: {last_words(done)}")
        return done.stdout

    def write(self, board: Board, bundle: Bundle) -> Written:
        """Firmware, then secret and file system, verified by esptool.

        The firmware's file goes on over the NVS partition, so one command cannot write both.
        """
        firmware = self.firmware(board)
        parts = ((NVS_AT, bundle.nvs), (VFS_AT, bundle.vfs))
        words = [word for at, file in parts for word in (f"{at:#x}", str(file))]
        first = (_begin(board), str(firmware))
        said = self.esptool(board, "write-flash", *first, after="no-reset")
        said += self.esptool(board, "write-flash", *words)
        if said.count("verified") < 1 + len(parts):
            raise Failed("esptool did not say that it verified what it wrote")
        files = (firmware, bundle.nvs, bundle.vfs)
        return Written(bundle.image, sum(file.stat().st_size for file in files))

    def bare(self, board: Board) -> None:
        """An erased flash, and MicroPython in it."""
        self.esptool(board, "erase-flash", after="no-reset")
        self.esptool(
            board, "write-flash", f"{CHIPS[board.chip].boot_offset:#x}", str(self.firmware(board))
        )

    # --- sealmq board ----------------------------------------------------------------------------

    def provision(
        self,
        board: Board,
        enrolment: Path,
        topic: str,
        given_up: Callable[[], object] | None = None,
    ) -> None:
        """Over MicroPython, without flashing. given_up: as in processes.run. Failed."""
        words = ["--enrolment", str(enrolment), "--topic", topic, "--every", f"{self.every:g}"]
        words += ["--files", str(self.files), "--port", board.port, *self._network(board)]
        done = run(
            module("sealmq_board", "provision", *words), timeout=_PATIENCE_S, given_up=given_up
        )
        if done.returncode:
            raise Failed(f"sealmq board provision ended with {done.returncode}: {last_words(done)}")

    def info(self, board: Board) -> dict[str, Any]:
        """What the board says of itself."""
        words = ["info", "--port", board.port, "--json"]
        said = ordered(module("sealmq_board", *words), timeout=_PATIENCE_S)
        found = re.search(r"^\{.*", said, re.DOTALL | re.MULTILINE)
        try:
            answer: dict[str, Any] = json.loads(found[0] if found else said)
        except ValueError:
            raise Failed(f"sealmq board info: no JSON: {said[-200:]}") from None
        return answer

    def client_files(self, board: Board) -> tuple[Path, str]:
        """`files`, and the folder in it with the client's files for this board. RigError."""
        name = board.arch() or f"everything/{CHIPS[board.chip].arch}"
        if not (self.files / name).is_dir():
            raise RigError(f"there is no {self.files / name}", "make firmware")
        return self.files, name

    def heap(self, board: Board) -> int:
        """Free bytes behind a collection, with all that the program has loaded; this stops it."""
        said = self.program(board, _HEAP).split()
        if not said or not said[-1].isdecimal():
            raise Failed(f"mpremote: no number, but {' '.join(said)[-100:]!r}")
        return int(said[-1])

    def program(self, board: Board, text: str) -> str:
        """Runs a program in the place of the board's own, which this stops; what it printed."""
        line = ["connect", board.port, "resume", "exec", text]
        return ordered(module("mpremote", *line), timeout=_PATIENCE_S)

    def update(
        self, board: Board, files: Path, *words: str, expected: tuple[int, ...] = (0,)
    ) -> int:
        """The client in this folder, on trial to its end; the exit code, one of those expected."""
        line = ["update", "--port", board.port, "--files", str(files), *words]
        done = run(module("sealmq_board", *line), timeout=600)
        if done.returncode not in expected:
            raise Failed(
                f"sealmq board update ended with {done.returncode}, not {expected[0]}: "
                f"{last_words(done)}"
            )
        return done.returncode
