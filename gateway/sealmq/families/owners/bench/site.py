"""A site whose events have owners, as `sealmq bench` measures one."""

from __future__ import annotations

import json
from collections.abc import Iterator, MutableMapping, Sequence
from typing import Any

from .. import MANIFEST
from ..records import ASSERTION

SETTINGS: dict[str, Any] = {"kind": "plain"}
KINDS: dict[str, dict[str, Any]] = {
    "plain": {},
    # Publishers of the bench send no items: the messages lie under the grant all the same.
    "sealed": {"attributes": {"speed": "int"}},
    "matching_set": {"granularity": "matching_set"},
}
TOLD_TOPIC = "told/{}"
ATTRIBUTE = "extAllowed"
POLICY = (
    {"licensees": ["*"], "actions": ["SUBSCRIBE"]},
    {"licensees": ["owner"], "actions": ["PUBLISH", "RECEIVE", "CHANGE_POLICY"]},
)
AT_MS = 1_800_000_000_000


def table(kind: str) -> dict[str, Any]:
    """[families.owners]: each client owns what it publishes."""
    common = {"app": "BENCH", "owner": "client", "control": "both", **KINDS[kind]}
    return {
        "types": {
            "VALUE": {"topic": "bench/{client}/value", **common},
            "RATE": {"topic": "rate/{client}/{what}", **common},
            "TOLD": {"topic": TOLD_TOPIC.format("{client}"), **common},
        },
        "policy": [{"authorizer": "POLICY", "app": "BENCH", **row} for row in POLICY],
    }


def put_in(doc: MutableMapping[str, Any], clients: Sequence[str], settings: Any) -> None:
    """All owners let everybody receive, which `held` says."""
    doc.setdefault("families", {})[MANIFEST.name] = table(settings["kind"])
    by = list(clients[2:3]) or list(clients)
    told = {"source": "client", "by": by, "of": "subscriber", "valid": "1h"}
    doc.setdefault("attributes", {})[ATTRIBUTE] = told


def as_sent(filter: str) -> str:
    """As it is."""
    return filter


def assertion(n: int, owner: str, licensee: str, **more: Any) -> tuple[str, bytes]:
    """Key and value of one as the family keeps it."""
    row: dict[str, Any] = {
        "authorizer": owner,
        "licensees": [licensee],
        "owner": owner,
        "app": "BENCH",
        "type": "VALUE",
        "actions": ["RECEIVE"],
        "condition": "",
        "at": AT_MS,
        **more,
    }
    return f"{ASSERTION}{n:012x}", json.dumps(row, separators=(",", ":")).encode()


def held(count: int, clients: Sequence[str], topics: Sequence[str]) -> Iterator[tuple[str, bytes]]:
    """Of each client one that lets everybody receive; then others' of their own."""
    for n, name in enumerate(clients[:count]):
        yield assertion(n, name, "*")
    for n in range(len(clients), count):
        yield assertion(n, f"owner{n // 4}", f"friend{n % 1000}")


def judging() -> list[dict[str, Any]]:
    """Decisions, without sockets and crypto."""
    from .decide import rows

    return rows(10_000)
