"""Plain tables: columns as wide as they need, nothing cut, safe for a terminal and for `grep`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

from sealmq.plain import plain

from .errors import UsageError

_AGO = re.compile(r"(\d{1,9})([smhdw])")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}


def table(titles: Sequence[str], rows: Iterable[Sequence[str]], indent: str = "") -> list[str]:
    """The lines of a table; columns that say nothing in any row are left out."""
    cells = [[plain(cell) for cell in row] for row in rows]
    used = [i for i in range(len(titles)) if any(row[i] not in ("", "-") for row in cells)]
    shown = [[row[i] for i in used] for row in [list(titles), *cells]]
    widths = [max(len(row[i]) for row in shown) for i in range(len(used))]
    return [
        indent + "  ".join(word.ljust(w) for word, w in zip(row, widths, strict=True)).rstrip()
        for row in shown
    ]


def moment(at_ms: int | None) -> str:
    """A time of the audit log or the store, as `sealmq topic list` shows it."""
    return "-" if at_ms is None else utc(at_ms, "%Y-%m-%d %H:%M:%SZ")


def moment_s(at_s: int | None) -> str:
    """The same of Unix seconds."""
    return moment(None if at_s is None else at_s * 1000)


def minute(at_ms: int) -> str:
    """The same, where only the minute is known."""
    return utc(at_ms, "%Y-%m-%d %H:%MZ")


def utc(at_ms: int, form: str) -> str:
    """Unix ms as text; those that no calendar has as they are."""
    try:
        return datetime.fromtimestamp(at_ms / 1000, UTC).strftime(form)
    except (ValueError, OverflowError, OSError):
        return f"{at_ms} ms"


def moment_of(text: str, now_ms: int) -> int:
    """Unix ms of a time that somebody types, a time in UTC or so long ago. UsageError."""
    ago = _AGO.fullmatch(text)
    if ago is not None:
        return max(0, now_ms - int(ago[1]) * _SECONDS[ago[2]] * 1000)
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        right = "24h, 7d, 2026-01-31 or 2026-01-31T12:00"
        raise UsageError(f"{text!r} is no time", right) from None
    return max(0, int((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * 1000))
