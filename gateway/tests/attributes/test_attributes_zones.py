"""Local time as rows of differences from UTC: where a zone's clocks change, to the second."""

from __future__ import annotations

import datetime

import pytest

from sealmq.attributes import zones


def ms(text: str) -> int:
    return int(datetime.datetime.fromisoformat(text).timestamp() * 1000)


HOUR = 3_600_000


@pytest.mark.parametrize(
    ("now", "changes", "before", "after"),
    [
        ("2026-03-28T12:00:00+01:00", "2026-03-29T01:00:00Z", HOUR, 2 * HOUR),
        ("2026-10-24T12:00:00+02:00", "2026-10-25T01:00:00Z", 2 * HOUR, HOUR),
    ],
)
def test_clocks_in_berlin_change_at_one_utc(
    now: str, changes: str, before: int, after: int
) -> None:
    rows, until = zones.steps(zones.zone("Europe/Berlin"), ms(now))
    assert rows[0][0] <= ms(now) - 86_400_000
    assert [offset for _, offset in rows] == [before, after]
    assert rows[1][0] == ms(changes)
    assert until >= ms(now) + 9 * 86_400_000


def test_the_same_day_gives_the_same_rows() -> None:
    zone = zones.zone("America/New_York")
    day = ms("2026-06-01T00:00:00Z")
    assert zones.steps(zone, day) == zones.steps(zone, day + 86_399_000)


def test_utc_needs_no_tables_and_an_unknown_zone_is_said() -> None:
    rows, _ = zones.steps(zones.zone("UTC"), ms("2026-06-01T00:00:00Z"))
    assert [offset for _, offset in rows] == [0]
    for name in ("Europe/Berlyn", "../../etc/passwd", "", "/etc/localtime"):
        with pytest.raises(LookupError):
            zones.zone(name)
