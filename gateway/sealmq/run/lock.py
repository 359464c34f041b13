"""One `sealmq up` a site: run/up.lock, held by the supervisor and by every process it starts.

The processes inherit the lock, so that a new supervisor cannot start beside what a killed one has
left behind; they get SIGTERM when it dies, and end soon.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from pathlib import Path

from . import proc
from .errors import AlreadyUp

ORPHANS_S = 15.0


class SiteLock:
    """The lock of one site; `fd` is to be inherited."""

    def __init__(self, fd: int) -> None:
        self.fd = fd

    @classmethod
    def take(cls, path: Path, site: str) -> SiteLock:
        """Lock; AlreadyUp when another supervisor runs, or its processes do not end."""
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            _wait(fd, site)
            os.ftruncate(fd, 0)
            mine = {"pid": os.getpid(), "start": proc.start_of(os.getpid())}
            os.pwrite(fd, json.dumps(mine).encode(), 0)
        except BaseException:
            os.close(fd)
            raise
        return cls(fd)

    def release(self) -> None:
        """Give it up. The file stays: a lock on a name that can vanish locks nothing."""
        os.ftruncate(self.fd, 0)
        os.close(self.fd)


def _wait(fd: int, site: str) -> None:
    end = time.monotonic() + ORPHANS_S
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            pass
        pid = _holder(fd)
        if pid is not None:
            raise AlreadyUp(
                f"{site} is up already: `sealmq up` runs as process {pid}",
                f"sealmq status {site}; `kill {pid}` stops it",
            )
        if time.monotonic() > end:
            raise AlreadyUp(
                f"processes of an earlier `sealmq up {site}` still run",
                "look for them: pgrep -af 'sealmq[.].*[.]process'",
            )
        time.sleep(0.05)


def _holder(fd: int) -> int | None:
    """The supervisor that holds the lock, if it lives."""
    try:
        told = json.loads(os.pread(fd, 4096, 0))
        pid, start = int(told["pid"]), told["start"]
    except (ValueError, KeyError, TypeError):
        return None
    return pid if start is not None and proc.start_of(pid) == start else None
