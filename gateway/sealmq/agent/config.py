"""agent.toml, or the same from a command line: who may connect where, as which client of a site.

What is not known is refused. An address that is not this machine's alone takes TLS and passwords.
"""

from __future__ import annotations

import ipaddress
import os
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from sealmq.families import registry
from sealmq.site.reading import open_plain
from sealmq_spec.errors import SealError
from sealmq_spec.topics import check_filter

from .discovery import Discovery

_MOST = 1 << 20
_MOST_PASSWORD = 1024


class BadConfig(Exception):
    """What was said is wrong, and what would be right; `hint`: what to do about it."""

    def __init__(self, what: str, right: str | None = None, *, hint: str | None = None) -> None:
        super().__init__(what if right is None else f"{what}; {right}")
        self.hint = hint


def read_password(path: Path) -> bytes:
    """The password in a file that only its owner reads, without one trailing line end."""
    try:
        with open_plain(path) as file:
            mode = os.fstat(file.fileno()).st_mode
            raw = file.read(_MOST_PASSWORD + 1)
    except OSError as error:
        denied = "it has to belong to the user that the agent runs as: chown"
        raise BadConfig(
            f"the password file {path}: {error.strerror or error}",
            hint=denied if isinstance(error, PermissionError) else None,
        ) from None
    if mode & 0o077:
        raise BadConfig(
            f"the password file {path} can be read by others (mode {mode & 0o777:04o})",
            hint=f"chmod 600 {path}",
        )
    password = raw.removesuffix(b"\n").removesuffix(b"\r")
    if not 8 <= len(password) <= _MOST_PASSWORD:
        raise BadConfig(f"the password file {path}: it has 8 to {_MOST_PASSWORD} bytes")
    return password


@dataclass(frozen=True, slots=True)
class Door:
    """Where to listen: a Unix socket, or host and port; for WebSockets or MQTT itself."""

    path: Path | None
    host: str
    port: int
    web: bool

    def __str__(self) -> str:
        if self.path is not None:
            return str(self.path)
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'ws://' if self.web else ''}{host}:{self.port}"

    @property
    def outside(self) -> bool:
        """Whether other machines reach it."""
        return self.path is None and not _is_loopback(self.host)


@dataclass(frozen=True, slots=True)
class User:
    """A local user name, and whom it acts as: an enrolment file, or a client of a site here.

    say: what its subscriptions say to policy families. acknowledge: whether a refused PUBLISH of
    MQTT 3.1.1 is acknowledged all the same, instead of ending the connection.
    """

    name: str
    enrolment: Path | None
    site: str
    client: str
    state: Path | None
    password: bytes | None = field(repr=False)
    say: Mapping[str, str] = field(default_factory=dict)
    acknowledge: bool = False
    discovery: Discovery = field(default_factory=Discovery)


@dataclass(frozen=True, slots=True)
class Config:
    """All of it. origins: of pages whose scripts may use WebSockets; hosts: names by which they
    may call this machine, besides its loopback's. certificate, key: for TLS."""

    doors: Sequence[Door]
    users: Mapping[str, User]
    spool: Path
    anonymous: bool = False
    origins: Sequence[str] = ()
    hosts: Sequence[str] = ()
    certificate: Path | None = None
    key: Path | None = None


def door(text: str) -> Door:
    """PATH, HOST:PORT or ws://HOST:PORT. A name is none: where it leads may change."""
    web = text.startswith("ws://")
    if not web and ("/" in text or text.endswith(".sock")):
        return Door(Path(text), "", 0, False)
    try:
        parts = urlsplit(text if web else f"mqtt://{text}")
        host, port = parts.hostname or "", parts.port
        host = "127.0.0.1" if host == "localhost" else host
        ipaddress.ip_address(host)
        path = parts.path
    except ValueError:
        host, port, path = "", None, ""
    if not host or not port or path not in ("", "/"):
        raise BadConfig(
            f"listen: {text!r} is no address",
            "127.0.0.1:1884, [::1]:1884, ws://127.0.0.1:9001, or a path with a / for a Unix socket",
        )
    return Door(None, host, port, web)


def _is_loopback(host: str) -> bool:
    return ipaddress.ip_address(host).is_loopback


def checked(config: Config) -> Config:
    """Refuses what lets in whom it should not. BadConfig."""
    if not config.users:
        raise BadConfig("no user", hint="[users.NAME] with enrolment, or site and client")
    if not config.doors:
        raise BadConfig("nowhere to listen", hint="listen = ['127.0.0.1:1884']")
    without = [user.name for user in config.users.values() if user.password is None]
    for one in config.doors:
        if one.outside and (config.certificate is None or config.anonymous or without):
            raise BadConfig(
                f"listen: {one} is reached by other machines",
                "there it takes TLS (certificate, key) and a password for each user, and no "
                "`anonymous`",
            )
        if one.path is None and without and not config.anonymous:
            raise BadConfig(
                f"listen: {one} is reached by every user of this machine, and "
                f"{', '.join(without)} has no password",
                hint="password_file for each user, a Unix socket, or --anonymous",
            )
    return config


def read(path: Path) -> Config:
    """A configuration file; paths in it are beside it. BadConfig."""
    try:
        with path.open("rb") as file:
            data = tomllib.loads(file.read(_MOST).decode())
    except OSError as error:
        why = f"{path}: {error.strerror or error}"
        raise BadConfig(why, hint="gateway/AGENT.md has an example of this file") from None
    except ValueError as error:
        raise BadConfig(f"{path}: {error}") from None
    at = _At(path, data, "")
    users = {name: _user(at.table("users").table(name)) for name in at.table("users").data}
    named = "enrolment", "site", "client"
    if len({tuple(map(str, (getattr(u, n) for n in named))) for u in users.values()}) < len(users):
        raise BadConfig(f"{path}: two users with one enrolment", "each has its own")
    certificate, key = at.path("certificate"), at.path("key")
    if (certificate is None) != (key is None):
        raise BadConfig(f"{path}: certificate and key go together")
    config = Config(
        [_beside(path, door(text)) for text in at.texts("listen")],
        users,
        at.path("spool") or path.with_suffix(".spool"),
        at.flag("anonymous"),
        at.texts("origins"),
        at.texts("hosts"),
        certificate,
        key,
    )
    at.table("users").end()
    at.end()
    return checked(config)


def _beside(file: Path, one: Door) -> Door:
    return one if one.path is None else replace(one, path=file.parent / one.path)


def _user(at: _At) -> User:
    password_file = at.path("password_file")
    say = {name: str(value) for name, value in at.table("say").data.items()}
    check_say(say)
    user = User(
        at.name,
        at.path("enrolment"),
        str(at.path("site") or ""),
        at.text("client"),
        at.path("state"),
        None if password_file is None else read_password(password_file),
        say,
        at.flag("acknowledge_refused"),
        _discovery(at.table("discovery")),
    )
    if (user.enrolment is None) == (not (user.site and user.client)):
        raise at.wrong("enrolment", "a file; or site and client, on the gateway's machine")
    at.end()
    return user


def check_say(say: Mapping[str, str]) -> None:
    """BadConfig: no policy family knows that, or not with that value."""
    try:
        registry.encodings(say)
        for manifest in registry.manifests():
            if (says := manifest.says) and says.option in say:
                manifest.load(says.check)(say[says.option])
    except SealError as error:
        raise BadConfig(str(error)) from None


def _discovery(at: _At) -> Discovery:
    prefix = at.text("prefix") or "homeassistant"
    senders = {name: at.table("senders").texts(name) for name in list(at.table("senders").data)}
    for name, filters in senders.items():
        for one in filters:
            try:
                check_filter(one)
            except SealError as error:
                raise at.wrong(f"senders.{name}", str(error)) from None
    at.end()
    return Discovery(prefix, senders)


class _At:
    """A table of the file. What has not been asked for by `end` is not known."""

    def __init__(self, file: Path, data: dict[str, Any], where: str) -> None:
        self._file, self.data, self._where = file, data, where
        self.name = where.rpartition(".")[2]
        self._asked: set[str] = set()
        self._tables: dict[str, _At] = {}

    def wrong(self, key: str, right: str) -> BadConfig:
        where = f"{self._where}.{key}" if self._where else key
        return BadConfig(f"{self._file}: {where} is missing or wrong", right)

    def _get(self, key: str, kind: type, default: Any) -> Any:
        self._asked.add(key)
        value = self.data.get(key, default)
        if type(value) is not kind:
            raise self.wrong(key, f"it is a {kind.__name__}")
        return value

    def text(self, key: str) -> str:
        return str(self._get(key, str, ""))

    def flag(self, key: str) -> bool:
        return bool(self._get(key, bool, False))

    def texts(self, key: str) -> list[str]:
        found = self._get(key, list, [])
        if not all(isinstance(one, str) for one in found):
            raise self.wrong(key, "it is a list of texts")
        return list(found)

    def path(self, key: str) -> Path | None:
        text = self.text(key)
        return self._file.parent / text if text else None

    def table(self, key: str) -> _At:
        if key not in self._tables:
            where = f"{self._where}.{key}" if self._where else key
            self._tables[key] = _At(self._file, self._get(key, dict, {}), where)
        return self._tables[key]

    def end(self) -> None:
        left = self.data.keys() - self._asked
        if left:
            known = ", ".join(sorted(self._asked))
            raise self.wrong(min(left), f"known are: {known}")
