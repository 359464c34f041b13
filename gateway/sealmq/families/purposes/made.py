"""What clients have reserved."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ..manifest import MadeRow
from ..records import FamilyRecord, Record
from .records import NAME, RESERVATION, read_reservation


def rows(records: Iterable[Record]) -> Iterator[MadeRow]:
    """A row for each filter that a client has reserved."""
    for record in records:
        if not isinstance(record, FamilyRecord) or record.family != NAME or not record.value:
            continue
        if record.key.startswith(RESERVATION):
            found = read_reservation(record.key.removeprefix(RESERVATION), record.value)
            yield MadeRow(found.filter, found.by, found.label)
