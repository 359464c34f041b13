"""What clients have made that hangs on a label or a client: topics' labels, reservations.

It stands in the mediator's store, not in sealmq.toml, so that whoever edits the file does not see
it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from sealmq.families.purposes.records import NAME, RESERVATION, read_reservation
from sealmq.families.purposes.store import Reservation
from sealmq.families.records import FamilyRecord, TopicLabel
from sealmq.plain import plain
from sealmq.site.differences import Difference
from sealmq.site.layout import Layout
from sealmq.store import Reader, StoreError

SHOWN = 5


@dataclass(frozen=True, slots=True)
class Made:
    """Labelled topics, and clients' reservations; None: the store cannot be read from here."""

    topics: list[str] | None
    reservations: list[str] | None

    def words(self) -> list[str]:
        """A line each of what there is."""
        if self.topics is None or self.reservations is None:
            return [
                "what clients have made of it is not known: the mediator's store is not readable"
            ]
        lines = []
        if self.topics:
            lines.append(f"labelled topics ({len(self.topics)}): {_few(self.topics)}")
        if self.reservations:
            lines.append(f"reservations ({len(self.reservations)}): {_few(self.reservations)}")
        return lines

    def to_json(self) -> dict[str, Any]:
        """For --json."""
        return {"topics": self.topics, "reservations": self.reservations}


def on_label(layout: Layout, name: str) -> Made:
    """Topics that learned this label, and reservations that count only while their topic has it."""
    return _made(layout, lambda topic: topic.label == name, lambda r: r.label == name)


def labels_gone(layout: Layout, found: Iterable[Difference]) -> dict[str, Made]:
    """Labels that a new sealmq.toml has no more, and what hangs on each."""
    keys = [row.key for row in found if row.now is None]
    names = [key.removeprefix("labels.") for key in keys if key.startswith("labels.")]
    return {name: on_label(layout, name) for name in names}


def words(gone: Mapping[str, Made]) -> list[str]:
    """What an operator should know of labels that are gone."""
    lines = []
    for name, made in gone.items():
        rows = made.words()
        lines += [f"label {name} is gone, with it {row}" for row in rows]
        if made.topics:
            lines.append(
                "these topics are closed to everybody until they get another label: "
                "sealmq topic relabel, or forget"
            )
    return lines


def on_client(layout: Layout, name: str) -> Made:
    """Topics that it labelled, and what it reserved."""
    return _made(layout, lambda topic: topic.client == name, lambda r: r.by == name)


def on_topic(layout: Layout, topic: str) -> list[Reservation]:
    """The clients' reservation of exactly this topic."""
    return [r for r in _records(layout)[1] if r.filter == topic]


def _made(
    layout: Layout, topic: Callable[[TopicLabel], bool], reserved: Callable[[Reservation], bool]
) -> Made:
    try:
        topics, reservations = _records(layout)
    except (StoreError, OSError):
        return Made(None, None)
    return Made(
        [t.topic for t in topics if topic(t)], [r.filter for r in reservations if reserved(r)]
    )


def _records(layout: Layout) -> tuple[list[TopicLabel], list[Reservation]]:
    if not layout.mediator_db.exists():  # it is made by the first `up`
        return [], []
    reader = Reader.open_readonly(layout.mediator_db)
    try:
        records = reader.records()
    finally:
        reader.close()
    return [r for r in records if isinstance(r, TopicLabel)], [
        read_reservation(r.key.removeprefix(RESERVATION), r.value)
        for r in records
        if isinstance(r, FamilyRecord)
        and r.family == NAME
        and r.value
        and r.key.startswith(RESERVATION)
    ]


def _few(names: list[str]) -> str:
    more = len(names) - SHOWN
    return plain(", ".join(names[:SHOWN])) + (f" and {more} more" if more > 0 else "")
