"""What all connections of one mediator share: keys, policy, store, audit, nonces, the way to the
key generator.

It owns no socket. Everything here runs in the event loop's thread; the store and the audit log have
threads of their own.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sealmq.audit import Audit
from sealmq.broker.promises import BrokerTakes
from sealmq.families.engine import OFF, Conn, Decision, Engine
from sealmq.families.following import Key
from sealmq.families.records import Record, TopicLabel, TopicReset
from sealmq.kglink import KgError
from sealmq.order import Order
from sealmq.plain import plain
from sealmq.site.config import Config
from sealmq.store import Store, StoreRecord
from sealmq_spec.const import RECORD, WINDOW_S
from sealmq_spec.errors import Unavailable
from sealmq_spec.records import get_manifest, manifest_topic, record_topic

from .aside import Aside
from .asking import Asking
from .clock import Clock
from .house import HouseConnection
from .journal import Journal
from .keyring import Keyring
from .limits import FOLLOWED, Places
from .link import Links
from .messages import MessageConnection
from .proof import Newest
from .replay import Replay
from .retained import Retained, RetainedBytes
from .rooms import Rooms
from .sessions import Sessions
from .strangers import Strangers
from .trying import try_broker
from .upstream import BrokerAddress
from .willkeeper import WillKeeper

if TYPE_CHECKING:
    from sealmq.kglink import KgClient

    from .connection import Connection

log = logging.getLogger("sealmq.mediator")

_STRANGERS_TOLD_MS = 60_000


class Hub:
    """One mediator. `kg` is None while the key generator is away."""

    def __init__(
        self,
        config: Config,
        ring: Keyring,
        engine: Engine,
        store: Store,
        audit: Audit,
        broker: BrokerAddress,
        journal: Path | None = None,
    ) -> None:
        self.config, self.ring, self.engine = config, ring, engine
        self.store, self.audit, self.broker = store, audit, broker
        self.number = config.mediator.number
        self.order = Order(ring.inst)
        self.links = Links()
        self.connections: set[Connection] = set()
        # Those that are open, as the policy knows them.
        self.by_policy: dict[Conn, Connection] = {}
        self.clock = Clock()
        places = Places.of_this_process()
        self.rooms = Rooms(places.clients)
        self.strangers = Strangers(places.strangers)
        self._told_ms = 0
        self.asking = Asking(self)
        # Bytes of deliveries held back, of all connections.
        self.held = 0
        # Subscriptions to ask about again.
        self.due: dict[Key, None] = {}
        # Rows that commands are changing just now: (family, key).
        self.changing: dict[tuple[str, str], asyncio.Future[None]] = {}
        # Done when rows of clients that are gone have been put right; commands wait for it.
        self.rewriting: asyncio.Future[None] | None = None
        self.kg: KgClient | None = None
        self.known_tlv = tuple(engine.tlvs)
        self.engine_opens = engine.opens
        self.retained = Retained()
        self.retained_bytes = RetainedBytes(config.limits.retained_mib << 20)
        self.journal = Journal(
            journal if broker.keeps_sessions else None,
            broker.saved,
            broker.autosave_s,
            self._journal_told,
            self._journal_dropped,
            most=config.limits.journal_mib << 20,
        )
        self._sessions = {
            mark.client: Newest(mark.gen, mark.boot, mark.salt, mark.conn)
            for mark in store.sessions().values()
        }
        # Link slots that answers brought since the last snapshot was asked for.
        self._fresh_links: dict[int, list[dict[str, Any]]] = {}
        self._tasks: set[asyncio.Task[Any]] = set()
        # What connections that the newest keys have ended had begun.
        self._last_of: list[asyncio.Task[Any]] = []
        name = f"sealmq/{ring.site.hex()}/mediator-{self.number}"
        self.house = HouseConnection(
            broker, name, self._public, self._broker_seen, self._broker_back
        )
        # What the broker takes; tried before anybody is let in.
        self.broker_takes = BrokerTakes()
        self._tried = False
        self.messages = MessageConnection(
            broker, f"{name}/messages", lambda: self.broker_takes, lambda: self.house.losses
        )
        self.aside = Aside(None if journal is None else journal.with_name("aside"))
        self.sessions = Sessions(self)
        self.wills = WillKeeper(self)

    # --- time and tasks ---

    def now_ms(self) -> int:
        """The gateway's time, Unix milliseconds."""
        return self.clock.now_ms()

    def clock_fell(self) -> bool:
        """Whether our stamps are so far ahead of the clock that readers would refuse them."""
        return self.order.ms - self.now_ms() > WINDOW_S * 500

    def follow_clock(self) -> None:
        """A wall clock that stepped ends all connections, which begin anew with its time."""
        step = self.clock.look()
        if not step:
            return
        reason = f"the gateway's clock was set by {step / 1000:+.0f} s"
        log.warning("%s: clients connect anew", reason)
        for connection in list(self.connections):
            connection.stop(reason)
        if step < 0:
            # What is published from now on is older than what was published before.
            self.retained = Retained()
        self.clock.take()

    def next_order(self) -> bytes:
        """12 bytes that no other packet of this mediator carries."""
        return self.order.next_bytes(self.now_ms())

    def spawn(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        """Runs something beside the packets; a failure is logged, never lost."""
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("%s failed: %r", task.get_name(), error)

    async def settle(self) -> None:
        """Waits, for a moment, for what was still under way: wills of clients that were cut off."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=2.0)

    # --- sessions ---

    def newest(self, client: int) -> Newest | None:
        """The highest (gen, boot, conn) of a client, as the store holds it."""
        return self._sessions.get(client)

    def rose(self, client: int, newest: Newest) -> None:
        """The store has taken a higher one."""
        self._sessions[client] = newest

    # --- policy ---

    def family_fault(self, family: str, question: str, error: Exception) -> None:
        """A family failed; the engine has made a deny of it."""
        log.error("family %s failed at %s: %r", family, question, error)
        reason = type(error).__name__
        self.audit.write("family-fault", family=family, question=question, reason=reason)

    async def commit(
        self,
        records: list[StoreRecord],
        told: Callable[[], None] | None = None,
        urgent: bool = False,
    ) -> None:
        """Makes records durable, says so (`told`), then lets the families index what really holds:
        when this returns, nothing is judged by what was before.

        Raises StoreUnavailable.
        """
        held = await self.store.commit(records, urgent)
        if told is not None:
            told()
        self.apply([h.record for h in held])

    def apply(self, records: list[StoreRecord]) -> None:
        """Indexes what the store holds."""
        self.engine.apply([r for r in records if isinstance(r, Record)])
        self.follow()

    def follow(self) -> None:
        """Subscriptions that the policy may see otherwise now are paused, or resumed.

        One command may reach very many: a slice at a time, and others are served between. No
        delivery depends on when, each is judged by what holds then.
        """
        waits = bool(self.due)
        self.due.update(dict.fromkeys(self.engine.due()))
        if not waits:
            self._follow_some()

    def _follow_some(self) -> None:
        some: dict[Conn, list[str]] = {}
        for conn, raw in list(islice(self.due, FOLLOWED)):
            del self.due[conn, raw]
            some.setdefault(conn, []).append(raw)
        if self.due:
            asyncio.get_running_loop().call_soon(self._follow_some)
        for conn, raws in some.items():
            connection = self.by_policy.get(conn)
            if connection is not None:
                connection.subscribing.again(raws)

    def tick(self) -> None:
        """About once a second: what ends by itself."""
        self.engine.tick(self.now_ms())
        self.follow()
        self._tell_of_strangers()

    def _tell_of_strangers(self) -> None:
        now_ms = self.now_ms()
        if self.strangers.ended and now_ms - self._told_ms >= _STRANGERS_TOLD_MS:
            log.warning(
                "%d connections that had proved nothing were ended: others needed their places",
                self.strangers.ended,
            )
            self.strangers.ended, self._told_ms = 0, now_ms

    async def label_topic(self, conn: Conn, decision: Decision, now_ms: int) -> None:
        """First publish:
        the label is on disk before this returns (Algorithm 2, lines 5 to 7). Raises
        StoreUnavailable.
        """
        if decision.label is None:
            return
        if not self.house.up:
            raise Unavailable("the broker is away, so no new topic is labelled")
        row = TopicLabel(decision.topic, decision.label, conn.who.client, now_ms)
        held = (await self.store.commit([row]))[0]
        self.apply([held.record])
        if held.fresh:
            self.audit.write(
                "topic-labelled",
                client=conn.who.client,
                topic=decision.topic,
                label=decision.label,
                rule=decision.rule,
            )

    async def reload(self, config: Config) -> None:
        """Takes a changed sealmq.toml over, live; nothing happens if it says the same as before.

        Raises StoreUnavailable: then what a family wanted to keep is not kept, and asked again.
        """
        if config == self.config:
            self.config = config  # its text may be another one
            return
        if config.site.id != self.ring.site:
            # The key generator refuses it too: nothing of such a file counts.
            log.error("sealmq.toml is not taken over: it names another site's id")
            return
        if config.policy.order != self.config.policy.order:
            log.warning("[policy] order is taken over at the next start")
        if config.mediator != self.config.mediator:
            log.warning("[mediator] is taken over at the next start, but for on_denied")
        queues = [(c.limits.queue_messages, c.limits.queue_kib) for c in (config, self.config)]
        if queues[0] != queues[1]:
            log.warning("[limits] queue_messages and queue_kib are taken over at the next start")
        reloaded = self.engine.reload(config, enforce=config.policy.enforce)
        await self.commit(list(reloaded.records), urgent=True)
        for record in reloaded.records:
            if isinstance(record, TopicReset):
                self.audit.write("topic-reset", topic=record.topic)
        self.config = config
        self.retained_bytes.most = config.limits.retained_mib << 20
        self.journal.most = config.limits.journal_mib << 20
        self.audit.write(
            "config-reloaded", enforce=self.engine.enforce, order=list(config.policy.order)
        )
        self.warn()
        changed = set(reloaded.connections)
        for connection in list(self.connections):
            connection.policy_changed(changed)
        self.follow()

    def warn(self) -> None:
        """Says loudly, in the log and in the audit, what weakens this site."""
        for warning in self.engine.warnings:
            log.warning("%s", warning)
            event = "policy-off" if warning == OFF else "site-closed"
            self.audit.write(event, reason=warning)

    # --- keys ---

    def _broker_seen(self, reason: str | None) -> None:
        if reason is None:
            self.audit.write("broker-back", address=self.broker.name)
        else:
            self.audit.write("broker-away", reason=reason[:500])
            self.journal.broker_lost()
            self.messages.close()

    async def _broker_back(self) -> None:
        if not self._tried:
            self.broker_takes = await try_broker(self.broker)
            self._tried = True
        await Replay(self, self.messages.publish).run()
        self.spawn(self.sessions.sweep(), "old sessions")

    async def set_aside(
        self,
        topic: bytes,
        payload: bytes,
        qos: int,
        retain: bool,
        client: int | None,
        reason: str,
    ) -> None:
        """A message that the broker does not take is not published, now nor later. `client`: the
        number of the one that made it.
        """
        known = self.ring.clients.get(client) if client is not None else None
        name = known.name if known is not None else None if client is None else str(client)
        text = topic.decode()
        whose = name or "a client"
        log.error("set aside: a message of %s on %s: %s", whose, plain(text, 200), reason)
        self.audit.write("message-set-aside", client=name, topic=text, reason=reason[:500])
        # The broker may not be what it was when it was tried.
        self._tried = False
        await self.aside.put(topic, payload, qos, retain, name, reason)

    def _journal_told(self, reason: str | None) -> None:
        if reason is None:
            self.audit.write("store-back")
        else:
            log.error("QoS 1 and 2 are refused: %s", reason)
            self.audit.write("store-unavailable", reason=reason[:500])

    def _journal_dropped(self, size: int, reason: str) -> None:
        log.error("the journal cannot be read: %d bytes are lost: %s", size, reason)
        self.audit.write("journal-dropped", count=size)

    def _public(self) -> list[tuple[str, bytes]]:
        rows = []
        for record in self.ring.public():
            if record[0] == RECORD:
                rows.append((record_topic(record), record))
            else:
                rows.append((manifest_topic(get_manifest(record)[1]), record))
        return rows

    def take_ring(self, ring: Keyring) -> None:
        """New keys: connections learn of new epochs, those of disabled clients end."""
        for client, links in self._fresh_links.items():
            ring.set_links(client, links)
        if ring.public() != self.ring.public():
            self.house.republish()
        if ring.inst != self.order.inst:
            self.order = Order(ring.inst)
        before, self.ring = self.ring, ring
        if ring.bearers() != before.bearers():
            self.new_bearers(ring.bearers())
        ended = set()
        for connection in list(self.connections):
            connection.keys_changed(before)
            if connection.state == "closed":
                ended.add(task_of(connection.client.name))
        left = (task for task in self._tasks if task.get_name() in ended)
        self._last_of = [*(task for task in self._last_of if not task.done()), *left]
        if ring.closed != self.engine.closed:
            self._close_site(ring.closed)
        self.spawn(self.sessions.sweep(), "old sessions")
        self.asking.news()

    def new_bearers(self, since: dict[str, int]) -> None:
        """Clients bear names that others had: what these made or left is not theirs."""
        if self.engine.noted(since):
            self.spawn(self._rewrite(since), "rows of clients that are gone")

    # There may be a million. What is not done is done at the next start.
    async def _rewrite(self, since: dict[str, int]) -> None:
        while self.rewriting is not None:
            await asyncio.wait({self.rewriting})
        done = self.rewriting = asyncio.get_running_loop().create_future()
        try:
            while self.changing:  # what is under way is read as it will be
                await asyncio.wait(set(self.changing.values()))
            records = await asyncio.to_thread(self.engine.bearers, since, self.store.records)
            await self.commit(list(records))
        finally:
            self.rewriting = None
            done.set_result(None)

    # Whoever is connected begins anew: what was refused, or delivered, is asked for once more.
    def _close_site(self, reason: str) -> None:
        self.engine.close_site(reason)
        if reason:
            self.warn()
        else:
            log.warning("the site was reopened")
            self.audit.write("site-reopened")
        for connection in list(self.connections):
            connection.stop("the site was closed" if reason else "the site was reopened")

    async def ended(self) -> None:
        """Waits for what connections had begun that the newest keys have ended."""
        if self._last_of:
            await asyncio.wait(self._last_of)

    def set_kg(self, kg: KgClient | None) -> None:
        """The key generator came or went."""
        if (kg is None) != (self.kg is None):
            if kg is None:
                self.audit.write("kg-away", reason="the connection to it is lost")
            else:
                self.audit.write("kg-back")
        self.kg = kg
        self.asking.news()

    def fetch_begins(self) -> None:
        """A snapshot is about to be asked for."""
        self._fresh_links.clear()

    async def kg_time(self, client: int, nonce_c: bytes, suite: int) -> bytes | None:
        """KG time for a client, or None while the key generator is away:
        the client then sees that it has ours.
        """
        if self.kg is None:
            return None
        try:
            async with asyncio.timeout(1.0):
                return await self.kg.time(client, nonce_c, suite)
        except (KgError, TimeoutError):
            return None

    def links_came(self, client: int, links: list[dict[str, Any]]) -> None:
        """A client's link slots, beside an answer of the key generator."""
        self._fresh_links[client] = links
        self.ring.set_links(client, links)

    async def confirm(self, client: int, gen: int) -> None:
        """The first proof under a pending generation ends the old one."""
        self.ring.confirm(client, gen)
        if self.kg is not None:
            try:
                await self.kg.confirm(client, gen)
            except KgError as error:
                log.warning("confirming generation %d of client %d: %s", gen, client, error)


def task_of(who: str) -> str:
    """The name of a task that handles a packet of this client, or of this address."""
    return f"client {who}"
