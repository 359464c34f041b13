"""A file that somebody else writes: values by client, each with the end of its validity.

    [thermometer]
    value = "signed"
    until = 2027-01-31T18:00:00+01:00

or the same as JSON, with `until` as text. The client `*` is the site itself. A value is text, a
number or true or false. Of a pair the tables are [OWNER.SUBSCRIBER].
"""

from __future__ import annotations

import datetime
import json
import os
import stat
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sealmq.families.attributes import LONGEST, Attribute, fits, is_value, pair, shown
from sealmq.plain import plain

MOST_BYTES = 1 << 20
SITE = "*"
_PAIR_HINT = '[OWNER.SUBSCRIBER], value = "...", until = 2027-01-31T18:00:00Z'
_HINT = 'each client is a table of its own: [CLIENT], value = "...", until = 2027-01-31T18:00:00Z'


class BadSource(Exception):
    """A source says nothing that counts. `hint`: what would be right."""

    def __init__(self, what: str, hint: str) -> None:
        super().__init__(what)
        self.hint = hint


Seen = tuple[int, ...]
"""Tells a file from what it was before."""


def seen(path: Path) -> Seen:
    """OSError."""
    found = path.stat()
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def read(path: Path, name: str, of: str = "") -> dict[str, Attribute]:
    """The values of the attribute `name`, by subject; `of`: what it is declared to be of.
    BadSource, OSError.
    """
    # It may be a pipe, which would be waited for.
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(fd, "rb") as file:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode):
            raise BadSource("it is no file", "name a file")
        if found.st_mode & stat.S_IWOTH:
            raise BadSource(
                "everybody may write it", f"look at what it says, then: chmod o-w {path}"
            )
        raw = file.read(MOST_BYTES + 1)
    if len(raw) > MOST_BYTES:
        raise BadSource(f"it has more than {MOST_BYTES} bytes", "leave out whose values are over")
    return parse(raw, path.suffix, name, of)


def parse(raw: bytes, suffix: str, name: str, of: str = "") -> dict[str, Attribute]:
    """What `read` gives; suffix: ".toml" or ".json". BadSource: nothing of it counts."""
    try:
        text = raw.decode()
        doc = (
            tomllib.loads(text) if suffix == ".toml" else json.loads(text, object_pairs_hook=_once)
        )
    except BadSource:
        raise
    except (ValueError, RecursionError) as error:
        what = "UTF-8" if isinstance(error, UnicodeDecodeError) else suffix[1:].upper()
        raise BadSource(f"it is not {what}: {error}"[:200], _HINT) from None
    if not isinstance(doc, dict):
        raise BadSource("it is no table of clients", _HINT)
    if of == "pair":
        rows = [_row(name, *both) for owner, inner in doc.items() for both in _pairs(owner, inner)]
    else:
        rows = [_row(name, _subject(client), row) for client, row in doc.items()]
    for row in rows:
        if not fits(row.subject, of):
            where = f"[{plain(shown(row.subject) or SITE, 64)}]"
            hint = f"it is declared as of = {of!r}" if of else _HINT
            raise BadSource(f"{where} is no {of or 'client'}", hint)
    return {row.subject: row for row in rows}


def _subject(client: str) -> str:
    if not client:
        raise BadSource("a table without a name", f"the site itself is [{SITE!r}]")
    return "" if client == SITE else client


def _pairs(owner: str, inner: object) -> list[tuple[str, object]]:
    if not isinstance(inner, Mapping) or not all(isinstance(r, Mapping) for r in inner.values()):
        raise BadSource(f"[{plain(owner, 64)}] is no pair", _PAIR_HINT)
    return [(pair(owner, subscriber), row) for subscriber, row in inner.items()]


def _row(name: str, subject: str, row: object) -> Attribute:
    where = f"[{plain(shown(subject).replace('/', '.') or SITE, 64)}]"
    if not isinstance(row, Mapping) or row.keys() != {"value", "until"}:
        raise BadSource(f"{where} has other words than value and until", _HINT)
    value = row["value"]
    if not isinstance(value, bool | int | str) or (isinstance(value, str) and not is_value(value)):
        raise BadSource(
            f"{where} value is no text, number, true or false",
            f"a text has {LONGEST} characters at most",
        )
    if not is_value(value):
        raise BadSource(f"{where} value is a number that is too large", "at most 2^62")
    return Attribute(name, subject, value, _until(row["until"], where))


def _until(value: Any, where: str) -> int:
    try:
        if isinstance(value, str):
            value = datetime.datetime.fromisoformat(value)
        if isinstance(value, datetime.datetime) and value.tzinfo is not None:
            # 0 would mean that there is no value.
            return max(1, int(value.timestamp() * 1000))
    except (ValueError, OverflowError):
        pass
    raise BadSource(
        f"{where} until is no time with its zone", "until = 2027-01-31T18:00:00Z, or ...+01:00"
    )


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise BadSource("it has a name twice", "each client stands once")
    return found
