"""What readers got within a window of time, for conditions such as "once an hour" (`source =
"count"`).

Deliveries are counted whose answer has read the count, when they go out, and nothing else. Rows of
the store carry the counts over a restart; what was counted last may have been lost with the process
(mediator.py writes each second), so after an end that was not in good order a count is unknown
until its window has passed (`blind_ms`). It is never too low: of more than EXACT moments within a
window the older ones are put together and count a little longer.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

from .attributes import Declared, UnknownAttribute, fits, names_in
from .records import FamilyRecord

FAMILY = "engine.counts"
"""Of its rows in the store; no family's name."""
EXACT = 32
MOST = 20_000
"""Counts at one worker. Beyond them nothing can be counted, so a further one is unknown."""
_SPLIT = "\x1f"
_CLEAR_MS = 10_000

Key = tuple[str, str]
Moments = list[tuple[int, int]]
"""(Unix ms, how many), the oldest first."""


class Counts:
    """Of one worker: those of its own clients, which are at no other one."""

    def __init__(self) -> None:
        self.declared: dict[str, Declared] = {}
        self._got: dict[Key, Moments] = {}
        self._changed: dict[Key, None] = {}
        # Counted here: nobody else writes their rows.
        self._mine: set[Key] = set()
        self._cleared_ms = 0
        self.blind_ms = 0
        """Before this (Unix ms) something may have gone out that is not counted; 0: nothing."""

    def declare(self, declared: Mapping[str, Declared]) -> None:
        """There are these attributes from now on."""
        self.declared = {n: d for n, d in declared.items() if d.source == "count"}

    def read(self, name: str, subject: str, client: str, now_ms: int) -> int:
        """How many within the window. `client` asks. UnknownAttribute, also about what another
        client got: that may be counted at another worker.
        """
        declared = self.declared[name]
        if not fits(subject, declared.of) or names_in(subject)[-1] != client:
            raise UnknownAttribute(name, subject)
        if self.blind_ms and now_ms < self.blind_ms + declared.window_ms:
            raise UnknownAttribute(name, subject)
        moments = self._got.get((name, subject))
        if moments is None:
            if len(self._got) >= MOST:
                raise UnknownAttribute(name, subject)
            return 0
        # What lies ahead of a clock that was set back counts.
        return sum(many for at, many in moments if now_ms - at < declared.window_ms)

    def keys(self) -> list[Key]:
        """What there are counts of."""
        return list(self._got)

    def add(self, keys: Iterable[Key], now_ms: int) -> None:
        """A delivery has gone out whose answer rested on these."""
        for key in keys:
            declared = self.declared.get(key[0])
            if declared is None:
                continue
            window = declared.window_ms
            moments = [row for row in self._got.get(key, ()) if now_ms - row[0] < window]
            moments.append((now_ms, 1))
            if len(moments) > EXACT:
                # As if they had all been at the later moment.
                (first, one), (second, other) = moments[:2]
                moments[:2] = [(max(first, second), one + other)]
            self._got[key] = moments
            self._changed[key] = None
            self._mine.add(key)

    def clear_out(self, now_ms: int) -> None:
        """Takes out what is over, now and then; of what was counted here its row goes, too."""
        if 0 <= now_ms - self._cleared_ms < _CLEAR_MS:
            return
        self._cleared_ms = now_ms
        for key in [key for key, moments in self._got.items() if self._over(key, moments, now_ms)]:
            del self._got[key]
            if key in self._mine:
                self._mine.remove(key)
                self._changed[key] = None

    def _over(self, key: Key, moments: Moments, now_ms: int) -> bool:
        declared = self.declared.get(key[0])
        return declared is None or now_ms - moments[-1][0] >= declared.window_ms

    # Rows

    @property
    def news(self) -> bool:
        """Whether there are rows to be stored."""
        return bool(self._changed)

    def changed(self) -> list[FamilyRecord]:
        """Rows to be stored, since the last time."""
        changed, self._changed = self._changed, {}
        return [
            FamilyRecord(FAMILY, _SPLIT.join(key), _written(self._got.get(key))) for key in changed
        ]

    def not_stored(self, rows: Iterable[FamilyRecord]) -> None:
        """They could not be stored: again the next time."""
        for row in rows:
            self._changed[_key(row.key)] = None

    def take(self, rows: Iterable[FamilyRecord]) -> None:
        """What the store holds, at the start. ValueError."""
        for row in rows:
            if row.value is not None:
                found = json.loads(row.value)
                self._got[_key(row.key)] = [(int(at), int(many)) for at, many in found]


def over(row: FamilyRecord, longest_ms: int, now_ms: int) -> bool:
    """Whether a row says nothing any more, if no window is longer."""
    return row.value is None or now_ms - json.loads(row.value)[-1][0] >= longest_ms


def _key(text: str) -> Key:
    name, _, subject = text.partition(_SPLIT)
    return name, subject


def _written(moments: Moments | None) -> bytes | None:
    return None if moments is None else json.dumps(moments, separators=(",", ":")).encode()
