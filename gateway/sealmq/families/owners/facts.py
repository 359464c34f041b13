"""What conditions are told: of one event, or of all that a filter may reach."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from ..api import Ask, UnknownAttribute
from .actions import NAMES
from .chains import TooMuch
from .events import EventType
from .expressions import OPEN, TRUE, Condition, Kleene, Open, Value, outcomes

PAIR = "\x1f"
"""Between owner and subscriber in an attribute's subject. No name has it."""

MOST_TESTS = 20_000
"""Tests in conditions that one answer may take, some milliseconds. Beyond: TooMuch."""

Signed = Callable[[str, str], bool]
"""Whether a client has signed the contract at an address."""


def subject(of: str, owner: str, subscriber: str) -> str:
    """Of whom an attribute is asked, after what it is of."""
    if of == "owner":
        return owner
    if of == "pair":
        return owner + PAIR + subscriber
    return "" if of == "site" else subscriber


class World(NamedTuple):
    """What the site tells: of each attribute whom it is of, and who has signed which contract.
    `counts`: those of what a reader got.
    """

    externals: Mapping[str, str]
    signed: Signed
    counts: frozenset[str] = frozenset()


class EventFacts:
    """Of one event: what its levels, its sealed attributes (`values`) and the site say. `owner` "":
    each of all. `who`: who asked at first, the subscriber, or the publisher. `sender` "": not
    known.

    `signer`: whose signature contract() asks for. `wanted_sender`: a condition has asked for the
    sender while it is not known. `told`: the client that is told what it comes to, "": nobody is,
    or the operator; what the site says of others alone is unknown then, and `veiled` says that a
    condition has asked for it.
    """

    __slots__ = (
        "_ask",
        "_kind",
        "_values",
        "_who",
        "action",
        "consents",
        "left",
        "owner",
        "sender",
        "signer",
        "told",
        "veiled",
        "wanted_sender",
        "world",
    )

    def __init__(
        self,
        ask: Ask,
        kind: EventType | None,
        owner: str,
        values: Mapping[str, Value],
        who: str,
        sender: str,
        world: World,
    ) -> None:
        self._ask, self._kind, self._values = ask, kind, values
        self._who, self.owner, self.sender, self.signer = who, owner, sender, who
        self.world = world
        self.action = 0
        self.wanted_sender = self.consents = self.veiled = False
        self.told = ""
        self.left = MOST_TESTS

    def known(self, name: str) -> Value | None:
        """What the event says itself, and who is concerned; None: nothing of that name."""
        found = self._values.get(name)
        if found is None:
            if name == "subscriber":
                return self._who
            if name == "owner":
                return self.owner or None
            if self._kind is not None:
                if name == "app_domain":
                    return self._kind.app
                if name == "evtType":
                    return self._kind.name
        return found

    def get(self, name: str) -> Value | None:
        found = self.known(name)
        if found is not None:
            return found
        of = self.world.externals.get(name)
        if of is not None:
            return self._external(name, of)
        if name == "action":
            return NAMES[self.action]
        if name == "sender":
            self.wanted_sender |= not self.sender
            return self.sender or None
        ask = self._ask
        if name == "qos" and ask.question in ("publish", "subscribe"):
            return ask.qos
        if name == "retained":
            if ask.question == "publish":
                return ask.retain
            return ask.how == 1 if ask.question == "deliver" else None
        return None

    def _external(self, name: str, of: str) -> Value | None:
        if not self.owner and of in ("owner", "pair"):
            return None
        if self.told and of != "site" and not self._is_told_of(name, of):
            self.veiled = True
            return None
        try:
            value = self._ask.attribute(name, subject(of, self.owner, self._who))
        except UnknownAttribute:
            return None
        return value if isinstance(value, str | int) else None

    def _is_told_of(self, name: str, of: str) -> bool:
        """Whether an attribute is of the client that is told; of a pair either may know it, but
        what a reader got is known where that reader is.
        """
        if name in self.world.counts:
            return self.told == self._who
        return self.told in {"owner": (self.owner,), "pair": (self.owner, self._who)}.get(
            of, (self._who,)
        )

    def signed(self, address: str) -> Kleene:
        self.consents = True
        return self.world.signed(self.signer, address) if self.signer else None

    def judge(self, condition: Condition, action: int) -> bool:
        """Whether it is met (chains.Judge). TooMuch."""
        self.action = action
        met = condition.met
        if met is None:
            return True
        self.left -= condition.tests
        if self.left < 0:
            raise TooMuch
        return met(self) is True

    def spend(self, tests: int) -> None:
        """What takes as long as so many. TooMuch."""
        self.left -= tests
        if self.left < 0:
            raise TooMuch


class OpenFacts:
    """Of all events that a filter reaches, or that an assertion is about: what is not the same for
    all of them is open. `signs`: take contracts as signed.
    """

    __slots__ = ("_facts", "_kinds", "_owner_known", "consents", "later", "must", "signs")

    def __init__(
        self,
        facts: EventFacts,
        kind: EventType | None,
        *,
        must: bool,
        signs: bool = False,
        later: bool = False,
    ) -> None:
        """`must`: met whatever comes; else met if something may come by which it is. `later`: the
        world outside may be another one then.
        """
        self._facts, self.must, self.signs, self.later = facts, must, signs, later
        self._kinds = frozenset() if kind is None else kind.names
        self._owner_known = bool(facts.owner)
        self.consents = False

    def get(self, name: str) -> Value | Open | None:
        facts = self._facts
        found = facts.known(name)
        if found is not None:
            return found
        if name in self._kinds or name in ("sender", "retained", "qos"):
            return OPEN
        if name in ("owner", "app_domain", "evtType"):
            return OPEN
        of = facts.world.externals.get(name)
        if of is not None and (self.later or (not self._owner_known and of in ("owner", "pair"))):
            return OPEN
        return facts.get(name)

    def signed(self, address: str) -> Kleene | Open:
        self.consents = True
        return True if self.signs else self._facts.signed(address)

    def judge(self, condition: Condition, action: int) -> bool:
        """Whether it is met by all of them, or may be (chains.Judge)."""
        self._facts.action = action
        if condition.rest is None:
            return True
        found = outcomes(condition.rest, self)
        return found == TRUE if self.must else bool(found & TRUE)
