"""A worker's mediator that runs: built of its parts, with its tasks and its timer.

It is the same whether the worker is in the owner's process or in one of its own.
"""

from __future__ import annotations

import asyncio
from typing import Any

from sealmq.audit import Audit
from sealmq.audit.events import of_families
from sealmq.families.engine import Engine
from sealmq.families.faults import BrokenFamily
from sealmq.families.registry import load as load_families
from sealmq.store import StoreError
from sealmq.strangers import Strangers

from .links import BrokerAddress
from .mediator import Mediator, log
from .policy import taking
from .server import Channel
from .shared import Begin, Shared, totals_of

_TELL_S = 3
# Events that concern all workers alike: the first one writes them for all.
_OF_ALL = frozenset(
    {"broker-away", "broker-back", "config-reloaded", "kg-away", "kg-back", "policy-off",
     "site-closed", "site-reopened", "topic-reset"}
)  # fmt: skip


class WorkerAudit(Audit):
    """The audit log of a worker that is not the first."""

    def write(self, event: str, **fields: Any) -> None:
        """As Audit.write; nothing of what the first one writes for all."""
        if event not in _OF_ALL or fields.get("client") is not None:
            super().write(event, **fields)


class Running:
    """Mediates (shared.py). `close` ends it."""

    def __init__(self, begin: Begin, shared: Shared, mediator: Mediator, audit: Audit) -> None:
        self._begin, self._shared, self._audit = begin, shared, audit
        self.mediator = mediator
        self._said: dict[str, Any] = {}
        policy = mediator.policy
        self.apply, self.passed = policy.apply, mediator.passed
        self.take_attributes = policy.take_attributes
        self.took = mediator.site.retained_bytes.heard
        self.live, self.marked, self.inform = mediator.live, mediator.marked, mediator.inform
        self.take_ring, self.ended, self.reload = (
            mediator.take_ring, mediator.ended, policy.reload
        )  # fmt: skip
        self.reopened = mediator.reopened

    @property
    def strangers(self) -> Strangers:
        """Connections that have proved nothing."""
        return self.mediator.strangers

    async def run(self) -> None:
        """Until it is cancelled. Raises the error of a part that fails."""
        # Whether clients can connect is reported at once.
        self.mediator.changed = self._tell
        self._tell()
        tasks = [asyncio.create_task(work, name="mediator") for work in self.mediator.run()]
        tasks.append(asyncio.create_task(self._tick(), name="tick"))
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def stop(self) -> None:
        """Ends all sessions; wills are left to their grace."""
        self.mediator.stop("the mediator stops")
        await self.mediator.settle()

    async def written(self) -> bool:
        """After `stop`. Whether the store has all that was counted."""
        return await self.mediator.policy.write_counts()

    async def close(self) -> None:
        """Journal and audit log are written to their end."""
        await self.mediator.close()
        await asyncio.to_thread(self._audit.close)

    def connection(self, early: bytes) -> Channel:
        """For a connection of which these bytes have come."""
        return self.mediator.channel(early)

    def set_kg(self, there: bool) -> None:
        """The key generator came or went."""
        self.mediator.kg_requests.take_kg(self._shared.kg if there else None)

    def links_came(self, client: int, links: list[dict[str, Any]]) -> None:
        """A client's link slots, newer than the keyring."""
        self.mediator.site.ring.set_links(client, links)

    async def _tick(self) -> None:
        loop = asyncio.get_running_loop()
        mediator = self.mediator
        while True:
            due = loop.time() + 1.0
            await asyncio.sleep(1.0)
            self._measure(loop.time() - due)
            mediator.tick()
            if mediator.site.clock_fell():
                await self._follow_clock()
            if round(loop.time()) % _TELL_S == 0:
                self._tell()

    # For metrics (metrics/exposition.py names them).
    def _measure(self, lag_s: float) -> None:
        if self._audit.totals is None:
            return
        mediator = self.mediator
        journal, handover = mediator.journal.state(), mediator.handover()
        aside = mediator.aside.state()
        labels, held = handover["labels"], handover["held"]
        gauges = self._audit.totals.gauges
        gauges["loop_lag_seconds"] = max(0.0, lag_s)
        gauges["publish_seconds"] = mediator.latency.seconds
        gauges["publish_count"] = mediator.latency.count
        gauges["handover_labels"] = len(labels) if isinstance(labels, dict) else 0
        gauges["handover_waiting"] = held if isinstance(held, int) else 0
        gauges["stuck_sessions"] = len(mediator.kept_sessions.stuck)
        gauges["set_aside"] = int(aside["count"]) if aside else 0
        if journal is not None:
            gauges["journal_bytes"] = journal["bytes"]
            gauges["journal_segments"] = journal["segments"]

    # If the clock was set back, our stamps would be ahead of it for long (SPEC.md 5, point 4).
    async def _follow_clock(self) -> None:
        try:
            ring = await self._shared.renew()
        except StoreError as error:
            log.error("the clock was set back, and no new instance number can be stored: %s", error)
            return
        if ring is None:
            log.error("the clock was set back, and no instance number is in reserve")
            return
        log.warning("the clock was set back; going on as instance %d", ring.inst)
        self.mediator.take_ring(ring)

    # For `sealmq status`.
    def _tell(self) -> None:
        mediator = self.mediator
        stuck = [[name, key[1][:100]] for key, name in mediator.kept_sessions.stuck.items()]
        news: dict[str, Any] = {
            "journal": mediator.journal.state(),
            "handover": mediator.handover(),
            "away": mediator.away,
            "aside": mediator.aside.state(),
            "stuck": {"count": len(stuck), "some": stuck[:3]} if stuck else None,
            "closed": mediator.site.engine.closed,
            "lost": mediator.site.engine.lost,
        }
        if news != self._said:
            self._said = news
            self._shared.tell(news)


async def build(begin: Begin, shared: Shared, audit: Audit | None = None) -> Running:
    """A mediator for what it begins with. Raises errors meant for the operator.

    audit: of its process; without one it opens one of its own.
    """
    address = BrokerAddress.of(begin.broker)
    config, ring = begin.config, begin.ring
    if audit is None:
        layout = begin.layout
        kind = Audit if begin.first else WorkerAudit
        audit = kind(
            layout.audit("mediator"), "mediator", ring.inst, ring.site.hex(),
            spare=layout.state_of("mediator"), more=of_families(config.policy.order),
            chain=begin.chain, totals=totals_of(layout, config, str(begin.number)),
        )  # fmt: skip
    mediator: Mediator | None = None
    early: list[tuple[str, str, Exception]] = []

    def fault(family: str, question: str, error: Exception) -> None:
        if mediator is None:
            early.append((family, question, error))
        else:
            mediator.policy.fault(family, question, error)

    engine = Engine(
        load_families(config.policy.order),
        site=ring.site.hex(),
        enforce=config.policy.enforce,
        on_fault=fault,
    )
    engine.close_site(ring.closed)
    engine.counts.blind_ms = begin.blind_ms
    with taking():
        records = engine.load(config, shared.store.records())
    engine.take_told(ring.told)
    if engine.noted(ring.bearers()) and begin.first:
        try:
            records += engine.bearers(ring.bearers(), shared.store.records)
        except BrokenFamily as error:
            engine.no_bearers(error)
    mediator = Mediator(begin, shared, engine, audit, address)
    for found in early:
        mediator.policy.fault(*found)
    await mediator.policy.wanted(records)
    return Running(begin, shared, mediator, audit)
