"""What operators write, and the key generator alone reads: customers, types, policies, events.

    [customers.miner]
    has = ["type = company & service = datamining"]
    wants = ["period = Q1"]                     # left out: whatever it is let have

    [types."heat/b"]                            # of all topics below that have no longer prefix
    has = ["class = statistics"]

    [policies."heat/b"]
    let = ["type = company & service = datamining"]

    [[events]]                                  # who may publish where, under which policy id
    id = "5c1f0b7d2e9a4466"
    client = "jingfang"
    topic = "heat/b/q1"
    session = "period = Q1"
    sealed = true                               # readers need the grant's key, too

Prefixes are resolved here, the longest counts: mediators see opaque ids. A topic that no policy
covers has none, and nobody can be granted to publish there.
"""

from __future__ import annotations

import re
import tomllib
from bisect import bisect_left
from collections import Counter
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from sealmq.near import near
from sealmq_spec.errors import Malformed
from sealmq_spec.topics import check_topic, is_reserved

from .coded import ID
from .words import ACTION, PUBLISH, RECEIVE, BadWords, Dnf, Have, having, policy

MOST_CUSTOMERS = 20_000
MOST_EVENTS = 20_000
_ID = re.compile(rf"[0-9a-f]{{{2 * ID}}}\Z")


class BadPlain(ValueError):
    """What is written cannot be taken. `key`: where."""

    def __init__(self, key: str, what: str, hint: str = "") -> None:
        super().__init__(f"{key}: {what}" if key else what)
        self.key, self.what, self.hint = key, what, hint


@dataclass(frozen=True, slots=True)
class Customer:
    """`wants` is its own policy, () if it has none."""

    has: tuple[Have, ...]
    wants: Dnf


@dataclass(frozen=True, slots=True)
class Granted:
    """An event grant. `session`: attributes of these events, beside those of their type."""

    id: str
    client: str
    topic: str
    session: Have
    sealed: bool


@dataclass(frozen=True, slots=True)
class Kind:
    """What an event is to those who match it: the policy and the type of its topic, and session
    attributes. `name` tells kinds apart."""

    policy: str
    type: str
    session: tuple[tuple[str, str], ...]

    @property
    def name(self) -> bytes:
        return repr((self.policy, self.type, self.session)).encode()


@dataclass(frozen=True, slots=True)
class Plain:
    """All of it."""

    customers: Mapping[str, Customer]
    types: Mapping[str, tuple[Have, ...]]
    policies: Mapping[str, Dnf]
    events: tuple[Granted, ...]
    prefixes: tuple[str, ...]
    """Of types and policies, in order."""

    def kind(self, event: Granted) -> Kind:
        """By the longest prefixes of its topic."""
        found = longest(self.policies, event.topic)
        if found is None:
            raise BadPlain(
                "events", f"no policy covers {event.topic}", f'[policies."{event.topic}"]'
            )
        return Kind(
            found, longest(self.types, event.topic) or "", tuple(sorted(event.session.items()))
        )

    def but(self, event: Granted) -> tuple[str, ...]:
        """Prefixes below its topic that have a type or a policy of their own."""
        at, end = self.beneath(event)
        return self.prefixes[at:end]

    def beneath(self, event: Granted) -> tuple[int, int]:
        """Where these are among the prefixes: from, and up to."""
        at = bisect_left(self.prefixes, event.topic + "/")
        return at, bisect_left(self.prefixes, event.topic + "0")  # 0 comes next after /

    def is_(self, kind: Kind) -> tuple[Have, ...]:
        """What events of the kind have: those of the type, and of the session. A value of the
        session takes the place of the type's."""
        session = dict(kind.session)
        return tuple({**have, **session} for have in self.types.get(kind.type, ({},)))

    def lets(self, kind: Kind, customer: Customer, action: str = RECEIVE) -> bool:
        """Whether the kind's policy lets the customer."""
        return met(self.policies[kind.policy], acting(customer.has, action))

    def wanted(self, kind: Kind, customer: Customer) -> bool:
        """Whether the customer's own policy takes the kind."""
        return not customer.wants or met(customer.wants, self.is_(kind))


def acting(had: Iterable[Have], action: str) -> tuple[Have, ...]:
    """What somebody has who does that."""
    return tuple({**have, ACTION: action} for have in had)


def met(dnf: Dnf, had: Iterable[Have]) -> bool:
    """Whether a conjunction of a policy holds of one of those that somebody has."""
    return any(all(atom.holds(have) for atom in atoms) for have in had for atoms in dnf)


def longest(prefixes: Container[str], topic: str) -> str | None:
    """The longest prefix that covers a topic."""
    while topic not in prefixes:
        topic, slash, _ = topic.rpartition("/")
        if not slash:
            return None
    return topic


def read(text: str) -> Plain:
    """BadPlain: the first thing that is wrong."""
    try:
        doc = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # int() takes 4,300 digits at most
        raise BadPlain("", f"this is no TOML: {error}") from None
    _only(doc, "", ("customers", "types", "policies", "events"))
    customers = {}
    for name, row in _tables(doc, "customers").items():
        key = f"customers.{name}"
        _only(row, key, ("has", "wants"))
        wants = _policy(row["wants"], f"{key}.wants") if "wants" in row else ()
        customers[name] = Customer(_having(row.get("has"), f"{key}.has"), wants)
    if len(customers) > MOST_CUSTOMERS:
        raise BadPlain("customers", f"{len(customers)}; at most {MOST_CUSTOMERS} are taken")
    types, policies = {}, {}
    for prefix, row in _tables(doc, "types").items():
        _topic(prefix, "types")
        _only(row, f"types.{prefix}", ("has",))
        types[prefix] = _having(row.get("has"), f"types.{prefix}.has")
    for prefix, row in _tables(doc, "policies").items():
        _topic(prefix, "policies")
        _only(row, f"policies.{prefix}", ("let",))
        policies[prefix] = _policy(row.get("let"), f"policies.{prefix}.let")
    prefixes = tuple(sorted({*types, *policies}))
    made = Plain(customers, types, policies, tuple(_events(doc.get("events", []))), prefixes)
    _check_events(made)
    return made


def _events(rows: Any) -> Iterable[Granted]:
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise BadPlain("events", "events are an array of tables", "[[events]]")
    if len(rows) > MOST_EVENTS:
        raise BadPlain("events", f"{len(rows)}; at most {MOST_EVENTS} are taken")
    for at, row in enumerate(rows):
        key = f"events.{at}"
        _only(row, key, ("id", "client", "topic", "session", "sealed"))
        session: Have = {}
        if row.get("session", "") != "":
            session, *more = _having(row["session"], f"{key}.session")
            if more:
                raise BadPlain(f"{key}.session", "it is one conjunction")
        ident, client, sealed = row.get("id"), row.get("client"), row.get("sealed", False)
        if not isinstance(ident, str) or not _ID.match(ident):
            raise BadPlain(
                f"{key}.id", "a policy id has 16 hex digits", "sealmq blinded grant --event"
            )
        if not isinstance(client, str) or not client:
            raise BadPlain(f"{key}.client", "who publishes is the name of a client")
        if type(sealed) is not bool:
            raise BadPlain(f"{key}.sealed", "true or false")
        yield Granted(ident, client, _topic(row.get("topic"), key), session, sealed)


def _check_events(made: Plain) -> None:
    ids = Counter(event.id for event in made.events)
    twice = next((one for one, count in ids.items() if count > 1), None)
    if twice:
        raise BadPlain("events", f"the policy id {twice} stands twice", "each grant has its own")
    for event in made.events:
        kind = made.kind(event)
        dnf = made.policies[kind.policy]
        # A policy that says who publishes says it of everybody.
        if any(a.name == ACTION and a.holds({ACTION: PUBLISH}) for c in dnf for a in c):
            customer = made.customers.get(event.client)
            if customer is None or not made.lets(kind, customer, PUBLISH):
                raise BadPlain(
                    "events",
                    f"the policy does not let {event.client} publish {event.topic}",
                    "give the client what the policy asks for, beside action = publish",
                )


def _topic(topic: Any, key: str) -> str:
    try:
        if not isinstance(topic, str):
            raise Malformed("no text")
        check_topic(topic)
        if is_reserved(topic):
            raise Malformed("it begins with $, ! or @")
    except (Malformed, UnicodeEncodeError) as error:
        raise BadPlain(key, f"{str(topic)[:80]!r} is no topic: {error}") from None
    return topic


def _having(value: Any, key: str) -> tuple[Have, ...]:
    try:
        return having(value)
    except BadWords as error:
        raise BadPlain(key, str(error), error.hint) from None


def _policy(value: Any, key: str) -> Dnf:
    try:
        return policy(value)
    except BadWords as error:
        raise BadPlain(key, str(error), error.hint) from None


def _tables(doc: Mapping[str, Any], key: str) -> Mapping[str, Mapping[str, Any]]:
    found = doc.get(key, {})
    if not isinstance(found, dict) or not all(isinstance(row, dict) for row in found.values()):
        raise BadPlain(key, "this is a table of tables", f"[{key}.NAME]")
    return found


def _only(table: Mapping[str, Any], where: str, names: Iterable[str]) -> None:
    for name in table:
        if name not in names:
            key = f"{where}.{name}" if where else name
            raise BadPlain(key, f"unknown key {name!r}", near(name, names))
