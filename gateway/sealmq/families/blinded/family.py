"""Policies that nobody on the way can read (Zhang and others, "Realizing IoT service's policy
privacy over publish/subscribe-based middleware").

The key generator encodes who has what, and what is asked for; this matches filters, in both
directions, and knows no attribute. An event says under which policy id it is published, and brings
that to the reader's mediator under a grant of the mediators' alone. Nothing matches by default: an
id, a customer or a filter that is not told, or not as the key generator makes it, is a deny.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import ClassVar

from sealmq_spec.errors import Malformed

from ..api import (
    NEVER,
    Ask,
    Change,
    Dep,
    Duties,
    Duty,
    Family,
    Follow,
    Policy,
    PutTlv,
    SealToGrant,
    Verdict,
    allow,
    deny,
)
from ..shared import GROUP, PUBLIC, asked_filter
from . import coded, rules, settings
from .bloom import Rules, Sets
from .coded import BadRow, Event

NAME = settings.NAME
_GRANTED = (NAME, coded.GRANT)
_TO_MEDIATORS = SealToGrant(NAME, coded.GRANT)
_MOST_CACHED = 100_000
_ASSESSOR = "assessor"
_DOCTORS = "sealmq-doctor/"
_DOCTOR = allow(rules.DOCTOR, "a try of the doctor's")


class Blinded(Family):
    """Matches what the key generator has encoded."""

    name: ClassVar[str] = NAME
    rules: ClassVar[Mapping[str, str]] = rules.RULES
    tlvs: ClassVar[frozenset[int]] = frozenset({coded.TLV})
    few: ClassVar[frozenset[int]] = frozenset({coded.TLV})
    duties: ClassVar[Duties] = {
        "publish": frozenset({PutTlv, SealToGrant}),
        "subscribe": frozenset({Follow}),
        "deliver": frozenset({SealToGrant}),
    }
    audited: ClassVar[frozenset[str]] = frozenset({"policy_id"})
    sees = frozenset()

    def __init__(self) -> None:
        self._rows: Mapping[str, bytes] = {}
        self._customers: frozenset[str] = frozenset()
        self._events: dict[bytes, Event] = {}
        self._verdicts: dict[tuple[bytes, str], Verdict] = {}

    def configure(self, config: Policy) -> Change:
        settings.read(config)
        return Change()

    def told(self, rows: Mapping[str, bytes]) -> Iterable[Dep]:
        """What the key generator tells, all of it. What had been matched before is forgotten."""
        if rows == self._rows:
            return ()
        before, had = self._rows, self._customers
        self._rows, self._events, self._verdicts = rows, {}, {}
        self._customers = frozenset(
            key.rpartition("/")[2] for key in rows if key.startswith((coded.PAIR, coded.CUSTOMER))
        )
        for key, row in rows.items():
            if key.startswith(coded.EVENT):
                try:
                    ident = bytes.fromhex(key[len(coded.EVENT) :])
                    self._events[ident] = coded.read_event(row)
                except ValueError:  # BadRow too: there is no such grant then
                    continue
        changed = {key for key in before.keys() | rows.keys() if before.get(key) != rows.get(key)}
        return [_dep(client) for client in had ^ self._customers] + [(NAME, k) for k in changed]

    # Questions

    def connect(self, ask: Ask) -> Verdict:
        return allow(rules.CONNECT, "anybody may connect")

    def publish(self, ask: Ask) -> Verdict:
        ident = ask.tlv.get(coded.TLV)
        if ident is None and _doctors(ask):
            return _DOCTOR
        if ident is None:
            return deny(rules.NO_ID, "a message needs the policy id of an event grant")
        event = self._events.get(ident)
        if event is None:
            # Of these there are as many as somebody likes to say.
            return deny(rules.UNKNOWN, "there is no such event grant", until=NEVER)
        rests = ((NAME, coded.EVENT + ident.hex()),)
        if event.client != ask.who.client:
            return deny(rules.BORROWED, "this is another client's event grant", deps=rests)
        if not event.covers(ask.topic):
            return deny(rules.ELSEWHERE, "the event grant is for other topics", deps=rests)
        duties: tuple[Duty, ...] = (PutTlv(coded.TLV, ident), _TO_MEDIATORS)
        return allow(rules.PUBLISHED, f"policy id {ident.hex()}", deps=rests, duties=duties)

    def subscribe(self, ask: Ask) -> Verdict:
        try:
            filt = asked_filter(ask.topic)
        except Malformed:
            return deny(rules.MALFORMED, "no filter, or one that begins with $, ! or @")
        if filt.startswith(PUBLIC):
            return allow(rules.RECORD, "public records")
        if ask.topic.startswith(GROUP):
            return deny(rules.SHARED, "subscribe without $share: each event is matched")
        client = ask.who.client
        if ask.who.kind == _ASSESSOR:
            return _DOCTOR
        if client not in self._customers:
            return deny(rules.STRANGER, "this client is no customer", deps=(_dep(client),))
        return allow(
            rules.SUBSCRIBED, "each event is matched", deps=(_dep(client),), duties=(Follow(),)
        )

    def deliver(self, ask: Ask) -> Verdict:
        if not ask.label and ask.topic.startswith(PUBLIC):
            return allow(rules.RECORD, "a public record")
        # Under a label whoever has its key and reaches the broker puts any id there.
        ident = ask.tlv.get(coded.TLV) if ask.grant == _GRANTED else None
        if ident is None and _doctors(ask):
            return _DOCTOR
        if ident is None:
            return deny(rules.UNBOUND, "it was not published under a policy id")
        event = self._events.get(ident)
        if event is None or not event.covers(ask.topic):
            rests = ((NAME, coded.EVENT + ident.hex()),)
            return deny(rules.GONE, "its event grant is not there any more", deps=rests)
        key = ident, ask.who.client
        found = self._verdicts.get(key)
        if found is None:
            if len(self._verdicts) >= _MOST_CACHED:
                self._verdicts.clear()
            found = self._verdicts[key] = self._judged(event, *key)
        return found

    def _judged(self, event: Event, ident: bytes, client: str) -> Verdict:
        kind, shown = event.kind, ident.hex()
        rests = (
            (NAME, coded.EVENT + shown),
            (NAME, f"{coded.PAIR}{kind}/{client}"),
            (NAME, coded.KIND + kind),
            (NAME, coded.CUSTOMER + client),
        )
        audit = (("policy_id", shown),)
        try:
            let, wanted = match(self._rows, kind, client)
        except BadRow:
            reason = "what the key generator has told of it is broken"
            return deny(rules.BROKEN, reason, deps=rests, audit=audit)
        if not let:
            reason = "its policy does not let this client"
            return deny(rules.NOT_LET, reason, deps=rests, audit=audit)
        if not wanted:
            reason = "this client's own policy does not take it"
            return deny(rules.NOT_WANTED, reason, deps=rests, audit=audit)
        duties = (SealToGrant(NAME, shown),) if event.sealed else ()
        return allow(rules.MATCHED, f"policy id {shown}", deps=rests, duties=duties, audit=audit)


def _doctors(ask: Ask) -> bool:
    """Whether one of the doctor's clients publishes or reads where those of no site do: labels are
    tried there, and have to let through what is honest.
    """
    below = ask.topic.removeprefix(_DOCTORS)
    return ask.who.kind == _ASSESSOR and below != ask.topic and "/" not in below


def _dep(client: str) -> Dep:
    return NAME, "customer", client


def match(rows: Mapping[str, bytes], kind: str, client: str) -> tuple[bool, bool]:
    """Whether a kind's policy lets a customer, and whether the customer's own takes the kind.
    BadRow; who is not told of is let have nothing.
    """
    raw = rows.get(f"{coded.PAIR}{kind}/{client}")
    if raw is not None:
        pair = coded.read_pair(raw)
        let = Rules(pair.let).within(Sets(pair.has))
        return let, pair.open or Rules(pair.wants).within(Sets(pair.is_))
    sides = rows.get(coded.KIND + kind), rows.get(coded.CUSTOMER + client)
    if sides[0] is None or sides[1] is None:
        return False, False
    event, customer = coded.read_side(sides[0]), coded.read_side(sides[1])
    return _within(event, customer), customer.open or _within(customer, event)


def _within(asks: coded.Side, has: coded.Side) -> bool:
    """The paper's test: a & (m | t) == a, of BF_t alone."""
    return any(a & (m | held[0]) == a for held in has.helds for a, m in asks.rules)
