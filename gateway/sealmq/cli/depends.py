"""What clients have made that hangs on a label or a client, as each policy family says: topics'
labels, reservations.

It stands in the mediator's store, not in sealmq.toml, so that whoever edits the file does not see
it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from sealmq.families import registry
from sealmq.families.manifest import Made as Kind
from sealmq.families.manifest import MadeRow
from sealmq.plain import plain
from sealmq.site.differences import Difference
from sealmq.site.layout import Layout
from sealmq.store import Reader, StoreError

SHOWN = 5


@dataclass(frozen=True, slots=True)
class Made:
    """Of each kind what clients have made; None: the store cannot be read from here."""

    names: Mapping[Kind, list[str]] | None

    def words(self) -> list[str]:
        """A line each of what there is."""
        if self.names is None:
            return [
                "what clients have made of it is not known: the mediator's store is not readable"
            ]
        found = {kind.words: names for kind, names in self.names.items() if names}
        return [f"{words} ({len(names)}): {_few(names)}" for words, names in found.items()]

    def to_json(self) -> dict[str, Any]:
        """For --json."""
        return {kind.key: None if self.names is None else self.names[kind] for kind in _kinds()}


def on_label(layout: Layout, name: str) -> Made:
    """Topics that learned this label, and what counts only while its topic has it."""
    return _made(layout, lambda row: row.label == name)


def labels_gone(layout: Layout, found: Iterable[Difference]) -> dict[str, Made]:
    """Labels that a new sealmq.toml has no more, and what hangs on each."""
    keys = [row.key for row in found if row.now is None]
    names = [key.removeprefix("labels.") for key in keys if key.startswith("labels.")]
    return {name: on_label(layout, name) for name in names}


def words(gone: Mapping[str, Made]) -> list[str]:
    """What an operator should know of labels that are gone."""
    lines = []
    for name, made in gone.items():
        lines += [f"label {name} is gone, with it {row}" for row in made.words()]
        lines += [kind.gone for kind, names in (made.names or {}).items() if names and kind.gone]
    return lines


def on_client(layout: Layout, name: str) -> Made:
    """Topics that it labelled, and what it made besides."""
    return _made(layout, lambda row: row.by == name)


def idle(layout: Layout, topic: str, label: str | None) -> dict[Kind, list[MadeRow]]:
    """What clients have made of exactly this topic that hangs on another label than it has."""
    return {
        kind: [row for row in rows if row.name == topic and row.label and row.label != label]
        for kind, rows in _rows(layout).items()
        if kind.idle
    }


def _made(layout: Layout, wanted: Callable[[MadeRow], bool]) -> Made:
    try:
        found = _rows(layout)
    except (StoreError, OSError):
        return Made(None)
    return Made({kind: [row.name for row in rows if wanted(row)] for kind, rows in found.items()})


def _kinds() -> list[Kind]:
    return [manifest.made for manifest in registry.manifests() if manifest.made]


def _rows(layout: Layout) -> dict[Kind, list[MadeRow]]:
    records = []
    if layout.mediator_db.exists():  # it is made by the first `up`
        reader = Reader.open_readonly(layout.mediator_db)
        try:
            records = reader.records()
        finally:
            reader.close()
    return {
        manifest.made: list(manifest.load(manifest.made.rows)(records))
        for manifest in registry.manifests()
        if manifest.made
    }


def _few(names: list[str]) -> str:
    more = len(names) - SHOWN
    return plain(", ".join(names[:SHOWN])) + (f" and {more} more" if more > 0 else "")
