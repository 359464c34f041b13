"""Commands that change sealmq.toml: comments and order stay, and nothing wrong is ever written.

The new text is checked as a whole before it replaces the old one in one step. One command at a
time: the site's folder is locked meanwhile.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, cast

import tomlkit
from tomlkit.items import Comment, Table, Whitespace

from sealmq.kinds import SUITE_OF
from sealmq.near import closest, near

from .config import Config, loads, read
from .errors import ConfigError, SiteError
from .layout import Layout, write_atomically
from .layout import locked as layout_locked
from .reserve import Reserve

Document = tomlkit.TOMLDocument

# For another command that edits.
PATIENCE_S = 30.0


@contextmanager
def locked(layout: Layout) -> Iterator[None]:
    """Nobody else edits the site's files meanwhile. SiteError: somebody does, and does not end."""
    with layout_locked(layout, "edit", PATIENCE_S) as ours:
        if not ours:
            raise SiteError(
                "another command edits sealmq.toml and does not end",
                f"look who has {layout.lock_file('edit')} open: fuser -v",
            )
        yield


def edit(layout: Layout, change: Callable[[Document], None]) -> Config:
    """Apply `change` to sealmq.toml; returns what it then says. ConfigError: nothing changed.

    What counts is what it says after the change, which may put right what was wrong before.
    """
    with locked(layout):
        text = read(layout.config)
        fault = _fault(text, layout)
        try:
            doc = tomlkit.parse(text)
            change(doc)
            new = doc.as_string()
        except ConfigError:
            raise
        except Exception:  # what is wrong may be of any kind: a table that is none, no TOML at all
            if fault is None:
                raise
            raise fault from None
        try:
            config = loads(new, layout.config)
        except ConfigError as error:
            if fault is not None and (error.key, error.what) == (fault.key, fault.what):
                raise fault from None  # with its line
            error.line = None  # a line of the text that is not written
            raise
        if new == text:
            return config
        if fault is None and _said(new) == _said(text):
            return loads(text, layout.config)  # whose digest is the file's
        mode = layout.config.stat().st_mode & 0o777
        Reserve(layout.root).urgent()
        write_atomically(layout.config, new.encode(), mode)
        return config


# tomlkit may write tables in another order though nothing has changed; the file then stays.
def _said(text: str) -> str:
    return json.dumps(tomllib.loads(text), sort_keys=True, default=repr)


def _fault(text: str, layout: Layout) -> ConfigError | None:
    try:
        loads(text, layout.config)
    except ConfigError as error:
        return error
    return None


@dataclass(frozen=True, slots=True)
class New:
    """A client to add. `kind` and `suite` that are None: the default for a new client, anything for
    one that is there. A new app's link has ChaCha20-Poly1305, which costs a host without AES
    instructions, and one with them too, less than AES-CCM.
    """

    name: str
    label: str
    kind: str | None = None
    suite: str | None = None


def add_clients(layout: Layout, rows: Iterable[New]) -> tuple[Config, set[str]]:
    """Add clients, or find them there with the same values. The second value: those added now."""
    added: set[str] = set()

    def change(doc: Document) -> None:
        added.clear()
        clients = _table(doc, "clients")
        fresh: dict[str, str] = {}
        for new in rows:
            found = clients.get(new.name)
            if found is not None:
                given = {"label": new.label, "kind": new.kind, "suite": new.suite}
                _same(new.name, found, {k: v for k, v in given.items() if v is not None})
                continue
            row = {"label": new.label, "kind": new.kind or "device"}
            suite = new.suite or SUITE_OF.get(row["kind"], "ccm")
            if suite != "ccm":
                row["suite"] = suite
            words = ", ".join(f"{k} = {tomlkit.string(v).as_string()}" for k, v in row.items())
            fresh[new.name] = f"{{ {words} }}"
        _put_lines(clients, fresh)
        added.update(fresh)

    return edit(layout, change), added


def remove_client(layout: Layout, name: str) -> Config:
    """Take a client out of the file. ConfigError names what else names it."""

    def change(doc: Document) -> None:
        _client(doc, name)
        del _table(doc, "clients")[name]

    return edit(layout, change)


_WHERE = ("address", "listen", "far")


def put_peer(
    layout: Layout, name: str, said: Mapping[str, object]
) -> tuple[Config, dict[str, Any] | None]:
    """Add a peer, or change what is given. The second value: what was said of it before, None if
    it was not there. ConfigError: a new one lacks what it needs."""
    before: dict[str, Any] | None = None

    def change(doc: Document) -> None:
        nonlocal before
        peers = doc.get("peers", {})
        if name in peers:
            before = tomlkit.item(peers[name]).unwrap()
        else:
            before = None
            if "fingerprint" not in said or not said.keys() & set(_WHERE):
                raise ConfigError(f"there is no peer {name!r}", _new_peer(name, peers), key="peers")
            if name == doc.get("site", {}).get("name"):
                hint = "a peer is another site, called as it calls itself"
                raise ConfigError("that is this site itself", hint, key=f"peers.{name}")
            if "peers" not in doc:
                peers = doc["peers"] = tomlkit.table(is_super_table=True)
            peers[name] = tomlkit.table()
        row = cast(MutableMapping[str, Any], peers[name])
        for key, value in said.items():
            if key in _WHERE:  # one in the place of the others
                for other in _WHERE:
                    row.pop(other, None)
            row[key] = value
        for key in ("export", "import"):
            if not row.get(key, True):
                del row[key]  # none, as where nothing is said

    return edit(layout, change), before


def _new_peer(name: str, peers: Iterable[str]) -> str:
    meant = closest(name, peers)
    return (f"did you mean {meant}? " if meant else "") + (
        "A new one needs --fingerprint, and --listen, --address or --far"
    )


def remove_peer(layout: Layout, name: str) -> tuple[Config, dict[str, Any]]:
    """Take a peer out of the file. The second value: what was said of it. ConfigError names what
    else names its labels."""
    before: dict[str, Any] = {}

    def change(doc: Document) -> None:
        nonlocal before
        peers = _table(doc, "peers")
        if name not in peers:
            raise ConfigError(f"there is no peer {name!r}", near(name, peers), key="peers")
        before = tomlkit.item(peers[name]).unwrap()
        del peers[name]
        if not peers:
            del doc["peers"]

    return edit(layout, change), before


def set_topic(layout: Layout, topic: str, label: str | None) -> Config:
    """Label a topic beforehand; None takes the line out."""

    def change(doc: Document) -> None:
        topics = _table(doc, "topics")
        if label is not None:
            _put(topics, topic, label)
        elif topic in topics:
            del topics[topic]

    return edit(layout, change)


def set_client_label(layout: Layout, name: str, label: str) -> Config:
    """Give a client that is there another label."""

    def change(doc: Document) -> None:
        _client(doc, name)["label"] = label

    return edit(layout, change)


def set_client_disabled(layout: Layout, name: str, disabled: bool) -> tuple[Config, bool]:
    """Take a client out, or let it in again. The second value: sealmq.toml said otherwise."""
    changed = False

    def change(doc: Document) -> None:
        nonlocal changed
        row = _client(doc, name)
        changed = bool(row.get("disabled", False)) != disabled
        if changed and disabled:
            _set(row, "disabled", True)
        elif changed:
            del row["disabled"]

    return edit(layout, change), changed


def raise_rotation(layout: Layout, name: str, above: int) -> Config:
    """Ask for a new secret of a client: its `rotation` gets above what it is, and `above`."""

    def change(doc: Document) -> None:
        row = _client(doc, name)
        _set(row, "rotation", max(int(row.get("rotation", 0)), above) + 1)

    return edit(layout, change)


def set_rotations(layout: Layout, rotations: Mapping[str, int]) -> Config:
    """Write down which secret each of these clients has."""

    def change(doc: Document) -> None:
        for name, rotation in rotations.items():
            _set(_client(doc, name), "rotation", rotation)

    return edit(layout, change)


def _client(doc: Document, name: str) -> MutableMapping[str, Any]:
    clients = _table(doc, "clients")
    row = clients.get(name)
    if row is None:
        raise ConfigError(f"there is no client {name!r}", near(name, clients), key="clients")
    return cast(MutableMapping[str, Any], row)


# A client is `{ ... }` in one line, or a table of its own.
def _set(row: MutableMapping[str, Any], key: str, value: object) -> None:
    if isinstance(row, Table):
        _put(row, key, value)
    else:
        row[key] = value


def _same(name: str, found: MutableMapping[str, Any], wanted: dict[str, str]) -> None:
    defaults = {"kind": "device", "suite": "ccm"}
    for key, value in wanted.items():
        has = str(found.get(key, defaults.get(key)))
        if has != value:
            raise ConfigError(
                f"it is there already, with {key} {has!r} and not {value!r}",
                "give the same values to get its enrolment file again, or choose another name",
                key=f"clients.{name}",
            )


def _table(doc: Document, name: str) -> Table:
    if name not in doc:
        doc[name] = tomlkit.table()
    return cast(Table, doc[name])


def _put(table: Table, key: str, value: object) -> None:
    if key in table:
        table[key] = value
    else:
        with _at_its_end(table):
            table.append(key, value)


# New lines, with values as TOML's text. tomlkit looks through the whole table for each `append`:
# 10,000 of them took minutes. So the first line goes that way, and the others after it in one
# piece.
def _put_lines(table: Table, new: Mapping[str, str]) -> None:
    lines = [(tomlkit.key(key), text) for key, text in new.items()]
    with _at_its_end(table):
        for key, text in lines[:1]:
            table.append(key, tomlkit.value(text))
        rest = "".join(f"{key.as_string()} = {text}\n" for key, text in lines[1:])
        table.value.body.extend(tomlkit.parse(rest).body)


# New lines go after the table's last one, not after the comment above the next table.
@contextmanager
def _at_its_end(table: Table) -> Iterator[None]:
    body = table.value.body
    start = len(body)
    while start and body[start - 1][0] is None:
        start -= 1
    while start < len(body) and not isinstance(body[start][1], Whitespace):
        start += 1
    after = [item for _, item in body[start:]]
    del body[start:]
    yield
    for item in after:
        if isinstance(item, (Comment, Whitespace)):
            table.add(item)


def fill(template: str, values: dict[str, str]) -> str:
    """A template's text with each @NAME@ replaced by a TOML string of its value.

    A line whose value is missing is left out.
    """

    def line(text: str) -> str | None:
        found = re.search(r"@([a-z_]+)@", text)
        if found is None:
            return text
        value = values.get(found.group(1))
        if value is None:
            return None
        return text.replace(found.group(0), tomlkit.string(value).as_string())

    return "".join(new for old in template.splitlines(True) if (new := line(old)) is not None)
