"""Open sessions with real keys, policy and table, and a shell that carries out their effects when
the test says, on a broker and a store that are tables. No socket, no loop.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import pytest

from families.gate import Gate
from mediator_world import HIGH, LOW, NOW_MS, PANEL, SENSOR, SIBLING, World, as_read, sealed
from sealmq.families.api import Audited, Family
from sealmq.families.engine import Engine
from sealmq.families.labels.family import Labels
from sealmq.mediator.core import delivery, message
from sealmq.mediator.core.effects import (
    LIVE,
    OWN,
    Answer,
    Audit,
    Commit,
    End,
    PauseLink,
    Snapshot,
    SnapshotDrop,
    SnapshotMore,
    Some,
    Subscribe,
    Unsubscribe,
    Yield,
)
from sealmq.mediator.core.fan_out import fan_out
from sealmq.mediator.core.keyring import Keyring
from sealmq.mediator.core.session import OPENING, Agenda, Session
from sealmq.mediator.core.site import BrokerFace, Counts, Site
from sealmq.mediator.core.wire import V311, Wire
from sealmq.mediator.core.wrap import open_m2, seal_m3, verify_m2
from sealmq.mqtt import Decoder, Packet, Publish, Suback, Unsuback
from sealmq.mqtt import Subscribe as SubscribePacket
from sealmq.mqtt import Unsubscribe as UnsubscribePacket
from sealmq.order import Order
from sealmq.site.check import parse
from sealmq.site.config import Config
from sealmq.store.records import KeptSub, KeptSubGone
from sealmq_spec.const import CLEAR, UNSUBSCRIBE
from sealmq_spec.const import LIVE as HOW_LIVE
from sealmq_spec.topics import matches

REFUSED = 0x80

POLICY = """
[site]
name = "small"
id = "00c0ffee"
[labels]
low = []
high = ["low"]
[clients]
sensor = { label = "low" }
panel = { label = "high", kind = "app" }
sibling = { label = "low" }
"""


class Counted(Counts):
    """Counts as the audit log does."""

    def __init__(self) -> None:
        self.delivered: list[tuple[str, str]] = []
        self.denied: list[tuple[str, str, str]] = []
        # Of each denied one its sender, and what families say of it.
        self.whose: list[tuple[str, ...]] = []

    def count_accepted(self, client: str, topic: str, label: str) -> None:
        """Publishers' are not counted here."""

    def count_unenforced(self, client: str, topic: str, rule: str, question: str) -> None:
        """Everything is enforced here."""

    def count_delivered(self, client: str, topic: str, label: str, audit: Audited = ()) -> None:
        self.delivered.append((client, topic))

    def count_denied(
        self,
        client: str,
        topic: str,
        rule: str,
        label: str = "",
        sender: str = "",
        audit: Audited = (),
    ) -> None:
        self.denied.append((client, topic, rule))
        self.whose.append((sender, *(value for _, value in audit)))


class Broker:
    """`grants`: what it makes of a filter and a QoS. `own`: of each session with an own link."""

    def __init__(self) -> None:
        self.live: dict[str, set[Session]] = {}
        self.own: dict[Session, dict[str, int]] = {}
        self.retained: dict[str, Publish] = {}
        self.grants: Callable[[str, int], int] = lambda filter, qos: qos
        self.snapshots: dict[int, list[Publish]] = {}
        self._tokens = 0

    def subscribe(self, session: Session, effect: Subscribe) -> list[int]:
        codes = []
        for filter, qos in effect.filters:
            code = self.grants(filter, 2 if effect.link == LIVE else qos)
            codes.append(code)
            if code == REFUSED:
                continue
            if effect.link == LIVE:
                self.live.setdefault(filter, set()).add(session)
            else:
                self.own.setdefault(session, {})[filter] = code
        return codes

    def unsubscribe(self, session: Session, effect: Unsubscribe) -> None:
        for filter in effect.filters:
            if effect.link == LIVE:
                holders = self.live.get(filter, set())
                holders.discard(session)
                if not holders:
                    self.live.pop(filter, None)
            else:
                self.own.get(session, {}).pop(filter, None)

    def of(self, session: Session) -> dict[str, int]:
        """The filters of a session, whichever link they are on; live ones with QoS 2."""
        live = {filter: 2 for filter, holders in self.live.items() if session in holders}
        return {**live, **self.own.get(session, {})}

    def snapshot(self, filter: str) -> Some:
        return self._chunk([p for t, p in self.retained.items() if matches(filter, t)])

    def more(self, token: int) -> Some:
        return self._chunk(self.snapshots.pop(token))

    def _chunk(self, rest: list[Publish]) -> Some:
        if len(rest) <= 64:
            return Some(rest, None)
        self._tokens += 1
        self.snapshots[self._tokens] = rest[64:]
        return Some(rest[:64], self._tokens)


class Question(NamedTuple):
    session: Session
    effect: Any


class Client:
    """What a session's client was sent. `told`: without control packets, which `all` has, too."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.told: list[Packet] = []
        self.all: list[Packet] = []
        self._decoder = Decoder(1 << 24, "client")

    def take(self) -> list[Packet]:
        """What has come since."""
        data, self.session.out[:] = b"".join(self.session.out), []
        came = list(self._decoder.feed(data))
        got = [p for p in came if not self._is_control(p)]
        self.all += came
        self.told += got
        return got

    @staticmethod
    def _is_control(packet: Packet) -> bool:
        return isinstance(packet, Publish) and packet.topic == "!c1"

    @property
    def messages(self) -> list[Publish]:
        """Messages among it."""
        self.take()
        return [packet for packet in self.told if isinstance(packet, Publish)]

    @property
    def acks(self) -> list[tuple[str, int, tuple[int, ...]]]:
        """SUBACKs and UNSUBACKs among it, short."""
        self.take()
        rows: list[tuple[str, int, tuple[int, ...]]] = []
        for packet in self.told:
            if isinstance(packet, Suback):
                rows.append(("suback", packet.packet_id, tuple(packet.codes)))
            elif isinstance(packet, Unsuback):
                rows.append(("unsuback", packet.packet_id, ()))
        return rows


class Scene:
    """`questions`: effects that wait for their answers, in order. `rows`: in the store."""

    def __init__(
        self,
        shared: bool = True,
        gate: bool = False,
        more: Sequence[Family] = (),
        world: World | None = None,
    ) -> None:
        self.world = world or World()
        self.gate = Gate()
        families = [Labels(), *([self.gate] if gate else []), *more]
        self.engine = Engine(families, 10_000, site="00c0ffee")
        self.config: Config = parse(POLICY)
        self.engine.apply(self.engine.load(self.config, []))
        self.counts = Counted()
        self.broker = Broker()
        self.site = Site(
            MEDIATOR_NUMBER,
            self.config,
            self.world.ring,
            self.engine,
            Order(9),
            BrokerFace(shared=shared),
            self.counts,
            now_ms=NOW_MS,
        )
        self.agenda = Agenda()
        self.outboxes = self.agenda.outboxes
        self.questions: deque[Question] = deque()
        self.rows: dict[str, KeptSub] = {}
        self.full = False
        self.audited: list[tuple[str, dict[str, Any]]] = []
        self.answers: list[Packet] = []
        self.paused: dict[Session, bool] = {}
        self.dropped: list[int] = []
        self.ended: set[Session] = set()
        self._acks: dict[Session, Decoder] = {}
        self._clients: dict[Session, Any] = {}
        self._boots = 0
        self.senders = {n: self.world.session(n) for n in (SENSOR, PANEL, SIBLING)}

    # --- sessions ---

    def open(
        self,
        number: int = PANEL,
        clean: bool = True,
        client_id: str = "id",
        rows: Sequence[KeptSub] = (),
        gen: int = 1,
        doubtful: int = 0,
        wire: Wire = V311,
        receive_max: int = 65_535,
    ) -> Session:
        """A session that has proved itself; what it has is judged anew when `settle` is called."""
        self._boots += 1
        session = Session(self.site, self.agenda, "192.0.2.7", wire)
        session.receive_max = receive_max
        client = self.world.ring.clients[number]
        peer = self.world.session(number, boot=self._boots)
        session.client, session.link = client, self.world.link(peer)
        session.client_id, session.clean, session.known = client_id, clean, True
        session.doubtful = doubtful
        session.policy = self.engine.connection(self.engine.who(client.name, number))
        session._move(OPENING)
        session.opened(b"")
        self._clients[session] = peer
        self._acks[session] = Decoder(1 << 20, "server")
        self.rows.update((row.filter, row) for row in rows)
        if rows:
            self.broker.own[session] = {row.at: row.qos for row in rows if row.at}
        restored = session.subs.restore(rows)
        if restored is not None:
            session.hold(restored)
        session.begun()
        self.collect()
        return session

    # --- the client's packets ---

    def peer(self, session: Session) -> Any:
        """The client's side of a session that `open` made."""
        return self._clients[session]

    def subscribe(self, session: Session, number: int, *filters: tuple[str, int]) -> None:
        peer = self._clients[session]
        texts = tuple((peer.token(filter, qos)[0], qos) for filter, qos in filters)
        session.receive(SubscribePacket(number, texts))
        self.collect()

    def unsubscribe(self, session: Session, number: int, *filters: str) -> None:
        peer = self._clients[session]
        texts = tuple(peer.token(filter, 0, UNSUBSCRIBE)[0] for filter in filters)
        session.receive(UnsubscribePacket(number, texts))
        self.collect()

    def receive(self, session: Session, *packets: Packet) -> None:
        for packet in packets:
            session.receive(as_read(packet))
        self.collect()

    # --- what comes from the broker ---

    def m3(
        self,
        topic: str,
        payload: bytes = b"21.5",
        how: int = HOW_LIVE,
        kind: int = 0,
        at_ms: int | None = None,
        order: Order | None = None,
        ring: Keyring | None = None,
        life: int = 255,
        by: int = SENSOR,
    ) -> bytes:
        """A message of the sensor, or its sibling, sealed by a mediator at this time."""
        now_ms = self.site.now_ms if at_ms is None else at_ms
        sender = self.senders[by]
        flags = 3 if kind in (1, CLEAR) else 2
        mono = now_ms - NOW_MS
        m2 = sealed(sender, topic, payload, flags, kind, life, mono)
        link, client = self.world.link(sender), self.world.ring.clients[by]
        verified = verify_m2(link, topic.encode(), m2, flags)
        body = open_m2(link, self.world.ring, client, verified, flags, now_ms // 1000).body
        ring = ring or self.site.ring
        return seal_m3(
            ring,
            ring.labels[LOW],
            order or self.site.order,
            how,
            topic.encode(),
            body,
            now_ms,
        )

    def publish(
        self,
        topic: str,
        payload: bytes = b"21.5",
        qos: int = 0,
        retain: bool = False,
        by: int = SENSOR,
    ) -> bytes:
        """The sensor's message, or its sibling's, as it comes back over the live link; its m3."""
        m3 = self.m3(topic, payload, kind=1 if retain else 0, by=by)
        if retain:
            self.broker.retained[topic] = Publish(topic, topic.encode(), m3, qos, True, False, 0)
        self.live(topic, m3, qos)
        return m3

    def live(self, topic: str, m3: bytes, qos: int = 0, retain: bool = False) -> None:
        """A PUBLISH on the live link."""
        packet = Publish(topic, topic.encode(), m3, qos, retain, False, 7 if qos else 0)
        fan_out(self.site, self.agenda.outboxes, packet)
        self.collect()

    def own(
        self, session: Session, topic: str, m3: bytes, qos: int, number: int, **flags: bool
    ) -> None:
        """A PUBLISH on its own link."""
        session.link_packet(
            Publish(topic, topic.encode(), m3, qos, packet_id=number if qos else 0, **flags)
        )
        self.collect()

    # --- the shell ---

    def collect(self) -> None:
        """Takes the effects; statements are carried out."""
        while self.agenda.pending:
            session = self.agenda.pending.pop(0)
            effects, session.effects[:] = list(session.effects), []
            for effect in effects:
                self._take(session, effect)

    def _take(self, session: Session, effect: Any) -> None:
        match effect:
            case Audit(event, fields):
                self.audited.append((event, dict(fields)))
            case Answer(data):
                self.answers += self._acks[session].feed(data)
            case PauseLink(on):
                self.paused[session] = on
            case SnapshotDrop(token):
                self.dropped.append(token)
                self.broker.snapshots.pop(token, None)
            case Unsubscribe(0):
                self.broker.unsubscribe(session, effect)
            case End():
                session.let_go()
                self.ended.add(session)
                self.broker.own.pop(session, None)
            case _ if hasattr(effect, "task"):
                self.questions.append(Question(session, effect))

    def answer(self, at: int = 0) -> None:
        """A question gets its answer."""
        session, effect = self.questions[at]
        del self.questions[at]
        session.reply(effect.task, self._answer(session, effect))
        self.collect()

    def _answer(self, session: Session, effect: Any) -> Any:
        match effect:
            case Commit():
                return self._commit(effect)
            case Subscribe():
                return self.broker.subscribe(session, effect)
            case Unsubscribe():
                self.broker.unsubscribe(session, effect)
            case Snapshot():
                return self.broker.snapshot(effect.filter)
            case SnapshotMore():
                return self.broker.more(effect.token)
            case Yield():
                return None
        return None

    def _commit(self, effect: Commit) -> Any:
        if self.full:
            return OSError("no space left")
        for record in effect.records:
            if isinstance(record, KeptSub):
                self.rows[record.filter] = record
            elif isinstance(record, KeptSubGone):
                self.rows.pop(record.filter, None)
        return []

    def asked(self, kind: type) -> list[Any]:
        """Questions of this kind that wait."""
        return [question.effect for question in self.questions if isinstance(question.effect, kind)]

    def settle(self) -> None:
        """All answers come, in the order of the questions."""
        self.collect()
        while self.questions:
            self.answer()

    # --- policy, keys, time ---

    def apply(self, records: list[Any]) -> None:
        """As the shell does it after a commit."""
        self.engine.apply(records)
        self.follow()

    def follow(self) -> None:
        """What the engine says is due."""
        some: dict[Any, list[str]] = {}
        for conn, raw in self.engine.due():
            some.setdefault(conn, []).append(raw)
        for conn, raws in some.items():
            if conn in self.agenda.by_policy:
                self.agenda.by_policy[conn].subs.due(raws)
        self.collect()

    def ring(self, change: Callable[[dict[str, Any]], None]) -> None:
        """New keys: `change` alters the key generator's snapshot."""
        rows = self.world.snapshot()
        change(rows)
        before, self.site.ring = self.site.ring, Keyring(self.world.site, 9, rows)
        for session in list(self.agenda.by_policy.values()):
            session.keys_changed(before)
        self.collect()

    def passes(self, seconds: float) -> None:
        """Time passes, and everybody is told once."""
        self.site.now_ms += int(seconds * 1000)
        self.site.mono_s += seconds
        for session in list(self.agenda.by_policy.values()):
            session.tick()
        self.collect()

    def refused(self) -> list[tuple[str, str]]:
        """(rule, topic) of what was refused."""
        return [
            (fields["rule"], fields.get("topic", ""))
            for event, fields in self.audited
            if event in ("subscribe-refused", "packet-refused")
        ]


MEDIATOR_NUMBER = 1


def payloads(packets: Iterable[Publish]) -> list[bytes]:
    """Of messages."""
    return [packet.payload for packet in packets]


__all__ = ["HIGH", "LIVE", "LOW", "OWN", "PANEL", "REFUSED", "SENSOR", "Scene"]


class SealCalls:
    """How often what opens and seals a message for readers is called."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
        self.calls = dict.fromkeys(names, 0)
        for name in names:
            module = delivery if hasattr(delivery, name) else message
            monkeypatch.setattr(module, name, self._counted(name, getattr(module, name)))

    def _counted(self, name: str, real: Any) -> Any:
        def call(*given: Any) -> Any:
            self.calls[name] += 1
            return real(*given)

        return call
