"""Space kept back on the disk, so that a full one stops neither revocation nor withdrawn consent.

Ordinary writers of ours stop while there is still some room; for others, who do not, files of
this folder hold more. What is urgent gives such a file up, and the next ordinary one with much room
makes it again.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable
from pathlib import Path

from .layout import sync_folder

# Bytes: that ordinary writers leave, that an urgent one wants to find, and of one file.
LEAVE = 1024 * 1024
WANT = 256 * 1024
FILE = 256 * 1024
FILES = 4


def free(folder: Path) -> int:
    """Bytes that a user without privileges may still write there."""
    found = os.statvfs(folder)
    return found.f_bavail * found.f_frsize


class Reserve:
    """Of one folder, and of one process at a time. `space`: see `free`."""

    def __init__(self, folder: Path, space: Callable[[Path], int] = free) -> None:
        self._folder, self._space = folder, space
        self._files = [folder / f"reserve-{n}" for n in range(FILES)]
        self._whole = False

    def fill(self) -> None:
        """Makes the files that are missing, as far as there is room beyond what is left free."""
        for path in self._files:
            if path.exists():
                continue
            if self._room() < LEAVE + 2 * FILE:
                return
            try:
                _make(path)
            except OSError:
                return
        self._whole = True

    def ordinary(self) -> None:
        """Before what may wait is written. Raises OSError (ENOSPC) when it has to."""
        room = self._room()
        if room < LEAVE:
            self._whole = False
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        if not self._whole:
            self.fill()

    def urgent(self) -> None:
        """Before what must not wait is written: makes room, as far as there is any."""
        for path in self._files:
            if self._room() >= WANT:
                return
            with contextlib.suppress(OSError):
                path.unlink()
                self._whole = False
                sync_folder(self._folder)

    def _room(self) -> int:
        try:
            return self._space(self._folder)
        except OSError:
            return LEAVE  # whoever writes will see


def _make(path: Path) -> None:
    draft = path.with_name(f".{path.name}")
    fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        os.posix_fallocate(fd, 0, FILE)
        os.fsync(fd)
        os.rename(draft, path)
    except OSError:
        with contextlib.suppress(OSError):
            draft.unlink()
        raise
    finally:
        os.close(fd)
