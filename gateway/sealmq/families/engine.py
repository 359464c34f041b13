"""The policy engine: asks the families in their fixed order; the first deny wins.

Anything but an explicit allow is a deny: an exception, an unknown fact, a duty outside the closed
set, a rule that is in no table, an empty order. Sync, no I/O; one thread (the mediator's loop).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from .api import (
    AUDITED,
    Dep,
    Family,
    FamilyRecord,
    NotYet,
    Policy,
    Proposal,
    Record,
    Seen,
    Verdict,
    check_family,
    deny,
)
from .ask import Ask, Who
from .cache import Cache, Entry, Slot
from .conn import Conn, sub_matches
from .decision import (
    CLOSED,
    CLOSED_REASON,
    ENGINE,
    RULES,
    Decision,
    Refused,
    Vote,
    when_closed,
)
from .facts import Facts
from .following import Following, Key
from .judge import Judge, OnFault, Trace

__all__ = ["Conn", "Decision", "Engine", "Entry", "Reloaded", "Vote"]

OFF = (
    "POLICY IS OFF ([policy] enforce = false): everything is allowed and only recorded; "
    "never run a site like this"
)


REOPEN = "nothing is delivered and no topic gets a label before `sealmq reopen`"

CLEARED = 1000
"""Cached verdicts that have ended and are taken out with each tick, if no new ones come."""

LOOKED_AT = 256
"""Cached verdicts of a connection that are looked at one by one when a subscription changes."""


class Reloaded(NamedTuple):
    """After a change of configuration: records to commit and apply, connections to ask again.

    `connections` are those whose Who changed (label, kind, gone): ask `connect` again and end the
    connection on a deny.
    """

    records: list[Record]
    connections: list[Conn]


class Engine:
    """The families in their order, the cache of merged verdicts, the facts."""

    def __init__(
        self,
        order: Sequence[Family],
        cache_size: int = 100_000,
        *,
        site: str = "",
        enforce: bool = True,
        on_fault: OnFault | None = None,
    ) -> None:
        """`on_fault(family, question, error)` hears of defects in families (for log and audit).

        UnfitFamily for a family that asks for what the mediator does not do.
        """
        names = [family.name for family in order]
        if len(set(names)) != len(names) or ENGINE in names:
            raise ValueError(f"every family stands once in the order: {', '.join(names)}")
        for family in order:
            check_family(family)
        self.order = tuple(order)
        self.enforce = enforce
        self.closed = ""
        # Rises with what commands are judged by: rows that families keep, and the configuration.
        self.applied = 0
        self.facts = Facts()
        self.trace = Trace(self.facts)
        self.cache = Cache(cache_size)
        self.following = Following()
        self._site = site
        self._on_fault: OnFault = on_fault or _silent
        self._judge = Judge(self.order, self.trace, self._fault)
        self._config: Policy | None = None
        self._conns: set[Conn] = set()
        self._made = 0
        self._seers = _overriding(self.order, "see")
        self._tickers = _overriding(self.order, "tick")
        self.listens = bool(self._seers)
        self.opens = any(family.opens for family in self.order)
        """Whether a family's `deliver` looks into the envelope: give it tlv, sender, and so on."""
        self.parses = self._judge.parses
        self.parse = self._judge.parse

    # Configuration and state

    def load(self, config: Policy, records: Iterable[Record]) -> list[Record]:
        """Start-up: index the store's records, then the configuration.

        Gives records to commit and then to apply, before the first question.
        """
        self.apply(records)
        return self._configure(config)

    def reload(self, config: Policy, *, enforce: bool | None = None) -> Reloaded:
        """The configuration changed; drops exactly the cached verdicts that it reaches.

        If a family raises, all of them have the old configuration again.
        """
        before = self._config
        try:
            records = self._configure(config)
        except Exception:
            self._all_gone()
            if before is not None:
                self._configure(before)
            raise
        if enforce is not None and enforce != self.enforce:
            self.enforce = enforce
            self._all_gone()
        changed = []
        for conn in self._conns:
            who = self.who(conn.who.client, conn.who.number)
            if who != conn.who:
                conn.ask.who = who
                self.cache.drop_slots(conn.slots())
                self.following.all_of(conn.held())
                changed.append(conn)
        return Reloaded(records, changed)

    def _configure(self, config: Policy) -> list[Record]:
        records: list[Record] = []
        for family in self.order:
            change = family.configure(config)
            self._gone(change.deps)
            records.extend(change.records)
        self._config = config
        self.applied += 1
        return records

    def apply(self, records: Iterable[Record]) -> None:
        """What the store says holds, own or from elsewhere."""
        batch = tuple(records)
        if not batch:
            return
        self.applied += any(isinstance(record, FamilyRecord) for record in batch)
        for family in self.order:
            try:
                self._gone(family.apply(batch))
            except Exception as error:  # an index that is not the store's must allow nothing
                self._fault(family.name, "apply", error)
                self._judge.lost(family.name)
                self._all_gone()

    def push_fact(self, name: str, value: Any, valid_until_ms: int, subject: str = "") -> None:
        """A named task tells a fact and how long it holds; verdicts that rest on it go."""
        self.facts.push(name, value, valid_until_ms, subject)
        self._gone((("fact", name, subject),))

    def tick(self, now_ms: int) -> None:
        """Call about once a second."""
        for family in self._tickers:
            self._told(family, "tick", partial(family.tick, now_ms))
        self.following.tick(now_ms)
        self.cache.clear_out(CLEARED)

    def due(self) -> list[Key]:
        """Followed subscriptions (Conn, filter as it arrived) whose answer may have changed: ask
        Conn.again about each. Look behind apply, reload, push_fact and tick.
        """
        return self.following.take()

    def _gone(self, deps: Iterable[Dep]) -> None:
        deps = tuple(deps)
        self.cache.invalidate(deps)
        self.following.gone(deps)

    def _all_gone(self) -> None:
        self.cache.clear()
        self.following.everything()

    def noted(self, since: Mapping[str, int]) -> bool:
        """Whether clients bear names that others had: then `bearers` has something to do."""
        return any([family.noted(since) for family in self.order])

    def bearers(
        self, since: Mapping[str, int], rows: Callable[[], Iterable[Record]]
    ) -> list[Record]:
        """Family.bearers of all; pure, for any thread."""
        return [record for family in self.order for record in family.bearers(since, rows)]

    def close_site(self, reason: str) -> None:
        """Nothing that a label or consent protects is opened while `reason` is not ""."""
        self.closed = reason
        self._all_gone()

    # Connections

    def who(self, client: str, number: int = 0) -> Who:
        """The client after the present configuration; label `none` if it is not in there."""
        known = self._config.clients.get(client) if self._config is not None else None
        if known is None:
            return Who(client, number, client, "unknown", self._site, "none", ())
        label = "none" if known.disabled else known.label
        return Who(client, number, client, known.kind, self._site, label, (label,))

    def connection(self, who: Who) -> Conn:
        """A connection of that client, with the one Ask that it reuses."""
        self._made += 1
        conn = Conn(self, who, self._made)
        self._conns.add(conn)
        return conn

    def close(self, conn: Conn, now_ms: int) -> None:
        """Conn.close."""
        if conn not in self._conns:
            return
        self._conns.discard(conn)
        self.cache.drop_slots(conn.slots())
        for key in conn.held():
            self.following.drop(key)
        conn.saw("gone", "", now_ms)

    # Questions (called by Conn)

    def judge(self, ask: Ask, slot: Slot, key: str) -> Decision:
        """Ask the families and keep the answer as long as it may be kept."""
        while (decision := self.judge_slice(ask, slot, key)) is None:
            pass
        return decision

    def judge_slice(self, ask: Ask, slot: Slot, key: str) -> Decision | None:
        """The same, as far as a family goes at once; None: ask again, and it goes on."""
        try:
            decision = self._judge.decide(ask)
        except NotYet:
            return None
        if not decision.allow and not self.enforce:
            decision = replace(decision, allow=True, overridden=True, duties=(), label=None)
        if self.closed:
            decision = when_closed(decision)
        if ask.now_ms < decision.until:
            self.cache.put(slot, key, ask.label, decision)
        return decision

    def see(self, what: Seen, ask: Ask) -> None:
        """Tell the families that want to know."""
        self.trace.begin()
        if self.parses and ask.raw:
            try:
                self.parse(ask)
            except Refused:
                ask.topic = ask.raw
        for family in self._seers:
            self._told(family, what, partial(family.see, what, ask))

    def subs_changed(self, conn_id: str, filter: str) -> None:
        """Verdicts that looked at the subscriptions go, if the filter reaches their topic.

        Of many all go: to look at each for each filter of a packet would take the loop seconds,
        and one that goes has been judged once, which is dearer.
        """
        dep = ("subs", conn_id)
        few = self.cache.resting(dep) <= LOOKED_AT
        self.cache.invalidate(
            (dep,), (lambda e: sub_matches(filter, e.decision.topic)) if few else None
        )

    def command(self, who: Who, family: str, body: bytes, now_ms: int) -> Proposal | Verdict:
        """Conn.command."""
        to = next((f for f in self.order if f.name == family), None)
        if to is None:
            return deny("engine.no-family", f"there is no policy family {family[:32]!r}")
        if self._judge.has_lost(family):
            # It would be judged by what the store no longer says.
            return deny("engine.exception", f"{family} has lost its state")
        try:
            got: object = to.command(who, body, now_ms)
        except Exception as error:  # a defect of one family must not take the mediator down
            self._fault(family, "command", error)
            return deny("engine.exception", f"{family} failed on the command")
        if isinstance(got, Proposal):
            if got.records and self.closed:
                return deny(CLOSED, CLOSED_REASON)
            if not all(_own(record, family) for record in got.records):
                return deny("engine.bad-proposal", f"{family} proposed what is not its own")
            if not AUDITED.issuperset(got.audit or ()):
                return deny("engine.bad-proposal", f"{family} would audit unknown fields")
        return got if isinstance(got, (Proposal, Verdict)) else _no_answer(family)

    # Words

    def explain(self, conn: Conn, decision: Decision) -> list[str]:
        """Plain lines behind a decision that this connection got: one for each family that was
        asked, with the meaning of its rule, then the families' own."""
        conn.ask.fill(decision.question, decision.raw, conn.ask.now_ms)
        conn.ask.topic, conn.ask.notes = decision.topic, dict(decision.notes)
        lines = []
        for vote in decision.votes:
            meaning = self.rules.get(vote.rule, "")
            lines.append(f"{vote.rule}: {meaning} ({vote.reason})")
        for family in self.order:
            for vote in decision.votes:
                if vote.family == family.name:
                    verdict = Verdict(decision.allow, vote.rule, vote.reason)
                    lines.extend(family.explain(conn.ask, verdict))
        if decision.overridden:
            lines.append(OFF)
        return lines

    @property
    def rules(self) -> dict[str, str]:
        """Every rule id there is, with its plain line."""
        table = dict(RULES)
        for family in self.order:
            table.update(family.rules)
        return table

    @property
    def tlvs(self) -> frozenset[int]:
        """TLV types that the families understand (without the critical bit)."""
        return frozenset().union(*(family.tlvs for family in self.order))

    @property
    def warnings(self) -> list[str]:
        """What has to be said loudly at start, at reload and in status."""
        closed = [f"THE SITE IS CLOSED: {self.closed}; {REOPEN}"] if self.closed else []
        return closed if self.enforce else [*closed, OFF]

    # Defects

    def _told(self, family: Family, what: str, call: Callable[[], Iterable[Dep]]) -> None:
        try:
            self._gone(call())
        except Exception as error:  # a defect of one family must not take the mediator down
            self._fault(family.name, what, error)

    def _fault(self, family: str, question: str, error: Exception) -> None:
        self._on_fault(family, question, error)


def _silent(family: str, question: str, error: Exception) -> None:
    """Nobody listens for defects (tests, CLI)."""


def _overriding(order: Sequence[Family], method: str) -> tuple[Family, ...]:
    return tuple(f for f in order if getattr(type(f), method) is not getattr(Family, method))


def _no_answer(family: str) -> Verdict:
    return deny("engine.bad-verdict", f"{family} gave no answer to the command")


def _own(record: Record, family: str) -> bool:
    """Whether a family's command may propose the record; topics' labels are those of `labels`."""
    return record.family == family if isinstance(record, FamilyRecord) else family == "labels"
