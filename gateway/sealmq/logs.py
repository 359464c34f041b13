"""What a process writes to stderr: one line a record, as text, and of each kind only so many.

Others cause lines (a request that does not verify, a peer without a role): beyond so many in a
minute they are counted, and the count is written when the minute is over.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import time
import traceback
from collections.abc import Callable

from .plain import plain

MINUTE_S = 60.0
# Of one kind of line, and of all that a process of a site writes.
OF_A_KIND = 20
OF_ALL = 600
_LONGEST = 2000
_KINDS = 1000


class Budget:
    """How many of each kind may pass in a minute. `pass_on` says whether one more may."""

    def __init__(self, most: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._most, self._clock = most, clock
        self._seen: dict[str, int] = {}
        self._end = clock() + MINUTE_S

    def pass_on(self, kind: str) -> bool:
        """One more of this kind."""
        if kind not in self._seen and len(self._seen) >= _KINDS:
            kind = ""
        self._seen[kind] = seen = self._seen.get(kind, 0) + 1
        return seen <= self._most

    def over(self) -> int:
        """How many were kept back in a minute that is over; a new one begins then."""
        if self._clock() < self._end:
            return 0
        left = sum(max(0, seen - self._most) for seen in self._seen.values())
        self._seen = {}
        self._end = self._clock() + MINUTE_S
        return left


def left_out(count: int) -> str:
    """What is written for lines that were kept back."""
    return f"{count} more lines of these kinds in a minute were left out"


class _Lines(logging.StreamHandler):  # type: ignore[type-arg]
    """To stderr. Tracebacks, which can hold message bytes, only where they are asked for."""

    def __init__(self, prefix: str) -> None:
        super().__init__(sys.stderr)
        self._prefix = prefix
        self._budget = Budget(OF_A_KIND)
        self._debug = bool(os.environ.get("SEALMQ_DEBUG"))

    def emit(self, record: logging.LogRecord) -> None:
        if left := self._budget.over():
            # Nothing that is logged is an error of whoever logs it, as StreamHandler has it.
            with contextlib.suppress(OSError, ValueError):
                self.stream.write(f"{self._prefix}{left_out(left)}\n")
        # The text before its values are put in: that is ours, and there are only so many.
        text = record.getMessage() if record.msg == "%s" else record.msg
        if self._debug or self._budget.pass_on(f"{record.name} {text}"):
            super().emit(record)

    def format(self, record: logging.LogRecord) -> str:
        if self._debug:
            return self._prefix + super().format(record)
        return self._prefix + plain(record.getMessage() + _where(record), _LONGEST)


def _where(record: logging.LogRecord) -> str:
    """Of an error that nobody expected: its kind and its place."""
    error = record.exc_info[1] if record.exc_info else None
    if error is None:
        return ""
    frames = traceback.extract_tb(error.__traceback__)
    place = f" at {os.path.basename(frames[-1].filename)}:{frames[-1].lineno}" if frames else ""
    return f" ({type(error).__name__}{place})"


def begin(prefix: str = "", level: int = logging.INFO) -> None:
    """All of this process's logging, from `level` on, goes there."""
    root = logging.getLogger()
    root.handlers = [_Lines(prefix)]
    root.setLevel(level)
