"""Names that went from one client to another: what an earlier bearer of a name has made or left is
nobody's now. Once a family's rows say so, one more row tells it of each name:

    b/CLIENT    {"since": Unix ms}
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping

from .records import FamilyRecord, Record

BEARER = "b/"
GONE = " (removed)"
"""Behind the name of who made a row and was removed: no name has a space or a bracket."""

Orphaned = Callable[[str, bytes, Mapping[str, int]], FamilyRecord | None]
"""What becomes of a row (key, value) once others bear its names; None: it stays as it is."""


class Bearers:
    """Since when (Unix ms) the clients bear their names, and for which of it a family's rows are
    right.
    """

    __slots__ = ("_family", "_orphaned", "_settled", "since")

    def __init__(self, family: str, orphaned: Orphaned) -> None:
        self._family, self._orphaned = family, orphaned
        self.since: Mapping[str, int] = {}
        self._settled: dict[str, int] = {}

    def bears(self, name: str, at_ms: int) -> bool:
        """Whether who bears the name now bore it then."""
        return at_ms >= self.since.get(name, 0)

    def apply(self, key: str, value: bytes | None) -> None:
        """A row of the store, whose key begins with BEARER."""
        if value is not None:
            self._settled[key.removeprefix(BEARER)] = int(json.loads(value)["since"])

    def noted(self, since: Mapping[str, int]) -> bool:
        """In force at once; whether rows have to be put right (Family.noted)."""
        self.since = dict(since)
        return bool(self._changed(since))

    def mended(
        self, since: Mapping[str, int], rows: Callable[[], Iterable[Record]]
    ) -> list[FamilyRecord]:
        """What puts right the rows of those who bore these names before (Family.bearers)."""
        changed, out = self._changed(since), []
        for record in rows():
            if not isinstance(record, FamilyRecord) or record.family != self._family:
                continue
            if record.value and not record.key.startswith(BEARER):
                orphan = self._orphaned(record.key, record.value, changed)
                out += [] if orphan is None else [orphan]
        return out + [
            FamilyRecord(self._family, BEARER + name, b'{"since":%d}' % at)
            for name, at in changed.items()
        ]

    def _changed(self, since: Mapping[str, int]) -> dict[str, int]:
        return {name: at for name, at in since.items() if self._settled.get(name) != at}
