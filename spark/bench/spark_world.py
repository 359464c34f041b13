"""A made-up factory for the bench of the reports: who there is, what is popular, what time it is.

Everything follows from numbers: the same number is the same topic in every process and every run.
"""

from __future__ import annotations

import bisect
import itertools
import json
import math
from collections.abc import Iterator
from pathlib import Path

TOPICS = 200_000
READERS = 300
DEVICES = 5_000
LABELS = 40
MEDIATORS = 3
SITE = "5ea10001"
DAY_MS, HOUR_MS, MINUTE_MS = 86_400_000, 3_600_000, 60_000
EPOCH_MS = 1_767_225_600_000
"""2026-01-01, UTC."""
_WORDS = (
    "service", "safety", "energy", "billing", "quality", "research", "staff-planning", "audit",
)  # fmt: skip
_KINDS = (
    "temperature", "pressure", "vibration", "state", "energy", "temp\\u00e9rature", "rpm", "alarm",
)  # fmt: skip
# Of a day's lines in each hour: two shifts, and a night in which machines alone talk.
_HOURS = (2, 2, 2, 2, 2, 3, 6, 9, 10, 10, 10, 9, 7, 9, 10, 9, 8, 7, 5, 4, 4, 3, 3, 2)
_LN_TOPICS, _LN_READERS = math.log(TOPICS), math.log(READERS)


def popular_topic(drawn: float) -> int:
    """[0, 1) -> the number of a topic; rank r is drawn about as 1 / r (Zipf)."""
    return int(math.exp(drawn * _LN_TOPICS)) - 1


def popular_reader(drawn: float) -> int:
    """[0, 1) -> the number of a reader, likewise."""
    return int(math.exp(drawn * _LN_READERS)) - 1


def _of_families() -> Iterator[str]:
    """The fields in which policy families say more of a delivery, by the log's schema."""
    schema = Path(__file__).resolve().parents[2] / "shared_spec" / "audit.schema.json"
    for event in json.loads(schema.read_text("utf-8"))["oneOf"]:
        if event["title"] == "delivered":
            yield from (name for name in event["properties"] if name not in event["required"])


_FIELDS = tuple(name for name in _of_families() if name != "event")


def said(reader: int, number: int, where: str) -> str:
    """What families say of a topic's delivery, as fields within JSON: by turns one of few words,
    of which a reader has two at most, and a text that goes with the topic. where: its beginning."""
    word = _WORDS[(reader * 3 + (number & 1)) % len(_WORDS)]
    return "".join(f',"{name}":"{(word, where)[at % 2]}"' for at, name in enumerate(_FIELDS))


def drawn_word(drawn: float) -> str:
    """[0, 1) -> one of the few words."""
    return _WORDS[int(drawn * len(_WORDS))]


# Topic, owner, label and where families say more, by number; a worker meets the popular ones all
# the time.
_known: dict[int, tuple[str, str, str, str]] = {}


def topic(number: int) -> tuple[str, str, str, str]:
    """(topic, its publisher, its label, a filter that has it if families say more of it, else ""),
    as text within JSON."""
    found = _known.get(number)
    if found is None:
        # Spread, so that the popular ones are not all of one plant.
        at = number * 7919 % 1_000_003
        plant, device = at % 24, number % DEVICES
        path = f"plant/{plant}/line/{at % 97}/machine/{number // 8}/{_KINDS[number % 8]}"
        where = "" if plant % 8 == 7 else f"plant/{plant}/#"
        found = path, f"device-{device}", f"zone-{device % LABELS}", where
        if len(_known) < 2 * TOPICS:
            _known[number] = found
    return found


def _bounds() -> list[float]:
    total = sum(_HOURS)
    return [0.0, *(part / total for part in itertools.accumulate(_HOURS))]


_BOUNDS = _bounds()


def at_ms(line: int, per_day: int) -> int:
    """When the site writes its so-manieth line."""
    day, within = divmod(line, per_day)
    share = within / per_day
    hour = bisect.bisect_right(_BOUNDS, share) - 1
    part = (share - _BOUNDS[hour]) / (_BOUNDS[hour + 1] - _BOUNDS[hour])
    return EPOCH_MS + day * DAY_MS + hour * HOUR_MS + int(part * HOUR_MS)
