"""The doctor's names in sealmq.toml: put in for the length of a run, then taken out to the byte.

A run that was cut off leaves them there; the next one takes them over, and out.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from typing import Any, cast

import tomlkit
from tomlkit.items import AoT, InlineTable

from sealmq.families import registry
from sealmq.site.canary import CLIENTS, LABELS, TOPICS
from sealmq.site.edit import edit, locked
from sealmq.site.layout import Layout, write_atomically
from sealmq.site.layout import locked as layout_locked

from .errors import DoctorError

Document = tomlkit.TOMLDocument
Table = MutableMapping[str, Any]


@contextmanager
def alone(layout: Layout) -> Iterator[None]:
    """One doctor a site."""
    with layout_locked(layout, "doctor", patience_s=0) as ours:
        if not ours:
            raise DoctorError("another `sealmq doctor` is at this site", "wait until it has ended")
        yield


@contextmanager
def in_policy(layout: Layout) -> Iterator[None]:
    """The names stand in sealmq.toml; afterwards it is as it was.

    Whoever has to learn of either reads it again at the caller's word. ConfigError: it is wrong.
    """
    edit(layout, _take_out)
    before = layout.config.read_bytes()
    edit(layout, _put_in)
    after = layout.config.read_bytes()
    try:
        yield
    finally:
        with contextlib.ExitStack() as stack:
            stack.enter_context(locked(layout))
            untouched = layout.config.read_bytes() == after
            if untouched:
                mode = layout.config.stat().st_mode & 0o777
                write_atomically(layout.config, before, mode)
        if not untouched:  # somebody has edited it meanwhile
            edit(layout, _take_out)


def _put_in(doc: Document) -> None:
    for name, over in LABELS.items():
        table(doc, "labels")[name] = list(over)
    for name, label in CLIENTS.items():
        table(doc, "clients")[name] = inline({"label": label, "kind": "assessor"})
    for topic, label in TOPICS.items():
        table(doc, "topics")[topic] = label
    order = doc.get("policy", {}).get("order", ())
    for manifest in registry.manifests():
        if manifest.doctor and manifest.name in order:
            manifest.load(manifest.doctor.part).put_in(doc)


def _take_out(doc: Document) -> None:
    order = doc.get("policy", {}).get("order", ())
    for manifest in registry.manifests():
        if manifest.doctor:
            try:
                manifest.load(manifest.doctor.part).take_out(doc)
            except Exception:
                if manifest.name in order:  # else it judges nothing here, and stops nothing
                    raise
    for word, names in (("labels", LABELS), ("clients", CLIENTS), ("topics", TOPICS)):
        if word in doc:
            for name in names:
                table(doc, word).pop(name, None)


def table(doc: Table, name: str) -> Table:
    """The table of that name in another one, made where it is missing."""
    if name not in doc:
        doc[name] = tomlkit.inline_table() if isinstance(doc, InlineTable) else tomlkit.table()
    return cast(Table, doc[name])


def inline(row: Mapping[str, Any]) -> Any:
    """One row of a table of tables."""
    made: Any = tomlkit.inline_table()
    made.update(row)
    return made


def add_row(doc: Table, name: str, row: Mapping[str, Any], *, first: bool = False) -> None:
    """One more row of an array of tables, which is made where it is missing."""
    if name not in doc:
        doc[name] = tomlkit.array() if isinstance(doc, InlineTable) else tomlkit.aot()
    rows = doc[name]
    made: Any = tomlkit.table() if isinstance(rows, AoT) else tomlkit.inline_table()
    made.update(row)
    rows.insert(0 if first else len(rows), made)


def take_rows(doc: Table, name: str, ours: Callable[[Mapping[str, Any]], bool]) -> None:
    """These rows out of an array of tables."""
    found = [at for at, row in enumerate(doc.get(name, ())) if ours(row)]
    for at in reversed(found):
        del doc[name][at]
    if found:
        _drop_empty(doc, name)


def take_key(doc: Table, name: str, key: str) -> None:
    """That key out of a table."""
    if doc.get(name, {}).pop(key, None) is not None:
        _drop_empty(doc, name)


def _drop_empty(doc: Table, name: str) -> None:
    # An empty table that the operator has commented is the operator's.
    if not doc[name] and not doc[name].as_string().strip("[]{} \n"):
        del doc[name]
