"""To one reader (GATEWAY.md G2): its outbox.

An outbox holds, in order, messages that wait for the reader's socket, its window of unacknowledged
messages, a new epoch's keys or a snapshot. A message is judged and sealed when it is written, not
when it came: so it is fresh, under an epoch that the reader holds, and nothing goes out that is
denied by then. An outbox is bounded. At the bound, the oldest messages of QoS 0 are dropped, a live
reader of QoS 1 or 2 is ended, and nothing more is read from an own link.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import NamedTuple, Protocol

from sealmq.families.duties import (
    SealToGrant,
    SealToLink,
    at_most,
    items_put,
    look_inside,
    sealed_anew,
)
from sealmq.families.engine import Decision
from sealmq.kinds import OF_THE_SITE
from sealmq.mqtt import Pubacks, Pubcomp, Publish, Pubrec, Pubrel, build
from sealmq_spec.const import CLEAR, LIVE, QUEUED, WINDOW_S
from sealmq_spec.errors import NoKey, SealError
from sealmq_spec.topics import matches

from .announcements import Announcements
from .effects import LOST, Answer, PauseLink, Yield
from .fan_out import Outboxes
from .fetches import Fetch, Fetches
from .keyring import Keyring
from .limits import HOLD_S
from .message import Message
from .session_api import SessionApi
from .table import WAITS, Copies, SubscriptionTable
from .tasks import Task
from .wrap import Inside, for_one, is_over

WINDOW = 64
"""Messages of QoS 1 and 2 that a client has not acknowledged; a boot session may send as many. How
much of them a device has to hold, its socket's buffers bound: it takes one after the other.
"""
_IDS = 65_536

# Bytes that a waiting message counts beside topic and payload.
_EACH = 200
# The entry of a message of QoS 1 from the live link, as most are.
_LIVE_1 = (1, 0)
# Bytes written to a client before others have a turn.
_CHUNK = 64 * 1024
# Without the key generator no client can get the new keys: they are waited for again.
_PATIENCE_S = 5.0
# A live copy of what a snapshot brought comes within this; for so many that is remembered.
_SNAPSHOT_S = 30
_BROUGHT = 256
_OWN_TOPICS = 256


class Reader(SessionApi, Protocol):
    """What outbox and subscriptions use of a session."""

    @property
    def receive_max(self) -> int: ...
    @property
    def outboxes(self) -> Outboxes: ...
    @property
    def client_id(self) -> str: ...
    @property
    def token_low(self) -> int: ...
    @property
    def clean(self) -> bool: ...
    @property
    def doubtful(self) -> int: ...
    @property
    def delivery(self) -> Delivery: ...

    def stop(self, reason: str, code: int = ...) -> None: ...


def _no_identifiers(topic: str) -> Sequence[int]:
    return ()


class _Item(NamedTuple):
    """What waits. `own`: its packet id on the own link; 0: none. `size`: what counts for the
    bounds; `waits`: for a snapshot.
    """

    message: Message
    qos: int
    own: int
    by_own: bool
    waits: bool
    size: int


class Delivery:
    """The outbox of one open session. `holds`: it waits for a new epoch."""

    def __init__(self, session: Reader) -> None:
        self._session = session
        self._site, self._outboxes = session.site, session.outboxes
        self._room = session.outboxes.room
        self._wire, self._window = session.wire, min(WINDOW, session.receive_max)
        self._alone, self._keeps = session.wire.alone, session.wire.keeps
        # The identifiers of the client's subscriptions that match a topic.
        self.identifiers: Callable[[str], Sequence[int]] = _no_identifiers
        self._policy = session.policy
        self.name = session.client.name
        self.announced = Announcements(session.site, session.client.label, session.down)
        self._known = self.announced.known
        # What the own link may bring: filters, each by whatever holds it there.
        self.own_table: SubscriptionTable[Hashable] = SubscriptionTable(_OWN_TOPICS)
        self._kept = not session.clean
        self._queue: deque[_Item] = deque()
        self._snapshot: deque[_Item] = deque()
        self._loose = self._live = self._own = 0
        self._paused = self._draining = False
        self._writable = True
        # Whether a message cannot just go out; whether one that waits may go out now.
        self._busy = self.freed = False
        self._closed = False
        # Packet id -> (QoS, packet id on the own link or 0).
        self._under_way: dict[int, tuple[int, int]] = {}
        self._of_own: dict[int, int] = {}
        # Of the own link, received by the client: the broker's PUBREL comes next.
        self._unreleased: set[int] = set()
        # Where the client may hold ids for other messages: a bit for each that it was made to
        # forget; and those of which it has not said so yet.
        self._told = bytearray(_IDS // 8) if session.doubtful else None
        self._forgetting: set[int] = set()
        self._newest_id = 0
        # Snapshots; and what they brought that may come live as well.
        self.fetches = Fetches(session, self)
        self._brought = Copies(_BROUGHT, self._room.loose // 2)
        self._brought_s = 0.0
        self.holds = False
        self._wanted = 0
        self._until = 0.0
        client = session.client
        label = self._site.ring.labels.get(client.label)
        # 0: a generation from before such things were written down.
        self.epoch = client.epochs.get(session.link.gen, 0) or (label.epoch if label else 0)
        self._look_at_keys()

    # --- in ---

    def deliver(self, message: Message, value: int) -> None:
        """One of the live link. value: as the table has it."""
        waits = value > 2
        qos = min(value & 3, message.qos) if waits else min(value, message.qos)
        if self._busy or waits or (qos and len(self._under_way) >= self._window):
            self._put(message, qos, 0, False, waits)
        else:
            self._send(message, qos, 0, False)

    def failed(self) -> None:
        """It could not be delivered to."""
        self._session.close("internal error")

    def own(self, packet: Publish) -> None:
        """One of the own link, which only sends what this client has."""
        if not packet.payload or not self.own_table.match(packet.topic):
            # A clear carries nothing that could be verified.
            self._withhold(packet.qos, packet.packet_id)
            return
        try:
            message = Message(self._site, packet)
        except SealError as error:
            self._deny(packet.topic, type(error))
            self._withhold(packet.qos, packet.packet_id)
            return
        if self._busy or (packet.qos and len(self._under_way) >= self._window):
            self._put(message, packet.qos, packet.packet_id, True, False)
        else:
            self._send(message, packet.qos, packet.packet_id, False)

    def own_released(self, packet: Pubrel) -> None:
        """The broker's PUBREL. A kept session's client answers it, even if the message was
        withheld: it may hold the id since an earlier connection, and would take the next message
        for that.
        """
        own = packet.packet_id
        self._unreleased.discard(own)
        if self._kept:
            self._session.write(self._wire.pubrel(own))
        elif own in self._of_own:
            self._session.write(self._wire.pubrel(self._of_own[own]))
        else:
            self._session.emit(Answer(build.pubcomp(own)))

    def acked(self, packet: Pubacks | Pubrec | Pubcomp) -> None:
        """The client's answer to what was delivered; `go_on` after the last of them."""
        if not isinstance(packet, Pubacks):
            self._answered(packet, packet.packet_id)
            return
        under_way = self._under_way
        for number in packet.packet_ids:
            if under_way.get(number) is _LIVE_1:
                del under_way[number]
            else:
                self._answered(packet, number)
        self.freed = self._busy

    def _answered(self, packet: Pubacks | Pubrec | Pubcomp, number: int) -> None:
        qos, own = self._under_way.get(number) or (0, number if self._kept else 0)
        if isinstance(packet, Pubrec):
            self._forgetting.discard(number)
            if own:
                self._session.emit(Answer(build.pubrec(own)))
                if number in self._under_way:
                    self._unreleased.add(own)
                    self._look_at_room()
            else:
                # It came over the live link; or the id is over, and is ended here, too.
                self._session.write(self._wire.pubrel(number))
            return
        if qos and qos != (1 if isinstance(packet, Pubacks) else 2):
            return  # no answer to that
        if number in self._forgetting:
            self._forgetting.discard(number)
            return  # the broker did not ask
        if own:
            make = build.puback if isinstance(packet, Pubacks) else build.pubcomp
            self._session.emit(Answer(make(own)))
            self._of_own.pop(own, None)
            self._unreleased.discard(own)
        self._under_way.pop(number, None)
        self.freed = self._busy

    def go_on(self) -> None:
        """What the client's answers have made room for goes out, if there is any (`freed`)."""
        if self.freed:
            self.freed = False
            self._pump()

    @property
    def is_writable(self) -> bool:
        """Whether the client's socket takes more."""
        return self._writable

    def writable(self, on: bool) -> None:
        """It does from now on, or does not."""
        self._writable = on
        self._pump()

    # --- what waits ---

    def _put(self, message: Message, qos: int, own: int, by_own: bool, waits: bool) -> None:
        if not by_own and message.key in self._brought:
            return  # the snapshot had it
        size = len(message.payload) + len(message.topic) + _EACH
        queue, room = self._queue, self._room
        queue.append(_Item(message, qos, own, by_own, waits, size))
        self._outboxes.held += size
        # The first one could not go out before, and still cannot.
        waits_on = len(queue) > 1 and not self._snapshot
        if not qos:
            self._loose += size
            if not waits_on:
                self._pump()
            if self._loose > room.little and self._loose > self._most(room.loose):
                self._shorten()
        elif by_own:
            self._own += size
            if not waits_on or self._own > room.little:
                self._pump()
        else:
            self._live += size
            if not waits_on or self._live > room.little:
                self._pump()
                # One comes on top: it may be larger than the bound.
                before = self._live - size
                if before > room.little and before > self._most(room.sure):
                    self._end(message)

    # All outboxes together are bounded, too: then the fuller ones give way.
    def _most(self, most: int) -> int:
        room = self._room
        return most if self._outboxes.held <= room.together else min(most, room.each)

    # A silent gap would break QoS 1 and 2. A client that comes again begins anew.
    def _end(self, message: Message) -> None:
        label = message.label
        self._site.counts.count_denied(self.name, message.topic, "mediator.deliver.full", label)
        self._session.stop(f"it does not take its messages: {self._live} bytes of QoS 1 and 2 wait")

    # The oldest of QoS 0 go, those of QoS 1 and 2 keep their places.
    def _shorten(self) -> None:
        # To half of it: else every further message would go through the whole queue.
        most = self._most(self._room.loose) // 2
        kept: deque[_Item] = deque()
        newest = self._queue[-1] if self._queue else None
        for item in self._queue:
            if item.qos or not item.size or self._loose <= most or item is newest:
                kept.append(item)
                continue
            self._leaves(item)
            message = item.message
            rule = "mediator.deliver.slow"
            self._site.counts.count_denied(self.name, message.topic, rule)
        self._queue = kept

    def _leaves(self, item: _Item) -> None:
        self._outboxes.held -= item.size
        if not item.qos:
            self._loose -= item.size
        elif item.by_own:
            self._own -= item.size
        else:
            self._live -= item.size

    # Sends what can go out now, in order.
    def _pump(self) -> None:
        if self._closed or self._draining:
            return
        written = 0
        while (queue := self._next()) is not None:
            item = queue.popleft()
            self._leaves(item)
            written += len(item.message.payload) + _EACH
            self._send(item.message, item.qos, item.own, True, item.by_own)
            if written > _CHUNK and (self._queue or self._snapshot):
                self._draining = True
                self._session.beside(self._drain())
                break
        self._look_at_room()

    def _drain(self) -> Task:
        yield Yield(0)
        self._draining = False
        self._pump()

    def _next(self) -> deque[_Item] | None:
        if self._closed or not self._writable or self.holds:
            return None
        queue = self._queue
        # A reader that is slow gets live messages before its snapshot: those are bounded.
        live, room = self._live, self._room
        pressed = live > room.little and live > self._most(room.sure) // 2
        if self._snapshot and not (queue and pressed):
            queue = self._snapshot
        if not queue:
            return None
        item = queue[0]
        if item.qos and len(self._under_way) >= self._window:
            return None
        if item.waits and not pressed and self._still_waits(item):
            return None
        return queue

    def _still_waits(self, item: _Item) -> bool:
        return self._outboxes.table.match(item.message.topic).get(self, 0) & WAITS > 0

    def _look_at_room(self) -> None:
        if not self._snapshot:
            self.fetches.go_on()
        self._busy = bool(
            self._queue
            or self._snapshot
            or len(self._brought)
            or self.holds
            or self._draining
            or not self._writable
        )
        full = self._own > self._room.little and self._is_full()
        if full != self._paused and not self._closed:
            self._paused = full
            self._session.emit(PauseLink(full))

    # PUBREL comes after all that the broker has sent before: where the whole window waits for it,
    # nothing moves unless the link is read on.
    def _is_full(self) -> bool:
        most = self._most(self._room.sure)
        return self._own > (most // 2 if self._paused else most) and not (
            self._unreleased and len(self._unreleased) >= len(self._under_way)
        )

    # --- out ---

    def _send(
        self, message: Message, qos: int, own: int, waited: bool, by_own: bool | None = None
    ) -> None:
        site = self._site
        if waited and not self._wants(message, own > 0 if by_own is None else by_own):
            self._withhold(qos, own)
            return
        if message.record:
            self._write(message, message.payload, qos, own, self.identifiers(message.topic))
            return
        topic, label, now_ms = message.topic, message.label, site.now_ms
        try:
            if message.from_ms <= now_ms <= message.until_ms and message.ring is site.ring:
                how, payload, inside = message.form
            else:
                how, payload, inside = message.formed(site, waited)
            if message.retain:
                site.retained.came(topic, message.s2, message.seq)
        except SealError as error:
            self._deny(topic, type(error))
            self._withhold(qos, own)
            return
        # What is inside is opened for policy only where a family looks at it.
        if inside is None:
            decision = self._policy.deliver(topic, label, how, now_ms, len(message.payload))
        elif inside.kind == CLEAR and self._session.client.kind not in OF_THE_SITE:
            self._withhold(qos, own)  # it is for bridges and borders
            return
        else:
            decision = self._ask_about(message, how, inside, now_ms)
        if decision.duties and look_inside(decision.duties):
            try:
                how, payload, inside, decision = self._for_one(
                    message, how, payload, inside, decision
                )
            except SealError as error:
                self._deny(topic, type(error))
                self._withhold(qos, own)
                return
        if not decision.allow:
            self._withhold(qos, own)
            sender = "" if inside is None else self._name(inside.sender)
            site.counts.count_denied(self.name, topic, decision.rule, label, sender, decision.audit)
            return
        if decision.duties:
            most = at_most(decision.duties, qos)
            if most < qos and not (own and most):
                # The broker gave it more, and is answered instead of the client.
                self._withhold(qos, own)
                qos, own = most, 0
        if inside is not None:
            self.announced.records(message.number, inside.epoch)
        elif message.number not in self._known:
            self.announced.records(message.number)
        if self._alone is not None:
            if not self._write_alone(message, payload, qos, own):
                return
        elif qos:
            self._write(message, payload, qos, own)
        else:
            self._session.write(message.loose(self._wire, payload))
        site.counts.count_delivered(self.name, topic, label, decision.audit)
        if decision.counted:
            self._policy.delivered(decision, now_ms)
        if decision.overridden:
            site.counts.count_unenforced(self.name, topic, decision.rule, "deliver")
        if "delivered" in site.engine.listens:
            size = len(payload)
            self._policy.saw("delivered", topic, now_ms, label=label, qos=qos, how=how, size=size)

    def _ask_about(self, message: Message, how: int, inside: Inside, now_ms: int) -> Decision:
        return self._policy.deliver(
            message.topic,
            message.label,
            how,
            now_ms,
            len(message.payload),
            inside.tlv,
            (inside.boot, inside.ctr),
            inside.age_s(now_ms) * 1000,
            message.grant,
        )

    # A family goes by who has sent it, demands that this reader's m3 is sealed to its link, or puts
    # items into it. What the decision is by then, since `how` may be another one.
    def _for_one(
        self, message: Message, how: int, payload: bytes, inside: Inside | None, decision: Decision
    ) -> tuple[int, bytes, Inside, Decision]:
        site = self._site
        now_ms, ring, order = site.now_ms, site.ring, site.order
        if inside is None:
            inside = message.inside(site)
        sender = self._name(inside.sender)
        decision = self._policy.for_sender(decision, sender)
        if not sealed_anew(decision.duties):
            return how, payload, inside, decision
        label = ring.labels[message.number]
        if how == LIVE and is_over(label, inside.epoch, max(now_ms, order.ms) // 1000):
            # It was sealed before the end of its epoch's hand-over, and a fresh s2 lies after it.
            how = QUEUED
            decision = self._ask_about(message, how, inside, now_ms)
            decision = self._policy.for_sender(decision, sender)
        duties, topic = decision.duties, message.packet.topic_raw
        items = items_put(duties, inside.passes)
        for duty in duties:
            if type(duty) is SealToGrant:
                grant = ring.grants.get((duty.family, duty.name))
                if grant is None or self._session.client.number not in grant.holders:
                    raise NoKey(f"{self.name} holds no grant {duty.name} of {duty.family}")
                payload = message.for_holders(site, inside, items, grant, how)
                self.announced.grant(grant)
                return how, payload, inside, decision
        link = self._session.link if SealToLink() in duties else None
        payload = for_one(ring, order, label, inside, items, link, how, topic, now_ms)
        return how, payload, inside, decision

    # A client that was removed since has no name any more, and none of its messages one.
    def _name(self, number: int) -> str:
        client = self._site.ring.clients.get(number)
        return "" if client is None else client.name

    def _wants(self, message: Message, by_own: bool) -> bool:
        if by_own:
            return bool(self.own_table.match(message.topic))
        return self in self._outboxes.table.match(message.topic)

    def _write(
        self, message: Message, payload: bytes, qos: int, own: int, ids: Sequence[int] = ()
    ) -> None:
        if not qos:
            if self._alone is None:
                data = message.loose(self._wire, payload)
            else:
                data = self._alone(message, payload, 0, False, 0, ids)
            self._session.write(data)
            return
        dup = False
        if self._kept:
            number, dup = own, message.dup
            if qos == 2 and self._told is not None:
                self._forget(number, dup)
        else:
            number = self._newest_id % 65_535 + 1
            if number in self._under_way:
                number = self._free_id(number)
            self._newest_id = number
            if own:
                self._of_own[own] = number
        self._under_way[number] = _LIVE_1 if qos == 1 and not own else (qos, own)
        if self._alone is None:
            data = message.sure(self._wire, payload, qos, dup, number)
        else:
            data = self._alone(message, payload, qos, dup, number, ids)
        self._session.write(data)

    # Whether the wire lets this message through to this reader.
    def _write_alone(self, message: Message, payload: bytes, qos: int, own: int) -> bool:
        keeps, topic = self._keeps, message.topic
        ids = self.identifiers(topic)
        rule = keeps(message, payload, qos, ids) if keeps is not None else ""
        if rule:
            self._withhold(qos, own)
            self._site.counts.count_denied(self.name, topic, rule, message.label)
            return False
        self._write(message, payload, qos, own, ids)
        return True

    # A broker that lost what it had draws ids anew. DUP says that it has sent this one before, not
    # that the client has it: of a broker that was lost it may come twice, and windows drop it.
    def _forget(self, number: int, dup: bool) -> None:
        told, bit = self._told, 1 << (number & 7)
        if told is None or told[number >> 3] & bit:
            return
        told[number >> 3] |= bit
        if not dup or self._session.doubtful == LOST:
            self._forgetting.add(number)
            self._session.write(self._wire.pubrel(number))

    def _free_id(self, number: int) -> int:
        while number in self._under_way:
            number = number % 65_535 + 1
        return number

    def _deny(self, topic: str, error: type[SealError]) -> None:
        rule = "mediator.deliver." + error.__name__.lower()
        self._site.counts.count_denied(self.name, topic, rule)

    # Acknowledges it instead of the client: else the broker's window would stall.
    def _withhold(self, qos: int, own: int) -> None:
        if not own:
            return
        if qos == 1:
            self._session.emit(Answer(build.puback(own)))
        elif qos == 2:
            self._session.emit(Answer(build.pubrec(own)))

    # --- subscriptions ---

    def left(self) -> None:
        """A filter has gone: what waits for it alone goes, too."""
        queue, self._queue = self._queue, deque()
        for item in queue:
            if self._wants(item.message, item.by_own):
                self._queue.append(item)
            else:
                self._leaves(item)
                self._withhold(item.qos, item.own)
        self._pump()

    @property
    def takes_more(self) -> bool:
        """Whether all of the snapshots that came before has been sent."""
        return not self._snapshot

    def came(self, fetch: Fetch, copies: Iterable[Publish], opens: bool) -> None:
        """Some of a snapshot. opens: it was the last, and messages of its filter have waited."""
        self._merge(fetch, copies)
        table = self._outboxes.table
        if opens and (value := table.value(self, fetch.filter)) >= 0:
            table.enter(self, fetch.filter, value & 3)
        self._pump()

    # A copy that waits as a live message is that; one that is newer than those that wait for its
    # topic goes after them; others go before.
    def _merge(self, fetch: Fetch, copies: Iterable[Publish]) -> None:
        keys = set()
        newest: dict[str, tuple[int, bytes]] = {}
        for item in self._queue:
            message = item.message
            if not message.record and not item.by_own:
                keys.add(message.key)
                newest[message.topic] = max(newest.get(message.topic, (0, b"")), message.place)
        for packet in copies:
            if not packet.payload or not matches(fetch.filter, packet.topic):
                continue
            try:
                message = Message(self._site, packet._replace(retain=True, dup=False))
            except SealError as error:
                self._deny(packet.topic, type(error))
                continue
            item = _Item(message, min(fetch.qos, packet.qos), 0, False, False, 0)
            if message.record:
                self._snapshot.append(item)
                continue
            if message.key in keys:
                continue
            if message.s2 > fetch.ms - WINDOW_S * 1000:
                self._brought.again(message.key)
                self._brought_s = self._site.mono_s
            after = message.place > newest.get(message.topic, message.place)
            (self._queue if after else self._snapshot).append(item)

    # --- epochs (SPEC.md 7.2) ---

    def keys_changed(self, before: Keyring) -> None:
        """The site has a new keyring, and this client goes on."""
        self.announced.keys_changed(self._session.client.number)
        label = self._site.ring.labels[self._session.client.label]
        if before.labels.get(label.number) != label:
            self.announced.epoch(label)
        self._look_at_keys()

    def epoch_answered(self, epoch: int) -> bool:
        """A provisioning answer that brings this epoch has been passed on. Whether it is new."""
        held = self.epoch
        self.announced.forget()
        self.epoch = max(held, epoch)
        self._look_at_keys()
        return self.epoch > held

    def _look_at_keys(self) -> None:
        wanted = self._site.ring.lacks(self._session.client, self.epoch)
        if not wanted:
            self.holds = False
        elif wanted > self._wanted:
            # An epoch is waited for only once.
            self._wanted = wanted
            self._until = self._site.mono_s + HOLD_S
            self.holds = True
        self._pump()

    def tick(self) -> None:
        """About once a second."""
        site = self._site
        if len(self._brought) and self.fetches.idle and site.mono_s - self._brought_s > _SNAPSHOT_S:
            self._brought.clear()
            self._look_at_room()
        if not self.holds or site.mono_s < self._until:
            return
        if not site.kg_there:
            self._until = site.mono_s + _PATIENCE_S
            return
        label = site.ring.labels[self._session.client.label].name
        self._session.audit("handover-missed", client=self.name, label=label, epoch=self._wanted)
        self.holds = False
        self._pump()

    def close(self) -> None:
        """The session is over. The broker still has what came over the own link."""
        self._closed = True
        self._outboxes.table.drop(self)
        self._outboxes.held -= self._loose + self._live + self._own
        self._loose = self._live = self._own = 0
        self.fetches.close()
        for waits in (self._queue, self._snapshot):
            waits.clear()
        self._brought.clear()
