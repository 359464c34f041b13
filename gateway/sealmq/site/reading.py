"""Files that another user may have put there: opened without waiting, without being led elsewhere.

A pipe in a file's place would make the reader wait for ever, a link would make it read, as root
perhaps, what its maker may not.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO

_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


def open_plain(path: Path, buffering: int = -1) -> BinaryIO:
    """The file, open for reading. OSError: there is none, or it is no plain file."""
    file = open(path, "rb", buffering, opener=_open)
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise OSError(errno.EINVAL, "it is no plain file", str(path))
    return file


def _open(name: str, flags: int) -> int:
    return os.open(name, _FLAGS)


def read_small(path: Path, most: int) -> bytes:
    """All of a plain file of ours, of root's, or of its folder's owner; OSError otherwise, and
    when it is longer than `most` bytes.
    """
    with open_plain(path) as file:
        owner = os.fstat(file.fileno()).st_uid
        if owner not in (0, os.geteuid(), path.parent.stat().st_uid):
            raise OSError(errno.EPERM, f"it belongs to user {owner}", str(path))
        data = file.read(most + 1)
    if len(data) > most:
        raise OSError(errno.EFBIG, f"it has more than {most} bytes", str(path))
    return data
