"""Plain lines that explain a verdict, for the operator: which reservations count, whose they are,
and why a purpose is in or out. Never told to clients: they name what others have reserved.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sealmq_spec.errors import Malformed

from ..ask import Ask
from ..shared import inner
from .records import NAME
from .state import State
from .store import Eip, Reservation, in_order

SHOWN = 12


def lines(state: State, ask: Ask) -> Sequence[str]:
    """What is behind the answer to this question."""
    if ask.question == "connect":
        return ()
    try:
        topic = inner(ask.topic)
    except Malformed:
        return ()
    said = [mode(state), *dormant(state, topic)]
    if ask.question == "subscribe":
        said += _filter(state, topic)
        ap = state.purpose(ask.who.client, topic, ask.notes.get(NAME, {}))
        return [*said, _subscribed(ask.who.client, topic, ap)]
    eip = state.store.eip(topic)
    said += _topic(state, topic, eip)
    if ask.question == "deliver":
        for sub in ask.subs[:SHOWN]:
            filt = inner(sub.filter)
            ap = state.purpose(ask.who.client, filt, sub.notes.get(NAME, {}))
            said.append(_subscribed(ask.who.client, filt, ap))
            if ap and eip:
                said.append(why(state, eip, ap))
    return said


def mode(state: State) -> str:
    """Mode and strictness, and whether a steward has set them."""
    strict = "strict" if state.strict else "open"
    by = "".join(f"; {name} was set by a steward" for name in sorted(state.overrides))
    return f"purposes are filtered in mode {state.mode}, {strict}{by}"


def dormant(state: State, topic: str) -> list[str]:
    """The topic's reservation that does not count, if there is one."""
    r = state.dormant.get(topic)
    if r is None:
        return []
    now = state.labels.of(topic)
    return [f"{r.by} reserved it as a topic of {r.label}; it has {now} now, so that does not count"]


def one(r: Reservation) -> str:
    """A reservation in a line."""
    whose = "sealmq.toml" if r.source == "site" else r.by
    allows = names(r.aip) or "nothing"
    prohibits = f" and prohibits {names(r.pip)}" if r.pip else ""
    return f"reservation {r.filter} of {whose} allows {allows}{prohibits}"


def names(purposes: Iterable[str]) -> str:
    return ", ".join(sorted(purposes))


def _topic(state: State, topic: str, eip: Eip) -> list[str]:
    said = _some(sorted(eip.of, key=in_order), len(eip.of))
    if not eip:
        what = "nothing" if state.strict else "anything"
        return [*said, f"no reservation matches {topic}, so it may be used for {what}"]
    prohibited = f", never for {names(eip.pip)}" if eip.pip else ""
    return [*said, f"{topic} may be used for {names(eip.aip) or 'nothing'}{prohibited}"]


def _filter(state: State, filt: str) -> list[str]:
    found: list[Reservation] = []
    count = 0
    for r in state.store.crossing(filt):
        count += 1
        if len(found) < SHOWN:
            found.append(r)
    if not count:
        return [f"no reservation reaches a topic of {filt}"]
    return _some(sorted(found, key=in_order), count)


def _some(found: Sequence[Reservation], count: int) -> list[str]:
    said = [one(r) for r in found[:SHOWN]]
    if count > len(said):
        said.append(f"and {count - len(said)} reservations more")
    return said


def _subscribed(client: str, filt: str, ap: str) -> str:
    return f"{client} subscribes to {filt} " + (f"for {ap}" if ap else "without a purpose")


def why(state: State, eip: Eip, ap: str) -> str:
    """Why a purpose is in or out."""
    if not state.purposes.known(ap):
        return f"{ap} stands not in [families.purposes.tree]"
    above = state.purposes.above(ap)
    if barred := sorted(above & eip.pip):
        return f"{ap} is out: {_through(ap, barred[0])} is prohibited"
    if allowed := sorted(above & eip.aip):
        return f"{ap} is in: {_through(ap, allowed[0])} is allowed"
    return f"{ap} is out: neither it nor a purpose above it is allowed"


def _through(ap: str, at: str) -> str:
    return "it" if ap == at else f"{at}, which it is below,"
