"""SITE/log/up.log: what `sealmq up` writes in the background, a line with its time each.

The folder is the supervisor's alone (0700): run/ is not, other users of the site write there. Two
files of at most LARGEST bytes are kept, so that nobody who causes lines can fill the disk.
"""

from __future__ import annotations

import contextlib
import os
import time
from datetime import datetime
from pathlib import Path

from sealmq.plain import plain

LARGEST = 4 << 20
OLDER = ".1"


class LogFile:
    """Open for appending. `write` never raises: a full disk must not end a site."""

    def __init__(self, path: Path) -> None:
        """OSError: it cannot be opened."""
        path.parent.mkdir(mode=0o700, exist_ok=True)
        self._path = path
        self.fd = self._open()

    def _open(self) -> int:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
        return os.open(self._path, flags, 0o600)

    def write(self, line: str) -> None:
        """One line; what cannot be shown on a terminal is escaped."""
        text = plain(line)
        with contextlib.suppress(OSError):
            self._rotate()
        with contextlib.suppress(OSError):
            os.write(self.fd, f"{stamp(time.time())} {text}\n".encode(errors="replace"))

    # The descriptor's number stays: stdout and stderr are copies of it, and follow. Also where
    # somebody has taken the file away, or a full disk has kept the new one from being made.
    def _rotate(self) -> None:
        have = os.fstat(self.fd)
        try:
            there = self._path.lstat()
            ours = (there.st_dev, there.st_ino) == (have.st_dev, have.st_ino)
        except FileNotFoundError:
            ours = False
        if ours and have.st_size < LARGEST:
            return
        if ours:
            os.replace(self._path, self._path.with_name(self._path.name + OLDER))
        new = self._open()
        for fd in (self.fd, 1, 2):
            os.dup2(new, fd, inheritable=fd != self.fd)
        os.close(new)


def stamp(at_s: float) -> str:
    """UTC, to the millisecond, as text that sorts by time."""
    whole = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(at_s))
    return f"{whole}.{int(at_s * 1000) % 1000:03}Z"


def when_ms(text: str) -> int | None:
    """Unix ms of such a stamp; None: it is none."""
    try:
        return round(datetime.strptime(text, "%Y-%m-%dT%H:%M:%S.%f%z").timestamp() * 1000)
    except ValueError:
        return None
