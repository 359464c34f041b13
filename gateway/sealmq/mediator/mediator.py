"""One worker of the mediator: what its sessions share, and what each of their effects means.

EFFECTS is the table: whatever a session wants is executed by one method here, which knows who does
it (links, journal, store, audit, key generator, registry) and hands the answer back. Everything
runs in the event loop's thread; store, journal and audit have threads of their own.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import partial
from typing import Any

from sealmq.audit import Audit
from sealmq.families.engine import OFF, Conn, Engine
from sealmq.families.records import Record, TopicReset
from sealmq.kglink import KgError
from sealmq.mqtt import Publish, Unfit
from sealmq.order import Order
from sealmq.plain import plain
from sealmq.site.config import Config
from sealmq.store import StoreError, StoreRecord
from sealmq_spec.const import RECORD
from sealmq_spec.errors import SealError
from sealmq_spec.records import get_manifest, manifest_topic, record_topic

from .aside import Aside
from .asking import Asking
from .clock import Clock
from .control_link import ControlLink
from .core import effects as fx
from .core.delivery import fan_out
from .core.keyring import Keyring
from .core.limits import OPENING_S, TURN_S
from .core.proof import Newest
from .core.retained import Retained, RetainedBytes
from .core.session import Session
from .core.site import BrokerFace, Site
from .core.wrap import may_go_out
from .events import Events, Executor
from .journal import Journal
from .links import BrokerAddress, Credit, LiveLink, NotTaken, OwnLink, PublishLink
from .links.publish import OVER, Item
from .links.snapshots import Snapshot, SnapshotCut, Snapshots
from .messages import MessageConnection
from .places import Places
from .registry import Registry
from .replay import Replay
from .server import Channel, Pressure
from .sessions import Sessions
from .shared import Begin, Shared
from .strangers import Strangers, source_of
from .trying import try_broker
from .willkeeper import WillKeeper
from .wills import over

log = logging.getLogger("sealmq.mediator")

_STRANGERS_SAID_MS = 60_000
# What is an answer, too.
_TROUBLE = (SealError, StoreError, KgError, fx.BrokerAway, NotTaken, SnapshotCut)


class _Client:
    """What is under way for one session outside of it. `key`: its session at the broker.

    `done`: it has ended, and so has all that it had begun.
    """

    __slots__ = ("done", "key", "live", "own", "session", "snapshots", "tasks", "turn", "under_way")

    def __init__(self, session: Session) -> None:
        self.session = session
        self.key: tuple[int, str] | None = None
        self.own: OwnLink | None = None
        # What is asked on the own link keeps its order, also while that is opened.
        self.turn = asyncio.Lock()
        # Filters that it holds on the live link, or asks for.
        self.live: set[str] = set()
        # Questions without an answer; those that end with the session.
        self.under_way = 0
        self.tasks: set[asyncio.Task[None]] = set()
        self.snapshots: dict[int, Snapshot] = {}
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def look(self) -> None:
        """Whether it is done."""
        if self.session.state == "closed" and not self.under_way and not self.done.done():
            self.done.set_result(None)


class Mediator:
    """`begin` and `shared` are what it has of the world outside of this worker (shared.py)."""

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
        self.journal = Journal(
            journal if address.keeps_sessions else None,
            address.saved,
            address.autosave_s,
            self._journal_says,
            self._journal_dropped,
            most=begin.journal_most(config),
        )
        site.refuses = self.journal.refuses
        self.events = Events(site, self._clock)
        self._agenda = self.events.agenda
        places = Places.of_this_process()
        self._registry = Registry(places.clients)
        self.strangers = Strangers(places.strangers)
        self._strangers_said_ms = 0
        self._locks = shared.locks
        self._pressure = Pressure()
        self.asking = Asking(site, audit, shared.kg if begin.kg_there else None)
        self.aside = Aside(journal.with_name("aside"), audit, self._name, self._retry)
        # Subscriptions to ask about again; what goes on when others had a turn.
        self._due: dict[Conn, dict[str, None]] = {}
        self._steps: deque[Callable[[], None]] = deque()
        self._clients: dict[Session, _Client] = {}
        # The newest session of each (client, client id) that the broker was asked for.
        self._newest: dict[tuple[int, str], _Client] = {}
        # Kept sessions that began at the broker while this runs: in which of its lives.
        self._lives: dict[tuple[int, str], int] = {}
        self._tasks: set[asyncio.Task[Any]] = set()
        # What sessions that the newest keys have ended had begun.
        self._last_of: list[asyncio.Future[None]] = []
        self._tokens = 0
        self.changed: Callable[[], None] = lambda: None
        """Called when `away` may be another."""
        self._tried = False
        self._links(address)
        self.sessions = Sessions(
            site, store, audit, self._forget_at_broker, lambda: self.control.connected
        )
        self._wills = WillKeeper(
            site, store, audit, self.journal, self.control, self._publish_will, self.aside.put
        )
        self.events.executed_by(self._effects())

    def _links(self, address: BrokerAddress) -> None:
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
        self._publish = PublishLink(
            address,
            f"{name}/publish",
            self._alone,
            self._accepted,
            self._not_taken,
            self._pressure.change,
            self._away,
            credit,
            self._may,
            self._has_all,
        )
        self._snapshots = Snapshots(address, f"{name}/snapshot", sentinel, self._unfit)
        self._live = LiveLink(
            address,
            f"{name}/live",
            self._live_packet,
            self._live_lost,
            self._away,
            self._snapshots,
            credit,
            self._unfit,
        )
        self._away()

    def _effects(self) -> dict[Any, Executor]:
        return {
            fx.Commit: self._commit,
            fx.OpenSession: self._open_session,
            fx.Subscribe: self._subscribe,
            fx.Unsubscribe: self._unsubscribe,
            fx.Snapshot: self._snapshot,
            fx.SnapshotMore: self._snapshot_more,
            fx.SnapshotDrop: self._snapshot_drop,
            fx.Yield: self._yield,
            fx.AskTime: self._ask_time,
            fx.Provision: self._provision,
            fx.Lock: self._lock,
            fx.Unlock: self._unlock,
            fx.Forward: self._forward,
            fx.Answer: self._answer,
            fx.PauseLink: self._pause_link,
            fx.Audit: self._write_audit,
            fx.Will: self._will,
            fx.Returned: self._returned,
            fx.Confirmed: self._confirmed,
            fx.Vouched: self._vouched,
            fx.Entered: self._entered,
            fx.Deadline: self._deadline,
            fx.End: self._end,
        }

    # --- for the process ---

    def run(self) -> list[Coroutine[Any, Any, None]]:
        """What has to run as long as this mediator does."""
        return [self.control.run(), self._publish.run(), self._live.run(), self._wills.run()]

    def channel(self, early: bytes) -> Channel:
        """For one more client, of which these bytes have come."""
        return Channel(self.site, self.events, self.strangers, early)

    def stop(self, reason: str) -> None:
        """Ends all sessions; wills are left to their grace."""
        for session in list(self.events.peers):
            self.events.run(session.stop, reason)

    async def settle(self) -> None:
        """Waits, for a moment, for what was still under way: wills of clients that were cut off."""
        if tasks := self._tasks | self._wills.tasks:
            await asyncio.wait(tasks, timeout=2.0)

    async def close(self) -> None:
        """The journal is written to its end."""
        self._messages.close()
        self._snapshots.close()
        await self.journal.close()

    def tick(self) -> None:
        """About once a second."""
        self.events.look()
        self.site.engine.tick(self.site.now_ms)
        self.follow()
        self._say_strangers()
        self._follow_clock()
        self.journal.tick()
        # While the live link is away nobody else asks.
        self._credit.overdue()
        for session in list(self.events.peers):
            self.events.run(session.tick)

    @property
    def away(self) -> str | None:
        """Why nobody can connect; None while somebody can."""
        return self.site.away

    def handover(self) -> dict[str, object]:
        """For `sealmq status`: label -> Unix time at which its hand-over ends, of those that run;
        and how many sessions wait for a new epoch.
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

    # A wall clock that stepped ends all connections, which begin anew with its time.
    def _follow_clock(self) -> None:
        step = self._clock.look()
        if not step:
            return
        reason = f"the gateway's clock was set by {step / 1000:+.0f} s"
        log.warning("%s: clients connect anew", reason)
        self.stop(reason)
        if step < 0:
            # What is published from now on is older than what was published before.
            self.site.retained.forget()
        self._clock.take()
        self.events.look(stepped=True)

    def _spawn(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("%s failed: %r", task.get_name(), error)

    # --- questions ---

    def _client(self, session: Session) -> _Client:
        client = self._clients.get(session)
        if client is None:
            client = made = self._clients[session] = _Client(session)
            made.done.add_done_callback(lambda _: self._forget(made))
        return client

    # `work` gives the answer, or raises it. `ends`: with the session; nobody waits for it then.
    def _ask(
        self, session: Session, task: int, work: Coroutine[Any, Any, object], ends: bool = False
    ) -> None:
        client = self._client(session)
        client.under_way += 1

        async def answered() -> None:
            answer: object
            try:
                answer = await work
            except _TROUBLE as error:
                # Without its frames: they have the session, and this one has it.
                answer = error.with_traceback(None)
            except Exception as error:
                log.exception("a question of %s could not be answered", session.peer)
                answer = error.with_traceback(None)
            self._reply(session, task, answer)

        name = f"client {session.client.name}" if session.known else f"client {session.peer}"
        running = self._spawn(answered(), name)
        if ends:
            client.tasks.add(running)
        running.add_done_callback(lambda done: self._over(client, work, done))

    def _over(
        self, client: _Client, work: Coroutine[Any, Any, object], task: asyncio.Task[None]
    ) -> None:
        work.close()  # cancelled before its first step it has never begun
        client.tasks.discard(task)
        client.under_way -= 1
        client.look()

    def _reply(self, session: Session, task: int, answer: object) -> None:
        if task:
            self.events.run(session.reply, task, answer)
        peer = self.events.peers.get(session)
        if peer is not None:
            peer.settled()

    def _commit(self, session: Session, effect: fx.Commit) -> None:
        self._ask(session, 0, self._committed(session, effect))

    # The answer comes before others see what follows from the new rows.
    async def _committed(self, session: Session, effect: fx.Commit) -> None:
        try:
            held = await self._store.commit(effect.records, effect.urgent, effect.part)
        except Exception as error:
            self._reply(session, effect.task, error)
            return
        self.site.engine.apply([h.record for h in held if isinstance(h.record, Record)])
        self._reply(session, effect.task, held)
        self.follow()

    def _open_session(self, session: Session, effect: fx.OpenSession) -> None:
        client = self._client(session)
        client.key = session.client.number, session.client_id
        before = self._newest.get(client.key)
        if before is not None and before.session.state != "closed":
            if _newer(before.session, session):
                session.close("its session goes on in a newer connection")
                self._reply(session, effect.task, fx.Opened(False))
                return
            before.session.close("its session goes on in a newer connection")
        self._newest[client.key] = client
        self._ask(session, effect.task, self._opened(client, before, effect))

    async def _opened(
        self, client: _Client, before: _Client | None, effect: fx.OpenSession
    ) -> fx.Opened:
        session = client.session
        number, client_id = session.client.number, session.client_id
        if self.site.away is not None:
            raise fx.BrokerAway(self.site.away)
        self._registry.place(session)
        self.events.drain()
        if before is not None and not before.done.done():
            # What it began is done first: its rows, its filters at the broker.
            await asyncio.wait({before.done}, timeout=OPENING_S)
        known = await self.sessions.prepare(session.client, effect.gen, client_id, effect.clean)
        key = number, client_id
        if effect.clean:
            self._lives.pop(key, None)
            return fx.Opened(False)
        own = await self._own(client, clean=False)
        present = own.present
        if not present:
            self._lives[key] = self.control.losses
        life, losses = self._lives.get(key), self.control.losses
        doubtful = fx.MAYBE if life is None else fx.SURE if life == losses else fx.LOST
        subs = await self.sessions.subscriptions(key, effect.gen, known, present)
        return fx.Opened(present, tuple(subs), doubtful)

    async def _own(self, client: _Client, clean: bool) -> _Own:
        session = client.session
        run = self.events.run
        own = _Own(
            lambda packet: run(session.link_packet, packet),
            lambda reason: run(session.link_lost, reason),
            self._unfit,
        )
        name = self.site.broker_id(session.client.number, session.client_id)
        own.present = await own.open(self._address, name, clean)
        client.own = own
        return own

    def _subscribe(self, session: Session, effect: fx.Subscribe) -> None:
        client = self._client(session)
        if effect.link == fx.OWN:
            self._ask(session, effect.task, self._subscribed(client, effect))
            return
        filters = [filter for filter, _ in effect.filters]
        client.live.update(filters)
        # Held from now on: what is left after it is left after it.
        self._ask(session, effect.task, self._live.subscribe(session, filters))

    async def _subscribed(self, client: _Client, effect: fx.Subscribe) -> object:
        async with client.turn:
            if client.own is None and client.session.state != "closed":
                # The first $share of a clean session.
                own = await self._own(client, clean=True)
                own.pause(False)
                if client.session.state == "closed":
                    self._leave_own(client)
        if client.own is None:
            raise fx.BrokerAway("the session has ended")
        return await client.own.subscribe(effect.filters)

    async def _unsubscribed(self, client: _Client, effect: fx.Unsubscribe) -> None:
        async with client.turn:
            pass
        if client.own is not None:
            await client.own.unsubscribe(effect.filters)

    def _leave_own(self, client: _Client) -> None:
        own, client.own = client.own, None
        if own is not None:
            own.close()

    def _unsubscribe(self, session: Session, effect: fx.Unsubscribe) -> None:
        client = self._client(session)
        if effect.link == fx.LIVE:
            client.live.difference_update(effect.filters)
            self._live.unsubscribe(session, effect.filters)
            if effect.task:
                self._reply(session, effect.task, None)
        else:
            self._ask(session, effect.task, self._unsubscribed(client, effect))

    def _snapshot(self, session: Session, effect: fx.Snapshot) -> None:
        self._tokens += 1
        snapshot = self._snapshots.of(session.client.number, effect.filter)
        self._client(session).snapshots[self._tokens] = snapshot
        self._more(session, effect.task, self._tokens)

    def _snapshot_more(self, session: Session, effect: fx.SnapshotMore) -> None:
        self._more(session, effect.task, effect.token)

    def _more(self, session: Session, task: int, token: int) -> None:
        client = self._client(session)
        self._ask(session, task, self._some(client, token), ends=True)

    async def _some(self, client: _Client, token: int) -> fx.Some:
        snapshot = client.snapshots.get(token)
        if snapshot is None:
            return fx.Some((), None)
        try:
            messages, more = await snapshot.more()
        except BaseException:
            client.snapshots.pop(token, None)
            raise
        if not more:
            client.snapshots.pop(token, None)
        return fx.Some(messages, token if more else None)

    def _snapshot_drop(self, session: Session, effect: fx.SnapshotDrop) -> None:
        snapshot = self._client(session).snapshots.pop(effect.token, None)
        if snapshot is not None:
            snapshot.close()

    def _yield(self, session: Session, effect: fx.Yield) -> None:
        self._later(partial(self._reply, session, effect.task, None))

    # In each turn of the loop what fits into TURN_S, one at least, whoever they are of.
    def _later(self, step: Callable[[], None]) -> None:
        if not self._steps:
            asyncio.get_running_loop().call_soon(self._next_turn)
        self._steps.append(step)

    def _next_turn(self) -> None:
        until = time.monotonic() + TURN_S
        steps = self._steps
        while True:
            # It stands there until it is over: what it wants to do later is after it.
            steps[0]()
            steps.popleft()
            if not steps:
                return
            if time.monotonic() >= until:
                asyncio.get_running_loop().call_soon(self._next_turn)
                return

    def _ask_time(self, session: Session, effect: fx.AskTime) -> None:
        work = self.asking.time(session.client.number, effect.nonce, session.link.suite)
        self._ask(session, effect.task, work)

    def _provision(self, session: Session, effect: fx.Provision) -> None:
        work = self.asking.provision(effect.request, source_of(session.peer))
        self._ask(session, effect.task, work, ends=True)

    def _lock(self, session: Session, effect: fx.Lock) -> None:
        self._ask(session, effect.task, self._locks.take(effect.rows))

    # --- statements ---

    def _unlock(self, session: Session, effect: fx.Unlock) -> None:
        self._locks.free(effect.rows)

    def _forward(self, session: Session, effect: fx.Forward) -> None:
        sent, topic, payload, qos, retain, client = effect
        gen = session.link.gen
        journal = self.journal
        if sent is not None:
            sent.seq = journal.append(topic, payload, qos, retain, client, gen)
        elif retain and journal.refuses(client) is None:
            journal.append(topic, payload, 0, True, client, gen)
        self._publish.publish((session, effect), topic, payload, qos, retain, client, gen)
        if self._pressure.on:
            peer = self.events.peers.get(session)
            if peer is not None:
                self._pressure.stop(peer)

    def _answer(self, session: Session, effect: fx.Answer) -> None:
        client = self._clients.get(session)
        if client is not None and client.own is not None:
            client.own.send(effect.data)

    def _pause_link(self, session: Session, effect: fx.PauseLink) -> None:
        client = self._clients.get(session)
        if client is not None and client.own is not None:
            client.own.pause(effect.on)

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
        self._ask(session, effect.task, self.asking.confirm(effect.client, effect.gen))

    def _vouched(self, session: Session, effect: fx.Vouched) -> None:
        self.strangers.enter(session, effect.client)

    def _entered(self, session: Session, effect: fx.Entered) -> None:
        self._registry.enter(session)
        self.strangers.leave(session)
        self._channel_deadline(session, 0)

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
        client = self._clients.get(session)
        if client is None:
            return
        for task in list(client.tasks):
            task.cancel()
        for snapshot in client.snapshots.values():
            snapshot.close()
        client.snapshots.clear()
        self._leave_own(client)
        if client.live:
            self._live.unsubscribe(session, client.live)
            client.live = set()
        client.look()

    def _forget(self, client: _Client) -> None:
        self._clients.pop(client.session, None)
        if client.key is not None and self._newest.get(client.key) is client:
            del self._newest[client.key]

    # --- what was forwarded ---

    # The publish link's word for a message: a client's, or whoever waits for a will.
    def _accepted(self, token: Any) -> None:
        if isinstance(token, asyncio.Future):
            if not token.done():
                token.set_result(None)
            return
        session, effect = token
        sent = effect.sent
        if sent is None:
            return
        self.journal.acked(sent.seq)
        self.journal.when(sent.seq, self._durable, session, effect, self.control.losses)

    # If the broker was lost since it had it, it may have been lost with the broker.
    def _durable(self, session: Session, effect: fx.Forward, losses: int) -> None:
        if self.control.losses == losses:
            self.events.run(session.accepted, effect.sent)
            return
        item = Item((session, effect), *effect[1:], session.link.gen)
        if self._may(item):
            self._publish.publish(*item[:7])
        else:
            self._not_taken(item.sent, OVER)

    def _not_taken(self, token: Any, why: str) -> None:
        if isinstance(token, asyncio.Future):
            if not token.done():
                token.set_exception(over() if why == OVER else NotTaken(why))
            return
        session, effect = token
        self._spawn(self._refused(session, effect, why), "set aside")

    # On disk before its publisher hears of it: it is not tried again, by the journal either.
    async def _refused(self, session: Session, effect: fx.Forward, why: str) -> None:
        sent, topic, payload, qos, retain, client = effect
        if may_go_out(self.site.ring, client, session.link.gen, payload):
            await self.aside.put(topic, payload, qos, retain, client, why)
        if sent is not None:
            self.journal.acked(sent.seq)
            self.events.run(session.not_taken, sent, why)

    # Whether the broker has back what it lost. It answers on the control link, now: another link
    # may have heard sooner that it was lost.
    async def _has_all(self) -> None:
        while True:
            await self.control.ready.wait()
            with suppress(fx.BrokerAway):
                await self.control.life()
                if self.control.ready.is_set():
                    return

    # After a fall of the publish link; not before what the journal has to bring.
    async def _alone(self, item: Item) -> None:
        await self.control.ready.wait()
        if not self._may(item):
            raise NotTaken(OVER)
        await self._messages.publish(item.topic, item.payload, item.qos, item.retain)

    def _may(self, item: Item) -> bool:
        return may_go_out(self.site.ring, item.client, item.gen, item.payload)

    async def _publish_will(
        self, topic: bytes, payload: bytes, qos: int, retain: bool, client: int, gen: int
    ) -> None:
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._publish.publish(done, topic, payload, qos, retain, client, gen)
        if qos:
            await done

    def _name(self, number: int) -> str:
        client = self.site.ring.clients.get(number)
        return client.name if client is not None else str(number)

    # --- the broker ---

    def _live_packet(self, packet: Publish) -> None:
        self.events.run(fan_out, self.site, self._agenda.outboxes, packet)

    # A foreign publisher made it, or the broker spoilt it: our own are checked before they go out.
    def _unfit(self, packet: Unfit) -> None:
        topic, reason = plain(packet.topic.decode(errors="replace"), 200), packet.reason[:500]
        rule = "mediator.broker.unfit"
        self._audit.write("packet-refused", rule=rule, reason=reason, topic=topic)

    def _live_lost(self, reason: str) -> None:
        for client in list(self._clients.values()):
            if client.live:
                client.live.clear()
                self.events.run(client.session.link_lost, reason)

    def _away(self) -> None:
        self.site.away = self.control.away or self._live.away
        self.changed()

    def _broker_seen(self, reason: str | None) -> None:
        if reason is None:
            self._audit.write("broker-back", address=self._address.name)
            return
        self._audit.write("broker-away", reason=reason[:500])
        self.journal.broker_lost()
        self._messages.close()
        for session in list(self._agenda.by_policy.values()):
            self.events.run(session.link_lost, reason)

    async def _broker_back(self) -> None:
        if not self._tried:
            self.site.takes = await try_broker(self._address)
            self._tried = True
        self.events.look()
        replay = Replay(
            self.site, self.journal, self.control, self.aside, self._messages.publish, self._audit
        )
        await replay.run()
        self.sessions.sweep()

    # The broker may not be what it was when it was tried.
    def _retry(self) -> None:
        self._tried = False

    async def _forget_at_broker(self, client_id: str) -> None:
        own = OwnLink(lambda packet: None, lambda reason: None)
        await own.open(self._address, client_id, True)
        own.close()

    def _journal_says(self, reason: str | None) -> None:
        if reason is None:
            self._audit.write("store-back")
        else:
            log.error("QoS 1 and 2 are refused: %s", reason)
            self._audit.write("store-unavailable", reason=reason[:500])

    def _journal_dropped(self, size: int, reason: str) -> None:
        log.error("the journal cannot be read: %d bytes are lost: %s", size, reason)
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

    # --- policy ---

    def family_fault(self, family: str, question: str, error: Exception) -> None:
        """A family failed; the engine has made a deny of it."""
        log.error("family %s failed at %s: %r", family, question, error)
        reason = type(error).__name__
        self._audit.write("family-fault", family=family, question=question, reason=reason)

    async def commit(self, records: list[StoreRecord], urgent: bool = False) -> None:
        """Makes records durable, then lets the families index what really holds: when this returns,
        nothing is judged by what was before. Raises StoreUnavailable.
        """
        held = await self._store.commit(records, urgent)
        self.site.engine.apply([h.record for h in held if isinstance(h.record, Record)])
        self.follow()

    def apply(self, records: list[Record], part: str = "") -> None:
        """Goes by what another worker has committed. `part`: of readers of these topics, what was
        counted until now is written down before.
        """
        if part:
            self._audit.part(part)
        self.site.engine.apply(records)
        self.follow()

    def follow(self) -> None:
        """Subscriptions that the policy may see otherwise now are paused, or resumed.

        One command may reach very many: a slice at a time, and others are served between. No
        delivery depends on when, each is judged by what holds then.
        """
        waits = bool(self._due)
        for conn, raw in self.site.engine.due():
            self._due.setdefault(conn, {})[raw] = None
        if self._due and not waits:
            self._later(self._follow_one)

    # It gives others a turn by itself, after the first.
    def _follow_one(self) -> None:
        conn = next(iter(self._due))
        raws = self._due.pop(conn)
        session = self._agenda.by_policy.get(conn)
        if session is not None:
            self.events.run(session.subs.due, raws)
        if self._due:
            self._later(self._follow_one)

    async def reload(self, config: Config) -> None:
        """Takes a changed sealmq.toml over, live; nothing happens if it says the same as before.

        Raises StoreUnavailable: then what a family wanted to keep is not kept, and asked again.
        """
        site = self.site
        if config == site.config:
            site.config = config  # its text may be another one
            return
        if config.site.id != site.ring.site:
            # The key generator refuses it too: nothing of such a file counts.
            log.error("sealmq.toml is not taken over: it names another site's id")
            return
        self._say_later(config)
        reloaded = site.engine.reload(config, enforce=config.policy.enforce)
        await self.commit(list(reloaded.records), urgent=True)
        for record in reloaded.records:
            if isinstance(record, TopicReset):
                self._audit.write("topic-reset", topic=record.topic)
        site.config = config
        site.retained_bytes.most = config.limits.retained_mib << 20
        self.journal.most = self._begin.journal_most(config)
        self._audit.write(
            "config-reloaded", enforce=site.engine.enforce, order=list(config.policy.order)
        )
        self.warn()
        for conn in reloaded.connections:
            session = self._agenda.by_policy.get(conn)
            if session is not None:
                self.events.run(session.policy_changed)
        self.follow()

    # What counts from the next start on only.
    def _say_later(self, config: Config) -> None:
        before = self.site.config
        if not self._begin.first:
            return
        if config.policy.order != before.policy.order:
            log.warning("[policy] order is taken over at the next start")
        if config.mediator != before.mediator:
            log.warning("[mediator] is taken over at the next start, but for on_denied")
        queues = [(c.limits.queue_messages, c.limits.queue_kib) for c in (config, before)]
        if queues[0] != queues[1]:
            log.warning("[limits] queue_messages and queue_kib are taken over at the next start")

    def warn(self) -> None:
        """Says loudly, in the log and in the audit, what weakens this site."""
        for warning in self.site.engine.warnings:
            if self._begin.first:
                log.warning("%s", warning)
            event = "policy-off" if warning == OFF else "site-closed"
            self._audit.write(event, reason=warning)

    # --- keys ---

    def take_ring(self, ring: Keyring) -> None:
        """New keys: sessions learn of new epochs, those of disabled clients end."""
        site = self.site
        if ring.public() != site.ring.public():
            self.control.republish()
        if ring.inst != site.order.inst:
            site.order = Order(ring.inst)
        before, site.ring = site.ring, ring
        if ring.bearers() != before.bearers():
            self._new_bearers(ring.bearers())
        left = [future for future in self._last_of if not future.done()]
        for session in list(self._agenda.by_policy.values()):
            self.events.run(session.keys_changed, before)
            client = self._clients.get(session)
            if session.state == "closed" and client is not None:
                left.append(client.done)
        self._last_of = left
        if ring.closed != site.engine.closed:
            self._close_site(ring.closed)
        self.sessions.sweep()
        self.asking.news()

    async def ended(self) -> None:
        """Waits for what sessions had begun that the newest keys have ended."""
        if self._last_of:
            await asyncio.wait(self._last_of)

    # Clients bear names that others had: what these made or left is not theirs.
    def _new_bearers(self, since: dict[str, int]) -> None:
        if self.site.engine.noted(since) and self._begin.first:
            self._spawn(self._rewrite(since), "rows of clients that are gone")

    # There may be a million. What is not done is done at the next start.
    async def _rewrite(self, since: dict[str, int]) -> None:
        await self._locks.alone()
        try:
            engine = self.site.engine
            records = await asyncio.to_thread(engine.bearers, since, self._store.records)
            await self.commit(list(records))
        finally:
            self._locks.together()

    # Whoever is connected begins anew: what was refused, or delivered, is asked for once more.
    def _close_site(self, reason: str) -> None:
        self.site.engine.close_site(reason)
        if reason:
            self.warn()
        else:
            log.warning("the site was reopened")
            self._audit.write("site-reopened")
        self.stop("the site was closed" if reason else "the site was reopened")


class _Own(OwnLink):
    """`present`: whether the broker had this session."""

    present = False


def _newer(one: Session, other: Session) -> bool:
    """Whether `one` was proved later than `other`, of the same client."""
    return _place(one) > _place(other)


def _place(session: Session) -> tuple[int, int, int]:
    return session.link.gen, session.link.boot, session.conn_no
