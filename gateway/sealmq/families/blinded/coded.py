"""What the key generator tells mediators, row by row: nothing of it is an attribute in words.

    e/ID              an event grant: who may publish under the policy id, where, of which kind
    m/KIND/CUSTOMER   scoped: filters of the kind's policy and of the customer, in both directions
    k/KIND, c/NAME    paper: filters of a kind, and of a customer

Whoever reads a row refuses what the key generator would never have made: a filter with fewer bits
than one element has, a set with more than MOST_ONES, another length. `BadRow` is then a deny.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from typing import Any, NamedTuple

from .bloom import BITS, HASHES, MOST_ONES, Filter, to_bytes

GRANT = "mediators"
"""The grant that no client holds: under it lies the broker's copy of each event, with its id."""
TLV = 0x21
"""The item of a message that is its policy id."""
ID = 8
"""Bytes of a policy id."""
EVENT, PAIR, KIND, CUSTOMER = "e/", "m/", "k/", "c/"
_SIZE = BITS // 8
_HEAD = struct.Struct(">BBHHHH")
SCOPED, PAPER = 1, 2
OPEN = 1
"""Flag: the customer has no policy of its own, and takes what it is let have."""
MOST_ROWS = 4096
"""Filters of one list."""


class BadRow(ValueError):
    """A row that the key generator did not make."""


class Event(NamedTuple):
    """An event grant. `topic` and all below it, but for `but`, where longer prefixes have policies
    of their own. `kind`: its event type, policy and session attributes, opaque. sealed: readers
    need the grant's key.
    """

    client: str
    topic: str
    but: tuple[str, ...]
    kind: str
    sealed: bool

    def covers(self, topic: str) -> bool:
        """Whether it is good for that topic."""
        return below(topic, self.topic) and not any(below(topic, one) for one in self.but)


class Pair(NamedTuple):
    """Scoped: `let` and `wants` are rules, the others sets. `open`: there are no wants."""

    open: bool
    let: Sequence[Filter]
    has: Sequence[Filter]
    wants: Sequence[Filter]
    is_: Sequence[Filter]


class Side(NamedTuple):
    """Paper: the policy of a kind or of a customer, as (a, m), and what it has, as [t, each...]."""

    open: bool
    rules: Sequence[tuple[Filter, Filter]]
    helds: Sequence[Sequence[Filter]]


def below(topic: str, prefix: str) -> bool:
    """Whether a topic is the prefix, or lies below it."""
    return topic == prefix or topic.startswith(prefix + "/")


def write_event(event: Event) -> bytes:
    return json.dumps(event._asdict(), separators=(",", ":")).encode()


def read_event(raw: bytes) -> Event:
    """BadRow."""
    try:
        found: dict[str, Any] = json.loads(raw)
        but, sealed = found["but"], found["sealed"]
        texts = [found["client"], found["topic"], found["kind"], *but]
    except (ValueError, TypeError, KeyError, RecursionError):
        raise BadRow("no event grant") from None
    if not isinstance(but, list) or type(sealed) is not bool:
        raise BadRow("no event grant")
    if not all(isinstance(text, str) and text for text in texts):
        raise BadRow("no event grant")
    return Event(texts[0], texts[1], tuple(but), texts[2], sealed)


def write_pair(pair: Pair) -> bytes:
    lists = (pair.let, pair.has, pair.wants, pair.is_)
    head = _HEAD.pack(SCOPED, OPEN * pair.open, *map(len, lists))
    return head + b"".join(to_bytes(one) for some in lists for one in some)


def read_pair(raw: bytes) -> Pair:
    """BadRow."""
    open_, counts = _head(raw, SCOPED)
    let, has, wants, is_ = _lists(raw, counts)
    _check_rules(let, open_=False)
    _check_rules(wants, open_)
    _check_sets(has)
    _check_sets(is_)
    return Pair(open_, let, has, wants, is_)


def write_side(side: Side) -> bytes:
    flat = [one for rule in side.rules for one in rule]
    helds = [one for held in side.helds for one in held]
    sizes = struct.pack(f">{len(side.helds)}H", *map(len, side.helds))
    head = _HEAD.pack(PAPER, OPEN * side.open, len(side.rules), len(side.helds), len(helds), 0)
    return head + sizes + b"".join(to_bytes(one) for one in (*flat, *helds))


def read_side(raw: bytes) -> Side:
    """BadRow."""
    open_, (rules, helds, filters, nothing) = _head(raw, PAPER)
    if nothing:
        raise BadRow("a row that says what no row does")
    try:
        sizes = struct.unpack_from(f">{helds}H", raw, _HEAD.size)
    except struct.error:
        raise BadRow("a row that is cut off") from None
    if sum(sizes) != filters or not all(sizes):
        raise BadRow("filters of nobody")
    body = raw[: _HEAD.size] + raw[_HEAD.size + 2 * helds :]
    flat, each = _lists(body, (2 * rules, filters))
    pairs = list(zip(flat[::2], flat[1::2], strict=True))
    _check_rules([a & ~m for a, m in pairs], open_)
    _check_sets(each)
    out, at = [], 0
    for size in sizes:
        out.append(each[at : at + size])
        at += size
    return Side(open_, pairs, out)


def _head(raw: bytes, form: int) -> tuple[bool, tuple[int, int, int, int]]:
    if len(raw) < _HEAD.size:
        raise BadRow("a row that is cut off")
    found, flags, *counts = _HEAD.unpack_from(raw)
    if found != form or flags not in (0, OPEN):
        raise BadRow("a row of another form")
    return flags == OPEN, (counts[0], counts[1], counts[2], counts[3])


def _lists(raw: bytes, counts: Sequence[int]) -> list[list[Filter]]:
    if max(counts) > MOST_ROWS or len(raw) != _HEAD.size + _SIZE * sum(counts):
        raise BadRow("a row of another length")
    at, found = _HEAD.size, []
    for count in counts:
        some = []
        for _ in range(count):
            some.append(int.from_bytes(raw[at : at + _SIZE], "big"))
            at += _SIZE
        found.append(some)
    return found


def _check_rules(rules: Sequence[Filter], open_: bool) -> None:
    # An empty conjunction lies in every set.
    if bool(rules) == open_:
        raise BadRow("a policy without conjunctions, or one where there is none")
    if any(rule.bit_count() < HASHES // 2 for rule in rules):
        raise BadRow("an empty conjunction")


def _check_sets(sets: Sequence[Filter]) -> None:
    if any(not HASHES <= one.bit_count() <= MOST_ONES for one in sets):
        raise BadRow("a filter with too many bits, or too few")
