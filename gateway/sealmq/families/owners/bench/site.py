"""A site whose events have owners, as `sealmq bench` measures one."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping, Sequence
from typing import Any

from .. import MANIFEST
from .said import assertion

SETTINGS: dict[str, Any] = {"kind": "plain"}
KINDS: dict[str, dict[str, Any]] = {
    "plain": {},
    # Publishers of the bench send no items: the messages lie under the grant all the same.
    "sealed": {"attributes": {"speed": "int"}},
    "matching-set": {"granularity": "matching_set"},
}
TOLD_TOPIC = "told/{}"
ATTRIBUTE = "extAllowed"
POLICY = (
    {"licensees": ["*"], "actions": ["SUBSCRIBE"]},
    {"licensees": ["owner"], "actions": ["PUBLISH", "RECEIVE", "CHANGE_POLICY"]},
)


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


def held(count: int, clients: Sequence[str], topics: Sequence[str]) -> Iterator[tuple[str, bytes]]:
    """Of each client one that lets everybody receive; then others' of their own."""
    for n, name in enumerate(clients[:count]):
        yield assertion(n, name, "*")
    for n in range(len(clients), count):
        yield assertion(n, f"owner{n // 4}", f"friend{n % 1000}")


def judging() -> list[dict[str, Any]]:
    """None: `sealmq bench owners` measures decisions, and a series is measured once."""
    return []
