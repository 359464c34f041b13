"""The labels of topics, as their first publishers made them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ..manifest import MadeRow
from ..records import Record, TopicLabel


def rows(records: Iterable[Record]) -> Iterator[MadeRow]:
    """A row for each topic that has learned its label."""
    for record in records:
        if isinstance(record, TopicLabel):
            yield MadeRow(record.topic, record.client, record.label)
