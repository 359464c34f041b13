"""The doctor's names in sealmq.toml: put in for the length of a run, then taken out to the byte.

A run that was cut off leaves them there; the next one takes them over, and out.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager
from typing import Any, cast

import tomlkit

from sealmq.site.canary import CLIENTS, LABELS, TOPICS
from sealmq.site.edit import edit, locked
from sealmq.site.layout import Layout, write_atomically

from .errors import DoctorError

Document = tomlkit.TOMLDocument


@contextmanager
def alone(layout: Layout) -> Iterator[None]:
    """One doctor a site."""
    fd = os.open(layout.run, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise DoctorError(
                "another `sealmq doctor` is at this site", "wait until it has ended"
            ) from None
        yield
    finally:
        os.close(fd)


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


def _take_out(doc: Document) -> None:
    for table, names in (("labels", LABELS), ("clients", CLIENTS), ("topics", TOPICS)):
        if table in doc:
            for name in names:
                _table(doc, table).pop(name, None)


def _table(doc: Document, name: str) -> MutableMapping[str, Any]:
    if name not in doc:
        doc[name] = tomlkit.table()
    return cast(MutableMapping[str, Any], doc[name])
