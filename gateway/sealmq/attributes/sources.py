"""One source of an attribute: what it says now, if that is other than it said before."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol

from sealmq.families.attributes import Attribute
from sealmq.site.model import Attribute as Settings

from . import files, zones

# A file that was written just now may be written again without looking any different.
_JUST_NS = 2_000_000_000
_AGAIN_MS = 3_600_000

Rows = Mapping[str, Attribute]
"""An attribute's values, by subject."""


class Source(Protocol):
    """What `[attributes.NAME]` names."""

    def look(self) -> Rows | None:
        """All that it says now; None: as before. BadSource, OSError. May take long."""


class TimeSource:
    """The zone's difference from UTC, far enough ahead; its condition finds the time of day."""

    def __init__(self, name: str, zone: str, wall_ns: Callable[[], int] = time.time_ns) -> None:
        self._name, self._zone, self._wall_ns = name, zone, wall_ns
        self._made = 0

    def look(self) -> Rows | None:
        now = self._wall_ns() // 1_000_000
        # The clock may have been set back.
        if 0 <= now - self._made < _AGAIN_MS:
            return None
        try:
            rows, until = zones.steps(zones.zone(self._zone), now)
        except LookupError:
            what = f"this host knows no time zone {self._zone!r} any more"
            raise files.BadSource(what, "install its tables (Debian: tzdata)") from None
        self._made = now
        return {"": Attribute(self._name, "", rows, until)}


class FileSource:
    """A file's values, read when it has changed."""

    def __init__(
        self, name: str, path: Path, wall_ns: Callable[[], int] = time.time_ns, of: str = ""
    ) -> None:
        self._name, self._path, self._of, self._wall_ns = name, path, of, wall_ns
        self._seen: files.Seen | None = None

    def look(self) -> Rows | None:
        before, self._seen = self._seen, None
        seen = files.seen(self._path)
        rows = None
        if seen != before:
            try:
                rows = files.read(self._path, self._name, self._of)
            except files.BadSource:
                self._note(seen)
                raise
        self._note(seen)
        return rows

    # After an OSError nothing is noted, so that it is tried again.
    def _note(self, seen: files.Seen) -> None:
        if not 0 <= self._wall_ns() - max(seen[-2:]) < _JUST_NS:
            self._seen = seen


def why(error: files.BadSource | OSError) -> str:
    """Why `look` gave nothing, for an operator."""
    if isinstance(error, files.BadSource):
        return f"{error}; {error.hint}"
    return f"it cannot be read: {error.strerror or error}"


def source(name: str, settings: Settings) -> Source:
    """Of one [attributes.NAME]."""
    if settings.path is None:
        return TimeSource(name, settings.zone)
    return FileSource(name, settings.path, of=settings.of)


def has_source(settings: Settings) -> bool:
    """Whether something outside is looked at for it."""
    return bool(settings.zone) or settings.path is not None
