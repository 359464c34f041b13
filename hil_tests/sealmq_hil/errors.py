"""What an operator of the rig reads: one line, one hint; and how a behaviour ends early.

Exit codes are those of `sealmq`: 0 all passed, 1 something failed, 2 wrong usage, 130 interrupted.
"""

from __future__ import annotations

OK = 0
FAILED = 1
USAGE = 2
INTERRUPTED = 130


class RigError(Exception):
    """The rig cannot do what it was asked; `hint` says what to do about it."""

    def __init__(self, text: str, hint: str = "", code: int = FAILED) -> None:
        super().__init__(text)
        self.hint = hint
        self.code = code


class Failed(Exception):
    """A board did not behave: the cause, in words."""


class Skipped(Exception):
    """This board, or this rig, has not what the behaviour needs."""


def words(error: BaseException, limit: int = 500) -> str:
    """An exception as a cause: one line, never empty."""
    text = " ".join(str(error).split())
    if not isinstance(error, Failed | Skipped | RigError):
        text = f"{type(error).__name__}: {text}" if text else type(error).__name__
    return (text or type(error).__name__)[:limit]
