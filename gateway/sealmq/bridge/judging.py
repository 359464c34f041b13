"""Who judges what crosses: the family of [policy] order that does, or nobody. Without one, messages
cross between neighbours alone, as far as labels are exported.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from sealmq.families import registry
from sealmq.families.api import Policy
from sealmq.families.between import (
    NO_TOKEN,
    BadQuestion,
    Judge,
    Neighbour,
    Ruling,
    Say,
    Sending,
    Taken,
)
from sealmq.feedback import Told

RULE = "bridge.exported"
# A NamedTuple's own constructor is a Python function.
_new = tuple.__new__


class Plain:
    """Everything that a neighbour exports, and nothing of third sites."""

    relays = False

    def __init__(self) -> None:
        # Of each label that is exported: to whom.
        self._to: dict[str, tuple[str, ...]] = {}

    def configure(
        self,
        policy: Policy,
        neighbours: Mapping[str, Neighbour],
        far: Mapping[str, bytes],
        now_ms: int,
    ) -> None:
        near = {name: peer.exports for name, peer in policy.peers.items() if not peer.far}
        labels = {label for exports in near.values() for label in exports}
        self._to = {
            label: tuple([name for name, exports in near.items() if label in exports])
            for label in labels
        }

    def joined(self, neighbour: str, now_ms: int) -> None: ...

    def pending(self, neighbour: str) -> list[bytes]:
        return []

    def receive(self, neighbour: str, record: bytes, now_ms: int) -> Taken:
        return Taken(False, RULE, "this site takes no records")

    def outbound(self, client: str, topic: str, label: str, now_ms: int) -> Sending:
        to = self._to.get(label, ())
        return _new(Sending, (True, NO_TOKEN, to, RULE, "it is exported"))

    def message(self, neighbour: str, token: bytes, topic: str, now_ms: int) -> Ruling:
        return _new(Ruling, (True, (), neighbour, RULE, "it is a neighbour's own", False))

    def issuer(self, neighbour: str, token: bytes) -> str:
        return neighbour

    def naming(self, neighbour: str, token: bytes) -> bool:
        return True

    def knows(self, site: str, public: bytes) -> bool:
        return False

    def observe(self, neighbour: str, what: str, now_ms: int) -> None: ...

    def delivered(
        self, neighbour: str, message: bytes, topic: str, label: str, now_ms: int
    ) -> None: ...

    def vote(self, label: str, told: Told, now_ms: int) -> bool:
        return False

    def tick(self, now_ms: int) -> None: ...

    def changes(self) -> Sequence[tuple[bytes, bytes | None]]:
        return ()

    def restore(self, rows: Iterable[tuple[bytes, bytes]], now_ms: int) -> None: ...

    def ask(self, op: str, fields: Mapping[str, Any], now_ms: int) -> dict[str, Any]:
        raise BadQuestion("no policy family of this site judges between sites")


def of(
    order: Iterable[str], me: str, public: bytes, sign: Callable[[bytes], bytes], say: Say
) -> Judge:
    """The judge of a site with this [policy] order."""
    for name in order:
        found = registry.manifest(name)
        if found.between is not None:
            return found.load(found.between)(me, public, sign, say)
    return Plain()
