"""What all commands of owners share: who says one, when, and what he may; what its body holds; what
it proposes or answers, and how it is refused.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ..api import FamilyRecord, Proposal, Verdict
from ..ask import Who
from . import rules
from .rights import Rights
from .state import State

MAX_ANSWER = 8192
"""Bytes of an answer; what does not fit is counted."""

Answer = Proposal | Verdict
Body = dict[str, Any]


class Refused(Exception):
    """The answer is a deny by this rule."""

    def __init__(self, rule: str, reason: str) -> None:
        super().__init__(reason)
        self.rule, self.reason = rule, reason


class Turn:
    """One command's turn: who says it, when, and what he may."""

    def __init__(self, state: State, who: Who, now_ms: int) -> None:
        self.state, self.who, self.now_ms = state, who, now_ms
        self.client = who.client
        self.rights = Rights(state, who, now_ms)


def read_text(body: Body, key: str, most: int, default: str | None = None) -> str:
    value = body.get(key, default)
    if not isinstance(value, str) or len(value.encode(errors="replace")) > most:
        raise Refused(rules.MALFORMED, f"{key} is a text of at most {most} bytes")
    if any(ord(c) < 32 for c in value):
        raise Refused(rules.MALFORMED, f"{key} has no control characters")
    return value


def proposal(
    rows: Iterable[FamilyRecord],
    rule: str,
    detail: str,
    reply: Mapping[str, Any],
    *,
    urgent: bool = False,
    tells: tuple[tuple[str, bytes], ...] = (),
) -> Proposal:
    audit = {"rule": rule, "detail": detail}
    return Proposal(tuple(rows), audit, dump(reply).encode(), urgent=urgent, tells=tells)


dump: Callable[[Any], str] = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


def listed(
    name: str, rows: Iterable[Any], more: Mapping[str, Any] = {}, left_out: int = 0
) -> Proposal:
    """As many as fit; `left_out` counts the others, those that are not here included."""
    room = MAX_ANSWER - len(dump({**more, name: [], "left_out": 10**9}).encode())
    shown: list[Any] = []
    for row in rows:
        if room >= 0:
            room -= len(dump(row).encode()) + 1
        if room < 0:
            left_out += 1
        else:
            shown.append(row)
    return Proposal(reply=dump({**more, name: shown, "left_out": left_out}).encode())
