"""When wills fire. If the client itself ended, its will fires at once; if mediator or broker ended
the connection, it fires unless (client, client id) returns within a grace.

A will is on disk from its CONNECT until the broker has it, so it outlives this process. One that
fires twice (this process was killed between PUBACK and the store) has the same counter both times,
so readers take it once. It goes the way of its client's messages, so it overtakes none of them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from sealmq.audit import Audit
from sealmq.families.engine import Conn
from sealmq.store import Held, StoreError, StoreRecord, WillRecord
from sealmq.store.left import gone
from sealmq_spec.errors import SealError

from .control_link import ControlLink
from .core.denied import DeniedByRule
from .core.inbound import labelled, new_label
from .core.refusals import JOURNAL_PART
from .core.site import Site
from .journal import Journal
from .links import NotTaken
from .shared import SharedStore
from .wills import Fired, check_client, fire, judge, seal, taken

log = logging.getLogger("sealmq.mediator")

GRACE_S = 5.0
_FORGET_PAUSES_S = (0.2, 1, 5, 15, 60)

Key = tuple[int, str]
Publish = Callable[[bytes, bytes, int, bool, int, int], Awaitable[None]]
Commit = Callable[[list[StoreRecord]], Awaitable[list[Held]]]
Aside = Callable[[bytes, bytes, int, bool, int, str], Awaitable[None]]


class WillKeeper:
    """The wills of connections that have ended, as long as they have not fired.

    `publish`: topic, payload, QoS, RETAIN, client and its generation; returns when the broker has
    it, raises NotTaken, and SealError if the client may not any more. `aside`: topic, payload, QoS,
    RETAIN, client, and why the broker does not take it. `commit`: as Policy.commit.
    """

    def __init__(
        self,
        site: Site,
        store: SharedStore,
        audit: Audit,
        journal: Journal,
        control: ControlLink,
        publish: Publish,
        aside: Aside,
        commit: Commit,
    ) -> None:
        self._site, self._store, self._audit = site, store, audit
        self._journal, self._control = journal, control
        self._publish, self._aside, self._commit = publish, aside, commit
        self._left: dict[Key, list[WillRecord]] = {}
        self._some = asyncio.Event()
        self.tasks: set[asyncio.Task[None]] = set()
        for will in store.wills():
            self.leave(will)

    def leave(self, will: WillRecord) -> None:
        """Mediator or broker ended this connection, not its client: it may return."""
        self._left.setdefault((will.client, will.client_id), []).append(will)
        self._some.set()

    def returned(self, client: int, client_id: str) -> None:
        """The client is back: what it left does not fire."""
        for will in self._left.pop((client, client_id), ()):
            self.drop(will)

    def drop(self, will: WillRecord) -> None:
        """DISCONNECT, or a connection that never opened: the will is void."""
        self._begin(self._forget(will), will)

    def fire(self, will: WillRecord, policy: Conn) -> None:
        """The client is gone without DISCONNECT."""
        self._begin(self._fire(will, policy), will)

    def _begin(self, work: Coroutine[Any, Any, None], will: WillRecord) -> None:
        task = asyncio.get_running_loop().create_task(work, name=f"will of {will.client}")
        self.tasks.add(task)

        def ended(task: asyncio.Task[None]) -> None:
            self.tasks.discard(task)
            if not task.cancelled() and (error := task.exception()) is not None:
                log.error("will of client %d failed: %r", will.client, error)

        task.add_done_callback(ended)

    async def run(self) -> None:
        """For ever: fires what was left, a grace after that and after the broker is there."""
        ready, engine = self._control.ready, self._site.engine
        while True:
            await self._some.wait()
            await ready.wait()
            self._some.clear()
            # What is left from now on has a grace of its own.
            rows = [(key, row, row[:]) for key, row in self._left.items()]
            await asyncio.sleep(GRACE_S)
            if not ready.is_set():
                self._some.set()
                continue
            for key, row, wills in rows:
                if self._left.get(key) is not row:
                    continue  # its client has returned
                del row[: len(wills)]
                if not row:
                    del self._left[key]
                for will in wills:
                    who = engine.who(self._name(will), will.client)
                    self.fire(will, engine.connection(who))

    def _name(self, will: WillRecord) -> str:
        client = self._site.ring.clients.get(will.client)
        return client.name if client is not None else str(will.client)

    async def _fire(self, will: WillRecord, policy: Conn) -> None:
        site, name = self._site, self._name(will)
        try:
            it = await self._judged(will, policy)
            accepted = await self._deliver(will, it)
        except StoreError as error:
            log.error("a will of client %d waits for the store: %s", will.client, error)
            self.leave(will)
            return
        except SealError as error:
            self._audit.write(
                "publish-refused",
                client=name,
                client_id=will.client_id[:100],
                topic=will.topic[:200],
                rule=error.rule or "mediator.will." + type(error).__name__.lower(),
                reason=str(error)[:500],
            )
        else:
            label = site.ring.labels.get(will.label)
            if accepted and label is not None:
                self._audit.count_accepted(name, it.topic, label.name)
                taken(site, will, policy, site.now_ms)
        await self._forget(will)

    # Its topic may have been forgotten since CONNECT. Then it labels it as any first publish does,
    # and so when the broker is there.
    async def _judged(self, will: WillRecord, policy: Conn) -> Fired:
        site = self._site
        fires_ms = site.now_ms
        try:
            decision = judge(site, will, policy, fires_ms)
            if decision.label is not None:
                await self._control.ready.wait()
                decision = judge(site, will, policy, site.now_ms)
            if decision.label is not None:
                row = new_label(policy, decision, site.now_ms)
                [held] = await self._commit([row])
                if held.fresh:
                    self._audit.write("topic-labelled", **labelled(row, decision))
                decision = judge(site, will, policy, site.now_ms)
                if decision.label is not None:
                    raise DeniedByRule("will: the topic could not be labelled", decision.rule)
            return fire(site, will, decision, fires_ms)
        finally:
            policy.close(site.now_ms)

    # Whether the broker took it. It may be away for long: the will is sealed anew for each try,
    # until its life is over.
    async def _deliver(self, will: WillRecord, it: Fired) -> bool:
        site, journal, control = self._site, self._journal, self._control
        topic = it.topic.encode()
        while True:
            # Else what the journal has of before could come back over it.
            full = journal.refuses(will.client) if will.retain else None
            if full is not None and full[0] == JOURNAL_PART:
                await journal.room(will.client)
            check_client(site, will)
            payload = seal(site, will, it, site.now_ms)
            if will.retain:
                site.retained.passed(it.topic, site.order.ms, site.order.seq)
                place = it.at_ms // 1000, will.boot, will.ctr
                site.retained.published(it.topic, will.client, place)
            losses = control.losses
            seq = 0
            # Nobody waits for a will to be accepted: it may go without the journal.
            if (will.qos or will.retain) and journal.refuses(will.client) is None:
                seq = journal.append(topic, payload, will.qos, will.retain, will.client, will.gen)
            try:
                await self._publish(topic, payload, will.qos, will.retain, will.client, will.gen)
            except NotTaken as error:
                reason = f"will: {error}"
                await self._aside(topic, payload, will.qos, will.retain, will.client, reason)
                return False
            finally:
                journal.acked(seq if will.qos else 0)
            if will.retain:
                site.retained_bytes.took(it.topic, will.client, len(payload))
            await journal.safe(seq)
            if control.losses == losses:
                return True
            await control.ready.wait()

    async def _forget(self, will: WillRecord) -> None:
        for pause in _FORGET_PAUSES_S:
            try:
                await self._store.commit([gone(will)])
                return
            except StoreError:
                await asyncio.sleep(pause)
        log.error("a will of client %d stays in the store: it may fire once more", will.client)
