"""What an operator reads when there is no report: one line, one hint, never a traceback.

`sealmq report: <what arrived>; <what would be right>`, then `hint: <what to do>`. The exit code 1
says that a report was made and what it found is bad; whatever else goes wrong is 2.
"""

from __future__ import annotations

import errno
import os
import sys
import traceback

OK = 0
FOUND = 1
FAILED = 2
INTERRUPTED = 130

FRESH = (
    "--fresh forgets it and reads all logs again; where some were deleted since, keep it and take "
    "another --out"
)
_MEMORY = "give it more memory: --driver-memory 4g"
_DISK = "free some space on that disk, then run it again: what was read stays read"
# What is in Java's words -> ours, and what to do.
_SAID = (
    ("No space left on device", "no space left on the disk", _DISK),
    ("OutOfMemoryError", "Java has run out of memory", _MEMORY),
    ("GC overhead limit exceeded", "Java has run out of memory", _MEMORY),
    ("Permission denied", "permission denied", "it must be readable, and DIR writable"),
    (
        "All masters are unresponsive",
        "no Spark master answers there",
        "is the master up, and of the same version of Spark?",
    ),
)


class ReportError(Exception):
    """There is no report. `what` arrived, `right` would have been right, `hint`: what to do."""

    def __init__(self, what: str, right: str | None = None, *, hint: str | None = None) -> None:
        super().__init__(what if right is None else f"{what}; {right}")
        self.hint = hint


def hear(error: BaseException) -> None:
    """Keep what Java says of an error: it is asked for that only when the text is wanted, and may
    have ended by then."""
    for each in (error, error.__cause__):
        if each is not None and _of_java(each):
            each.__dict__["_said"] = _text(each)


def _text(error: BaseException) -> str:
    try:
        return str(error.__dict__.get("_said") or error)
    except Exception:  # of py4j's: Java has ended
        return type(error).__name__


def report(error: BaseException, log: str | None = None) -> int:
    """Tell the operator about the error on stderr; return the exit code. log: what Java said."""
    if os.environ.get("SEALMQ_DEBUG") == "1":
        traceback.print_exception(error)
    if isinstance(error, KeyboardInterrupt):
        return INTERRUPTED
    if isinstance(error, BrokenPipeError):
        # The reader of our output has gone (`| head`). What is still buffered must not be tried
        # again at exit, where Python would print a traceback after all.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    text, hint = words(error, log)
    print(f"sealmq report: {text}", file=sys.stderr)
    if hint:
        print(f"hint: {hint}", file=sys.stderr)
    return FAILED


def words(error: BaseException, log: str | None = None) -> tuple[str, str | None]:
    """The line and the hint for an error."""
    text = " ".join(_text(error).split())
    if isinstance(error, ReportError):
        return _known(error.__cause__) or (text, error.hint)
    if isinstance(error, OSError) and not _of_java(error):
        reason = error.strerror or text or type(error).__name__
        path = error.filename  # a descriptor's number where a file was opened by one
        text = f"{os.fsdecode(path)}: {reason}" if isinstance(path, (str, bytes)) else reason
        return text[:1].lower() + text[1:], _os_hint(error)
    more = f"{log} has more" if log else "SEALMQ_DEBUG=1 shows more"
    if _of_java(error):
        known = _known(error)
        if known:
            return known
        if _is_gone(error):
            return "Java ended in the middle of the work", f"out of memory? {_MEMORY}; {more}"
        return f"Spark failed: {_first(error)}", more
    return (
        f"internal error, {type(error).__name__}: {text}",
        "this is a defect of SealMQ; SEALMQ_DEBUG=1 shows where it happened",
    )


def _known(error: BaseException | None) -> tuple[str, str | None] | None:
    """Ours for Java's words, where it is something that happens to everybody."""
    if error is None or not _of_java(error):
        return None
    text = _text(error)
    return next(((ours, hint) for said, ours, hint in _SAID if said in text), None)


def _of_java(error: BaseException) -> bool:
    kinds = {part.__module__.partition(".")[0] for part in type(error).__mro__}
    return bool(kinds & {"py4j", "pyspark"}) or isinstance(error, ConnectionError)


def _is_gone(error: BaseException) -> bool:
    return isinstance(error, ConnectionError) or "NetworkError" in type(error).__name__


def _first(error: BaseException) -> str:
    """The innermost cause that Java names, on one line."""
    lines = [line.strip() for line in _text(error).splitlines()]
    causes = [line for line in lines if line.startswith("Caused by: ")]
    said = causes[-1].removeprefix("Caused by: ") if causes else ""
    if not said:
        said = next((line for line in lines if line and not line.startswith("An error occ")), "")
    return (said.removeprefix(": ") or type(error).__name__)[:300]


def _os_hint(error: OSError) -> str | None:
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return "the logs must be readable, and DIR writable, for who runs this"
    if error.errno == errno.ENOENT:
        return "check the path"
    if error.errno == errno.ENOSPC:
        return _DISK
    return None
