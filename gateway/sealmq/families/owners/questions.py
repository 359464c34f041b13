"""Questions to the policy of owners: who can do something with an event, and why somebody can or
cannot.
"""

from __future__ import annotations

from sealmq.near import near
from sealmq_spec.errors import SealError
from sealmq_spec.topics import check_topic

from ..api import Later
from . import events, explain, rules
from .actions import CHANGE_POLICY, MASKS, NAMES, RECEIVE, action_named
from .assertions import Assertion
from .chains import Key, Plan
from .events import BadAttributes
from .facts import MOST_TESTS, EventFacts
from .names import EVERYBODY, is_principal
from .turn import Answer, Body, Refused, Turn, dump, listed, read_text

ASKED = 50
"""Clients about whom a question is answered in one go,"""
TESTED = 2000
"""and tests in conditions after which it rests."""
KEYS = ("action", "topic", "attributes", "sender")
"""Of a question about an event."""


class Event:
    """The event that a question is about, and whether the client may ask about it."""

    def __init__(self, turn: Turn, body: Body) -> None:
        word = action_named(read_text(body, "action", 32, "RECEIVE"))
        if word is None:
            raise Refused(rules.MALFORMED, near(str(body.get("action")), MASKS))
        self.action = MASKS[word]
        topic = read_text(body, "topic", 1024)
        try:
            check_topic(topic)
        except (SealError, UnicodeEncodeError) as error:
            raise Refused(rules.MALFORMED, str(error)) from None
        path = topic.split("/")
        kind = turn.state.types.of(path)
        values = None if kind is None else kind.values(path)
        if kind is None or values is None:
            raise Refused(rules.NO_SUCH, "the topic is of no event type")
        try:
            raw = dump(body.get("attributes", {})).encode()
            sealed = events.read_attributes(raw, kind.attributes)
        except BadAttributes as error:
            raise Refused(rules.MALFORMED, str(error)) from None
        self.sender = read_text(body, "sender", 64, "")
        self.kind, self.values = kind, {**values, **sealed}
        self.owner = kind.owner_of(values, sealed, self.sender)
        if not self.owner:
            raise Refused(rules.NO_SUCH, "nobody could be the event's owner; name the sender")
        self.topic = topic

    def facts(self, turn: Turn, client: str) -> EventFacts:
        return turn.rights.facts(self.kind, self.owner, self.values, client, self.sender,
                                 self.topic)  # fmt: skip

    def told(self, turn: Turn, client: str) -> EventFacts:
        """As `facts`, for an answer: whoever writes a condition and asks what it comes to must not
        learn by it where others are."""
        facts = self.facts(turn, client)
        facts.told = "" if turn.state.tells_all else turn.client
        return facts

    def plan(self, turn: Turn) -> Plan:
        return turn.state.plans.of(self.kind, self.owner)

    @property
    def is_free(self) -> bool:
        """Whether nobody is asked for anything."""
        return self.action == RECEIVE and self.kind.control == "none"

    def way(self, turn: Turn, client: str, facts: EventFacts) -> tuple[int, ...] | None:
        """The actions by which the client may; None: it may not. TooMuch."""
        ways: list[tuple[int, ...]] = [(self.action,)]
        if self.action == RECEIVE:
            ways = turn.state.ways(self.kind, self.owner, client, turn.now_ms)
        plan = self.plan(turn)
        for way in ways:
            if all(plan.holds(client, action, facts.judge) for action in way):
                return way
        return None


def _asks_about(turn: Turn, event: Event, client: str) -> None:
    """Refused, unless it is the client itself, the owner, or who may change the policy there."""
    if turn.client in (client, event.owner):
        return
    facts = event.facts(turn, turn.client)
    if not event.plan(turn).holds(turn.client, CHANGE_POLICY, facts.judge):
        raise Refused(rules.NO_QUESTION, "it is not this client's event, nor may it change who may")


def who_can(turn: Turn, body: Body) -> Later:
    event = Event(turn, body)
    _asks_about(turn, event, event.owner)
    index = turn.state.index
    named = {*index.licensees(event.owner), *index.licensees(EVERYBODY), event.owner}
    everybody = EVERYBODY in named
    if event.is_free:
        named = set(turn.state.settings.clients)
    elif everybody:
        named |= turn.state.settings.clients
    left = iter(sorted(filter(is_principal, named)))
    found: list[str] = []
    veiled = False

    def go_on() -> Answer | None:
        nonlocal veiled
        spent = 0
        for count, name in enumerate(left, 1):
            facts = event.told(turn, name)
            if event.way(turn, name, facts) is None:
                veiled |= facts.veiled
            else:
                found.append(name)
            spent += MOST_TESTS - facts.left
            if count == ASKED or spent >= TESTED:
                return None
        more = {"action": NAMES[event.action], "owner": event.owner}
        return listed("who", found, more | ({"veiled": True} if veiled else {}))

    return Later(go_on)


def explained(turn: Turn, body: Body) -> Answer:
    event = Event(turn, body)
    client = read_text(body, "client", 64, turn.client)
    _asks_about(turn, event, client)
    facts = event.told(turn, client)
    way = event.way(turn, client, facts)
    more = {
        "allow": way is not None,
        "action": NAMES[event.action],
        "client": client,
        "owner": event.owner,
        "type": event.kind.name,
    }
    if facts.veiled and way is None:
        more["veiled"] = True
    chain: dict[Key, Assertion] = {}
    # To whom it is not theirs, how others have come to allow it is nobody's business.
    if turn.client == event.owner or turn.client != client:
        plan = event.plan(turn)
        for action in way or ():
            chain |= dict(plan.full_chain(client, action, facts.judge))
    return listed("chain", [explain.link(*one) for one in chain.items()], more)
