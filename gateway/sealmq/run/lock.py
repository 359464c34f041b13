"""One `sealmq up` a site: run/up.lock, held by the supervisor and by every process it starts.

The processes inherit the lock, so that a new supervisor cannot start beside what a killed one has
left behind; they get SIGTERM when it dies, and end soon. So they can also write into it: whoever
signals the supervisor that it names looks first whether it is one.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import select
import signal
import stat
import time
from collections.abc import Iterator
from pathlib import Path

from . import proc
from .errors import AlreadyUp, RunError

ORPHANS_S = 15.0
# Ten seconds for each process, thirty for a Mosquitto, and some for a slow machine.
DOWN_S = 90.0
# What the file holds is padded to this and written over: with a full disk its block is there.
_SIZE = 128


class SiteLock:
    """The lock of one site; `fd` is to be inherited."""

    def __init__(self, fd: int) -> None:
        self.fd = fd

    @classmethod
    def take(cls, path: Path, site: str, serves: bool = True) -> SiteLock:
        """Lock; AlreadyUp when another supervisor runs, or its processes do not end; RunError: a
        command has it. serves: as a supervisor, which others may signal; False: for a command.
        """
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            _wait(fd, site)
            mine = {"pid": os.getpid(), "start": proc.start_of(os.getpid()), "serves": serves}
            _say(fd, json.dumps(mine))
        except OSError as error:  # a descriptor's has no name
            os.close(fd)
            raise OSError(error.errno, error.strerror, os.fspath(path)) from None
        except BaseException:
            os.close(fd)
            raise
        return cls(fd)

    def release(self) -> None:
        """Give it up. The file stays: a lock on a name that can vanish locks nothing."""
        with contextlib.suppress(OSError):  # nobody is like us once we have ended
            _say(self.fd, "{}")
        os.close(self.fd)


@contextlib.contextmanager
def stopped(root: Path, run: Path, site: str) -> Iterator[None]:
    """While a command changes the files of a site that is down. RunError: it is up, or another one
    does.
    """
    run.mkdir(parents=True, exist_ok=True)
    lock = SiteLock.take(run / "up.lock", site, serves=False)
    try:
        yield
    finally:
        try:
            if os.geteuid() == 0:  # the site's owner is to come up again
                owner = root.stat()
                os.fchown(lock.fd, owner.st_uid, owner.st_gid)
        finally:
            lock.release()


def _say(fd: int, text: str) -> None:
    os.pwrite(fd, text.encode().ljust(_SIZE), 0)
    os.ftruncate(fd, _SIZE)


def _wait(fd: int, site: str) -> None:
    end = time.monotonic() + ORPHANS_S
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            pass
        pid, serves = _holder(fd)
        if pid is not None and not serves:
            raise RunError(
                f"a command changes the files of {site}: process {pid}", "wait until it has ended"
            )
        if pid is not None:
            raise AlreadyUp(
                f"{site} is up already: `sealmq up` runs as process {pid}",
                f"sealmq status {site}; `sealmq down {site}` stops it",
            )
        if time.monotonic() > end:
            raise AlreadyUp(
                f"processes of an earlier `sealmq up {site}` still run",
                "look for them: pgrep -af 'sealmq[.].*[.]process'",
            )
        time.sleep(0.05)


def held(path: Path) -> bool:
    """Whether a supervisor, or what one has left behind, holds the lock. OSError: we may not look.

    What is no plain file holds nothing: others may write into run/.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        return False
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            return False
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return False
    except BlockingIOError:
        return True
    finally:
        os.close(fd)


def supervisor(path: Path) -> int | None:
    """The `sealmq up` that holds the lock; None: there is none. OSError: we may not look.

    What the lock names counts only if it runs as the lock's owner, or as root, and has the lock
    open.
    """
    pid, serves = _named(path)
    return pid if serves else None


def _named(path: Path) -> tuple[int | None, bool]:
    """Who holds the lock, and whether as a supervisor."""
    if not held(path):
        return None, False
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        (pid, serves), file = _holder(fd), os.fstat(fd)
    finally:
        os.close(fd)
    if pid is None or proc.uid_of(pid) not in (0, file.st_uid) or not proc.has_open(pid, file):
        return None, False
    return pid, serves


def tell(path: Path, number: int) -> int | None:
    """Signal the supervisor; a descriptor of it (pidfd), or None: there is none."""
    pid = supervisor(path)
    if pid is None:
        return None
    try:
        pidfd = os.pidfd_open(pid)
    except ProcessLookupError:
        return None
    try:
        # A number may be another process's by now; what we hold cannot become one.
        if supervisor(path) == pid:
            signal.pidfd_send_signal(pidfd, number)
            return pidfd
    except ProcessLookupError:
        pass
    except BaseException:
        os.close(pidfd)
        raise
    os.close(pidfd)
    return None


def _of_another(path: Path) -> tuple[int, bool] | None:
    """Whom the lock names as its holder, and whether that serves, where it is a user's whose
    processes we cannot see."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        pid, serves = _holder(fd)
    finally:
        os.close(fd)
    if pid is None or os.geteuid() in (0, proc.uid_of(pid)):
        return None
    return pid, serves


def stop(path: Path, patience_s: float = DOWN_S) -> bool:
    """End the site's `sealmq up` and what it has started; False: there was nothing to end.

    RunError: something still runs after `patience_s`, or it is another user's, or a command, which
    is not ended.
    """
    if not held(path):
        return False
    pid, serves = _named(path)
    other = _of_another(path) if pid is None else None
    if other is not None:
        pid, serves = other
    if pid is not None and not serves:
        raise RunError(
            f"it is not up, and a command changes its files: process {pid}",
            "wait until it has ended",
        )
    if other is not None:
        raise RunError(
            f"`sealmq up` runs as process {pid}, of user {proc.user_of(other[0])}",
            "run it as that user, or as root",
        )
    end = time.monotonic() + patience_s
    told: int | None = None
    try:
        while held(path):
            if told is None:
                told = tell(path, signal.SIGTERM)
            if time.monotonic() > end:
                pid = supervisor(path)
                who = f"`sealmq up` (process {pid}) runs" if pid else "processes of it run"
                raise RunError(
                    f"after {patience_s:g} s {who} still",
                    f"kill -9 {pid}" if pid else "pgrep -af 'sealmq[.].*[.]process' finds them",
                )
            time.sleep(0.05)
        if told is not None:  # its last words are written, its exit code is there
            select.select([told], [], [], max(0.0, end - time.monotonic()))
    finally:
        if told is not None:
            os.close(told)
    return True


def _holder(fd: int) -> tuple[int | None, bool]:
    """Who holds the lock, if that lives, and whether it is a supervisor."""
    try:
        told = json.loads(os.pread(fd, 4096, 0))
        pid, start, serves = int(told["pid"]), told["start"], told.get("serves") is not False
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None, False
    lives = start is not None and proc.start_of(pid) == start
    return (pid, serves) if lives else (None, False)
