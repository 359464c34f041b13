"""What the person at the command line reads: one line and a hint."""

from __future__ import annotations

import os
import sys
import traceback

OK = 0
FAILED = 1
USAGE = 2
INTERRUPTED = 130


class BoardError(Exception):
    """The virtual board cannot do what it was asked; `hint` says what to do about it."""

    def __init__(self, what: str, *, hint: str | None = None, code: int = FAILED) -> None:
        super().__init__(what)
        self.hint = hint
        self.code = code


def report(error: BaseException) -> int:
    """Tell the person on stderr; return the exit code."""
    if os.environ.get("SEALMQ_DEBUG") == "1":
        traceback.print_exception(error)
    if isinstance(error, KeyboardInterrupt):
        return INTERRUPTED
    if isinstance(error, BrokenPipeError):
        # The reader of our output has gone; what is buffered must not be tried again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    if isinstance(error, BoardError):
        text, hint = str(error), error.hint
    elif isinstance(error, OSError):
        where = f"{error.filename}: " if error.filename else ""
        text, hint = f"{where}{error.strerror or error}".lower(), None
    else:
        text = f"internal error, {type(error).__name__}: {error}"
        hint = "this is a defect of SealMQ; SEALMQ_DEBUG=1 shows where it happened"
    print(f"sealmq vboard: {text}", file=sys.stderr)
    if hint:
        print(f"hint: {hint}", file=sys.stderr)
    return error.code if isinstance(error, BoardError) else FAILED
