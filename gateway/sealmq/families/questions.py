"""Asks the families, in their fixed order, what connections want to know, and caches the answers.
The first deny wins.

Anything but an explicit allow is a deny: an exception, an unknown attribute, a duty outside the
closed set, a rule that is in no table, an empty order. It knows no connections.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Generic

from sealmq import feedback
from sealmq_spec.errors import SealError

from .api import (
    AUDITED,
    COMMAND,
    NEWS,
    TOLD,
    Dep,
    Family,
    FamilyRecord,
    Later,
    NotYet,
    Proposal,
    Record,
    Seen,
    Verdict,
    check_family,
    deny,
)
from .ask import ATTRIBUTE, Ask, Who
from .attributes import Attribute, Attributes
from .cache import Cache, Slot
from .counts import FAMILY as COUNTS
from .counts import Counts
from .decision import CLOSED, CLOSED_REASON, ENGINE, Decision, Refused, when_closed
from .following import Following, K
from .judge import Judge, OnFault
from .shared import reaching
from .told import FAMILY as ATTRIBUTES
from .told import Derived, Pushed

RESERVED = frozenset({ENGINE, ATTRIBUTES, COUNTS, feedback.NAME})
"""No family may have these names."""
LOOKED_AT = 256
"""With no more cached verdicts of a connection than these, each is looked at when one of its
subscriptions changes; with more, all are dropped."""


_TAILS = 4096
"""Combinations of items of which the key is remembered."""
OWN = "", "publisher"
"""In the place of a grant: what a client says in its own message. No family has that name."""


class Questions(Generic[K]):
    """`following`: the subscriptions to ask about again (following.py), by keys of type K."""

    def __init__(
        self, order: Sequence[Family], cache_size: int, enforce: bool, on_fault: OnFault | None
    ) -> None:
        names = [family.name for family in order]
        if len(set(names)) != len(names) or not RESERVED.isdisjoint(names):
            raise ValueError(f"every family stands once in the order: {', '.join(names)}")
        for family in order:
            check_family(family)
        self.order = tuple(order)
        self.enforce = enforce
        self.closed = ""
        self.attributes = Attributes()
        self.counts = Counts()
        for family in order:
            family.outside, family.counts = self.attributes, self.counts
        self.pushed = Pushed()
        self.derived = Derived()
        self.on_derived: Callable[[], None] = _nobody
        """Called when there is something new in `derived` for the other workers."""
        self.cache = Cache(cache_size)
        self.following: Following[K] = Following()
        self._on_fault: OnFault = on_fault or _silent
        self._judge = Judge(self.order, self._fault)
        self._seers = overriding(self.order, "see")
        self._greeters = overriding(self.order, "greet")
        self._raters = overriding(self.order, "feedback")
        self.listens: frozenset[Seen] = frozenset()
        self._tails: dict[tuple[object, ...], str] = {}
        self._few: frozenset[int] = frozenset().union(*(family.few for family in self.order))
        self._listen()
        self.parses = self._judge.parses
        self.parse = self._judge.parse

    def key_of(self, topic: str, tlv: Mapping[int, bytes], grant: tuple[str, str] | None) -> str:
        """What an answer about a message with items is kept by; "": it is kept for no other.
        `grant`: under which it lies, OWN for what its publisher says.
        """
        if grant is None or not tlv or not self._few.issuperset(tlv):
            return ""
        items = (grant, *tlv.items())
        tail = self._tails.get(items)
        if tail is None:
            if len(self._tails) >= _TAILS:
                self._tails.clear()
            shown = "".join(f"{kind:02x}{value.hex()}." for kind, value in tlv.items())
            # No topic has a NUL in it.
            tail = self._tails[items] = f"\0{grant[0]}\0{grant[1]}\0{shown}"
        return topic + tail

    def judge(self, ask: Ask, slot: Slot, key: str) -> Decision:
        """Ask the families and keep the answer as long as it may be kept."""
        while (decision := self.judge_slice(ask, slot, key)) is None:
            pass
        return decision

    def judge_slice(self, ask: Ask, slot: Slot, key: str) -> Decision | None:
        """`judge`, one slice of a family's work at a time; None: ask again, and it goes on."""
        try:
            decision = self._judge.decide(ask)
        except NotYet:
            return None
        decision = self._in_force(decision)
        # One that asks for a label is not kept: if that cannot be stored now, more topics than a
        # family has let may be there when it comes again.
        if ask.now_ms < decision.until and decision.label is None:
            self.cache.put(slot, key, ask.label, decision)
        return decision

    def for_sender(self, decision: Decision, client: str) -> Decision:
        """Conn.for_sender."""
        return self._in_force(decision.for_sender(client))

    def _in_force(self, decision: Decision) -> Decision:
        if not decision.allow and not self.enforce:
            decision = replace(
                decision, allow=True, overridden=True, duties=(), label=None, audit=()
            )
        if self.closed:
            decision = when_closed(decision)
        return decision

    def see(self, what: Seen, ask: Ask) -> None:
        """Tell the families that want to know."""
        if self.parses and ask.raw:
            try:
                self.parse(ask)
            except Refused:
                ask.topic = ask.raw
        for family in self._seers:
            if what in family.sees:
                self._told(family, what, partial(self._seen, family, what, ask))

    # What a family derives from an event is in force when this returns.
    def _seen(self, family: Family, what: Seen, ask: Ask) -> list[Dep]:
        deps: list[Dep] = []
        now_ms = ask.now_ms
        for one in tuple(family.see(what, ask)):
            if not isinstance(one, Attribute):
                deps.append(one)
                continue
            try:
                row = self.derived.check(family.name, one, now_ms)
            except ValueError as error:  # its deps have to go all the same
                self._fault(family.name, what, error)
                continue
            held = self.attributes.held(row.name, row.subject)
            if self.derived.news(held, row, now_ms) and self.attributes.take(row):
                deps.append((ATTRIBUTE, row.name, row.subject))
                self.derived.changed(row)
                self.on_derived()
        return deps

    def _listen(self) -> None:
        """What families want to hear may be something else once they know more."""
        self.listens = frozenset[Seen]().union(*(family.sees for family in self._seers))

    def subs_changed(self, looked: Dep, filter: str) -> None:
        """Drops verdicts that looked at a connection's subscriptions, if the filter reaches their
        topic.

        If there are many, all are dropped: to compare each of them with each filter of a packet
        could take seconds. Each that is dropped was judged once, which cost more than this.
        """
        few = self.cache.resting(looked) <= LOOKED_AT
        reaches = reaching(filter)
        self.cache.invalidate((looked,), (lambda e: reaches(e.decision.topic)) if few else None)

    def greetings(self, who: Who) -> list[tuple[str, bytes]]:
        """What each family has to tell this client, with its name."""
        found = []
        for family in self._greeters:
            try:
                said = family.greet(who)
                if type(said) is not bytes or len(said) > NEWS:
                    raise TypeError(f"it greets with what cannot be told: {type(said)}")
            except Exception as error:  # a defect of one family must not keep the client out
                self._fault(family.name, "greet", error)
                continue
            if said:
                found.append((family.name, said))
        return found

    def command(
        self, who: Who, family: str, body: bytes, now_ms: int
    ) -> Proposal | Verdict | Later:
        """Conn.command."""
        if family == ATTRIBUTES:
            told = self.pushed.command(who, body, now_ms)
            shut = isinstance(told, Proposal) and told.records and self.closed
            return deny(CLOSED, CLOSED_REASON) if shut else told
        to = next((f for f in self.order if f.name == family), None)
        if to is None:
            return deny("engine.no-family", f"there is no policy family {family[:32]!r}")
        if self._judge.has_lost(family):
            # It would be judged by rows that the store no longer has.
            return deny("engine.exception", f"{family} has lost its state")
        got = self._commanded(family, lambda: to.command(who, body, now_ms))
        if isinstance(got, Later):
            return Later(partial(self._command_on, who, to, got.go_on))
        return self._checked(who, to, got)

    def feedback(
        self, who: Who, body: bytes, now_ms: int, reads: Callable[[str], bool]
    ) -> Proposal | Verdict:
        """Conn.command of the name `feedback`. reads: whether it subscribes to a topic."""
        if not self._raters:
            return deny("engine.no-feedback", "no policy family of this site takes feedback")
        try:
            said = feedback.read(body)
        except SealError as error:
            return deny("engine.feedback-malformed", str(error)[:200])
        if not reads(said.topic):
            return deny("engine.feedback-unread", "the client does not subscribe to the topic")
        to = self._raters[0]
        if self._judge.has_lost(to.name):
            return deny("engine.exception", f"{to.name} has lost its state")
        got = self._commanded(to.name, lambda: to.feedback(who, said, now_ms))
        return self._checked(who, to, got)

    def _command_on(
        self, who: Who, to: Family, go_on: Callable[[], object]
    ) -> Proposal | Verdict | None:
        got = self._commanded(to.name, go_on)
        return None if got is None else self._checked(who, to, got)

    def _commanded(self, family: str, work: Callable[[], object]) -> object:
        try:
            return work()
        except Exception as error:  # a defect of one family must not take the mediator down
            self._fault(family, "command", error)
            return deny("engine.exception", f"{family} failed on the command")

    def _checked(self, who: Who, to: Family, got: object) -> Proposal | Verdict:
        family = to.name
        if isinstance(got, Proposal):
            if got.records and self.closed:
                return deny(CLOSED, CLOSED_REASON)
            if not all(_own(record, to) for record in got.records):
                return deny("engine.bad-proposal", f"{family} proposed what is not its own")
            if strange := sorted(set(got.audit or ()) - AUDITED):
                return deny(
                    "engine.bad-proposal",
                    f"{family} would audit {', '.join(strange)}; a command's record has "
                    + ", ".join(sorted(AUDITED)),
                )
            if got.event != COMMAND:
                return deny("engine.bad-proposal", f"{family} would write no record of a command")
            if not _may_tell(got.tells):
                return deny("engine.bad-proposal", f"{family} would tell what cannot be told")
            if got.records:
                of = "" if got.for_site else who.client
                return replace(got, records=tuple(_counting(record, of) for record in got.records))
        return got if isinstance(got, (Proposal, Verdict)) else _no_answer(family)

    def _gone(self, deps: Iterable[Dep]) -> None:
        deps = tuple(deps)
        self.cache.invalidate(deps)
        self.following.gone(deps)

    def _all_gone(self) -> None:
        self.cache.clear()
        self.following.everything()

    def _told(self, family: Family, what: str, call: Callable[[], Iterable[Dep]]) -> None:
        try:
            self._gone(call())
        except Exception as error:  # a defect of one family must not take the mediator down
            self._fault(family.name, what, error)

    def _fault(self, family: str, question: str, error: Exception) -> None:
        self._on_fault(family, question, error)


def _nobody() -> None:
    """Who has no other workers."""


def _may_tell(tells: object) -> bool:
    return (
        isinstance(tells, tuple)
        and len(tells) <= TOLD
        and all(
            isinstance(one, tuple)
            and len(one) == 2
            and isinstance(one[0], str)
            and isinstance(one[1], bytes)
            and len(one[1]) <= NEWS
            for one in tells
        )
    )


def _silent(family: str, question: str, error: Exception) -> None:
    """For callers that do not want to hear of defects (tests, CLI)."""


def overriding(order: Sequence[Family], method: str) -> tuple[Family, ...]:
    """The families that override this method."""
    return tuple(f for f in order if getattr(type(f), method) is not getattr(Family, method))


def _no_answer(family: str) -> Verdict:
    return deny("engine.bad-verdict", f"{family} gave no answer to the command")


def _counting(record: Record, client: str) -> Record:
    """The record as one that counts on this client."""
    return replace(record, client=client) if isinstance(record, FamilyRecord) else record


def _own(record: Record, family: Family) -> bool:
    """Whether a family's command may propose the record."""
    if isinstance(record, FamilyRecord):
        return record.family == family.name
    return type(record) in family.records
