"""Secrets on this host: files of mode 0600 in folders of mode 0700, overwritten and removed after
use, also on an error or Ctrl-C. What a kill leaves behind goes at the next run."""

from __future__ import annotations

import contextlib
import glob
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

_NAME = "sealmq-board-"
# Where a file never gets to a disk, as far as there is such a place.
_IN_MEMORY = (os.environ.get("XDG_RUNTIME_DIR", ""), "/dev/shm")  # noqa: S108


@contextlib.contextmanager
def folder(room: int = 0) -> Iterator[Path]:
    """A folder for secrets, in memory if this host has a place with `room` bytes for that. Gone at
    the end."""
    disk = tempfile.gettempdir()
    for place in filter(None, (*_IN_MEMORY, disk)):
        _sweep(Path(place), _NAME)
    base = next((place for place in _IN_MEMORY if _has(place, room)), disk)
    made = draft(Path(base), _NAME)
    try:
        yield made
    finally:
        remove(made)


def draft(base: Path, prefix: str) -> Path:
    """A new folder, mode 0700, whose name says which run's it is. What killed runs have left under
    this prefix goes."""
    _sweep(base, prefix)
    return Path(tempfile.mkdtemp(prefix=f"{prefix}{os.getpid()}-", dir=base))


def write(path: Path, content: bytes) -> None:
    """A new file, mode 0600 whatever the umask is, on disk when this returns."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    with os.fdopen(fd, "wb") as file:
        os.fchmod(fd, 0o600)
        file.write(content)
        file.flush()
        os.fsync(fd)


def shred(path: Path) -> None:
    """Overwrite and remove a file. A journal or a flash disk may still hold the old blocks."""
    try:
        fd = os.open(path, os.O_WRONLY | os.O_NOFOLLOW)
    except FileNotFoundError:
        return
    with os.fdopen(fd, "wb", buffering=0) as file:
        left = os.fstat(fd).st_size
        while left > 0:
            left -= file.write(bytes(min(left, 1 << 16)))
        os.fsync(fd)
    path.unlink(missing_ok=True)


def remove(made: Path) -> None:
    """Shred all files below a folder, then remove it."""
    for path in made.rglob("*"):
        if path.is_file() and not path.is_symlink():
            with contextlib.suppress(OSError):
                shred(path)
    shutil.rmtree(made, ignore_errors=True)


def others_can_read(path: Path) -> int | None:
    """The mode of a file that others than its owner can read or write; None when none can."""
    mode = path.stat().st_mode
    return mode & 0o777 if stat.S_ISREG(mode) and mode & 0o077 else None


def _has(place: str, room: int) -> bool:
    if not place or not os.access(place, os.W_OK):
        return False
    free = os.statvfs(place)
    return free.f_bavail * free.f_frsize > 2 * room


# Removes what killed runs of ours left behind.
def _sweep(base: Path, prefix: str) -> None:
    for path in base.glob(f"{glob.escape(prefix)}*"):
        pid = re.match(re.escape(prefix) + r"(\d+)-", path.name)
        with contextlib.suppress(OSError):
            if pid and path.lstat().st_uid == os.getuid() and not _alive(int(pid[1])):
                remove(path)


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True
