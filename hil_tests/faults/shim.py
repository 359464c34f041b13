"""The LD_PRELOADed library (shim.c): compiled once, its switches in a file that processes map."""

from __future__ import annotations

import hashlib
import mmap
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

SOURCE = Path(__file__).with_name("shim.c")
BUILD = Path(__file__).resolve().parents[2] / "build" / "faults"
_FLAGS = ("-O1", "-Wall", "-Wextra", "-Werror", "-Wno-nonnull-compare", "-shared", "-fPIC")
# Order of the words in shim.c.
_ENOSPC, _SYNC_MS, _CLOCK_NS, _RECORD = range(4)
_WORDS = 4


class NoCompiler(Exception):
    """The library cannot be made here."""


def library() -> Path:
    """The compiled library; compiled when it is not there yet. NoCompiler."""
    made = BUILD / f"shim-{hashlib.sha256(SOURCE.read_bytes()).hexdigest()[:16]}.so"
    if made.exists():
        return made
    compiler = shutil.which("cc")
    if compiler is None:
        raise NoCompiler("there is no C compiler (cc) here: apt-get install gcc libc6-dev")
    BUILD.mkdir(parents=True, exist_ok=True)
    # Under a name of its own, then renamed: several test processes may come here at once.
    with tempfile.TemporaryDirectory(dir=BUILD) as folder:
        fresh = Path(folder) / made.name
        done = subprocess.run(  # noqa: S603 - our own source, the system's compiler
            [compiler, *_FLAGS, "-o", str(fresh), str(SOURCE), "-ldl"],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise NoCompiler(f"cc could not compile {SOURCE}: {done.stderr[-2000:]}")
        fresh.rename(made)
    return made


class Shim:
    """The switches for all processes that run below `root`; `shadow` is where synced states go."""

    def __init__(self, folder: Path, root: Path, lie: str = "") -> None:
        self.root, self.shadow, self._lie = root, folder / "synced", lie
        self.shadow.mkdir(exist_ok=True)
        self._path = folder / "switches"
        self._path.write_bytes(bytes(8 * _WORDS))
        with self._path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), 8 * _WORDS)
        self._words = memoryview(self._map).cast("q")

    def environment(self) -> dict[str, str]:
        """What a process under the shim is started with."""
        told = {
            **os.environ,
            "LD_PRELOAD": str(library()),
            "FAULTS_CONTROL": str(self._path),
            "FAULTS_ROOT": str(self.root),
            "FAULTS_SHADOW": str(self.shadow),
        }
        return told | ({"FAULTS_LIE": self._lie} if self._lie else {})

    def full(self, on: bool) -> None:
        """The disk is full: writes below the root fail with ENOSPC."""
        self._words[_ENOSPC] = int(on)

    def slow(self, ms: int) -> None:
        """Each sync below the root takes so much longer."""
        self._words[_SYNC_MS] = ms

    def clock(self, seconds: float) -> None:
        """How far the wall clock is from the real one."""
        self._words[_CLOCK_NS] = int(seconds * 1e9)

    @property
    def shift(self) -> float:
        """Seconds, as `clock` set them."""
        return self._words[_CLOCK_NS] / 1e9

    def record(self, on: bool) -> None:
        """Keep what is synced from now on."""
        self._words[_RECORD] = int(on)

    def calm(self) -> None:
        """Every fault off; the clock stays where it is."""
        self.full(False)
        self.slow(0)
        self.record(False)
