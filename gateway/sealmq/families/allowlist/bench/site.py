"""A site under the allowlist, as `sealmq bench` measures one: each client publishes below its own
name, and there are a hundred rules about others.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, MutableMapping, Sequence
from typing import Any

from .. import MANIFEST

SETTINGS: Mapping[str, str] = {}
_RULES = 100


def put_in(doc: MutableMapping[str, Any], clients: Sequence[str], settings: Any) -> None:
    """The rules of all, after those that none of what is published meets."""
    doc.setdefault("families", {})[MANIFEST.name] = {"rule": _rules(clients[0])}


def _rules(client: str) -> list[dict[str, list[str]]]:
    others = [
        {"clients": [client], "publish": [f"house/{n}/+"], "read": [f"house/{n}/#", f"+/{n}/state"]}
        for n in range(_RULES)
    ]
    return [*others, {"publish": ["bench/%c/value"], "read": ["bench/#", "rate/#"]}]


def as_sent(filter: str) -> str:
    """As it is."""
    return filter


def held(count: int, clients: Sequence[str], topics: Sequence[str]) -> Iterable[tuple[str, bytes]]:
    """The family keeps nothing."""
    return ()


def judging() -> list[dict[str, Any]]:
    """What a verdict costs that is not cached."""
    from .decide import rows

    return rows(put_in)
