"""People decide who receives what is about them (Opyrchal, Prakash, Agrawal).

A topic is an event of a type, and an event has an owner. Private by default: without an assertion
that leads back to the site's policy (chains.py) nobody publishes, subscribes or receives; a topic
of no type is nobody's. The type says when it is asked: on subscribe, on receive, on both, or never.
The mediator enforces it, not a key: who holds the label's key and captures a message on the way
opens it all the same, unless the type's granularity is matching_set.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar

from sealmq_spec.errors import Malformed

from ..api import (
    FOREVER,
    Ask,
    AtQos,
    Change,
    Dep,
    Duties,
    Duty,
    Family,
    Follow,
    Later,
    OnlyFrom,
    Parsed,
    Policy,
    Proposal,
    PutTlv,
    Question,
    Record,
    SealToGrant,
    SealToLink,
    Seen,
    Verdict,
    Who,
    allow,
    deny,
)
from ..attributes import Attribute
from ..shared import GROUP, NO_FILTER, PUBLIC, asked_filter, is_mounted, mounts
from . import commands, emergencies, events, explain, rules, where
from .actions import AUTHENTICATE, EMERGENCY, PUBLISH, RECEIVE, SUBSCRIBE
from .chains import ALL, Maybe, Plan, TooMuch
from .events import SENDER, BadAttributes, EventType
from .expressions import Condition, Value
from .facts import EventFacts, OpenFacts, World
from .kg_part import GRANT
from .names import EVERYBODY, is_principal
from .state import (
    ALL_DEP,
    CLIENTS,
    NO_TYPE,
    SOME,
    State,
    consents_of,
    of_owner,
    to_licensee,
)

NAME = "owners"

_GRANTED = (NAME, GRANT)
_FOLLOW: tuple[Duty, ...] = (Follow(),)
_CONNECT = allow(rules.CONNECT, "anybody may connect", deps=(ALL_DEP,))
_RECORD = allow(rules.SUBSCRIBE_RECORDS, "public records")
_DELIVER_RECORD = allow(rules.DELIVER_RECORD, "a public record")
_ACCEPTED: frozenset[Seen] = frozenset({"accepted"})
_FOR_RATE = frozenset({rules.TOO_MANY})
_PEER = "its owner is a client of another site, and has no say here"
PEERS: Dep = (NAME, "peers")
_MOST_OWNERS = 64
"""Owners that a verdict names in its deps; of more it rests on all."""


class Owners(Family):
    """Who may publish, subscribe and receive, as the owners of events have said."""

    name: ClassVar[str] = NAME
    rules: ClassVar[Mapping[str, str]] = rules.RULES
    rate_rules: ClassVar[frozenset[str]] = _FOR_RATE
    tlvs: ClassVar[frozenset[int]] = frozenset({events.TLV})
    parses: ClassVar[frozenset[Question]] = frozenset({"subscribe"})
    duties: ClassVar[Duties] = {
        "publish": frozenset({PutTlv, SealToGrant}),
        "subscribe": frozenset({Follow}),
        "deliver": frozenset({AtQos, OnlyFrom, SealToLink}),
    }

    def __init__(self) -> None:
        self.state = State()
        self._mounts: frozenset[str] = frozenset()

    # State

    def configure(self, config: Policy) -> Change:
        deps = self.state.configure(config)
        before, self._mounts = self._mounts, mounts(config)
        return Change([*deps, PEERS] if before != self._mounts else deps)

    def apply(self, records: Sequence[Record]) -> Iterable[Dep]:
        return self.state.apply(records)

    def noted(self, since: Mapping[str, int]) -> bool:
        return self.state.noted(since)

    def bearers(
        self, since: Mapping[str, int], rows: Callable[[], Iterable[Record]]
    ) -> Sequence[Record]:
        return self.state.bearers.mended(since, rows)

    def parse(self, question: Question, topic: str) -> Parsed | None:
        """`!WHERE/CONDITION/FILTER` of a subscription. Malformed."""
        found = where.decode(topic)
        return None if found is None else Parsed(found[0], {"where": found[1]})

    # Questions

    def connect(self, ask: Ask) -> Verdict:
        state = self.state
        if not state.settings.authenticate:
            return _CONNECT
        client = ask.who.client
        facts = EventFacts(ask, None, "", {}, client, "", state.world)
        deps = (ALL_DEP, consents_of(client))
        try:
            held = state.plans.of(None, ALL).holds(client, AUTHENTICATE, facts.judge)
        except TooMuch:
            return _too_much(deps)
        if held:
            return allow(rules.CONNECT_ALLOWED, "an assertion lets it", deps=deps)
        return deny(rules.CONNECT_NOT_ALLOWED, "no assertion lets this client connect", deps=deps)

    def publish(self, ask: Ask) -> Verdict:
        state, client = self.state, ask.who.client
        path = ask.topic.split("/")
        kind = state.types.of(path)
        values = None if kind is None else kind.values(path)
        if kind is None or values is None:
            return deny(rules.PUBLISH_NO_TYPE, "the topic is of no event type", deps=_untyped(kind))
        sealed: dict[str, Value] = {}
        duties: tuple[Duty, ...] = ()
        if kind.seals:
            try:
                sealed, duties = _sealed(ask, kind)
            except BadAttributes as error:
                return deny(rules.PUBLISH_ATTRIBUTES, str(error)[:150], deps=(kind.dep,))
        owner = kind.owner_of(values, sealed, client)
        if not owner:
            reason = "nobody could be the owner of the event"
            return deny(rules.PUBLISH_NO_OWNER, reason, deps=(kind.dep,))
        deps: tuple[Dep, ...] = (kind.dep, of_owner(owner), ALL_DEP)
        if number := state.elsewhere(owner):
            reason = f"its owner has appointed mediator {number}"
            return deny(rules.PUBLISH_APPOINTED, reason, deps=deps)
        facts = EventFacts(ask, kind, owner, values | sealed, client, client, state.world)
        try:
            held = state.plans.of(kind, owner).holds(client, PUBLISH, facts.judge)
        except TooMuch:
            return _too_much(deps)
        if facts.consents:
            deps = (*deps, consents_of(client))
        if held:
            reason = f"events of {owner}"
            return Verdict(True, rules.PUBLISH_ALLOWED, reason, FOREVER, deps, duties)
        reason = f"no assertion lets this client publish events of {owner}"
        return deny(rules.PUBLISH_NOT_ALLOWED, reason, deps=deps)

    def subscribe(self, ask: Ask) -> Verdict:
        try:
            filt = asked_filter(ask.topic, self._mounts)
        except Malformed:
            return deny(rules.SUBSCRIBE_MALFORMED, NO_FILTER)
        if filt.startswith(PUBLIC):
            return _RECORD
        if is_mounted(filt, self._mounts):
            return deny(rules.SUBSCRIBE_PEER, _PEER, deps=(PEERS,))
        path = filt.split("/")
        reached = []
        for kind in self.state.types.reached(filt):
            bound = _bound(kind, path)
            if bound is not None:
                reached.append((kind, bound))
        if not reached:
            return deny(rules.SUBSCRIBE_NO_TYPE, "it reaches no event type", deps=(NO_TYPE,))
        deps = [NO_TYPE, ALL_DEP]
        when: Condition | None = ask.notes.get(NAME, {}).get("where")
        if when is not None and (wrong := _unfit(when, [kind for kind, _ in reached])):
            return deny(rules.SUBSCRIBE_WHERE, wrong, deps=tuple(deps))
        try:
            return self._subscribe(ask, reached, deps, when)
        except TooMuch:
            return _too_much(tuple(deps))

    def _subscribe(
        self,
        ask: Ask,
        reached: Sequence[tuple[EventType, dict[str, Value]]],
        deps: list[Dep],
        when: Condition | None,
    ) -> Verdict:
        shared = ask.topic.startswith(GROUP)
        granted, asked = 0, False
        for kind, bound in reached:
            owner = _owner_bound(kind, bound)
            deps.append(kind.dep)
            if owner:
                deps.append(of_owner(owner))
            wanted = SUBSCRIBE if kind.on_subscribe else 0
            if shared and kind.on_receive:
                # What one member must not have would be lost to the group.
                wanted |= RECEIVE
            asked |= bool(wanted)
            missing, address = self._missing(ask, kind, owner, bound, wanted, deps)
            if address:
                reason = f"its owner asks for a contract: {address}"[:190]
                return deny(rules.SUBSCRIBE_CONTRACT, reason, deps=tuple(deps))
            granted += not missing
        if shared and (granted < len(reached) or when is not None):
            reason = "not all of what the group shares is this client's to receive"
            return deny(rules.SUBSCRIBE_SHARED, reason, deps=tuple(deps))
        if not granted:
            reason = "no assertion lets this client subscribe to all of it"
            return deny(rules.SUBSCRIBE_NOT_ALLOWED, reason, deps=tuple(deps))
        if granted < len(reached):
            rule, reason = rules.SUBSCRIBE_PARTLY, f"{granted} of {len(reached)} types"
        elif asked:
            rule, reason = rules.SUBSCRIBE_ALLOWED, "assertions let it"
        else:
            rule, reason = rules.SUBSCRIBE_OPEN, "each event is judged"
        return Verdict(True, rule, reason, FOREVER, tuple(deps), _FOLLOW)

    def _missing(
        self,
        ask: Ask,
        kind: EventType,
        owner: str,
        bound: dict[str, Value],
        wanted: int,
        deps: list[Dep],
    ) -> tuple[bool, str]:
        """Whether an action that is asked for is not held for all events, come what may; and the
        contract without whose signature nothing of one owner's will ever be received.
        """
        state, client = self.state, ask.who.client
        plan = state.plans.of(kind, owner or ALL)
        facts = EventFacts(ask, kind, owner, bound, client, "", state.world)
        must = OpenFacts(facts, kind, must=True)
        missing = any(
            wanted & action and not plan.holds(client, action, must.judge)
            for action in (SUBSCRIBE, RECEIVE)
        )
        # In an emergency each event is judged; of what a group shares nothing may be withheld.
        emergency = OpenFacts(facts, kind, must=ask.topic.startswith(GROUP))
        until = state.broken_until(owner, client, ask.now_ms) if owner else 0
        is_open = bool(until) and plan.holds(client, EMERGENCY, emergency.judge)
        must.consents |= emergency.consents
        if is_open:
            missing = False
            ask.holds_until(until)
        address = ""
        if owner and kind.control != "none" and not is_open:
            action = RECEIVE if kind.on_receive else SUBSCRIBE
            may = OpenFacts(facts, kind, must=False)
            signing = OpenFacts(facts, kind, must=False, signs=True)
            if not plan.holds(client, action, may.judge) and plan.holds(
                client, action, signing.judge
            ):
                address = next(
                    (
                        text
                        for _, made in plan.full_chain(client, action, signing.judge)
                        for text in made.condition.contracts
                        if not state.signed(client, text)
                    ),
                    "",
                )
            must.consents |= may.consents | signing.consents
        if must.consents or facts.consents:
            deps.append(consents_of(client))
        return missing, address

    def deliver(self, ask: Ask) -> Verdict:
        state, topic = self.state, ask.topic
        path = topic.split("/")
        kind = state.types.of(path)
        values = None if kind is None else kind.values(path)
        if kind is None or values is None:
            if not ask.label and topic.startswith(PUBLIC):
                return _DELIVER_RECORD
            if is_mounted(topic, self._mounts):
                return deny(rules.DELIVER_PEER, _PEER, deps=(PEERS,))
            return deny(rules.DELIVER_NO_TYPE, "the topic is of no event type", deps=_untyped(kind))
        if kind.by and ask.how and (ask.now_ms - ask.age_ms) // 1000 < kind.at_ms // 1000:
            # Whoever advertises a type must not open what was others' before.
            reason = "it was published before its event type was advertised"
            return deny(rules.DELIVER_NO_TYPE, reason, deps=_untyped(kind))
        if kind.attributes:
            try:
                values |= _opened(ask, kind)
            except BadAttributes as error:
                return deny(rules.DELIVER_ATTRIBUTES, str(error)[:150], deps=(kind.dep,))
        deps: list[Dep] = [kind.dep]
        try:
            owner = ""
            if kind.owner == SENDER:
                verdict = self._of_senders(ask, kind, values, deps)
            else:
                owner = kind.owner_of(values, values, "")
                if not owner:
                    reason = "nobody could be the owner of the event"
                    return deny(rules.DELIVER_NO_OWNER, reason, deps=tuple(deps))
                verdict = self._of_owner(ask, kind, owner, values, deps)
            if not verdict.allow:
                return verdict
            whens = _whens(ask)
            return self._wanted(ask, kind, owner, values, verdict, whens) if whens else verdict
        except TooMuch:
            return _too_much((*deps, ALL_DEP, CLIENTS))

    def _of_owner(
        self,
        ask: Ask,
        kind: EventType,
        owner: str,
        values: dict[str, Value],
        deps: list[Dep],
    ) -> Verdict:
        """An event whose owner is known before it is opened."""
        state, client = self.state, ask.who.client
        deps += (of_owner(owner), ALL_DEP)
        if state.mediators and (number := state.elsewhere(owner)):
            reason = f"its owner has appointed mediator {number}"
            return deny(rules.DELIVER_APPOINTED, reason, deps=tuple(deps))
        if kind.control == "none":
            return self._allowed(rules.DELIVER_NO_CONTROL, "no control", kind, deps)
        plan = state.plans.of(kind, owner)
        asked = _asked(plan, kind, client)
        if asked == ():
            return self._allowed(rules.DELIVER_ALLOWED, f"events of {owner}", kind, deps)
        facts = EventFacts(ask, kind, owner, values, client, "", state.world)
        held = _held(plan, asked, facts)
        senders: frozenset[str] | None = None
        if not held and facts.wanted_sender:
            # Only some senders' events; who they are, is found once.
            deps.append(CLIENTS)
            found = []
            weight = sum(map(plan.weight, asked or ()))
            for facts.sender in sorted(state.settings.clients):
                facts.spend(weight)
                if _held(plan, asked, facts):
                    found.append(facts.sender)
            senders = frozenset(found)
        if facts.consents:
            deps.append(consents_of(client))
        if held:
            return self._allowed(rules.DELIVER_ALLOWED, f"events of {owner}", kind, deps)
        until = state.broken_until(owner, client, ask.now_ms)
        if until and plan.holds(client, EMERGENCY, facts.judge):
            reason = f"an emergency, and {owner} has granted it"
            return self._allowed(rules.DELIVER_BREAK_GLASS, reason, kind, deps, until)
        if senders:
            return self._allowed(
                rules.DELIVER_ALLOWED, f"some senders' of {owner}", kind, deps, senders=senders
            )
        reason = "no assertion lets this client receive it now"
        return deny(rules.DELIVER_NOT_ALLOWED, reason, deps=tuple(deps))

    def _of_senders(
        self, ask: Ask, kind: EventType, values: dict[str, Value], deps: list[Dep]
    ) -> Verdict:
        """Events that are their sender's: the names of those from whom the client may have them."""
        state = self.state
        if kind.control == "none":
            senders: Sequence[str] = sorted(state.settings.clients)
            deps += (CLIENTS, SOME)
        else:
            senders = self._authorised(ask, kind, values, deps)
        if state.mediators:
            deps += (SOME, ALL_DEP)
            senders = [name for name in senders if not state.elsewhere(name)]
        if not senders:
            reason = "no assertion lets this client receive anybody's"
            return deny(rules.DELIVER_NOT_ALLOWED, reason, deps=tuple(deps))
        reason = f"events of {len(senders)} owners"
        return self._allowed(rules.DELIVER_ALLOWED, reason, kind, deps, senders=frozenset(senders))

    def _authorised(
        self, ask: Ask, kind: EventType, values: dict[str, Value], deps: list[Dep]
    ) -> list[str]:
        """The owners whose events the client may receive: the authorised set by sender."""
        state, client = self.state, ask.who.client
        deps += (ALL_DEP, CLIENTS, to_licensee(client), to_licensee(EVERYBODY))
        wanted = EMERGENCY | (RECEIVE if kind.on_receive else SUBSCRIBE)
        wide = any(
            made.actions & made.condition.actions & wanted
            for made in state.index.licensing(ALL, client)
        )
        owners = [
            name
            for name in sorted(state.settings.clients)
            if wide
            or name == client
            or state.index.held(name, client)
            or state.index.held(name, EVERYBODY)
        ]
        if len(owners) > _MOST_OWNERS:
            deps.append(SOME)
        else:
            deps += map(of_owner, owners)
        found, consents = [], False
        for owner in owners:
            facts = EventFacts(ask, kind, owner, values, client, owner, state.world)
            # What its count says must not be used up by what others send.
            ask.one_sender = owner
            until = 0
            try:
                plan = state.plans.of(kind, owner)
                held = _held(plan, _asked(plan, kind, client), facts)
                if not held:
                    until = state.broken_until(owner, client, ask.now_ms)
                if until and plan.holds(client, EMERGENCY, facts.judge):
                    held = True
                    ask.holds_until(until)
            except TooMuch:
                # Of what one owner has made, others' events do not suffer.
                held = False
            consents |= facts.consents
            if held:
                found.append(owner)
        ask.one_sender = ""
        if consents:
            deps.append(consents_of(client))
        return found

    def _wanted(
        self,
        ask: Ask,
        kind: EventType,
        owner: str,
        values: Mapping[str, Value],
        verdict: Verdict,
        whens: Sequence[tuple[int, Condition | None]],
    ) -> Verdict:
        """The verdict where one of the client's own subscriptions asks for such an event."""
        # Without a condition it is asked for in any case, with that QoS.
        qos = next((at for at, when in whens if when is None), -1)
        most = max(at for at, _ in whens)
        more = [(at, when) for at, when in whens if when is not None and at > qos]
        more.sort(key=lambda one: -one[0])
        state, client = self.state, ask.who.client
        deps = list(verdict.deps)
        wanted = kind.owner == SENDER

        facts = EventFacts(ask, kind, owner, values, client, "", World({}, state.signed))

        def asks_for(when: Condition) -> bool:
            # What all of it requires is no part of what is judged (expressions.Condition).
            required = (when.app, when.type, when.owner)
            found = (kind.app, kind.name, facts.owner)
            return all(one in ("", other) for one, other in zip(required, found, strict=True)) and (
                facts.judge(when, RECEIVE)
            )

        def met(sender: str) -> int:
            """The greatest QoS with which it is asked for; -1: it is not."""
            if kind.owner == SENDER:
                facts.owner = sender
            # In what a subscriber asks for, the other side is the publisher.
            facts.sender = facts.signer = sender
            facts.wanted_sender = facts.consents = False
            best = next((at for at, when in more if asks_for(when)), qos)
            nonlocal wanted
            wanted |= facts.wanted_sender or facts.consents
            if facts.consents and sender:
                deps.append(consents_of(sender))
            return best

        best, duties = (qos if wanted else met("")), verdict.duties
        if best >= 0 and wanted:
            # Some senders' with more, perhaps: not worth asking about each.
            best = most
        elif wanted:
            deps.append(CLIENTS)
            among = next((d.senders for d in duties if isinstance(d, OnlyFrom)), None)
            names = sorted(state.settings.clients if among is None else among)
            found = {name: at for name in names if (at := met(name)) >= 0}
            best = max(found.values(), default=-1)
            only = OnlyFrom(frozenset(found), rules.DELIVER_WHERE, "its own condition is not met")
            duties = (*(d for d in duties if not isinstance(d, OnlyFrom)), only)
        if best < 0:
            return deny(rules.DELIVER_WHERE, "its own condition is not met", deps=tuple(deps))
        if best < most:
            # The table has the greatest of all its filters, whatever they ask for.
            duties = (*duties, AtQos(best))
        return Verdict(True, verdict.rule, verdict.reason, verdict.until, tuple(deps), duties)

    def _allowed(
        self,
        rule: str,
        reason: str,
        kind: EventType,
        deps: list[Dep],
        until: int = FOREVER,
        senders: frozenset[str] | None = None,
    ) -> Verdict:
        duties: tuple[Duty, ...] = ()
        if senders is not None:
            text = "no assertion lets this client receive it from this sender"
            duties = (OnlyFrom(senders, rules.DELIVER_OTHER_SENDER, text),)
        if kind.granularity == "matching_set":
            duties = (*duties, SealToLink())
        return Verdict(True, rule, reason, until, tuple(deps), duties)

    # Events tell of their owners (processEvent, 3.1)

    @property
    def sees(self) -> frozenset[Seen]:  # type: ignore[override]
        """What is accepted, if a type derives anything of it."""
        kinds = self.state.types.by_key.values()
        return _ACCEPTED if any(kind.derives for kind in kinds) else frozenset()

    def see(self, what: Seen, ask: Ask) -> Iterable[Any]:
        path = ask.topic.split("/")
        kind = self.state.types.of(path)
        if kind is None or not kind.derives or kind.by or (values := kind.values(path)) is None:
            return ()
        if kind.attributes:
            try:
                values |= events.read_attributes(ask.tlv.get(events.TLV), kind.attributes)
            except BadAttributes:
                return ()
        owner = kind.owner_of(values, values, ask.who.client)
        externals = self.state.settings.externals
        return [
            Attribute(name, owner, values[level], FOREVER)
            for name, level in kind.derives.items()
            if owner and level in values and externals.get(name) in ("subscriber", "owner")
        ]

    # Commands and words

    def command(self, who: Who, body: bytes, now_ms: int) -> Proposal | Verdict | Later:
        self.state.outside, self.state.counts = self.outside, self.counts
        return commands.command(self.state, who, body, now_ms)

    def greet(self, who: Who) -> bytes:
        """What the client has not been told: who has opened its events in an emergency."""
        return emergencies.unseen(self.state, who.client)

    def explain(self, ask: Ask, verdict: Verdict) -> Sequence[str]:
        return explain.lines(self.state, ask, verdict)


def _asked(plan: Plan, kind: EventType, client: str) -> tuple[Maybe, ...] | None:
    """What has to be met so that the client receives the owner's events; nothing: it does whatever
    comes; None: it never does. The type's control asks for the right to subscribe as well, so that
    what a client had subscribed to ends with that right. TooMuch.
    """
    asked: tuple[Maybe, ...] = ()
    for action in kind.asked:
        node = plan.node(client, action)
        if node is False:
            return None
        if node is not True:
            asked = (*asked, node)
    return asked


def _held(plan: Plan, asked: tuple[Maybe, ...] | None, facts: EventFacts) -> bool:
    """Whether it is met now. TooMuch."""
    if asked is None:
        return False
    judge = facts.judge
    for node in asked:
        if not plan.met(node, judge):
            return False
    return True


def _whens(ask: Ask) -> list[tuple[int, Condition | None]]:
    """QoS and condition of the client's subscriptions that match, None: wants all. Empty where
    nothing is left to ask: what wants all has the greatest QoS.
    """
    whens: list[tuple[int, Condition | None]] = []
    qos = most = -1
    for sub in ask.subs:
        most = max(most, sub.qos)
        notes = sub.notes.get(NAME)
        if notes is None:
            qos = max(qos, sub.qos)
        else:
            whens.append((sub.qos, notes["where"]))
    if qos == most:
        return []
    return whens if qos < 0 else [*whens, (qos, None)]


def _untyped(kind: EventType | None) -> tuple[Dep, ...]:
    return (NO_TYPE,) if kind is None else (kind.dep,)


def _too_much(deps: tuple[Dep, ...]) -> Verdict:
    return deny(rules.TOO_MUCH, "too many assertions would have to be looked at", deps=deps)


def _sealed(ask: Ask, kind: EventType) -> tuple[dict[str, Value], tuple[Duty, ...]]:
    """The sealed attributes of a message, and how it goes to the broker. BadAttributes."""
    raw = ask.tlv.get(events.TLV)
    sealed = events.read_attributes(raw, kind.attributes)
    duties: tuple[Duty, ...] = (SealToGrant(NAME, GRANT),)
    if sealed:
        item = events.write_attributes(sealed)
        if len(item) > 255:
            raise BadAttributes("the attributes have more than 255 bytes")
        duties = (PutTlv(events.TLV, item), *duties)
    return sealed, duties


def _opened(ask: Ask, kind: EventType) -> dict[str, Value]:
    """The sealed attributes of what is delivered. BadAttributes: also where others than mediators
    could have put them there: whoever has the label's key, and reaches the broker.
    """
    if ask.grant != _GRANTED:
        raise BadAttributes("the message was not sealed for mediators")
    return events.read_attributes(ask.tlv.get(events.TLV), kind.attributes)


def _bound(kind: EventType, path: Sequence[str]) -> dict[str, Value] | None:
    """Levels that a filter fixes; None: it reaches no event of the type."""
    bound: dict[str, Value] = {}
    for name, at in kind.levels.items():
        if at < len(path) and path[at] not in ("+", "#"):
            level = path[at]
            if name in kind.numbers:
                if not events.is_int(level):
                    return None
                bound[name] = int(level)
            else:
                bound[name] = level
    return bound


def _owner_bound(kind: EventType, bound: Mapping[str, Value]) -> str:
    """The owner of all events that a filter reaches, or "": they have several."""
    name = bound.get(kind.owner)
    return name if isinstance(name, str) and is_principal(name) else ""


def _unfit(when: Condition, reached: Sequence[EventType]) -> str:
    """What is wrong with a subscriber's condition."""
    known = {"owner", "sender", "app_domain", "evtType", "retained"}
    known = known.union(*(kind.names for kind in reached))
    strange = sorted(when.names - known)
    return f"its condition asks for {strange[0]}"[:150] if strange else ""
