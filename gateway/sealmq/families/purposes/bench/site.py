"""A site with purposes, as `sealmq bench` measures one."""

from __future__ import annotations

import functools
from collections.abc import Iterator, MutableMapping, Sequence
from typing import Any

from sealmq_spec.purposes import access, reserve

from .. import MANIFEST
from ..records import RESERVATION
from ..records import reservation as kept
from ..store import Reservation

SETTINGS = {"mode": "hybrid", "store": "cache"}
ALLOWED, FORBIDDEN = "billing", "advertising"
# For what everybody subscribes; below what the reservations allow, so that the tree is looked at.
PURPOSE = "billing/invoice"
_WILD = ("+/+/room/#", "+/+/+/+", "house/+/+/#", "house/#")


def put_in(doc: MutableMapping[str, Any], clients: Sequence[str], settings: Any) -> None:
    """A steward's commands are not counted: all clients reserve as fast as they can."""
    families = doc.setdefault("families", {})
    families[MANIFEST.name] = {**settings, "strict": True, "stewards": list(clients)}


def as_sent(filter: str) -> str:
    """For the bench's purpose."""
    return access(filter, PURPOSE)


def filters(count: int, topics: Sequence[str]) -> Iterator[str]:
    """Those of `count` reservations (at least two): over what is subscribed to, then one for each
    client's own topic as far as they reach, then other topics, four levels deep.
    """
    yield "bench/#"
    yield "rate/#"
    left = count - 2
    yield from topics[:left]
    for n in range(left - len(topics)):
        yield f"house/{n % 1000}/room/{n // 1000}"


def record(filt: str, by: str, at_ms: int = 1_800_000_000_000) -> tuple[str, bytes]:
    """Key and value of a reservation as the family keeps it."""
    return RESERVATION + filt, _value(by, at_ms)


# All say the same, and there may be a million. Not over a label: those of a steward count whatever
# a topic's label is.
@functools.cache
def _value(by: str, at_ms: int) -> bytes:
    made = kept(Reservation("x", [ALLOWED], [FORBIDDEN], by), at_ms).value
    if made is None:
        raise ValueError("a reservation's record has no value")
    return made


def held(count: int, clients: Sequence[str], topics: Sequence[str]) -> Iterator[tuple[str, bytes]]:
    """So many reservations of the first client's, so that the family's tree is looked at."""
    for filt in filters(count, topics):
        yield record(filt, clients[0])


def wild(turn: int) -> tuple[Sequence[str], Sequence[str]]:
    """Another purpose each time: what was found is remembered. Everything is spoken for, and
    somewhere the purpose is allowed: else there is nothing to look for."""
    purpose = f"wild-{turn}"
    needed = reserve("#", ("care",), ()), reserve(f"elsewhere/{purpose}", (purpose,), ())
    return needed, [access(filt, purpose) for filt in _WILD]


def judging() -> list[dict[str, Any]]:
    """For how long it holds the loop at most."""
    from .holds import rows

    return rows()
