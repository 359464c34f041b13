"""How an account loses its rights while the doctor watches: a command, or the operator's hand."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shlex
import sys
from dataclasses import dataclass

from .result import Unclear, Untried

_BY_HAND_S = 600.0
# For --restore-command; a service may restart with it.
_BACK_S = 60.0


@dataclass(slots=True)
class Revoking:
    """command, back: words of a command line, without a shell; what they print goes to stderr."""

    command: tuple[str, ...] = ()
    back: tuple[str, ...] = ()
    by_hand: bool = False
    _done: bool = False

    @classmethod
    def of(cls, command: str | None, back: str | None, by_hand: bool) -> Revoking:
        """From the command line. ValueError: a quote is not closed."""
        return cls(tuple(shlex.split(command or "")), tuple(shlex.split(back or "")), by_hand)

    def check(self) -> None:
        """Untried where nothing revokes."""
        if not self.command and not self.by_hand:
            raise Untried("nothing revokes an account: give --revoke-command or --revoke-by-hand")

    async def revoke(self, name: str) -> None:
        """Returns when it has been done. Unclear, Untried."""
        self._done = True
        if self.command:
            await _run(self.command)
        else:
            await _asked(f"take {name}'s rights away at the broker now, then press Enter: ")

    async def restore(self) -> None:
        """Give back what was taken. Untried where there is no command for it; Unclear."""
        if not self._done:
            return
        if not self.back:
            raise Untried("nobody gives them back: --restore-command")
        self._done = False
        try:
            async with asyncio.timeout(_BACK_S):
                await _run(self.back)
        except TimeoutError:
            raise Unclear(f"{self.back[0]} has not ended within {_BACK_S:g} s") from None


async def _run(command: tuple[str, ...]) -> None:
    try:
        process = await asyncio.create_subprocess_exec(
            *command, stdin=asyncio.subprocess.DEVNULL, stdout=sys.stderr.fileno()
        )
    except OSError as error:
        raise Unclear(f"{command[0]} does not run: {error.strerror or error}") from None
    try:
        code = await process.wait()
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
    if code:
        raise Unclear(f"{command[0]} has ended with {code}")


async def _asked(words: str) -> None:
    loop = asyncio.get_running_loop()
    typed: asyncio.Future[bytes] = loop.create_future()

    def read() -> None:
        loop.remove_reader(sys.stdin)
        if not typed.done():
            typed.set_result(os.read(sys.stdin.fileno(), 4096))

    print(words, end="", file=sys.stderr, flush=True)
    try:
        loop.add_reader(sys.stdin, read)
        async with asyncio.timeout(_BY_HAND_S):
            answer = await typed
    except TimeoutError:
        raise Untried(f"nobody pressed Enter within {_BY_HAND_S:g} s") from None
    except (OSError, ValueError):  # a file, or closed
        raise Untried("--revoke-by-hand: nobody can answer on this standard input") from None
    finally:
        with contextlib.suppress(OSError, ValueError):
            loop.remove_reader(sys.stdin)
    if not answer:
        raise Untried("--revoke-by-hand: standard input has ended without an answer")
