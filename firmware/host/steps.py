"""How the fetching scripts run other programs: visibly when slow, one clear line when they fail.

Nothing here knows what is fetched. A program's own output is shown only as the reason of a failure.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NoReturn

QUIET_SECONDS = 2.0  # a step shorter than this says nothing


class FetchError(Exception):
    """Something could not be fetched; `hint` says what the reader can do about it."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint

    def line(self) -> str:
        """The whole error as one line."""
        text = " ".join(str(self).split())
        return f"{text}; {self.hint}" if self.hint else text


class Progress:
    """A line on standard error for a step that takes longer than QUIET_SECONDS."""

    def __init__(self, label: str) -> None:
        self._label = label
        self._start = time.monotonic()
        self._shown = 0.0
        self._live = sys.stderr.isatty()

    def tick(self) -> None:
        """Call this often while the step runs."""
        elapsed = time.monotonic() - self._start
        pause = 1.0 if self._live else 10.0
        if elapsed < QUIET_SECONDS or (self._shown and elapsed - self._shown < pause):
            return
        self._shown = elapsed
        text = f"{self._label} ... {elapsed:.0f} s"
        sys.stderr.write(f"\r{text}" if self._live else f"{text}\n")
        sys.stderr.flush()

    def end(self) -> None:
        """Close the line, if one was shown."""
        if self._shown and self._live:
            sys.stderr.write("\n")
            sys.stderr.flush()


def run(
    label: str,
    argv: Sequence[str],
    *,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    hint: str = "",
) -> str:
    """Run a program and return what it printed; FetchError when it is missing or fails."""
    progress = Progress(label)
    try:
        process = subprocess.Popen(
            argv,
            cwd=cwd,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
    except OSError as error:
        raise FetchError(f"{label}: cannot start {argv[0]}: {error.strerror}", hint) from error
    output: str | None = None
    try:
        while output is None:
            try:
                output, _ = process.communicate(timeout=0.5)
            except subprocess.TimeoutExpired:
                progress.tick()
    except BaseException:
        process.kill()
        process.wait()
        raise
    finally:
        progress.end()
    if process.returncode:
        _fail(label, argv[0], process.returncode, output, hint)
    return output


def _fail(label: str, program: str, code: int, output: str, hint: str) -> NoReturn:
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith(("E: ", "dpkg-deb: error"))]
    reason = (errors or lines or [f"exit status {code}"])[0 if errors else -1]
    raise FetchError(f"{label}: {Path(program).name}: {reason}", hint)
