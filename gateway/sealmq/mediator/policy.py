"""What one worker judges by: its policy engine, kept in step with the store, sealmq.toml, keys,
attributes that sources tell, and the other workers.

When a method here returns, nothing is judged by what was before. What follows for subscriptions
that are there comes in steps: no delivery waits for it, since each is judged by what is in force.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable, Iterator
from functools import partial

from sealmq.audit import Audit
from sealmq.families import faults
from sealmq.families.api import FamilyConfigError, FamilyError
from sealmq.families.attributes import Attribute
from sealmq.families.engine import OFF, Conn
from sealmq.families.records import Record, TopicReset
from sealmq.site.config import Config
from sealmq.site.errors import SiteError
from sealmq.store import Held, StoreError, StoreRecord

from .core.keyring import Keyring
from .core.site import Site
from .events import Events
from .questions import Questions
from .shared import Begin, Shared
from .steps import Steps

log = logging.getLogger("sealmq.mediator")

# How late other workers hear what families derive from events here.
_DERIVED_S = 0.05


@contextlib.contextmanager
def taking() -> Iterator[None]:
    """A family that does not take a configuration is said in an operator's words: SiteError."""
    try:
        yield
    except FamilyConfigError as error:
        raise SiteError(f"a policy family does not take it: {error}", error.hint) from error
    except FamilyError as error:
        raise SiteError(str(error), error.hint) from error


class Policy:
    """`taken`: called when a sealmq.toml has been taken over, before sessions hear of it."""

    def __init__(
        self,
        begin: Begin,
        shared: Shared,
        site: Site,
        audit: Audit,
        events: Events,
        questions: Questions,
        steps: Steps,
        taken: Callable[[Config], None],
    ) -> None:
        self._begin, self._shared, self._site, self._audit = begin, shared, site, audit
        self._store, self._locks, self._engine = shared.store, shared.locks, site.engine
        self._events, self._agenda = events, events.agenda
        self._questions, self._steps, self._taken = questions, steps, taken
        # Subscriptions about which the policy is to be asked again.
        self._due: dict[Conn, dict[str, None]] = {}
        self._counting = asyncio.Lock()
        self._telling = False
        # Of a sealmq.toml that the engine goes by, and that is not taken over as a whole: the
        # connections that it reaches. None: there is no such file.
        self._reached: dict[Conn, None] | None = None
        self._engine.on_derived = self._tell_derived

    def tick(self) -> None:
        """About once a second."""
        self._engine.tick(self._site.now_ms)
        self.follow()
        if self._engine.counts.news:
            self._questions.spawn(self._write_counts(), "counts")

    def clock_set(self) -> None:
        """The wall clock was set."""
        self._engine.clock_set()
        self.follow()

    def fault(self, family: str, question: str, error: Exception) -> None:
        """A family failed; the engine has made a deny of it."""
        where = faults.place(error)[1] or "no line of it"
        log.error("the policy family %s failed at %s: %r (%s)", family, question, error, where)
        reason = faults.shown(error)
        self._audit.write("family-fault", family=family, question=question, reason=reason)

    def warn(self) -> None:
        """Says loudly, in the log and in the audit, what weakens this site."""
        for warning in self._engine.warnings:
            if self._begin.first:
                log.warning("%s", warning)
            event = "policy-off" if warning == OFF else "site-closed"
            self._audit.write(event, reason=warning)

    # --- records ---

    async def commit(self, records: list[StoreRecord], urgent: bool = False) -> list[Held]:
        """Makes records durable, then lets the families index what really holds. Raises
        StoreUnavailable.
        """
        held = await self._store.commit(records, urgent)
        self.index(held)
        self.follow()
        return held

    def index(self, held: Iterable[Held]) -> None:
        """What the store holds counts; `follow` comes after."""
        self._engine.apply([h.record for h in held if isinstance(h.record, Record)])

    def apply(self, records: list[Record], part: str = "") -> None:
        """Applies what another worker has committed. `part`: a topic filter; what was counted of
        readers there is written to the audit log first.
        """
        if part:
            self._audit.part(part)
        self._engine.apply(records)
        self.follow()

    async def _write_counts(self) -> None:
        await self.write_counts()

    async def write_counts(self) -> bool:
        """Has the store keep what was counted since the last time. Whether it has."""
        counts = self._engine.counts
        async with self._counting:
            rows = counts.changed()
            try:
                if rows:
                    await self._store.commit(rows)
            except StoreError:
                counts.not_stored(rows)
                return False
        return True

    # --- attributes ---

    def take_attributes(self, rows: list[Attribute]) -> None:
        """What sources have told."""
        self._engine.take_attributes(rows)
        self.follow()

    # Many events that come together are told together, and of each value the last.
    def _tell_derived(self) -> None:
        if not self._telling:
            self._telling = True
            self._questions.spawn(self._derived(), "derived attributes")

    async def _derived(self) -> None:
        try:
            await asyncio.sleep(_DERIVED_S)
        finally:
            self._telling = False
        sent = self._engine.take_derived()
        rows = await self._shared.derived(sent)
        self._engine.told_derived(sent, rows)
        self.follow()

    # --- subscriptions that are there ---

    def follow(self) -> None:
        """Pauses or resumes subscriptions that the policy may judge otherwise now.

        One command may concern very many: they are judged in steps, and others are served between.
        """
        waits = bool(self._due)
        for conn, raw in self._engine.due():
            self._due.setdefault(conn, {})[raw] = None
        if self._due and not waits:
            self._steps.add(self._follow_one)

    # One session at a time; a session gives others turns between its filters.
    def _follow_one(self) -> None:
        conn = next(iter(self._due))
        raws = self._due.pop(conn)
        session = self._agenda.by_policy.get(conn)
        if session is not None:
            self._events.run(session.subs.due, raws)
        if self._due:
            self._steps.add(self._follow_one)

    # --- sealmq.toml ---

    async def reload(self, config: Config) -> None:
        """Takes a changed sealmq.toml over, live; nothing happens if it says the same as before.

        Raises StoreUnavailable: then what a family wanted to store is asked of it again, with this
        file or with the one before, should that be put back. SiteError, if a family does not take
        it, by what it knows here: what was in force stays in force.
        """
        site, engine = self._site, self._engine
        if config == site.config and self._reached is None:
            site.config = config  # its text may be another one
            return
        if config.site.id != site.ring.site:
            # The key generator refuses it too: nothing of such a file counts.
            log.error("sealmq.toml is not taken over: it names another site's id")
            return
        self._say_later(config)
        with taking():
            reloaded = engine.reload(config, enforce=config.policy.enforce)
        self._reached = {**(self._reached or {}), **dict.fromkeys(reloaded.connections)}
        await self.wanted(reloaded.records)
        site.config = config
        self._taken(config)
        self._audit.write(
            "config-reloaded", enforce=engine.enforce, order=list(config.policy.order)
        )
        self.warn()
        reached, self._reached = self._reached, None
        for conn in reached:
            session = self._agenda.by_policy.get(conn)
            if session is not None:
                self._events.run(session.policy_changed)
        self.follow()

    async def wanted(self, records: Iterable[Record]) -> None:
        """Stores what families want by a configuration. Raises StoreUnavailable."""
        records = list(records)
        await self.commit([*records], urgent=True)
        for record in records:
            if isinstance(record, TopicReset):
                self._audit.write("topic-reset", topic=record.topic)

    # Says what is in force only from the next start on.
    def _say_later(self, config: Config) -> None:
        before = self._site.config
        if not self._begin.first:
            return
        if config.policy.order != before.policy.order:
            log.warning("[policy] order is taken over at the next start")
        if config.mediator != before.mediator:
            log.warning("[mediator] is taken over at the next start, but for on_denied")
        queues = [(c.limits.queue_messages, c.limits.queue_kib) for c in (config, before)]
        if queues[0] != queues[1]:
            log.warning("[limits] queue_messages and queue_kib are taken over at the next start")

    # --- keys ---

    def take_keys(self, ring: Keyring, before: Keyring) -> bool:
        """There are new keys. Whether families were told something with them: `follow` is due."""
        told = ring.told != before.told
        if told:
            self._engine.take_told(ring.told)
        if ring.bearers() != before.bearers():
            self._new_bearers(ring.bearers())
        return told

    # Clients have names that others had before: what those made or left is not theirs.
    def _new_bearers(self, since: dict[str, int]) -> None:
        if self._engine.noted(since) and self._begin.first:
            self._questions.spawn(self._rewrite(since), "rows of clients that are gone")

    # There may be a million rows. What is not done now is done at the next start.
    async def _rewrite(self, since: dict[str, int]) -> None:
        await self._locks.alone()
        try:
            bearers = partial(self._engine.bearers, since, self._store.records)
            await self.commit(list(await asyncio.to_thread(bearers)))
        except faults.BrokenFamily as error:
            self._engine.no_bearers(error)
        finally:
            self._locks.together()

    def close_site(self, reason: str) -> bool:
        """The key generator says why nothing may be opened, or "". Whether that is new: then all
        clients connect anew, since their connections and subscriptions were judged otherwise.
        """
        if reason == self._engine.closed:
            return False
        self._engine.close_site(reason)
        if reason:
            self.warn()
        else:
            log.warning("the site was reopened")
            self._audit.write("site-reopened")
        return True
