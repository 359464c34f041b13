"""Which events there are and which fields each has. shared_spec/audit.schema.json says the same.

Flat and of one type a field, so that a reader can declare one table for all events.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

VERSION = 1
ROLES = ("kg", "mediator", "broker", "supervisor", "bridge", "border")

Field = str | int | bool | list[str]


class Event(NamedTuple):
    """Fields that a record of the event has to have, and those that it may have."""

    needs: tuple[str, ...] = ()
    may: tuple[str, ...] = ()


# Text: its greatest length in characters. Longer text is cut, never refused.
TEXT: Mapping[str, int] = {
    "address": 300,
    "attribute": 64,
    "border": 64,
    "chain": 64,
    "client": 64,
    "client_id": 100,
    "detail": 500,
    "digest": 64,
    "family": 32,
    "label": 64,
    "label_out": 64,
    "name": 64,
    "of": 32,
    "peer": 300,
    "question": 32,
    "reason": 500,
    "rule": 100,
    "segment": 100,
    "sender": 64,
    "subject": 140,
    "topic": 1024,
    "user": 64,
    "value": 1600,
    "version": 32,
}
NUMBERS = (
    "count",
    "dropped_bytes",
    "epoch",
    "gen",
    "handover_end_s",
    "kseq",
    "lines",
    "minute_ms",
    "number",
    "pid",
    "rating",
    "until_ms",
)
# Made when a minute is over, so they come after what they count.
LAST = ("count", "minute_ms")
FLAGS = ("clean", "enforce", "parted")
LISTS = ("notes", "order")

_WHY = ("rule", "reason")

EVENTS: Mapping[str, Event] = {
    # The process.
    "start": Event((), ("address", "enforce", "name", "order", "pid", "version")),
    "stop": Event((), ("reason",)),
    "config-reloaded": Event((), ("enforce", "order", "kseq", "reason")),
    "config-refused": Event(("reason",)),
    "policy-off": Event(("reason",)),
    "site-closed": Event(("reason",)),
    "site-reopened": Event((), ("user",)),
    "worker-ended": Event(("number", "reason")),
    "store-unavailable": Event(("reason",), ("client", "peer", "rule", "topic")),
    "store-back": Event(),
    "journal-dropped": Event(("count",)),
    "message-set-aside": Event(("topic", "reason"), ("client",)),
    "broker-away": Event(("reason",), ("client", "address")),
    "broker-back": Event((), ("address",)),
    "kg-away": Event(("reason",)),
    "kg-back": Event(),
    "family-fault": Event(("family", "question", "reason")),
    # Sources of attributes.
    "attribute-changed": Event(("attribute",), ("client", "subject", "value", "until_ms")),
    "attribute-away": Event(("attribute", "reason")),
    "attribute-back": Event(("attribute",)),
    # Clients and keys.
    "connect": Event(("client", "peer"), ("client_id", "number")),
    "connect-refused": Event(("peer", *_WHY), ("client", "client_id")),
    "disconnect": Event(("client", "reason", "clean"), ("peer", "client_id")),
    "provisioned": Event(("client", "gen"), ("label",)),
    "client-provisioned": Event(("client", "gen"), ("label",)),
    "client-enrolled": Event(("client", "user"), ("number", "label")),
    "client-lent": Event(("client", "user"), ("number", "label")),
    "client-left": Event(("client", "label", "reason")),
    "keys-changed": Event(("kseq",), ("notes",)),
    "keys-restored": Event(("notes",)),
    "epoch": Event(("label", "epoch"), ("kseq", "handover_end_s")),
    "handover-missed": Event(("client", "label", "epoch")),
    # Packets.
    "packet-refused": Event(_WHY, ("client", "client_id", "peer", "topic")),
    "publish-refused": Event(("client", "topic", *_WHY), ("client_id", "peer")),
    "subscribe-refused": Event(("client", "topic", *_WHY), ("client_id", "peer")),
    "topic-labelled": Event(("client", "topic", "label"), ("rule",)),
    "topic-reset": Event(("topic",)),
    "command": Event(("client", "family"), ("topic", "label", "detail", "parted", *_WHY)),
    # Counted: one record a minute for each combination of the fields that are not numbers.
    "publish-accepted": Event(("client", "topic", "label", "count", "minute_ms")),
    "delivered": Event(("client", "topic", "label", "count", "minute_ms")),
    "deliver-denied": Event(("client", "topic", "rule", "count", "minute_ms"), ("label", "sender")),
    "unenforced": Event(("client", "topic", "rule", "question", "count", "minute_ms")),
    "folded": Event(("of", "count", "minute_ms"), ("client", "peer", "rule")),
    # Bridges.
    "bridge-up": Event(("peer",)),
    "bridge-down": Event(("peer", "reason")),
    "bridge-dropped": Event(("peer", "topic", "reason"), ("label",)),
    "token-refused": Event(("peer", *_WHY)),
    "rating-crossed": Event(("peer", "rating", "reason")),
    "peer-blocked": Event(("peer", "rating")),
    "peer-unblocked": Event(("peer", "rating")),
    # Borders.
    "border-crossed": Event(
        ("border", "topic", "label", "label_out", "sender", "digest"), ("detail",)
    ),
    "border-dropped": Event(("border", "topic", "reason"), ("digest",)),
    # The log itself.
    "log-opened": Event(("chain", "lines"), ("notes",)),
    "log-ended": Event(),
    "log-expired": Event(("notes",)),
    "log-recovered": Event(("segment", "lines", "dropped_bytes"), ("count",)),
    "log-lost": Event(("count",)),
    "log-fault": Event(("of", "reason")),
}
"""In `subscribe-refused` and `unenforced`, `topic` may be a filter."""

FRAME = ("v", "id", "at_ms", "site", "role", "inst", "event")
"""What every record has."""
SEAL = ("line", "mac")
"""What each line of a sealed log has besides: its number in the segment, its seal (chain.py)."""
SEEN = 32
"""So many runs a sealed log's beginning names, the newest: of each its last segment."""
NAMES = frozenset((*FRAME, *SEAL, *TEXT, *NUMBERS, *FLAGS, *LISTS))
"""All fields of the log's own; no family's field may have such a name."""

MORE = frozenset({"delivered", "deliver-denied"})
"""The events in whose records policy families have fields, too (of_families): all texts."""
NO_MORE: Mapping[str, int] = {}

LIMITED = frozenset(
    {
        "attribute-away",
        "attribute-back",
        "attribute-changed",
        "border-dropped",
        "bridge-down",
        "bridge-dropped",
        "bridge-up",
        "broker-away",
        "connect",
        "connect-refused",
        "disconnect",
        "packet-refused",
        "peer-blocked",
        "peer-unblocked",
        "publish-refused",
        "rating-crossed",
        "store-unavailable",
        "subscribe-refused",
        "token-refused",
    }
)
"""What a peer, or whoever writes an attribute's file, can cause at will: beyond EACH_MINUTE of one
kind, only counted (`folded`)."""

URGENT = frozenset(
    {
        "client-left",
        "command",
        "config-reloaded",
        "epoch",
        "keys-changed",
        "keys-restored",
        "store-unavailable",
        "topic-reset",
    }
)
"""What is written with a full disk, too, before what else waits: who was put out, and who withdrew
what."""

OF_PEERS = frozenset(
    {
        "bridge-down",
        "bridge-dropped",
        "bridge-up",
        "peer-blocked",
        "peer-unblocked",
        "rating-crossed",
        "token-refused",
    }
)
"""Of those, what is limited for each peer by itself: the operator has named them all, and what one
does hides no other's."""

EACH_MINUTE = 600
EACH_CLIENT = 60
EACH_PEER = 120
"""Likewise, of those that name one client, or one peer."""

MOST = (1 << 53) - 1
"""Of an integer: every reader of JSON can hold it."""
LARGEST = {"minute_ms": 253_402_300_799_999, "handover_end_s": 253_402_300_799}
"""What ends with the year 9999 instead."""


def of_families(order: Iterable[str]) -> dict[str, int]:
    """The audit fields of these policy families, and how long each may be. FamilyError: a family's
    field has a name that is taken.
    """
    from sealmq.families import registry  # for the mediator's log alone

    found: dict[str, int] = {}
    for name in order:
        for field in registry.manifest(name).audit:
            if field.name in NAMES:
                raise registry.TakenField(name, field.name, "the audit log itself")
            found[field.name] = field.bound
    return found


def check(
    event: str, fields: Mapping[str, object], more: Mapping[str, int] = NO_MORE
) -> tuple[dict[str, Field] | None, str]:
    """The fields in the order in which they are written, and what was wrong ("" if nothing was).
    The order is the schema's, with LAST at the end. more: families' fields, and how long each may
    be.

    None instead of fields: the record cannot be written, since it would not be one of the schema.
    """
    shape = EVENTS.get(event)
    if shape is None:
        return None, "no such event"
    out: dict[str, Field] = {}
    wrong = []
    may = (*shape.may, *more) if event in MORE else shape.may
    for name, value in fields.items():
        if value is None or (value == "" and name in may):
            continue
        if name not in shape.needs and name not in may:
            wrong.append(f"{name} is no field of it")
            continue
        clean = _value(name, value, more)
        if clean is None:
            wrong.append(f"{name} cannot be {type(value).__name__}")
        else:
            out[name] = clean
    missing = [f"{name} is missing" for name in shape.needs if name not in out]
    # Readers know a record in this order at the first look.
    order = [name for name in (*shape.needs, *may) if name in out and name not in LAST]
    ordered = {name: out[name] for name in (*order, *LAST) if name in out}
    return (None if missing else ordered), "; ".join(wrong + missing)


def _value(name: str, value: object, more: Mapping[str, int]) -> Field | None:
    """The value as it is written, or None if the field cannot hold it."""
    if name in TEXT or name in more:
        limit = TEXT.get(name) or more[name]
        return _text(value, limit) or "-" if isinstance(value, str) else None
    if name in FLAGS:
        return value if isinstance(value, bool) else None
    if name in LISTS:
        if isinstance(value, (list, tuple)) and all(isinstance(item, str) for item in value):
            return [_text(item, 200) for item in value[:100]]
        return None
    if isinstance(value, int) and not isinstance(value, bool):
        return value if 0 <= value <= LARGEST.get(name, MOST) else None
    return None


def _text(value: str, limit: int) -> str:
    # Lone surrogates (a file name, say) cannot be UTF-8 and would end the writer.
    return value[:limit].encode("utf-8", "backslashreplace").decode()[:limit]
