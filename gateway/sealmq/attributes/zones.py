"""Local time of a zone, as the difference from UTC and when that changes."""

from __future__ import annotations

import datetime
import zoneinfo

DAY_S = 86_400
# How far the table reaches. No zone changes twice within STEP_S.
BEFORE_S, AFTER_S, STEP_S = 2 * DAY_S, 10 * DAY_S, 3 * 3600


def zone(name: str) -> datetime.tzinfo:
    """LookupError: this host does not know it."""
    if name == "UTC":
        return datetime.UTC
    try:
        # Not the cache's: the host may have newer tables than when this process began.
        return zoneinfo.ZoneInfo.no_cache(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        raise LookupError(name) from None


def names() -> set[str]:
    """All that this host knows."""
    return zoneinfo.available_timezones()


def steps(of: datetime.tzinfo, now_ms: int) -> tuple[list[list[int]], int]:
    """Rows [from when in Unix ms, local time minus UTC in ms], the oldest first, and how far they
    reach.
    """
    # Of whole days: who asks again on the same day gets the same.
    today = now_ms // 1000 // DAY_S * DAY_S
    begin, end = today - BEFORE_S, today + AFTER_S
    offset = _offset(of, begin)
    rows = [[begin * 1000, offset * 1000]]
    for at in range(begin + STEP_S, end + STEP_S, STEP_S):
        if (then := _offset(of, at)) != offset:
            low, high = at - STEP_S, at
            while high - low > 1:
                middle = (low + high) // 2
                low, high = (low, middle) if _offset(of, middle) == then else (middle, high)
            offset = then
            rows.append([high * 1000, offset * 1000])
    return rows, end * 1000


def _offset(of: datetime.tzinfo, at_s: int) -> int:
    found = datetime.datetime.fromtimestamp(at_s, of).utcoffset()
    return 0 if found is None else int(found.total_seconds())
