"""What measures/changed.py says, in plain Python: every hour of every client written out."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from statistics import median
from typing import NamedTuple

HOUR = timedelta(hours=1)
MEASURES = ("published", "delivered", "refused")


class Found(NamedTuple):
    """A row of the table, for one site."""

    client: str
    measure: str
    hour: datetime
    hours: int
    messages: int
    usual: float
    z: float


class Log(NamedTuple):
    """One site. alive: hours in which a mediator recorded anything. said: of a client and hour."""

    alive: set[datetime]
    started: set[datetime]
    said: dict[tuple[str, datetime], dict[str, int]]


def changed(log: Log) -> Iterator[Found]:
    """All rows, in no order."""
    whole = sorted(
        h for h in log.alive - log.started if h - HOUR in log.alive and h + HOUR in log.alive
    )
    for client in {client for client, _ in log.said}:
        first = min(h for c, h in log.said if c == client)
        mine = [h for h in whole if h > first]
        for measure in MEASURES:
            counts = {h: log.said.get((client, h), {}).get(measure, 0) for h in mine}
            for row in (*_beyond(counts), *(_silent(counts) if measure != "refused" else ())):
                yield Found(client, measure, *row)


Row = tuple[datetime, int, int, float, float]


def _beyond(counts: dict[datetime, int]) -> Iterator[Row]:
    week = len(counts) >= 168
    for hour, count in counts.items():
        beside = [c for h, c in counts.items() if not week or h.hour == hour.hour]
        if not count or len(beside) < (7 if week else 24):
            continue
        usual = median(beside)
        mad = median(abs(c - usual) for c in beside)
        talk = [c for c in counts.values() if c]
        if usual == 0 and len(talk) >= 7:
            usual = median(talk)
            mad = median(abs(c - usual) for c in talk)
            if count <= usual:
                continue
        z = (count - usual) / max(mad / 0.6745, math.sqrt(max(usual, 1)))
        if abs(z) > 3.5:
            yield hour, 1, count, usual, z


def _silent(counts: dict[datetime, int]) -> Iterator[Row]:
    hours = list(counts)
    talks = next((i for i, h in enumerate(hours) if counts[h]), len(hours))
    longest = 0
    at = talks
    while at < len(hours):
        if counts[hours[at]]:
            at += 1
            continue
        end = at
        while end < len(hours) and not counts[hours[end]]:
            end += 1
        before = [counts[h] for h in hours[talks:at]]
        rate = sum(before) / len(before)
        z = -math.sqrt(rate * (end - at))
        if len(before) >= 24 and end - at > longest and z < -3.5:
            yield hours[at], end - at, 0, rate, z
        longest = max(longest, end - at)
        at = end


def rounded(found: Iterable[Found]) -> list[Found]:
    """Sorted, usual and z to two places."""
    return sorted(row._replace(usual=round(row.usual, 2), z=round(row.z, 2)) for row in found)
