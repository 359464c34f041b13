"""Waiting for conditions, and running other programs to their end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from .errors import Failed

PATIENCE_S = 60.0
_POLL_S = 0.03
_GRACE_S = 20.0
T = TypeVar("T")

# The command `sealmq` several times in one process: its start costs more than its work.
_COMMANDS = """
import json, sys
from sealmq.cli.main import main
sys.exit(max([0] + [main(words) for words in json.loads(sys.argv[1])]))
"""


def until(what: str, look: Callable[[], T | None], patience_s: float = PATIENCE_S) -> T:
    """The first true answer of `look`; Failed with `what` when none comes."""
    end = time.monotonic() + patience_s
    while True:
        found = look()
        if found:
            return found
        if time.monotonic() > end:
            raise Failed(f"waited {patience_s:.0f} s in vain for {what}")
        time.sleep(_POLL_S)


def run(
    words: Sequence[str | Path],
    *,
    timeout: float = 600,
    given_up: Callable[[], object] | None = None,
) -> subprocess.CompletedProcess[str]:
    """A program to its end. Failed when it takes too long or does not start.

    given_up: it is ended, as by Ctrl-C, soon after this is true; programs that it started, too.
    """
    try:
        process = subprocess.Popen(  # noqa: S603 - our own words, no shell
            [str(word) for word in words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,
        )
    except OSError as error:
        raise Failed(f"{_name(words)}: {error.strerror or error}") from None
    end = time.monotonic() + timeout
    with process:
        while True:
            try:
                out, err = process.communicate(timeout=0.25 if given_up else timeout)
                return subprocess.CompletedProcess(words, process.returncode, out, err)
            except subprocess.TimeoutExpired:
                pass
            except BaseException:
                _end(process, signal.SIGKILL)
                raise
            if time.monotonic() >= end:
                _end(process, signal.SIGKILL)
                raise Failed(f"{_name(words)} took longer than {timeout:.0f} s")
            if given_up is not None and given_up():
                given_up, end = None, time.monotonic() + _GRACE_S
                timeout = _GRACE_S
                _end(process, signal.SIGINT)


def _end(process: subprocess.Popen[str], how: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, how)


def ordered(words: Sequence[str | Path], *, timeout: float = 600) -> str:
    """The same, which has to succeed; what it printed."""
    done = run(words, timeout=timeout)
    if done.returncode:
        raise Failed(f"{_name(words)} ended with {done.returncode}: {last_words(done)}")
    return done.stdout


def last_words(done: subprocess.CompletedProcess[str]) -> str:
    """Of a program that failed."""
    said = (done.stdout + "\n" + done.stderr).encode("ascii", "ignore").decode()
    lines = [line.strip() for line in said.splitlines() if any(c.isalnum() for c in line)]
    return " / ".join(lines[-4:])[-400:]


def sealmq(*words: str | Path) -> list[str]:
    """The command line of `sealmq …`, with this interpreter."""
    return module("sealmq.cli", *words)


def module(name: str, *words: str | Path) -> list[str]:
    """The command line of a program of this environment, whatever lies in the folder one is in."""
    return [sys.executable, "-P", "-m", name, *map(str, words)]


def commands(*lines: Sequence[str | Path]) -> list[str]:
    """The command line that runs several `sealmq …` one after the other."""
    words = json.dumps([[str(word) for word in line] for line in lines])
    return [sys.executable, "-P", "-c", _COMMANDS, words]


def _name(words: Sequence[str | Path]) -> str:
    shown = [str(word) for word in words[:6]]
    if shown[:1] == [sys.executable]:
        shown = shown[3:]
    return " ".join(shown)
