"""The doctor's names in sealmq.toml: put in for the length of a run, then taken out to the byte.

A run that was cut off leaves them there; the next one takes them over, and out.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from typing import Any, cast

import tomlkit
from tomlkit.items import AoT, InlineTable

from sealmq.site.canary import (
    CLIENTS,
    CONSENT,
    LABELS,
    LOW,
    OTHER_PURPOSE,
    PURPOSE,
    RESERVED,
    TOPICS,
)
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
        _table(doc, "labels")[name] = list(over)
    for name, label in CLIENTS.items():
        row = tomlkit.inline_table()
        row.update({"label": label, "kind": "assessor"})
        _table(doc, "clients")[name] = row
    for topic, label in TOPICS.items():
        _table(doc, "topics")[topic] = label
    if purposes_judge(doc):
        _put_purposes(_table(_table(doc, "families"), "purposes"))


def purposes_judge(doc: Mapping[str, Any]) -> bool:
    """Whether the family `purposes` is in the order."""
    return "purposes" in doc.get("policy", {}).get("order", ())


def _put_purposes(t: Table) -> None:
    row = tomlkit.inline_table()
    row.update({"aip": [PURPOSE]})
    _table(t, "reserve")[RESERVED] = row
    if t.get("tree"):  # else every purpose is known
        _table(t, "tree").update({PURPOSE: [], OTHER_PURPOSE: []})
    inline = isinstance(t, InlineTable)
    if "grant" not in t:
        t["grant"] = tomlkit.array() if inline else tomlkit.aot()
    grant = tomlkit.table() if isinstance(t["grant"], AoT) else tomlkit.inline_table()
    grant.update({"filter": CONSENT, "labels": [LOW]})
    t["grant"].insert(0, grant)  # the first that crosses decides


def _take_out_purposes(t: Table) -> None:
    taken = set()
    for name, keys in (("reserve", (RESERVED,)), ("tree", (PURPOSE, OTHER_PURPOSE))):
        for key in keys:
            if t.get(name, {}).pop(key, None) is not None:
                taken.add(name)
    grants = t.get("grant", [])
    for at in reversed([i for i, row in enumerate(grants) if row.get("filter") == CONSENT]):
        del grants[at]
        taken.add("grant")
    for name in taken - {"tree"}:
        # An empty table that the operator has commented is the operator's.
        if not t[name] and not t[name].as_string().strip("[]{} \n"):
            del t[name]


def _take_out(doc: Document) -> None:
    if "purposes" in doc.get("families", {}):
        _take_out_purposes(_table(_table(doc, "families"), "purposes"))
    for table, names in (("labels", LABELS), ("clients", CLIENTS), ("topics", TOPICS)):
        if table in doc:
            for name in names:
                _table(doc, table).pop(name, None)


def _table(doc: Table, name: str) -> Table:
    if name not in doc:
        doc[name] = tomlkit.inline_table() if isinstance(doc, InlineTable) else tomlkit.table()
    return cast(Table, doc[name])
