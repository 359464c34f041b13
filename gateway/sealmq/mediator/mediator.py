"""One worker of the mediator: the parts that its sessions share, its broker and its keys.

`Mediator._effects` is the table of what executes each effect of a session. All of it runs in the
event loop's thread; store, journal and audit log have threads of their own.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import partial
from typing import Any

from sealmq.audit import Audit
from sealmq.families.engine import Engine
from sealmq.mqtt import Publish, Unfit
from sealmq.order import Order
from sealmq.plain import plain
from sealmq.site.config import Config
from sealmq.strangers import Strangers, source_of
from sealmq_spec.const import RECORD
from sealmq_spec.records import get_manifest, manifest_topic, record_topic

from .capacity import Capacity
from .clock import Clock
from .control_link import ControlLink
from .core import effects as fx
from .core.fan_out import fan_out
from .core.keyring import Keyring
from .core.proof import Newest
from .core.reasons import STOPS
from .core.retained import Retained, RetainedBytes
from .core.session import Session
from .core.site import BrokerFace, Site
from .events import Events, Executor
from .forwarding import Forwarding
from .journal import Journal
from .kept_sessions import KeptSessions
from .kg_requests import KgRequests
from .links import BrokerAddress, Credit, LiveLink, Snapshots, end_session, open_again
from .messages import MessageConnection
from .policy import Policy
from .questions import Questions
from .registry import Registry
from .replay import Replay
from .server import Channel
from .session_links import SessionLinks
from .set_aside import SetAside
from .shared import Begin, Shared
from .steps import Steps
from .trying import try_broker
from .willkeeper import WillKeeper

log = logging.getLogger("sealmq.mediator")

_STRANGERS_SAID_MS = 60_000
# A step of the clock that may end sessions at the broker, and how long it may take to do so:
# Mosquitto looks once a second.
_LONG_MS = 24 * 3600 * 1000
_ENDS_S = 3.0


class Mediator:
    """`begin` and `shared`: what it gets from outside of this worker (shared.py)."""

    def __init__(
        self,
        begin: Begin,
        shared: Shared,
        engine: Engine,
        audit: Audit,
        address: BrokerAddress,
    ) -> None:
        config, ring, journal = begin.config, begin.ring, begin.journal
        store = self._store = shared.store
        self._begin, self._audit, self._address = begin, audit, address
        self._shared = shared
        self._clock = Clock()
        face = BrokerFace(address.retained, address.qos, address.shared, address.keeps_sessions)
        self.site = site = Site(
            config.mediator.number, config, ring, engine, Order(ring.inst), face, audit
        )
        site.retained = Retained(told=shared.passed, apart_ms=begin.apart_ms)
        site.retained_bytes = RetainedBytes(config.limits.retained_mib << 20, shared.took)
        site.newest = {
            mark.client: Newest(mark.gen, mark.boot, mark.salt, mark.conn)
            for mark in store.sessions().values()
        }
        self.events = Events(site, self._clock)
        self._agenda = self.events.agenda
        self.journal = Journal(
            journal if address.keeps_sessions else None,
            address.saved,
            address.autosave_s,
            self._journal_says,
            self._journal_dropped,
            most=begin.journal_most(config),
            as_event=self.events.run,
            workers=begin.workers,
        )
        site.refuses = self.journal.refuses
        capacity = Capacity.of_this_process()
        self._registry = Registry(capacity.clients)
        self.strangers = Strangers(capacity.strangers)
        self._strangers_said_ms = 0
        self._locks = shared.locks
        self.kg_requests = KgRequests(site, audit, shared.kg if begin.kg_there else None)
        self.aside = SetAside(journal.with_name("aside"), audit, self._name, self._retry)
        self._steps = Steps()
        self._questions = Questions(self.events)
        # Of sessions that the newest keys have ended: done when all that they asked is answered.
        self._last_of: list[asyncio.Future[None]] = []
        self.policy = Policy(
            begin, shared, site, audit, self.events, self._questions, self._steps,
            self._config_taken,
        )  # fmt: skip
        self.changed: Callable[[], None] = lambda: None
        """Called when `away` may have changed."""
        self._tried = False
        self._reach(address)
        self.kept_sessions = KeptSessions(
            site,
            store,
            audit,
            partial(end_session, address),
            lambda: self.control.connected,
            lambda: self.control.losses,
            partial(open_again, address),
            lambda: self.control.life(),
            begin.reopening,
            wall=lambda: self._clock.now_ms() / 1000,
        )
        # The broker has back what it had lost of kept sessions.
        self._reopened = asyncio.Event()
        self._links = SessionLinks(
            address,
            self.events,
            self._questions,
            self._registry,
            self.kept_sessions,
            self._live,
            self._snapshots,
            self._unfit,
        )
        self._wills = WillKeeper(
            site, store, audit, self.journal, self.control, self._forwarding.will, self.aside.put,
            self.policy.commit,
        )  # fmt: skip
        self.events.executed_by(self._effects())

    # Makes the links that all sessions share.
    def _reach(self, address: BrokerAddress) -> None:
        name = self._begin.name
        sentinel = f"@sealmq/end/{self.site.number}"
        self.control = ControlLink(
            address, name, sentinel, self._public, self._broker_seen, self._broker_back, self._away
        )
        self._messages = MessageConnection(
            address, f"{name}/messages", lambda: self.site.takes, self.control.life
        )
        begin, shared = self._begin, self._shared
        self._credit = credit = Credit(
            address, begin.of_all, begin.number, begin.workers, begin.ring.inst, shared.marked,
            shared.live,
        )  # fmt: skip
        self.live, self.marked = credit.live, credit.marked
        self._forwarding = Forwarding(
            address,
            name,
            self.site,
            self.events,
            self._questions,
            self.journal,
            self.control,
            self._messages,
            self.aside,
            credit,
            self._away,
        )
        self.latency = self._forwarding.latency
        self._snapshots = Snapshots(address, f"{name}/snapshot", sentinel, self._unfit)
        self._live = LiveLink(
            address,
            f"{name}/live",
            self._live_packet,
            lambda reason: self._links.live_lost(reason),
            self._away,
            self._snapshots,
            credit,
            self._unfit,
            self.events.run,
            lambda session: session.client.number,
        )
        self._away()

    def _effects(self) -> dict[Any, Executor]:
        return {
            fx.Commit: self._commit,
            fx.OpenSession: self._links.open,
            fx.Subscribe: self._links.subscribe,
            fx.Unsubscribe: self._links.unsubscribe,
            fx.Snapshot: self._links.snapshot,
            fx.SnapshotMore: self._links.snapshot_more,
            fx.SnapshotDrop: self._links.snapshot_drop,
            fx.Yield: self._yield,
            fx.AwaitRoom: self._await_room,
            fx.AskTime: self._ask_time,
            fx.Provision: self._provision,
            fx.Lock: self._lock,
            fx.Unlock: self._unlock,
            fx.Forward: self._forwarding.forward,
            fx.Answer: self._links.answer,
            fx.PauseLink: self._links.pause,
            fx.Audit: self._write_audit,
            fx.Will: self._will,
            fx.Returned: self._returned,
            fx.Confirmed: self._confirmed,
            fx.Vouched: self._vouched,
            fx.Entered: self._entered,
            fx.Tell: self._tell,
            fx.Deadline: self._deadline,
            fx.End: self._end,
        }

    # --- for the process ---

    def run(self) -> list[Coroutine[Any, Any, None]]:
        """What has to run as long as this mediator does."""
        return [
            self.control.run(),
            self._forwarding.link.run(),
            self._live.run(),
            self._wills.run(),
        ]

    def channel(self, early: bytes) -> Channel:
        """For one more client, of which these bytes have come."""
        return Channel(self.site, self.events, self.strangers, early)

    def stop(self, reason: str) -> None:
        """Ends all sessions; wills are left to their grace."""
        for session in list(self.events.peers):
            self.events.run(session.stop, reason, STOPS)

    async def settle(self) -> None:
        """Waits, for a moment, for what was still under way: wills of clients that were cut off."""
        if tasks := self._questions.tasks | self._wills.tasks:
            await asyncio.wait(tasks, timeout=2.0)
        await self.kept_sessions.tell()

    async def close(self) -> None:
        """Closes the links that may still be open, and writes the journal to its end."""
        self._messages.close()
        self._snapshots.close()
        await self.journal.close()

    def tick(self) -> None:
        """About once a second."""
        self.events.look()
        self.policy.tick()
        self._say_strangers()
        step = self._follow_clock()
        due = self.journal.due(self.site.now_ms // 1000)
        if step >= _LONG_MS and self._address.keeps_sessions:
            self.control.first(self._set_forward)
        elif due:
            self.control.first(self._replay)
        self.journal.tick()
        self.kept_sessions.saved(self.journal.saved_before)
        self.kept_sessions.tick()
        # The live link asks as well, but not while it is away.
        self._credit.overdue()
        for session in list(self.events.peers):
            self.events.run(session.tick)

    @property
    def away(self) -> str | None:
        """Why nobody can connect; None while somebody can."""
        return self.site.away

    def handover(self) -> dict[str, object]:
        """For `sealmq status`: of each label with a hand-over, when that ends (Unix time); and how
        many sessions wait for a new epoch.
        """
        now = self.site.now_ms // 1000
        labels = {
            label.name: label.previous[1]
            for label in self.site.ring.labels.values()
            if label.previous and label.previous[1] > now
        }
        held = sum(session.delivery.holds for session in self._agenda.by_policy.values())
        return {"labels": labels, "held": held}

    def _say_strangers(self) -> None:
        now_ms = self.site.now_ms
        if self.strangers.ended and now_ms - self._strangers_said_ms >= _STRANGERS_SAID_MS:
            log.warning(
                "%d connections that had proved nothing were ended: others needed their places",
                self.strangers.ended,
            )
            self.strangers.ended, self._strangers_said_ms = 0, now_ms

    # If the wall clock was set, all connections end, and begin anew with its time. By how many ms.
    def _follow_clock(self) -> int:
        step = self._clock.look()
        if not step:
            return 0
        reason = f"the gateway's clock was set by {step / 1000:+.0f} s"
        log.warning("%s: clients connect anew", reason)
        self.stop(reason)
        if step < 0:
            # By its stamps, what is published from now on is older than what was before.
            self.site.retained.forget()
        self._clock.take()
        self.events.look(stepped=True)
        self.policy.clock_set()
        return step

    # --- questions ---

    def _commit(self, session: Session, effect: fx.Commit) -> None:
        self._questions.ask(session, 0, self._committed(session, effect))

    # The session is answered before other sessions' subscriptions follow the new rows.
    async def _committed(self, session: Session, effect: fx.Commit) -> None:
        try:
            held = await self._store.commit(effect.records, effect.urgent, effect.part)
        except Exception as error:
            self._questions.reply(session, effect.task, error)
            return
        self.policy.index(held)
        self._questions.reply(session, effect.task, held)
        self.policy.follow()

    def _yield(self, session: Session, effect: fx.Yield) -> None:
        self._steps.add(partial(self._questions.reply, session, effect.task, None))

    def _await_room(self, session: Session, effect: fx.AwaitRoom) -> None:
        self._questions.ask(session, effect.task, self.journal.room(effect.client), ends=True)

    def _ask_time(self, session: Session, effect: fx.AskTime) -> None:
        work = self.kg_requests.time(session.client.number, effect.nonce, session.link.suite)
        self._questions.ask(session, effect.task, work)

    def _provision(self, session: Session, effect: fx.Provision) -> None:
        work = self.kg_requests.provision(effect.request, source_of(session.peer))
        self._questions.ask(session, effect.task, work, ends=True)

    def _lock(self, session: Session, effect: fx.Lock) -> None:
        self._questions.ask(session, effect.task, self._locks.take(effect.rows))

    # --- statements ---

    def _unlock(self, session: Session, effect: fx.Unlock) -> None:
        self._locks.free(effect.rows)

    def _write_audit(self, session: Session, effect: fx.Audit) -> None:
        if effect.fields.get("parted"):
            self._audit.part(effect.fields["topic"])
        self._audit.write(effect.event, **effect.fields)

    def _will(self, session: Session, effect: fx.Will) -> None:
        if effect.what == "fire":
            self._wills.fire(effect.will, session.policy)
        elif effect.what == "leave":
            self._wills.leave(effect.will)
        else:
            self._wills.drop(effect.will)

    def _returned(self, session: Session, effect: fx.Returned) -> None:
        self._wills.returned(effect.client, effect.client_id)

    def _confirmed(self, session: Session, effect: fx.Confirmed) -> None:
        self._questions.ask(
            session, effect.task, self.kg_requests.confirm(effect.client, effect.gen)
        )

    def _vouched(self, session: Session, effect: fx.Vouched) -> None:
        self.strangers.enter(session, effect.client)

    def _entered(self, session: Session, effect: fx.Entered) -> None:
        self._registry.enter(session)
        self.strangers.leave(session)
        self._channel_deadline(session, 0)

    def _tell(self, session: Session, effect: fx.Tell) -> None:
        numbers = {client.name: client.number for client in self.site.ring.clients.values()}
        for name, said in effect.tells:
            number = numbers.get(name)
            if number is None:
                continue
            if self._begin.mine(number):
                self.inform(number, effect.family, said)
            else:
                self._shared.inform(number, effect.family, said)

    def _deadline(self, session: Session, effect: fx.Deadline) -> None:
        self._channel_deadline(session, effect.seconds)

    def _channel_deadline(self, session: Session, seconds: float) -> None:
        peer = self.events.peers.get(session)
        if peer is not None:
            peer.deadline(seconds)

    def _end(self, session: Session, effect: fx.End) -> None:
        peer = self.events.peers.get(session)
        if peer is not None:
            peer.end(effect.cut)
        self.strangers.leave(session)
        if session.known:
            self._registry.leave(session)
        session.let_go()
        self._links.end(session)
        self._questions.end(session)

    def _name(self, number: int) -> str:
        client = self.site.ring.clients.get(number)
        return client.name if client is not None else str(number)

    # --- the broker ---

    # A part of the event that a read of the live link is. A fault with one message does not end the
    # link, and so the sessions of all readers.
    def _live_packet(self, packet: Publish) -> None:
        try:
            fan_out(self.site, self._agenda.outboxes, packet)
        except Exception:
            log.exception("a message could not be delivered")

    # Another publisher made it, or the broker spoilt it: our own are checked before they go out.
    def _unfit(self, packet: Unfit) -> None:
        topic, reason = plain(packet.topic.decode(errors="replace"), 200), packet.reason[:500]
        rule = "mediator.broker.unfit"
        self._audit.write("packet-refused", rule=rule, reason=reason, topic=topic)

    def _away(self) -> None:
        self.site.away = self.control.away or self._live.away
        self.changed()

    def _broker_seen(self, reason: str | None) -> None:
        if reason is None:
            self._audit.write("broker-back", address=self._address.name)
            return
        self._audit.write("broker-away", reason=reason[:500])
        self._reopened.clear()
        self.journal.broker_lost()
        self._messages.close()
        for session in list(self._agenda.by_policy.values()):
            self.events.run(session.link_lost, reason)

    async def _broker_back(self) -> None:
        if not self._tried:
            self.site.takes = await try_broker(self._address)
            self._tried = True
        self.events.look()
        if self._address.keeps_sessions:
            await self.kept_sessions.reopen()
        self._reopened.set()
        # Their readers may be clients of any worker.
        await self._shared.reopened()
        await self._replay()
        self.kept_sessions.sweep()

    # A broker that ends kept sessions by the time of day has ended all whose clients are away.
    async def _set_forward(self) -> None:
        await asyncio.sleep(_ENDS_S)
        await self.kept_sessions.reopen(everything=True)
        await self._replay()

    async def _replay(self) -> None:
        replay = Replay(
            self.site, self.journal, self.control, self.aside, self._messages.publish, self._audit
        )
        await replay.run()

    async def reopened(self) -> None:
        """Returns when the broker has the kept sessions of this worker's clients, in its life now:
        it is asked, since another worker may hear sooner that it was lost.
        """
        while True:
            await self._reopened.wait()
            with suppress(fx.BrokerAway):
                await self.control.life()
                if self._reopened.is_set():
                    return

    # The broker's limits may have changed: they are tried again when it is back the next time.
    def _retry(self) -> None:
        self._tried = False

    def _journal_says(self, reason: str | None) -> None:
        if reason is None:
            self._audit.write("store-back")
        else:
            log.error("QoS 1 and 2 are refused: %s", reason)
            self._audit.write("store-unavailable", reason=reason[:500])

    def _journal_dropped(self, size: int, reason: str) -> None:
        log.error("%d bytes of the journal are lost: %s", size, reason)
        self._audit.write("journal-dropped", count=size)

    def _public(self) -> list[tuple[str, bytes]]:
        rows: list[tuple[str, bytes]] = []
        if not self._begin.first:
            return rows
        for record in self.site.ring.public():
            if record[0] == RECORD:
                rows.append((record_topic(record), record))
            else:
                rows.append((manifest_topic(get_manifest(record)[1]), record))
        return rows

    # --- what other workers tell ---

    def passed(self, topic: str, ms: int, seq: int, origin: tuple[int, int] | None) -> None:
        """A retained message passed at another worker towards the broker."""
        self.site.retained.heard(topic, ms, seq, origin)
        if origin is None:
            self.journal.retained_since(topic.encode())

    def inform(self, client: int, family: str, said: bytes) -> None:
        """Tells a client of this worker's what a family says; another worker may have asked."""
        for session in self._registry.of(client):
            self.events.run(session.news, family, said)

    # --- sealmq.toml, keys ---

    def _config_taken(self, config: Config) -> None:
        self.site.retained_bytes.most = config.limits.retained_mib << 20
        self.journal.most = self._begin.journal_most(config)
        self.kg_requests.news()

    def take_ring(self, ring: Keyring) -> None:
        """New keys: sessions learn of new epochs, those of disabled clients end."""
        site = self.site
        if ring.public() != site.ring.public():
            self.control.republish()
        if ring.inst != site.order.inst:
            site.order = Order(ring.inst)
        before, site.ring = site.ring, ring
        told = self.policy.take_keys(ring, before)
        left = [future for future in self._last_of if not future.done()]
        for session in list(self._agenda.by_policy.values()):
            self.events.run(session.keys_changed, before)
            if session.state == "closed":
                left.append(self._questions.done(session))
        self._last_of = left
        if self.policy.close_site(ring.closed):
            self.stop("the site was closed" if ring.closed else "the site was reopened")
        if told:
            self.policy.follow()
        self.kept_sessions.sweep()
        self.kg_requests.news()

    async def ended(self) -> None:
        """Waits for what sessions had begun that the newest keys have ended."""
        if self._last_of:
            await asyncio.wait(self._last_of)
