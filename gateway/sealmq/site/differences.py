"""What differs between two configurations, in the words of sealmq.toml: its keys, and their values.

Nothing of it is secret: no secret stands in that file.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from sealmq.kinds import OF_THE_SITE

from .model import Config

# Read when a process starts, and not again.
_AT_START = (
    "site",
    "broker",
    "mediator",
    "borders",
    "policy.order",
    "limits.queue_messages",
    "limits.queue_kib",
)
_LIVE = ("mediator.on_denied", "mediator.advertise_host", "mediator.advertise_port")
# What follows from other keys, and what they were read from.
_DERIVED = ("below", "text")
_LONGEST = 1000
_MOST = 1000


class Difference(NamedTuple):
    """A key of sealmq.toml; `was` and `now` are its values as JSON, or None where it is not.

    A value of more than 1,000 characters is cut.
    """

    key: str
    was: str | None
    now: str | None

    @property
    def at_next_start(self) -> bool:
        """Whether a running site goes on as before."""
        if self.key.startswith("peers."):
            # A bridge that runs goes by what is changed; a site without a peer has none.
            return self.was is None
        begins = any(self.key == name or self.key.startswith(f"{name}.") for name in _AT_START)
        return begins and self.key not in _LIVE

    def words(self) -> str:
        """For a person."""
        if self.was is None:
            text = f"{self.key}: new, {self.now}"
        elif self.now is None:
            text = f"{self.key}: gone, was {self.was}"
        else:
            text = f"{self.key}: {self.was} -> {self.now}"
        return text + " (from the next start on)" * self.at_next_start


def differences(before: Config, after: Config) -> list[Difference]:
    """Every difference, by key. A table that has come or gone is one.

    At most 1,000, and one more that counts the rest.
    """
    found = sorted(_differences("", _said(before), _said(after)), key=lambda row: row.key)
    if len(found) > _MOST:
        found[_MOST:] = [Difference("and others", None, f"{len(found) - _MOST} keys")]
    return found


def _differences(key: str, old: Any, new: Any) -> Iterator[Difference]:
    if isinstance(old, dict) and isinstance(new, dict):
        for name in old.keys() | new.keys():
            inside = f"{key}.{name}" if key else name
            yield from _differences(inside, old.get(name), new.get(name))
    elif old != new:
        yield Difference(key, *(None if x is None else _short(json.dumps(x)) for x in (old, new)))


def _said(config: Config) -> Any:
    """Without what no file says: clients and labels that come with peers and borders."""
    found = _plain(config)
    made = [name for name, client in config.clients.items() if client.kind in OF_THE_SITE]
    for table, names in (("clients", made), ("labels", [n for n in config.labels if "@" in n])):
        for name in names:
            del found[table][name]
    return found


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = [f.name for f in dataclasses.fields(value) if f.name not in _DERIVED]
        return {name: _plain(getattr(value, name)) for name in names}
    if isinstance(value, Mapping):
        return {str(name): _plain(inside) for name, inside in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inside) for inside in value]
    if isinstance(value, bytes):
        return value.hex()
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
