"""Commands about purposes (PURPOSES.md P4): what they would change.

A refusal says what would allow it and nothing of what other clients have reserved.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from heapq import nsmallest
from itertools import chain, islice
from typing import Any

from sealmq.near import near
from sealmq_spec.errors import Malformed
from sealmq_spec.topics import check_filter, check_topic, is_reserved

from ..api import FamilyRecord, Later, Proposal, Verdict, deny
from ..ask import Who
from ..pace import A_SECOND, BURST
from ..topiclabels import NONE
from . import records, rules
from .entitled import Right, fitting, may_reserve, not_here, quoted
from .settings import MODES
from .state import State
from .store import Eip, Reservation, TooDeep, check_depth, in_order, is_wild
from .texts import PRESUB, RELEASE, RESERVE, SET

WILD = 100
"""Reservations with wildcards of one client: each may cost each question about a topic a step."""
MAX_ANSWER = 8192
"""Bytes of an answer; what does not fit is counted."""
MOST = 128
"""Reservations in an answer: the shortest take 70 bytes each."""
PURPOSES = 64
"""Purposes of one reservation: else a client's whole share of them were gigabytes."""
SET_VALUES = {"mode": MODES, "strict": ("true", "false")}

SLICE = 1000
"""Reservations that are looked at in one go: some milliseconds."""

Answer = Proposal | Verdict


def command(state: State, who: Who, body: bytes, now_ms: int) -> Answer | Later:
    """Read and judge one. What is judged again because others came before counts again."""
    if who.client not in state.settings.stewards:
        wait_ms = state.pace.take(who.client, now_ms)
        if wait_ms:
            often = f"at most {BURST} at once, then {A_SECOND} a second"
            return deny(rules.TOO_MANY, f"{often}; again in {wait_ms} ms")
    if who.label == NONE:
        return deny(rules.DISABLED, "the client has no label")
    try:
        kind, a, b, c = state.reader.read(body.decode())
        if kind == SET:
            return _set(state, who, a, b, now_ms)
        if kind == PRESUB:
            return _presubscribe(state, who, a, b, c, now_ms)
        if kind in (RESERVE, RELEASE):
            check_filter(a)
            if kind == RELEASE:
                return _release(state, who, a)
            return _reserve(state, who, a, (b, c), now_ms)
        return _get(state, who, a, b)
    except UnicodeDecodeError:
        return deny(rules.MALFORMED, "the command is no UTF-8")
    except (Malformed, TooDeep) as error:
        return deny(rules.MALFORMED, fitting(str(error), "not as commands are written"))


# Reservations. What is audited of them begins with RESERVE or RELEASE: the log is read by it.


def _right(state: State, who: Who, filt: str) -> Right:
    return may_reserve(who, filt, state.settings, state.labels, state.creation)


def _changes(state: State, who: Who, filt: str) -> Right:
    """The right to reserve, and to replace what is reserved there.

    What hangs on a label alone gives way to its like only: it undoes no steward's prohibition, and
    a topic that nobody has published to keeps what its future owner has reserved.
    """
    right = _right(state, who, filt)
    held = state.store.get(filt, "client") if right.allow and right.label else None
    if held is not None and held.label != right.label:
        return Right(False, rules.HELD, "it is reserved, and not by a client of this label")
    return right


def _reserve(
    state: State, who: Who, filt: str, sets: tuple[Sequence[str], Sequence[str]], now_ms: int
) -> Answer:
    aip, pip = sets
    right = _changes(state, who, filt)
    if not right.allow:
        return deny(right.rule, right.reason)
    check_depth(filt)
    if len(aip) + len(pip) > PURPOSES:
        return deny(rules.FULL, f"a reservation has at most {PURPOSES} purposes")
    unknown = _unknown(state, (*sorted(aip), *sorted(pip)), now_ms)
    if unknown is not None:
        return unknown
    if right.rule != rules.BY_STEWARD and _too_wild(state, who, filt):
        return deny(rules.FULL, f"at most {WILD} reservations with wildcards")
    new = Reservation(filt, aip, pip, who.client, right.label)
    detail = f"{RESERVE} aip={','.join(sorted(new.aip))} pip={','.join(sorted(new.pip))}"
    own = state.own(filt)
    allowed, prohibited = (own.aip, own.pip) if own is not None else (frozenset(), frozenset())
    narrows = set(new.aip) <= set(allowed) and set(prohibited) <= set(new.pip)
    return _proposal(
        state, who, records.reservation(new, now_ms), filt, right.rule, detail, narrows
    )


def _too_wild(state: State, who: Who, filt: str) -> bool:
    if not is_wild(filt) or state.store.wild(who.client) < WILD:
        return False
    own = state.own(filt)
    return own is None or own.by != who.client


def _release(state: State, who: Who, filt: str) -> Answer:
    right = _changes(state, who, filt)
    if not right.allow:
        return deny(right.rule, right.reason)
    return _proposal(state, who, records.released(filt), filt, right.rule, RELEASE, urgent=True)


def _unknown(state: State, purposes: Iterable[str], now_ms: int) -> Verdict | None:
    for purpose in purposes:
        if not state.purposes.known(purpose):
            return deny(rules.UNKNOWN, unknown_reason(state, purpose, now_ms))
    return None


def unknown_reason(state: State, purpose: str, now_ms: int) -> str:
    """Which purpose the site does not have, and which one was probably meant."""
    meant = state.meant(purpose, now_ms)
    what = f"the site has no purpose {purpose}"
    return fitting(f"{what}; did you mean {meant}?" if meant else what, "no such purpose")


# Presubscriptions


def _presubscribe(state: State, who: Who, client: str, filt: str, ap: str, now_ms: int) -> Answer:
    steward = who.client in state.settings.stewards
    if client != who.client and not steward:
        return deny(rules.NOT_STEWARD, _stewards("presubscribe other clients", who))
    if client not in state.clients:
        return deny(
            rules.NO_CLIENT, fitting(near(client, state.clients), "there is no such client")
        )
    check_filter(filt)
    if is_reserved(filt):
        toml = f"[families.purposes.presubscribe] {quoted(client)} = {{ {quoted(filt)} = "
        return deny(rules.RESERVED, not_here(filt, f'{toml}"PURPOSE" }}'))
    unknown = _unknown(state, (ap,) if ap else (), now_ms)
    if unknown is not None:
        return unknown
    row = records.presubscription(client, filt, ap, who.client, now_ms)
    rule = rules.BY_ITSELF if client == who.client else rules.BY_STEWARD
    detail = f"presubscribe {client} {ap}".rstrip()
    return _proposal(state, who, row, filt, rule, detail, urgent=not ap)


def _stewards(what: str, who: Who) -> str:
    return f'only stewards {what}: [families.purposes] stewards = ["{who.client}"] would allow it'


# Settings


def _set(state: State, who: Who, name: str, value: str, now_ms: int) -> Answer:
    if who.client not in state.settings.stewards:
        return deny(rules.NOT_STEWARD, _stewards("change settings", who))
    if name not in SET_VALUES or (value and value not in SET_VALUES[name]):
        known = "; ".join(f"{n}: {', '.join(values)}" for n, values in SET_VALUES.items())
        return deny(rules.BAD_SETTING, f"there is {known}")
    row = records.setting(name, value, who.client, now_ms)
    detail = f"set {name} {value or 'as sealmq.toml says'}"
    return _proposal(state, who, row, "", rules.BY_STEWARD, detail)


def _proposal(
    state: State,
    who: Who,
    row: FamilyRecord,
    topic: str,
    rule: str,
    detail: str,
    urgent: bool = False,
) -> Proposal:
    audit = {"rule": rule, "detail": detail}
    if topic:
        audit["topic"] = topic
    # A steward reserves for the whole site, and may need more than [limits] lets a client have.
    return Proposal((row,), audit, urgent=urgent, for_site=who.client in state.settings.stewards)


# Questions


def _get(state: State, who: Who, what: str, arg: str) -> Answer | Later:
    steward = who.client in state.settings.stewards
    if what == "mode":
        return _told({"mode": state.mode, "strict": state.strict, "set": dict(state.overrides)})
    if what == "presubs":
        if arg != who.client and not steward:
            return deny(rules.NOT_STEWARD, _stewards("see others' presubscriptions", who))
        return _list("presubs", presubscriptions(state, arg), {"client": arg})
    if what == "eip":
        check_topic(arg)
    else:
        check_filter(arg)
    right = _right(state, who, arg)
    if not right.allow:
        return deny(right.rule, right.reason)
    # Who may create a topic is told nothing of the wider reservations that others have there: any
    # name would do to ask about them.
    alone: list[Reservation] | None = None
    if right.rule == rules.BY_CREATING:
        own = state.store.get(arg, "client")
        if own is None or own.by != who.client:
            return deny(rules.NO_QUESTION, "nobody has published there, nor have you reserved it")
        alone = [own]
    if what == "reservations":
        search = _Search(state, who, arg, state.store.steps(arg) if alone is None else iter(alone))
        answer = search.go_on()
        return Later(search.go_on) if answer is None else answer
    eip = state.store.eip(arg) if alone is None else Eip(alone)
    found, left_out = _first(eip.of)
    more = {"topic": arg, "aip": sorted(eip.aip), "pip": sorted(eip.pip), "strict": state.strict}
    return _list("of", map(as_json, found), more, left_out)


class _Search:
    """Which reservations share a topic with a filter: a slice at a time."""

    def __init__(
        self, state: State, who: Who, filt: str, steps: Iterator[Reservation | None]
    ) -> None:
        self._state, self._who, self._filter, self._steps = state, who, filt, steps
        self._first: list[Reservation] = []
        self._count = 0

    def go_on(self) -> Answer | None:
        """The answer, or None: there are more to look at."""
        some = list(islice(self._steps, SLICE))
        found = [one for one in some if one is not None]
        self._count += len(found)
        # Where much changes meanwhile some are met twice (Store.steps).
        distinct = {in_order(one): one for one in chain(self._first, found)}
        self._first = [distinct[key] for key in nsmallest(MOST, distinct)]
        if len(some) == SLICE:
            return None
        # Much may be otherwise since it began.
        right = _right(self._state, self._who, self._filter)
        if not right.allow:
            return deny(right.rule, right.reason)
        left_out = max(0, min(self._count, len(self._state.store)) - len(self._first))
        return _list("reservations", map(as_json, self._first), {"filter": self._filter}, left_out)


def _first(found: Iterable[Reservation]) -> tuple[list[Reservation], int]:
    """The first ones in order, more than an answer holds, and how many others there are."""
    all_of_them = list(found)
    first = nsmallest(MOST, all_of_them, key=in_order)
    return first, len(all_of_them) - len(first)


def presubscriptions(state: State, client: str) -> list[dict[str, Any]]:
    """The client's, those of sealmq.toml first."""
    site = [
        {"filter": filt, "purpose": ap, "by": "", "source": "site"}
        for filt, ap in sorted(
            (filt, ap) for (name, filt), ap in state.settings.presubscribe.items() if name == client
        )
    ]
    made = [
        {"filter": filt, "purpose": ap, "by": by, "source": "client"}
        for filt, (ap, by, at) in sorted(state.presubs.get(client, {}).items())
        if state.bearers.bears(client, at)
    ]
    return site + made


def as_json(r: Reservation) -> dict[str, Any]:
    """A reservation for people and scripts. `by` is "" for sealmq.toml's own."""
    return {
        "filter": r.filter,
        "aip": sorted(r.aip),
        "pip": sorted(r.pip),
        "by": r.by,
        "source": r.source,
    }


_dump: Callable[[Any], str] = json.JSONEncoder(ensure_ascii=False).encode


def _list(name: str, items: Iterable[Any], more: dict[str, Any], left_out: int = 0) -> Answer:
    """As many as fit; `left_out` counts the others, those that are not here included."""
    room = MAX_ANSWER - len(_dump({**more, name: [], "left_out": 10**9}).encode())
    shown: list[Any] = []
    for item in items:
        if room >= 0:
            room -= len(_dump(item).encode()) + 2
        if room < 0:
            left_out += 1
        else:
            shown.append(item)
    return _told({**more, name: shown, "left_out": left_out})


def _told(answer: dict[str, Any]) -> Answer:
    reply = _dump(answer).encode()
    if len(reply) > MAX_ANSWER:
        # Of a union a part would say something else.
        return deny(rules.TOO_LONG, f"the answer would have {len(reply)} bytes, not {MAX_ANSWER}")
    return Proposal(reply=reply)
