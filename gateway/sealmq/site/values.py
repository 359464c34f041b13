"""Single values of sealmq.toml: their types, names and addresses. `key` is where a value stands.

`shown` replaces `key` in errors, where the value stands inside another line's table.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from sealmq.near import near
from sealmq_spec.errors import SealError

from .errors import ConfigError
from .model import BUILT_IN, SUITES, Label

ANYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - what must not be told to clients
"""Addresses that mean every one of this machine, and how it reaches itself."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}\Z")
NAME_RULE = "a name has 1 to 64 of A-Z a-z 0-9 . _ - and starts with a letter or digit"


def table(doc: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = doc.get(name, {})
    if not isinstance(value, dict):
        raise ConfigError(f"{name} is a table", f"[{name}]", key=name)
    return value


def only(t: Mapping[str, Any], where: str, names: Iterable[str]) -> None:
    for name in t:
        if name not in names:
            key = f"{where}.{name}" if where else name
            raise ConfigError("unknown key", near(name, names), key=key)


def text(
    t: Mapping[str, Any], key: str, default: str = "", *, required: bool = False, shown: str = ""
) -> str:
    name = key.rpartition(".")[2]
    value = t.get(name, None if required else default)
    if value is None:
        raise ConfigError(f"{name} is missing", f'{name} = "..."', key=shown or key)
    if not isinstance(value, str):
        raise ConfigError(f"{name} is text, this is {value!r}", f'{name} = "..."', key=shown or key)
    return value


def one_of(
    t: Mapping[str, Any], key: str, allowed: tuple[str, ...], default: str, *, shown: str = ""
) -> str:
    value = text(t, key, default, shown=shown)
    if value not in allowed:
        raise ConfigError(
            f"{key.rpartition('.')[2]} is {value!r}",
            "one of: " + ", ".join(allowed),
            key=shown or key,
        )
    return value


def names(
    t: Mapping[str, Any], key: str, default: tuple[str, ...], *, shown: str = ""
) -> tuple[str, ...]:
    value = t.get(key.rpartition(".")[2], list(default))
    if not isinstance(value, list) or not all(isinstance(v, str) for v in value):
        raise ConfigError("this is a list of names", '["...", "..."]', key=shown or key)
    return tuple(value)


def suite(row: Mapping[str, Any], key: str) -> int:
    return SUITES[one_of(row, f"{key}.suite", tuple(SUITES), "ccm", shown=key)]


def is_name(name: str) -> bool:
    """Whether a label, a client or a site may be called so."""
    return _NAME.match(name) is not None


def check_name(name: str, key: str) -> None:
    if not is_name(name):
        raise ConfigError(f"{name!r} is no name", NAME_RULE, key=key)


def check_label(name: str, labels: Mapping[str, Label], key: str) -> None:
    if name not in labels and name not in BUILT_IN:
        hint = near(name, (*labels, *BUILT_IN))
        _, at, peer = name.rpartition("@")
        if at and not any(known.endswith(f"@{peer}") for known in labels):
            hint = f"nothing is imported from {peer}: who has its labels needs another one, or goes"
        elif not labels:
            hint += "; a new one goes below [labels]: NAME = []"
        raise ConfigError(f"there is no label {name!r}", hint, key=key, label=name)


def check_with(rule: Callable[[str], object], value: str, key: str) -> None:
    try:
        rule(value)
    except (SealError, UnicodeEncodeError) as error:  # the latter of a command's word
        what = str(error) if isinstance(error, SealError) else f"{value!r} is not UTF-8"
        raise ConfigError(what, "SPEC.md, section 9", key=key) from None


# Longer than any port; int() itself refuses more than 4,300 digits.
_PORT_DIGITS = 10


def address(value: str, key: str) -> tuple[str, int]:
    host, colon, port = value.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        host = ""
    number = int(port) if port.isdecimal() and len(port) <= _PORT_DIGITS else 0
    if not colon or not host or not 0 < number < 65536:
        raise ConfigError(
            f"{value!r} is no address", "HOST:PORT, or [IPV6]:PORT; ports 1 to 65535", key=key
        )
    return host, number


def path(t: Mapping[str, Any], key: str, folder: Path | None) -> Path | None:
    value = text(t, key)
    if not value:
        return None
    if "\0" in value:
        raise ConfigError(f"{value!r} is no path", "a path has no NUL character", key=key)
    try:
        found = Path(value).expanduser()
    except RuntimeError:
        raise ConfigError(
            f"{value!r}: this system knows no home folder for it",
            "the whole path, from / on; ~ is one's own home folder, ~NAME that of user NAME",
            key=key,
        ) from None
    return found if folder is None else folder / found


# A secret beside what it protects protects nothing.
def outside_path(t: Mapping[str, Any], key: str, folder: Path | None) -> Path | None:
    found = path(t, key, folder)
    if found is None or folder is None:
        return found
    try:
        inside = is_inside(found, folder)
    except (OSError, RuntimeError):  # the second: links that lead in a circle
        raise ConfigError(
            f"{found} cannot be followed", "a path whose links lead somewhere", key=key
        ) from None
    if inside:
        raise ConfigError(
            f"{found} lies inside the site", "move it to a folder outside the site", key=key
        )
    return found


def is_inside(found: Path, folder: Path) -> bool:
    """Whether a file is in a folder, once links are followed."""
    return found.resolve().is_relative_to(folder.resolve())
