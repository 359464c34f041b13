"""Plain lines about a decision, for the operator."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..api import Ask, Verdict
from ..shared import inner
from .actions import NAMES, words
from .assertions import Assertion
from .chains import Key, about
from .names import EVERYBODY
from .state import State

_SHOWN = 6


def link(key: Key, made: Assertion) -> dict[str, Any]:
    """One link of a chain: who holds what by it."""
    name, action = key
    return {
        "holds": name,
        "action": NAMES[action],
        "id": made.id,
        "authorizer": made.authorizer,
        "licensees": list(made.licensees),
        "owner": about(made),
        "condition": made.condition.text,
    }


def words_of(made: Assertion) -> str:
    """An assertion in a line."""
    whose = "everybody's events" if about(made) == EVERYBODY else f"{about(made)}'s events"
    text = f"{made.id}: {made.authorizer} lets {', '.join(made.licensees)} "
    text += f"{', '.join(words(made.actions & made.condition.actions))} {whose}"
    return text + (f" while {made.condition.text}" if made.condition.text else "")


def lines(state: State, ask: Ask, verdict: Verdict) -> Sequence[str]:
    """The type, the owner, and the assertions that name the client there."""
    if ask.question == "connect":
        return ()
    path = (inner(ask.topic) if ask.question == "subscribe" else ask.topic).split("/")
    if ask.question == "subscribe":
        kinds = state.types.reached("/".join(path))
        return [
            f"it reaches {kind.app}/{kind.name} ({kind.topic}), control {kind.control}"
            for kind in kinds[:_SHOWN]
        ]
    kind = state.types.of(path)
    if kind is None:
        return ("no event type has this topic",)
    out = [f"it is {kind.app}/{kind.name} ({kind.topic}), control {kind.control}"]
    values = kind.values(path) or {}
    owner = kind.owner_of(values, {}, ask.who.client if ask.question == "publish" else "")
    if not owner:
        return out
    out.append(f"its owner is {owner}")
    found = [
        made
        for made in state.index.licensing(owner, ask.who.client)
        if (made.app or made.condition.app) in ("", kind.app)
        and (made.type or made.condition.type) in ("", kind.name)
    ]
    out += [words_of(made) for made in found[:_SHOWN]]
    if len(found) > _SHOWN:
        out.append(f"and {len(found) - _SHOWN} assertions more name {ask.who.client} there")
    if not found:
        out.append(f"no assertion names {ask.who.client} there")
    return out
