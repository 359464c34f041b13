"""The file of `sealmq doctor --broker URL --as FILE`: accounts of somebody's broker, and what each
of them may do there. What the file does not allow an account must fail, and is tried.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sealmq.broker.errors import BadAddress
from sealmq.broker.target import read_password
from sealmq.mqtt.text import discouraged_fault, topic_fault
from sealmq.site.errors import ConfigError
from sealmq.site.reading import open_plain
from sealmq.site.values import names, only, text

_MOST = 64 * 1024
_MOST_ACCOUNTS, _MOST_TOPICS = 8, 16
_KEYS = ("name", "password", "password_file", "read", "write", "sys", "client_id")
_READER = "an account that may do it: without one nothing shows that a message came at all"


@dataclass(frozen=True, slots=True)
class Account:
    """read, write: topics. sys: it may read `$SYS/#`. client_id: "" for one drawn at each try."""

    name: str
    password: str = field(repr=False)
    read: tuple[str, ...] = ()
    write: tuple[str, ...] = ()
    sys: bool = False
    client_id: str = ""


@dataclass(frozen=True, slots=True)
class Accounts:
    """What the file says. revoke: the account that will lose its rights, if any."""

    below: str
    each: tuple[Account, ...]
    revoke: Account | None = None

    @property
    def topics(self) -> tuple[str, ...]:
        """All that the file names, in its order."""
        every = [topic for one in self.each for topic in (*one.read, *one.write)]
        return tuple(dict.fromkeys(every))

    def reader(self, topic: str, but: Account | None = None) -> Account:
        """Somebody who may read a topic of the file; `but` only where nobody else may."""
        return _first([one for one in self.each if topic in one.read], but)

    def writer(self, topic: str, but: Account | None = None) -> Account:
        """Somebody who may write a topic of the file; `but` only where nobody else may."""
        return _first([one for one in self.each if topic in one.write], but)


# `load` has seen to it that there is one.
def _first(found: list[Account], but: Account | None) -> Account:
    return next((one for one in found if one != but), found[0])


def load(path: Path) -> Accounts:
    """Read and check it. ConfigError, whose text has no password."""
    try:
        return _read(path)
    except ConfigError as error:
        error.path = str(path)
        raise


def _read(path: Path) -> Accounts:
    try:
        with open_plain(path) as file:
            mode, raw = os.fstat(file.fileno()).st_mode, file.read(_MOST + 1)
    except OSError as error:
        raise ConfigError(
            error.strerror or str(error), "gateway/DOCTOR.md has an example"
        ) from None
    if len(raw) > _MOST:
        raise ConfigError(f"it has more than {_MOST} bytes")
    try:
        doc = tomllib.loads(raw.decode())
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"it is no TOML: {error}") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"it is not UTF-8 at byte {error.start}") from None
    only(doc, "", ("below", "revoke", "account"))
    below = text(doc, "below", required=True)
    if (fault := topic_fault(below)) or below.startswith("$") or not below.endswith("/"):
        raise ConfigError(
            fault or f"{below!r} is nothing that topics can stand below",
            'a topic with a slash at its end, say below = "sealmq-doctor/"',
            key="below",
        )
    rows = doc.get("account", [])
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise ConfigError("accounts are a list of tables", "[[account]]", key="account")
    if not 2 <= len(rows) <= _MOST_ACCOUNTS:
        raise ConfigError(
            f"{len(rows)} accounts",
            f"2 to {_MOST_ACCOUNTS} of [[account]]: one to try with, one to see whether it came",
            key="account",
        )
    each = tuple(_account(row, below, path, mode) for row in rows)
    _consistent(Accounts(below, each))
    called = text(doc, "revoke")
    revoke = next((one for one in each if one.name == called), None)
    if called and revoke is None:
        raise ConfigError(f"there is no account {called!r}", "the name of one", key="revoke")
    return Accounts(below, each, revoke)


def _account(row: Mapping[str, Any], below: str, path: Path, mode: int) -> Account:
    only(row, "account", _KEYS)
    name = text(row, "account.name", required=True)
    where = f"account {name!r}"
    if not name or discouraged_fault(name) or "\0" in name:
        raise ConfigError(f"{name!r} is no user name", "printable text", key="account.name")
    client_id = text(row, "account.client_id")
    if discouraged_fault(client_id) or "\0" in client_id:
        raise ConfigError(f"{client_id!r} is no client id", "printable text", key=where)
    here, file = text(row, "password"), text(row, "password_file")
    if bool(here) == bool(file):
        raise ConfigError("a password in one place", "password_file or password", key=where)
    if here and mode & 0o077:
        raise ConfigError(
            f"others can read this file (mode {mode & 0o777:04o}), and it holds a password",
            f"chmod 600 {path}, or password_file",
            key=where,
        )
    sys = row.get("sys", False)
    if type(sys) is not bool:
        raise ConfigError("sys is true or false", "sys = true: it may read $SYS/#", key=where)
    try:
        password = here or read_password(path.parent / Path(file).expanduser())
    except BadAddress as error:
        raise ConfigError(str(error), error.hint, key=where) from None
    return Account(
        name,
        password,
        _topics(row, "read", below, where),
        _topics(row, "write", below, where),
        sys,
        client_id,
    )


def _topics(row: Mapping[str, Any], key: str, below: str, where: str) -> tuple[str, ...]:
    found = names(row, key, (), shown=f"{where}: {key}")
    for topic in found:
        fault = topic_fault(topic) or discouraged_fault(topic)
        if fault is None and not (topic.startswith(below) and len(topic) > len(below)):
            fault = f"{topic!r} is not below {below!r}, and nothing is written elsewhere"
        if fault:
            raise ConfigError(fault, "topics without wildcards, below `below`", key=where)
    return found


# Without somebody who may do it, that it does not happen to others proves nothing.
def _consistent(accounts: Accounts) -> None:
    called = [one.name for one in accounts.each]
    ids = [one.client_id for one in accounts.each if one.client_id]
    if len(set(called)) < len(called) or len(set(ids)) < len(ids):
        raise ConfigError("two accounts with one name or client_id", "each has its own")
    if not accounts.topics or len(accounts.topics) > _MOST_TOPICS:
        raise ConfigError(f"{len(accounts.topics)} topics", f"it names 1 to {_MOST_TOPICS}")
    for topic in accounts.topics:
        for key in ("read", "write"):
            if all(topic not in getattr(one, key) for one in accounts.each):
                raise ConfigError(f"nobody may {key} {topic!r}", _READER, key=key)
