"""What clients have asserted."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ..manifest import MadeRow
from ..records import FamilyRecord, Record
from .records import ASSERTION, NAME, decoded


def rows(records: Iterable[Record]) -> Iterator[MadeRow]:
    """A row for each assertion of a client: its id, by whom."""
    for record in records:
        if not isinstance(record, FamilyRecord) or record.family != NAME or not record.value:
            continue
        if record.key.startswith(ASSERTION):
            row = decoded(record.value)
            yield MadeRow(record.key.removeprefix(ASSERTION), row["authorizer"], "")
