"""Processes that the demo starts, and none of which outlives it.

Each is in a session of its own, so that Ctrl-C reaches the demo alone, which then ends them in
order; and each gets SIGTERM from the kernel should the demo itself be killed (prctl(2)).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path

from .errors import DemoError

STOP_S = 15.0


class Child:
    """One process; `name` is what people call it."""

    def __init__(self, name: str, process: asyncio.subprocess.Process, log: Path) -> None:
        self.name, self.process, self.log = name, process, log

    @property
    def alive(self) -> bool:
        return self.process.returncode is None

    def last_words(self) -> str:
        """The end of what it wrote to standard error, for a message."""
        lines = self.log.read_text(errors="replace").strip().splitlines()
        return "\n".join(lines[-12:])

    async def stop(self) -> int:
        """SIGTERM, patience, SIGKILL; the exit code."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            if not self.alive:
                break
            # Not process.terminate(): it asks for the exit code first, which asyncio's watcher
            # would then miss.
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.process.pid, number)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.process.wait(), STOP_S)
        return await self.process.wait()


class Children:
    """All of them, in the order in which they were started."""

    def __init__(self, logs: Path) -> None:
        self._logs = logs
        self._started: list[Child] = []

    async def start(
        self,
        name: str,
        argv: Sequence[str | Path],
        *,
        env: Mapping[str, str] | None = None,
        user: str | None = None,
        talks: bool = False,
    ) -> Child:
        """Start one. `talks`: standard input and output are pipes; else output goes to the log.

        `user`: as whom, when we are root.
        """
        log = self._logs / f"{name}.log"
        words = [*_guard(user), *map(str, argv)]
        pipe = asyncio.subprocess.PIPE
        with log.open("ab") as file:
            try:
                process = await asyncio.create_subprocess_exec(
                    *words,
                    stdin=pipe if talks else asyncio.subprocess.DEVNULL,
                    stdout=pipe if talks else file,
                    stderr=file,
                    env={**os.environ, **(env or {})},
                    start_new_session=True,
                )
            except OSError as error:
                raise DemoError(f"cannot start {words[0]}: {error.strerror}") from None
        child = Child(name, process, log)
        self._started.append(child)
        return child

    async def stop(self) -> None:
        """End what still runs, the youngest first."""
        while self._started:
            await self._started.pop().stop()


# util-linux, which Debian always has, sets the signal that the kernel sends when we die.
def _guard(user: str | None) -> list[str]:
    setpriv = shutil.which("setpriv")
    if setpriv is None:
        return []
    as_user = ["--reuid", user, "--regid", user, "--clear-groups"] if user else []
    return [setpriv, "--pdeathsig", "TERM", *as_user]


async def run(*argv: str | Path) -> tuple[int, str, str]:
    """Run a command to its end: exit code, standard output, standard error."""
    process = await asyncio.create_subprocess_exec(
        *map(str, argv),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    try:
        out, err = await process.communicate()
    except asyncio.CancelledError:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGKILL)
        await process.wait()
        raise
    return process.returncode or 0, out.decode(errors="replace"), err.decode(errors="replace")
