"""`sealmq up --detach`: the supervisor in a process of its own, and its word whether it serves.

What it says while it starts comes back through a pipe, so that whoever started it reads the same as
in the foreground, and gets the same exit code. After that it writes to SITE/log/up.log alone.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import time
from collections.abc import Callable
from typing import BinaryIO

from sealmq.site.layout import Layout

from . import lock
from .errors import RunError
from .logfile import LogFile
from .status import look

Say = Callable[[str], None]
# Brings the site up with these two to speak to; `ready` is called once it serves.
Work = Callable[[Say, Say, Callable[[], None]], int]

# The exit code of a process in the background that found another `sealmq up` there.
SOMEBODY_ELSE = 75

_POLL_S = 0.2
# A small board reads all of Python from its card for each process, and what a mediator keeps.
_SERVES_S = 600.0


def detach(layout: Layout, work: Work, say: Say, tell: Say) -> int:
    """Do the work in the background; 0 once it serves, else its exit code once it has ended.

    `say` and `tell` get what it says until then.
    """
    reading, writing = os.pipe()
    log = LogFile(layout.up_log)
    pid = os.fork()
    if not pid:
        os.close(reading)
        _child(work, log, writing)
    os.close(writing)
    os.close(log.fd)
    with os.fdopen(reading, "rb") as words:
        return _hear(pid, words, say, tell)


def _hear(pid: int, words: BinaryIO, say: Say, tell: Say) -> int:
    ended = False
    unread: BrokenPipeError | None = None
    try:
        for line in words:
            kind, text = json.loads(line)
            if kind == "ready":
                break
            if unread is None:
                try:
                    (tell if kind == "tell" else say)(text)
                except BrokenPipeError as error:  # `| grep -q up`: the site does not end with that
                    unread = error
        else:
            ended = True
            return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) or 1
    except BaseException:
        if not ended:  # Ctrl-C: what we have started and nobody has seen serve goes with us
            os.kill(pid, signal.SIGTERM)
            os.waitpid(pid, 0)
        raise
    if unread is not None:
        raise unread
    return 0


def _child(work: Work, log: LogFile, writing: int) -> None:
    """Never returns."""
    code = 1
    try:
        os.setsid()
        # A shell's own descriptors, a lock of a script's say, are not ours to keep.
        inherited = [
            fd for fd in map(int, os.listdir("/proc/self/fd")) if fd > 2 and _is_inherited(fd)
        ]
        nothing = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        os.dup2(nothing, 0)
        for fd in (1, 2):
            os.dup2(log.fd, fd)
        pipe = _Pipe(writing)

        def say(line: str) -> None:
            log.write(line)
            pipe.send("say", line)

        def tell(line: str) -> None:
            log.write(line)
            pipe.send("tell", line)

        def ready() -> None:
            pipe.send("ready", "")
            pipe.close()
            for fd in inherited:
                with contextlib.suppress(OSError):
                    os.close(fd)

        code = work(say, tell, ready)
        if code != SOMEBODY_ELSE:
            log.write(f"`sealmq up` ends with exit code {code}")
    finally:
        os._exit(code)


def _is_inherited(fd: int) -> bool:
    try:
        return not fcntl.fcntl(fd, fcntl.F_GETFD) & fcntl.FD_CLOEXEC
    except OSError:
        return False


class _Pipe:
    """To whoever waits for us, if he still does."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def send(self, kind: str, text: str) -> None:
        if self._fd >= 0:
            data = json.dumps([kind, text]).encode() + b"\n"
            with contextlib.suppress(OSError):
                os.write(self._fd, data)

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def until_serving(layout: Layout, site: str) -> None:
    """Wait until a `sealmq up` that somebody else has started serves. RunError: it has ended, or
    something of it does not serve for so long that it has not just been started.
    """
    end = time.monotonic() + _SERVES_S
    while not (found := look(layout, None)).ready:
        if lock.supervisor(layout.up_lock) is None:
            raise RunError(
                f"the `sealmq up` of {site} has ended before it served", f"sealmq log {site}"
            )
        if time.monotonic() > end:
            lacks = [f"{one.role}: {one.note}" for one in found.processes if not one.ready]
            raise RunError(
                f"{site} is up, and after {_SERVES_S:g} s not all of it serves: {'; '.join(lacks)}",
                f"sealmq status {site}",
            )
        time.sleep(_POLL_S)
