"""What is counted and not written one by one: a record a minute for each key.

A minute that has more keys than MAX_KEYS is written out early; its records then add up.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from sealmq_spec.topics import matches

from .events import EACH_CLIENT, EACH_MINUTE, EACH_PEER, MORE, OF_PEERS, Field

MAX_KEYS = 10_000
MINUTE_MS = 60_000

FIELDS = {
    "publish-accepted": ("client", "topic", "label"),
    "delivered": ("client", "topic", "label"),
    "deliver-denied": ("client", "topic", "rule", "label", "sender"),
    "unenforced": ("client", "topic", "rule", "question"),
    "folded": ("of", "client", "rule", "peer"),
}
"""What a key holds after the event; "" where the event has no such field. One of MORE ends with
names and values of families' fields.
"""

_OF_READERS = ("delivered", "deliver-denied", "unenforced")

Said = tuple[tuple[str, str], ...]
Key = tuple[Any, ...]


class Counts:
    """The present minute. The caller holds a lock."""

    def __init__(self, now_ms: int) -> None:
        self._counts: Counter[Key] = Counter()
        # By event, and by event and client.
        self._singles: dict[tuple[str, str], int] = {}
        self._begin(now_ms)

    def _begin(self, now_ms: int) -> None:
        self.minute_ms = now_ms // MINUTE_MS * MINUTE_MS
        self.end_ms = self.minute_ms + MINUTE_MS

    def add(self, keys: Iterable[Key]) -> bool:
        """True when the table is full: `take` it."""
        # Counted in C: this is done several times for each message.
        self._counts.update(keys)
        return len(self._counts) >= MAX_KEYS

    def single(self, event: str, client: str, peer: str = "") -> bool:
        """Whether one more record of this event may be written by itself in this minute. What one
        client causes beyond its own bound is not counted against the others. client "": nobody's.
        peer: who has caused one of OF_PEERS.
        """
        if event in OF_PEERS:
            return self._more((event, peer), EACH_PEER)
        if client and not self._more((event, client), EACH_CLIENT):
            return False
        return self._more((event, ""), EACH_MINUTE)

    def _more(self, key: tuple[str, str], most: int) -> bool:
        seen = self._singles.get(key, 0)
        if seen < most:
            self._singles[key] = seen + 1
        return seen < most

    def over(self, now_ms: int) -> bool:
        """Whether the minute is over; also when the clock went back."""
        return not self.minute_ms <= now_ms < self.end_ms

    def take(self, now_ms: int) -> list[tuple[str, dict[str, Field]]]:
        """(event, fields) of all that was counted; counting begins anew."""
        records: list[tuple[str, dict[str, Field]]] = []
        for (event, *texts), count in self._counts.items():
            fields: dict[str, Field] = dict(zip(FIELDS[event], texts, strict=event not in MORE))
            if event in MORE:
                fields.update(texts[-1])
            records.append((event, {**fields, "count": count, "minute_ms": self.minute_ms}))
        self._counts = Counter()
        if self.over(now_ms):
            self._singles = {}
            self._begin(now_ms)
        return records

    def part(self, filter: str) -> list[tuple[str, dict[str, Field]]]:
        """`take` of deliveries alone, of topics that the filter matches; the minute goes on."""
        about = [k for k in self._counts if k[0] in _OF_READERS and matches(filter, k[2])]
        rest, self._counts = self._counts, Counter({key: self._counts.pop(key) for key in about})
        records = self.take(self.minute_ms)
        self._counts = rest
        return records
