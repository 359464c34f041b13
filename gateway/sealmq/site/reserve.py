"""Space kept back on the disk, so that a full one stops neither revocation nor withdrawn consent.

Our ordinary writers stop while there is still some room. For writers that are not ours, and stop at
nothing, files of this folder hold more. What is urgent gives such files up until it has room, and
they are made again when there is plenty.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Callable
from pathlib import Path

from .layout import sync_folder

# Bytes: that ordinary writers leave, that an urgent one wants to find, and of one file.
LEAVE = 1024 * 1024
WANT = 256 * 1024
FILE = 256 * 1024
FILES = 8


def room(folder: Path) -> int:
    """Bytes that a user without privileges may still write there."""
    found = os.statvfs(folder)
    return found.f_bavail * found.f_frsize


def leave(folder: Path, space: Callable[[Path], int] = room) -> None:
    """Before what may wait is written. Raises OSError (ENOSPC) when it has to."""
    if space(folder) < LEAVE:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


class Reserve:
    """Of one folder and one user; several threads may have one each. `space`: as `room`."""

    def __init__(self, folder: Path, space: Callable[[Path], int] = room) -> None:
        self._folder, self._space = folder, space
        self._files = [folder / f"reserve-{n}" for n in range(FILES)]

    @property
    def whole(self) -> bool:
        """Whether all its files are there."""
        return all(path.exists() for path in self._files)

    def fill(self) -> None:
        """Makes what is missing, as far as there is plenty of room."""
        with contextlib.suppress(OSError):
            for path in self._files:
                if not path.exists():
                    if self._space(self._folder) < LEAVE + 2 * FILE:
                        return
                    _make(path)

    def ordinary(self) -> None:
        """Before what may wait is written. Raises OSError (ENOSPC) when it has to."""
        leave(self._folder, self._space)
        if not self.whole:
            self.fill()

    def urgent(self) -> None:
        """Before what must not wait is written: makes room, as far as that is possible."""
        with contextlib.suppress(OSError):
            free = self._space(self._folder)
            if free >= LEAVE and not self.whole:
                self.fill()
            for path in self._files:
                if free >= WANT:
                    return
                with contextlib.suppress(FileNotFoundError):
                    path.unlink()
                    sync_folder(self._folder)
                free = self._space(self._folder)


# Root makes it in a role's folder, too: a link or a pipe that was planted there leads nowhere.
_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def _make(path: Path) -> None:
    draft = path.with_name(f".{path.name}")
    fd = os.open(draft, _FLAGS, 0o600)
    try:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode) or found.st_nlink != 1:
            raise OSError(errno.EINVAL, "it is no file of ours", str(draft))
        os.posix_fallocate(fd, 0, FILE)
        os.rename(draft, path)
    except OSError:
        with contextlib.suppress(OSError):
            draft.unlink()
        raise
    finally:
        os.close(fd)
