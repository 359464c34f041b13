"""Emergency access: a client that an owner lets in breaks the glass, and the owner is told until he
says that he has seen it.
"""

from __future__ import annotations

from typing import Any

from . import records, rules
from .names import is_principal
from .records import Glass
from .state import State
from .turn import Answer, Body, Refused, Turn, dump, listed, proposal, read_text

MOST_MINUTES = 24 * 60
MOST_REASON = 200
MOST_NEWS = 1024
MOST_OPEN = 8
"""Openings of one client with one owner at a time: else the owner could not see them all."""


def break_glass(turn: Turn, body: Body) -> Answer:
    owner, reason = read_text(body, "owner", 64), read_text(body, "reason", MOST_REASON).strip()
    minutes = body.get("minutes")
    if not reason:
        raise Refused(rules.MALFORMED, "an emergency has a reason, which the owner is told")
    if type(minutes) is not int or not 0 < minutes <= MOST_MINUTES:
        raise Refused(rules.MALFORMED, f"minutes is a number from 1 to {MOST_MINUTES}")
    if not is_principal(owner) or not turn.rights.in_emergency(owner):
        raise Refused(rules.NO_EMERGENCY, f"{owner} has granted this client no emergency access")
    held = turn.state.glass.get((owner, turn.client), {}).values()
    if sum(turn.now_ms < one.until_ms for one in held) >= MOST_OPEN:
        raise Refused(rules.FULL, f"it is open, and was opened {MOST_OPEN} times for now")
    one = Glass(owner, turn.client, turn.now_ms, turn.now_ms + minutes * 60_000, reason)
    told = dump({"broken": _glass(one)}).encode()
    detail = f"break-glass owner={owner} minutes={minutes} reason={reason}"
    return proposal(
        [records.glass(one)],
        rules.BY_RIGHT,
        detail,
        {"owner": owner, "until_ms": one.until_ms},
        tells=((owner, told),),
    )


def close_glass(turn: Turn, body: Body) -> Answer:
    """By who has broken it, or by the owner."""
    owner = read_text(body, "owner", 64, turn.client)
    client = read_text(body, "client", 64, turn.client)
    if turn.client not in (owner, client):
        raise Refused(rules.NO_SUCH, "it is neither this client's nor its events'")
    held = turn.state.glass.get((owner, client), {}).values()
    rows = [
        records.glass(one._replace(until_ms=turn.now_ms))
        for one in held
        if one.until_ms > turn.now_ms
    ]
    if not rows:
        raise Refused(rules.NO_SUCH, "nothing is open there")
    told = dump({"closed": {"owner": owner, "client": client, "at_ms": turn.now_ms}}).encode()
    return proposal(
        rows,
        rules.BY_OWNER if turn.client == owner else rules.BY_ITSELF,
        f"close-glass owner={owner} client={client}",
        {"owner": owner, "client": client},
        urgent=True,
        tells=((owner, told),),
    )


def openings(turn: Turn, body: Body) -> Answer:
    """Of the client's own events, or its own of others'."""
    found = [
        one
        for key, held in turn.state.glass.items()
        if turn.client in key
        for one in held.values()
        if turn.state.bearers.bears(turn.client, one.at_ms)
    ]
    return listed("openings", [_glass(one) for one in sorted(found, key=lambda one: one.at_ms)])


def seen(turn: Turn, body: Body) -> Answer:
    """The owner has seen who has opened his events, up to a time: what came later, or had no room
    in an answer, was not shown. What is over need not be kept.
    """
    to = body.get("to")
    if to is not None and type(to) is not int:
        raise Refused(rules.MALFORMED, "to is a time in ms: what was opened later is not seen")
    rows = []
    for (owner, _), held in turn.state.glass.items():
        for one in held.values() if owner == turn.client else ():
            if to is not None and one.at_ms > to:
                continue
            if one.until_ms <= turn.now_ms:
                rows.append(records.gone(records.glass_key(one)))
            elif not one.seen:
                rows.append(records.glass(one._replace(seen=True)))
    return proposal(rows, rules.BY_OWNER, "seen", {"seen": len(rows)}, urgent=True)


def unseen(state: State, owner: str) -> bytes:
    """What an owner has not said that he has seen, and how many of its rows a backup has put back
    that it has not confirmed; b"": nothing."""
    found = [
        _glass(one)
        for (whose, _), held in state.glass.items()
        if whose == owner
        for one in held.values()
        if not one.seen and state.bearers.bears(owner, one.at_ms)
    ]
    waits = len(state.suspended.get(owner, ()))
    if not found and not waits:
        return b""
    newest = sorted(found, key=lambda one: -int(one["at_ms"]))
    told: dict[str, Any] = {"unseen": len(found), "openings": newest}
    if waits:
        told["unconfirmed"] = waits
    while len(text := dump(told).encode()) > MOST_NEWS and newest:
        newest.pop()
    return text


def _glass(one: Glass) -> dict[str, Any]:
    return {
        "owner": one.owner,
        "client": one.client,
        "at_ms": one.at_ms,
        "until_ms": one.until_ms,
        "reason": one.reason,
        "seen": one.seen,
    }
