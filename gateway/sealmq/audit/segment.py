"""One segment: written as NAME.jsonl.open, fsynced, renamed once to NAME.jsonl, then left alone.

Readers take closed segments only. The writer holds a lock (flock) on its open one, so that whoever
finds an unlocked one knows that its process has died.
"""

from __future__ import annotations

import fcntl
import json
import os
from pathlib import Path
from typing import NamedTuple

from sealmq.site.layout import sync_folder

OPEN = ".jsonl.open"
CLOSED = ".jsonl"


class Segment:
    """An open segment. OSError from any method; then call `undo` before trying again."""

    def __init__(self, folder: Path, name: str) -> None:
        """FileExistsError when the name has been used, open or closed."""
        self._folder = folder
        self._open = folder / f"{name}{OPEN}"
        self._closed = folder / f"{name}{CLOSED}"
        if self._closed.exists():
            raise FileExistsError(self._closed)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC
        self._fd = os.open(self._open, flags, 0o640)
        self._renamed = False
        self.size = 0
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            sync_folder(folder)
        except OSError:
            # One that another process took for a dead one's, and has closed by now, is gone.
            os.close(self._fd)
            self._open.unlink(missing_ok=True)
            raise

    def append(self, data: bytes) -> None:
        """Write whole lines and fsync them."""
        view = memoryview(data)
        while view:
            view = view[os.write(self._fd, view) :]
        os.fsync(self._fd)
        self.size += len(data)

    def undo(self) -> None:
        """Take back what a failed append has left."""
        os.ftruncate(self._fd, self.size)

    def close(self) -> None:
        """Give it its final name, durably. After an OSError it may be called again."""
        if not self._renamed:
            os.fsync(self._fd)
            if self._closed.exists():
                raise FileExistsError(self._closed)
            os.rename(self._open, self._closed)
            self._renamed = True
        sync_folder(self._folder)
        os.close(self._fd)

    def abandon(self) -> None:
        """Let it go as it is; the next process closes it."""
        os.close(self._fd)


class Recovered(NamedTuple):
    """What was found in a segment that a dead process had left open. after: whole lines after the
    first that was none, which a process that died does not leave.
    """

    segment: str
    lines: int
    dropped_bytes: int
    after: int


def recover(folder: Path, role: str) -> list[Recovered]:
    """Close what dead processes of this role have left open. A torn tail is cut off."""
    found = []
    for path in sorted(folder.glob(f"{role}-*{OPEN}")):
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            closed = path.with_name(path.name.removesuffix(".open"))
            if not closed.exists():
                found.append(_close(fd, path, closed))
        except BlockingIOError:
            continue  # its process lives
        finally:
            os.close(fd)
    if found:
        sync_folder(folder)
    return found


def _close(fd: int, path: Path, closed: Path) -> Recovered:
    data = path.read_bytes()
    good, lines = _whole(data)
    if good < len(data):
        os.ftruncate(fd, good)
    os.fsync(fd)
    os.rename(path, closed)
    tail = data[good:]
    return Recovered(closed.name, lines, len(tail), _records(tail))


def _whole(data: bytes) -> tuple[int, int]:
    """(bytes, lines) up to the first line that is torn or no JSON object."""
    at = lines = 0
    while (end := data.find(b"\n", at)) >= 0:
        if not _is_record(data[at:end]):
            break
        at = end + 1
        lines += 1
    return at, lines


def _records(tail: bytes) -> int:
    return sum(map(_is_record, tail.split(b"\n")[:-1]))


def _is_record(line: bytes) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False
