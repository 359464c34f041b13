"""What an operator reads when something is refused: one line, one hint, never a traceback.

`sealmq board: <what arrived>; <what would be right>`, then `hint: <what to do>`. Texts name files,
ports and fields, never what stands in a secret's place. All else is a defect of ours, and is called
one.
"""

from __future__ import annotations

import errno
import os
import re
import sys
import traceback

OK = 0
FAILED = 1
USAGE = 2
INTERRUPTED = 130
TERMINATED = 143


class BoardError(Exception):
    """A command cannot do what it was asked.

    `what` says what arrived, `right` what would have been right, `hint` what to do about it; `code`
    is the exit code.
    """

    def __init__(
        self, what: str, right: str | None = None, *, hint: str | None = None, code: int = FAILED
    ) -> None:
        super().__init__(what if right is None else f"{what}; {right}")
        self.hint = hint
        self.code = code


class UsageError(BoardError):
    """The command line itself is wrong: exit code 2, as argparse has it."""

    def __init__(self, what: str, right: str | None = None, *, hint: str | None = None) -> None:
        super().__init__(what, right, hint=hint, code=USAGE)


class NoAnswer(BoardError):
    """No MicroPython answers there."""


class Terminated(BaseException):
    """SIGTERM or SIGHUP arrived: what cleans up on Ctrl-C cleans up."""


def report(error: BaseException) -> int:
    """Tell the operator about the error on stderr; return the exit code."""
    if os.environ.get("SEALMQ_DEBUG") == "1":
        traceback.print_exception(error)
    if isinstance(error, KeyboardInterrupt):
        return INTERRUPTED
    if isinstance(error, Terminated):
        return TERMINATED
    if isinstance(error, BrokenPipeError):
        # The reader of our output has gone (`| head`). What is still buffered must not be tried
        # again at exit, where Python would print a traceback after all.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    text, hint = words(error)
    print(f"sealmq board: {text}", file=sys.stderr)
    if hint:
        print(f"hint: {hint}", file=sys.stderr)
    return error.code if isinstance(error, BoardError) else FAILED


def words(error: BaseException) -> tuple[str, str | None]:
    """The line and the hint for an error."""
    text = plain(" ".join(str(error).split()))
    if isinstance(error, BoardError):
        return text, error.hint
    if isinstance(error, OSError):
        reason = error.strerror or text or type(error).__name__
        path = error.filename  # a descriptor's number where a file was opened by one
        text = f"{os.fsdecode(path)}: {reason}" if isinstance(path, (str, bytes)) else reason
        return text[:1].lower() + text[1:], _os_hint(error)
    return (
        f"internal error, {type(error).__name__}: {text}",
        "this is a defect of SealMQ; SEALMQ_DEBUG=1 shows where it happened",
    )


def plain(text: str) -> str:
    """A text of a board's, which may be anybody's, as a terminal can show it: it moves nothing."""
    return re.sub(r"[\x00-\x1f\x7f-\x9f]", "?", text)


def _os_hint(error: OSError) -> str | None:
    if error.errno in (errno.EACCES, errno.EPERM):
        return "the file must be readable, and its folder writable, for who runs this"
    if error.errno == errno.ENOENT:
        return "check the path"
    if error.errno == errno.ENOSPC:
        return "free some space on that disk"
    return None
