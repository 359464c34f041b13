"""What an operator reads when something is refused: one line, one hint, never a traceback.

`sealmq: <what arrived>; <what would be right>`, then `hint: <what to do>`. An error that a part of
the gateway expects carries a `hint` attribute (text or None); the command line needs no list of
types and imports none of those parts. What a policy family's own code raises is that family's
fault, and is told so. Everything else is a defect of ours, and is called one.
"""

from __future__ import annotations

import errno
import os
import sys
import traceback
from collections.abc import Callable

from sealmq.plain import plain

OK = 0
FAILED = 1
USAGE = 2
# Done, and not confirmed in time: as mosquitto_sub says that it timed out.
NOT_KNOWN = 27
INTERRUPTED = 130


class OperatorError(Exception):
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


class UsageError(OperatorError):
    """The command line itself is wrong: exit code 2, as argparse has it."""

    def __init__(self, what: str, right: str | None = None, *, hint: str | None = None) -> None:
        super().__init__(what, right, hint=hint, code=USAGE)


def report(error: BaseException, say: Callable[[str], None] | None = None) -> int:
    """Tell the operator about the error, on stderr or by `say`; return the exit code."""
    say = say or _on_stderr
    if os.environ.get("SEALMQ_DEBUG") == "1":
        traceback.print_exception(error)
    if isinstance(error, KeyboardInterrupt):
        return INTERRUPTED
    if isinstance(error, BrokenPipeError):
        # The reader of our output has gone (`| head`). What is still buffered must not be tried
        # again at exit, where Python would print a traceback after all.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    text, hint = _words(error)
    say(f"sealmq: {plain(text)}")
    if hint:
        say("hint: " + "\n".join(map(plain, hint.split("\n"))))
    return error.code if isinstance(error, OperatorError) else FAILED


def _on_stderr(line: str) -> None:
    print(line, file=sys.stderr)


def _words(error: BaseException) -> tuple[str, str | None]:
    text = " ".join(str(error).split())
    if hasattr(error, "hint"):
        hint = error.hint
        return text or type(error).__name__, hint if isinstance(hint, str) else None
    if isinstance(error, OSError):
        reason = error.strerror or text or type(error).__name__
        path = error.filename  # a descriptor's number where a file was opened by one
        text = f"{os.fsdecode(path)}: {reason}" if isinstance(path, (str, bytes)) else reason
        return text[:1].lower() + text[1:], _os_hint(error)
    from sealmq.families.faults import of_family

    if family := of_family(error):
        return str(family), family.hint
    return (
        f"internal error, {type(error).__name__}: {text}",
        "this is a defect of SealMQ; SEALMQ_DEBUG=1 shows where it happened",
    )


def _os_hint(error: OSError) -> str | None:
    if error.errno in (errno.EACCES, errno.EPERM):
        return "run it as the site's owner or as root"
    if error.errno == errno.ENOENT:
        return "check the path"
    if error.errno == errno.ENOSPC:
        return "free some space on that disk"
    return None
