"""What the family keeps in the store, as rows: key and JSON. The last writer wins.

    a/ID                  an assertion's fields, "at" ms, "sig" hex
    t/APP/TYPE            an event type that was advertised, "by" CLIENT (with GONE after it was
                          removed), "at" ms
    k/CLIENT              {"key": hex, "at": ms}: an Ed25519 public key
    c/CLIENT/HASH         {"address": TEXT, "at": ms}: consent to the contract at an address
    g/OWNER/CLIENT/MS     {"until": ms, "reason": TEXT, "seen": bool}: glass that was broken at MS
    m/OWNER               {"mediator": N, "at": ms}: the one that the owner has appointed
    b/CLIENT              {"since": ms}: what an earlier bearer has left is put right (bearers.py)

Those of a/, t/ and c/ that a backup has put back have "suspended" besides: a list of [from ms], or
[from ms, to ms] once somebody has confirmed them. While the last one is open, the row counts not.

Names have no slash, so the keys are told apart. What cannot be read is an error: the engine then
lets the family allow nothing.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from ..api import FamilyRecord
from ..bearers import GONE
from . import settings
from .actions import mask_of
from .assertions import Assertion
from .events import EventType
from .expressions import condition

NAME = settings.NAME
ASSERTION, TYPE, KEY, CONSENT, GLASS, MEDIATOR = "a/", "t/", "k/", "c/", "g/", "m/"

_decode = json.JSONDecoder().decode
# A million assertions name few principals.
_names: dict[str, str] = {}
_lists: dict[tuple[str, ...], tuple[str, ...]] = {}
_SHARED = 1 << 20


class Glass(NamedTuple):
    """Glass that a client has broken at a time: it may receive the owner's events until then."""

    owner: str
    client: str
    at_ms: int
    until_ms: int
    reason: str
    seen: bool = False

    def as_json(self) -> dict[str, Any]:
        return self._asdict()


def _row(key: str, value: Mapping[str, Any]) -> FamilyRecord:
    return FamilyRecord(NAME, key, _bytes(value))


def _bytes(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def gone(key: str) -> FamilyRecord:
    """The row that takes one away."""
    return FamilyRecord(NAME, key, None)


def decoded(value: bytes) -> Any:
    return _decode(value.decode())


Spans = tuple[tuple[int, ...], ...]


def spans(value: bytes) -> Spans:
    """When the row was suspended; () if it never was."""
    # Of a million rows few were; no text within JSON holds a quote as it is.
    if b'"suspended":' not in value:
        return ()
    return tuple(map(tuple, decoded(value).get("suspended", ())))


def is_open(suspended: Spans) -> bool:
    """Whether it still is."""
    return bool(suspended) and len(suspended[-1]) == 1


def _more(suspended: Spans) -> dict[str, Any]:
    return {"suspended": suspended} if suspended else {}


def closed(suspended: Spans, now_ms: int) -> Spans:
    """Confirmed now."""
    return (*suspended[:-1], (suspended[-1][0], now_ms)) if is_open(suspended) else suspended


def put_back(held: Iterable[FamilyRecord], now_ms: int) -> Iterator[FamilyRecord]:
    """What becomes of rows that a backup has put back: nobody knows what was retracted, withdrawn
    and closed since. So nothing of it opens anything before somebody has confirmed it.

    Keys and appointments stay: without them more would be open.
    """
    for record in held:
        key, value = record.key, record.value
        if value is None:
            continue
        if key.startswith((ASSERTION, TYPE, CONSENT)):
            before = spans(value)
            if not is_open(before):
                row = {**decoded(value), "suspended": (*before, (now_ms,))}
                yield replace(record, value=_bytes(row))
        elif key.startswith(GLASS):
            one = read_glass(key[2:], value)
            if one.until_ms > now_ms:
                yield replace(record, value=glass(one._replace(until_ms=now_ms)).value)


def unsuspended(record: FamilyRecord) -> FamilyRecord:
    """The row as if no backup had ever put it back."""
    value = record.value or b""
    if not spans(value):
        return record
    row = decoded(value)
    del row["suspended"]
    return replace(record, value=_bytes(row))


def confirmed(record: FamilyRecord, now_ms: int) -> FamilyRecord | None:
    """The row of a suspended one that counts again, or None: it is not suspended."""
    before = spans(record.value or b"")
    if not is_open(before):
        return None
    row = {**decoded(record.value or b""), "suspended": closed(before, now_ms)}
    return replace(record, value=_bytes(row))


def identity(made: Assertion, at_ms: int) -> str:
    """12 hex digits; the same for the same said at the same time."""
    said = json.dumps([made.fields, at_ms]).encode()
    return hashlib.sha256(said).hexdigest()[:12]


def assertion(made: Assertion, suspended: Spans = ()) -> FamilyRecord:
    value = {**made.fields, "at": made.at_ms, **_more(suspended)}
    if made.signature:
        value["sig"] = made.signature.hex()
    return _row(ASSERTION + made.id, value)


def read_assertion(id: str, value: bytes) -> Assertion:
    row = decoded(value)
    licensees = tuple(map(_same, row["licensees"]))
    if len(_lists) >= _SHARED:
        _lists.clear()
    return Assertion(
        _same(row["authorizer"]),
        _lists.setdefault(licensees, licensees),
        _same(row["owner"]),
        _same(row["app"]),
        _same(row["type"]),
        mask_of(row["actions"]),
        condition(row["condition"]),
        id=id,
        at_ms=row["at"],
        signature=bytes.fromhex(row.get("sig", "")),
    )


def _same(name: str) -> str:
    if len(_names) >= _SHARED:
        _names.clear()
    return _names.setdefault(name, name)


def type_fields(kind: EventType) -> dict[str, Any]:
    """An event type as JSON has it."""
    return {
        "app": kind.app,
        "topic": kind.topic,
        "owner": kind.owner,
        "control": kind.control,
        "admin": kind.admin,
        "attributes": dict(kind.attributes),
        "granularity": kind.granularity,
        "signed": kind.signed,
        "derives": dict(kind.derives),
    }


def event_type(kind: EventType, suspended: Spans = ()) -> FamilyRecord:
    value = {**type_fields(kind), "by": kind.by, "at": kind.at_ms, **_more(suspended)}
    return _row(f"{TYPE}{kind.app}/{kind.name}", value)


def read_event_type(key: str, value: bytes) -> EventType:
    row = decoded(value)
    # Rows of an older version name nobody who is gone.
    by, at = row.pop("by") or GONE.strip(), row.pop("at")
    row.pop("suspended", None)
    return EventType(name=key.partition("/")[2], by=by, at_ms=at, **row)


def public_key(client: str, key: bytes, at_ms: int) -> FamilyRecord:
    return _row(KEY + client, {"key": key.hex(), "at": at_ms})


def consent(client: str, address: str, at_ms: int) -> FamilyRecord:
    return _row(consent_key(client, address), {"address": address, "at": at_ms})


def consent_key(client: str, address: str) -> str:
    return f"{CONSENT}{client}/{hashlib.sha256(address.encode()).hexdigest()[:32]}"


def glass(one: Glass) -> FamilyRecord:
    value = {"until": one.until_ms, "reason": one.reason, "seen": one.seen}
    return _row(glass_key(one), value)


def glass_key(one: Glass) -> str:
    return f"{GLASS}{one.owner}/{one.client}/{one.at_ms}"


def read_glass(key: str, value: bytes) -> Glass:
    owner, client, at = key.split("/")
    row = decoded(value)
    return Glass(owner, client, int(at), row["until"], row["reason"], row["seen"])


def mediator(owner: str, number: int, at_ms: int) -> FamilyRecord:
    return _row(MEDIATOR + owner, {"mediator": number, "at": at_ms})


def orphaned(key: str, value: bytes, since: Mapping[str, int]) -> FamilyRecord | None:
    """What becomes of a row once others bear its names, or None: it stays as it is.

    Nothing of an earlier bearer is the next one's: not what he made, not what he was granted, not
    what was said about his events.
    """
    kind, rest = key[:2], key[2:]
    row = decoded(value)
    if kind == GLASS:
        owner, client, at = rest.split("/")
        stays = not any(int(at) < since.get(name, 0) for name in (owner, client))
        return None if stays else gone(key)
    at = row["at"]

    def other(name: str) -> bool:
        return bool(at < since.get(name, 0))

    if kind == ASSERTION:
        named = condition(row["condition"]).principals
        if other(row["authorizer"]) or other(row["owner"]) or any(map(other, named)):
            return gone(key)
        left = [name for name in row["licensees"] if not other(name)]
        if len(left) == len(row["licensees"]):
            return None
        # What was signed is not what is left of it.
        row.pop("sig", None)
        return _row(key, {**row, "licensees": left}) if left else gone(key)
    if kind == TYPE:
        by, admin = row["by"], row["admin"]
        if other(by) or other(admin):
            by, admin = by + GONE * other(by), "" if other(admin) else admin
            return _row(key, {**row, "by": by, "admin": admin})
        return None
    return gone(key) if other(rest.partition("/")[0]) else None
