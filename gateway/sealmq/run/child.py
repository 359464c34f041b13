"""One process of a site, as the supervisor starts, hears and ends it.

It runs with what it needs and nothing else: its own user where there is one, its secrets in a
pipe, no core dump, umask 077, no way to new privileges, and SIGTERM when the supervisor dies. It
stays "dumpable" (prctl(2)): without that flag its own user could not show that the mediator's
memory holds no plaintext; what separates the processes is their users.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sealmq.logs import OF_ALL, Budget, left_out
from sealmq.plain import plain

from . import proc, secrets

_LAST_LINES = 20
_LONGEST_LINE = 4000
_PR_SET_PDEATHSIG = 1
_PR_SET_NO_NEW_PRIVS = 38
_prctl = ctypes.CDLL(None, use_errno=True).prctl

# What the supervisor's own starter told it is not for its children.
_NOT_INHERITED = (
    "NOTIFY_SOCKET",
    "WATCHDOG_USEC",
    "WATCHDOG_PID",
    "CREDENTIALS_DIRECTORY",
    "LISTEN_FDS",
    "LISTEN_PID",
    "LISTEN_FDNAMES",
    secrets.FD,
)


@dataclass(frozen=True, slots=True)
class Identity:
    """As whom a process runs."""

    name: str
    uid: int
    gid: int
    groups: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Start:
    """What a process is started with. `fds`: environment variable -> inherited descriptor.

    `keep` are descriptors that it inherits without being told. Lines of its stderr for which
    `hush` is true are not passed on. `guard`: it is ended when we die, and gets no new privileges;
    False where it sees to that itself, and its parent has threads. `drawn`: secrets that are made
    anew for each start.
    """

    role: str
    module: str
    site: Path
    secrets: Mapping[str, Any] = field(repr=False)
    fds: Mapping[str, int] = field(default_factory=dict)
    keep: Sequence[int] = ()
    identity: Identity | None = None
    hush: Callable[[str], bool] = lambda line: False
    guard: bool = True
    drawn: Callable[[], Mapping[str, Any]] = dict


class Child:
    """A started process. `exited` is done when it has ended; its result is the exit code."""

    def __init__(self, start: Start, say: Callable[[str], None]) -> None:
        self.role = start.role
        self.lines: deque[str] = deque(maxlen=_LAST_LINES)
        self._say = say
        self._hush = start.hush
        self._loop = asyncio.get_running_loop()
        self._partial = b""
        self._budget = Budget(OF_ALL)
        self._popen = _spawn(start)
        self.pid = self._popen.pid
        self.started = proc.start_of(self.pid)
        self.exited: asyncio.Future[int] = self._loop.create_future()
        self._pidfd = os.pidfd_open(self.pid)
        self._loop.add_reader(self._pidfd, self._ended)
        stderr = self._popen.stderr
        if stderr is None:
            raise RuntimeError("started without a pipe for its stderr")
        self._stderr = stderr.fileno()
        os.set_blocking(self._stderr, False)
        self._loop.add_reader(self._stderr, self._hear)

    @property
    def alive(self) -> bool:
        """Whether it has not ended, as far as we have heard."""
        return not self.exited.done()

    def signal(self, number: int) -> None:
        """Send a signal; nothing when it has ended. A pidfd cannot mean another process."""
        with contextlib.suppress(ProcessLookupError):
            if self.alive:
                signal.pidfd_send_signal(self._pidfd, number)

    async def stop(self, patience_s: float) -> bool:
        """SIGTERM, and after `patience_s` SIGKILL. Whether the first was enough."""
        self.signal(signal.SIGTERM)
        done, _ = await asyncio.wait([self.exited], timeout=patience_s)
        if not done:
            self.signal(signal.SIGKILL)
            await asyncio.wait([self.exited])
        return bool(done)

    def last_words(self) -> str:
        """Its last line, for an error text."""
        return self.lines[-1] if self.lines else "it said nothing"

    def end_text(self) -> str:
        """How it ended."""
        code = self.exited.result()
        if code >= 0:
            return f"ended with exit code {code}"
        with contextlib.suppress(ValueError):
            return f"was ended by {signal.Signals(-code).name}"
        return f"was ended by signal {-code}"

    def _ended(self) -> None:
        self._loop.remove_reader(self._pidfd)
        os.close(self._pidfd)
        code = self._popen.wait()
        self._hear()
        self._flush()
        self._loop.remove_reader(self._stderr)
        if self._popen.stderr is not None:
            self._popen.stderr.close()
        self.exited.set_result(code)

    def _hear(self) -> None:
        """Read what there is; a process that talks without end gets no more than its turn."""
        for _ in range(16):
            try:
                chunk = os.read(self._stderr, 65536)
            except BlockingIOError:
                return
            if not chunk:
                self._loop.remove_reader(self._stderr)
                return
            *lines, self._partial = (self._partial + chunk).split(b"\n")
            for line in lines:
                self._line(line)
            if len(self._partial) > _LONGEST_LINE:
                self._flush()

    def _flush(self) -> None:
        if self._partial:
            self._line(self._partial)
            self._partial = b""

    def _line(self, raw: bytes) -> None:
        text = plain(raw[:_LONGEST_LINE].decode(errors="replace").rstrip(), _LONGEST_LINE)
        text = text.removeprefix(f"{self.role}: ")
        self.lines.append(text)
        if left := self._budget.over():
            self._say(f"{self.role}: {left_out(left)}")
        if not self._hush(text) and self._budget.pass_on(""):
            self._say(f"{self.role}: {text}")


def _spawn(start: Start) -> subprocess.Popen[bytes]:
    supervisor = os.getpid()

    def before_exec() -> None:
        # After setuid, which clears it. Whoever died in between sends nothing any more.
        if _prctl(_PR_SET_PDEATHSIG, int(signal.SIGTERM), 0, 0, 0) != 0:
            os._exit(127)
        if os.getppid() != supervisor:
            os._exit(127)
        if _prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
            os._exit(127)

    with secrets.handed_over({**start.secrets, **start.drawn()}) as pipe:
        env = {name: value for name, value in os.environ.items() if name not in _NOT_INHERITED}
        env |= {name: str(fd) for name, fd in start.fds.items()}
        env[secrets.FD] = str(pipe)
        who = start.identity
        return subprocess.Popen(  # noqa: S603 - our own module in our own interpreter
            # -P: a file in the operator's current folder must not pass for one of our modules.
            [sys.executable, "-P", "-m", start.module, str(start.site)],
            env=env,
            pass_fds=[pipe, *start.fds.values(), *start.keep],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            umask=0o077,
            # Ctrl-C in a terminal is for the supervisor, which ends the processes in their order.
            start_new_session=True,
            # Safe: no other thread of the supervisor does anything (at most it has looked up the
            # name of an external broker), and the function only makes system calls.
            preexec_fn=before_exec if start.guard else None,
            user=None if who is None else who.uid,
            group=None if who is None else who.gid,
            extra_groups=None if who is None else who.groups,
        )
