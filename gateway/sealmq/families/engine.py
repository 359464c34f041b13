"""The policy engine: the families' configuration and state, and who is connected; what these ask
is in questions.py. Sync, no I/O; one thread (the mediator's loop).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from sealmq_spec.errors import Denied, RateLimited, SealError

from . import counts, faults
from .api import (
    Family,
    FamilyConfigError,
    FamilyRecord,
    OnlyFrom,
    Policy,
    Record,
    SealToGrant,
    SealToLink,
    Verdict,
)
from .ask import ATTRIBUTE, Who
from .attributes import Attribute
from .conn import Conn, Key
from .decision import RULES, Decision, Vote
from .judge import OnFault
from .questions import Questions, overriding

__all__ = ["Conn", "Decision", "Engine", "Reloaded", "Vote"]

OFF = (
    "POLICY IS OFF ([policy] enforce = false): everything is allowed and only recorded; "
    "never run a site like this"
)


SEALED = (
    "each message is sealed to the reader's own link: no other client opens what is captured there"
)

TO_GRANT = (
    "each message is sealed to those who hold {name} of {family}: no other client opens what is "
    "captured there"
)

REOPEN = "nothing is delivered and no topic gets a label before `sealmq reopen`"

SHOWN = 20
"""Names of senders in a line."""

CLEARED = 1000
"""Cached verdicts that have ended and are taken out with each tick, if no new ones come."""


class Reloaded(NamedTuple):
    """After a change of configuration: records to commit and apply, connections to ask again.

    `connections` are those whose Who changed (label, kind, gone): ask `connect` again and end the
    connection on a deny.
    """

    records: list[Record]
    connections: list[Conn]


class Engine(Questions[Key]):
    """The families in their order, and all connections."""

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
        super().__init__(order, cache_size, enforce, on_fault)
        # Rises with what commands are judged by: rows that families keep, and the configuration.
        self.applied = 0
        self._site = site
        self._config: Policy | None = None
        self._conns: set[Conn] = set()
        self._made = 0
        self._tickers = overriding(self.order, "tick")
        self._hearers = overriding(self.order, "told")
        self._rate_rules = frozenset().union(*(family.rate_rules for family in self.order))
        self.opens = any(family.opens for family in self.order)
        """Whether a family's `deliver` looks into the envelope: give it tlv, and so on."""

    # Configuration and state

    def load(self, config: Policy, records: Iterable[Record]) -> list[Record]:
        """Start-up: index the store's records, then the configuration.

        Gives records to commit and then to apply, before the first question. FamilyConfigError,
        BrokenFamily.
        """
        records = tuple(records)
        self.counts.take(
            r for r in records if isinstance(r, FamilyRecord) and r.family == counts.FAMILY
        )
        self.apply(records)
        return self._configure(config)

    def reload(self, config: Policy, *, enforce: bool | None = None) -> Reloaded:
        """The configuration changed; drops exactly the cached verdicts that it reaches.

        If a family raises, all of them have the old configuration again. As `load`.
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
            try:
                change = family.configure(config)
            except FamilyConfigError:
                raise
            except Exception as error:
                raise faults.BrokenFamily(family.name, "configure", error) from error
            self._gone(change.deps)
            records.extend(change.records)
        self._declare(config)
        self._config = config
        self.applied += 1
        self._listen()
        return records

    def _declare(self, config: Policy) -> None:
        declared = config.attributes
        changed = self.attributes.declare(declared)
        self.counts.declare(declared)
        self.derived.declare(declared)
        if changed:
            deps = (*self.cache.all_deps(), *self.following.all_deps())
            self._gone([dep for dep in deps if dep[0] == ATTRIBUTE and dep[1] in changed])
        self._hold(self.pushed.declare(declared, config.clients))

    def apply(self, records: Iterable[Record]) -> None:
        """What the store says holds, own or from elsewhere."""
        batch = tuple(records)
        if not batch:
            return
        self._hold(self.pushed.apply(batch))
        self.applied += any(isinstance(record, FamilyRecord) for record in batch)
        for family in self.order:
            theirs = _for(family, batch)
            try:
                if theirs:
                    self._gone(family.apply(theirs))
            except Exception as error:  # an index that is not the store's must allow nothing
                self._lost(family.name, "apply", error)
        self._listen()

    def take_told(self, told: Mapping[str, Mapping[str, bytes]]) -> None:
        """What the key generator's parts of families tell, by family: all that there is now."""
        for family in self._hearers:
            try:
                self._gone(family.told(told.get(family.name, {})))
            except Exception as error:  # what it goes by is not what was told: it allows nothing
                self._lost(family.name, "told", error)

    def _lost(self, family: str, what: str, error: Exception) -> None:
        self._fault(family, what, error)
        self._judge.lost(family, f"{what}, {faults.shown(error)}")
        self._all_gone()

    @property
    def lost(self) -> str:
        """Why nobody is allowed anything: a family has failed to index what the store holds."""
        return "; ".join(
            f"the policy family {name!r} has failed at {why}, and allows nothing before the "
            "mediator's next start"
            for name, why in self._judge.lost_state.items()
        )

    def take_attributes(self, rows: Iterable[Attribute]) -> None:
        """What sources tell, here or at another worker; verdicts that rest on it go."""
        self._hold(row for row in rows if not self.derived.own(row))

    def take_derived(self) -> list[Attribute]:
        """What families have derived from events here and the other workers do not know. Until
        `told_derived` what comes from others about the same is not taken.
        """
        return self.derived.take()

    def told_derived(self, sent: Sequence[Attribute], rows: Iterable[Attribute]) -> None:
        """The other workers know what was `sent`; `rows`: what counts of it now, since another one
        may have been later.
        """
        self.derived.settled(sent)
        self.take_attributes(rows)

    def _hold(self, rows: Iterable[Attribute]) -> None:
        self._gone([(ATTRIBUTE, *row[:2]) for row in rows if self.attributes.take(row)])

    def clock_set(self) -> None:
        """The clock was set: until when an answer holds was said by the time before."""
        self._all_gone()

    def tick(self, now_ms: int) -> None:
        """Call about once a second."""
        for family in self._tickers:
            self._told(family, "tick", partial(family.tick, now_ms))
        self.following.tick(now_ms)
        self.cache.clear_out(CLEARED)
        self.counts.clear_out(now_ms)

    def due(self) -> list[Key]:
        """Followed subscriptions (Conn, filter as it arrived) whose answer may have changed: ask
        Conn.again about each. Call this after apply, reload, take_attributes, clock_set and tick.
        """
        return self.following.take()

    def noted(self, since: Mapping[str, int]) -> bool:
        """Whether clients bear names that others had: then `bearers` has something to do. Verdicts
        may rest on what those have said: none stands.
        """
        noted, rows = self.pushed.noted(since)
        self._hold([*rows, *self.attributes.noted(since)])
        for family in self.order:
            try:
                noted = bool(family.noted(since)) or noted
            except Exception as error:  # it may go by what others have made: it allows nothing
                self._lost(family.name, "noted", error)
                noted = True
        if noted:
            self._all_gone()
        return noted

    def bearers(
        self, since: Mapping[str, int], rows: Callable[[], Iterable[Record]]
    ) -> list[Record]:
        """Family.bearers of all; pure, for any thread. BrokenFamily: to be told to `no_bearers`."""
        records = self.pushed.bearers(since, rows)
        for family in self.order:
            try:
                records += family.bearers(since, rows)
            except Exception as error:
                raise faults.BrokenFamily(family.name, "bearers", error) from error
        return records

    def no_bearers(self, error: faults.BrokenFamily) -> None:
        """A family has failed at `bearers`: it allows nothing."""
        cause = error.__cause__
        self._lost(error.name, "bearers", cause if isinstance(cause, Exception) else error)

    def close_site(self, reason: str) -> None:
        """Nothing that a label or consent protects is opened while `reason` is not ""."""
        self.closed = reason
        self._all_gone()

    # Connections

    def who(self, client: str, number: int = 0) -> Who:
        """The client after the present configuration; label `none` if it is not in there."""
        known = self._config.clients.get(client) if self._config is not None else None
        if known is None:
            return Who(client, number, "unknown", self._site, "none")
        label = "none" if known.disabled else known.label
        return Who(client, number, known.kind, self._site, label)

    def connection(self, who: Who) -> Conn:
        """A connection of that client, with the one Ask that it reuses."""
        self._made += 1
        conn = Conn(self, who, self._made, self._conns.discard)
        self._conns.add(conn)
        return conn

    def refusal(self, rule: str, reason: str) -> SealError:
        """What is told to a client that a family, or the engine, refuses something by this rule."""
        error = (RateLimited if rule in self._rate_rules else Denied)(reason)
        error.rule = rule
        return error

    # Words

    def explain(self, conn: Conn, decision: Decision) -> list[str]:
        """Plain lines that explain a decision that this connection got: one for each family that
        was asked, with the meaning of its rule, then the families' own.
        """
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
        if SealToLink() in decision.duties:
            lines.append(SEALED)
        for duty in decision.duties:
            if isinstance(duty, OnlyFrom):
                lines.append(f"only messages of {_few(sorted(duty.senders))}")
            elif isinstance(duty, SealToGrant):
                lines.append(TO_GRANT.format(name=duty.name, family=duty.family))
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

    def passes(self, family: str) -> frozenset[int] | None:
        """Types (without the critical bit) of items that go on to readers from under a grant of
        this family: those of other families that are not its own as well. None: it is not in the
        order, and nobody judges what it demands.
        """
        its = next((one.tlvs for one in self.order if one.name == family), None)
        if its is None:
            return None
        return frozenset().union(*(one.tlvs for one in self.order if one.name != family)) - its

    @property
    def warnings(self) -> list[str]:
        """What has to be said loudly at start, at reload and in status."""
        closed = [f"THE SITE IS CLOSED: {self.closed}; {REOPEN}"] if self.closed else []
        return closed if self.enforce else [*closed, OFF]


def _for(family: Family, batch: Sequence[Record]) -> tuple[Record, ...]:
    """What `apply` of this family gets."""
    types = family.records | family.reads
    return tuple(
        record
        for record in batch
        if type(record) in types
        or (isinstance(record, FamilyRecord) and record.family == family.name)
    )


def _few(names: Sequence[str]) -> str:
    more = len(names) - SHOWN
    return (", ".join(names[:SHOWN]) or "nobody") + (f" and {more} more" if more > 0 else "")
