"""The mediator's core with real keys and a real policy, and a shell of one thread that answers its
effects: at once, or when a test says so. No socket, no loop, no clock.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Any

from mediator_world import MEDIATOR, NOW_MS, SENSOR, World, hello, sealed
from sealmq.aead import make
from sealmq.families.api import Audited, Family
from sealmq.families.engine import Engine
from sealmq.families.labels.family import Labels
from sealmq.families.records import Record, TopicLabel
from sealmq.mediator.core.boots import Sent
from sealmq.mediator.core.effects import (
    QUESTIONS,
    Audit,
    Commit,
    End,
    Forward,
    Lock,
    Opened,
    OpenSession,
    Unlock,
)
from sealmq.mediator.core.session import Agenda, Session
from sealmq.mediator.core.site import BrokerFace, Site
from sealmq.mqtt import Connect, Decoder, Packet, Publish, Will, build
from sealmq.order import Order
from sealmq.site.check import parse
from sealmq.store.records import Held, SessionMark, StoreRecord
from sealmq_spec.const import CONTROL, OP_COMMAND, WILL
from sealmq_spec.provision import ask
from sealmq_spec.session import Session as Client

CONFIG = """
[site]
name = "core"
id = "00000001"
[labels]
low = []
high = ["low"]
[clients]
sensor = { label = "low" }
panel = { label = "high" }
sibling = { label = "low" }
"""
TOPIC = "machine/1/temperature"


class Memory:
    """What a store holds: the first label of a topic, the highest mark of a client."""

    def __init__(self) -> None:
        self.topics: dict[str, TopicLabel] = {}
        self.marks: dict[int, SessionMark] = {}
        self.rows: list[StoreRecord] = []

    def commit(self, records: Iterable[StoreRecord]) -> list[Held]:
        return [self._one(record) for record in records]

    def _one(self, record: StoreRecord) -> Held:
        if isinstance(record, TopicLabel):
            held = self.topics.setdefault(record.topic, record)
            return Held(held, held is record)
        if isinstance(record, SessionMark):
            last = self.marks.get(record.client)
            if last is not None and not _rises(record, last):
                return Held(last, False)
            self.marks[record.client] = record
        self.rows.append(record)
        return Held(record, True)


def _rises(mark: SessionMark, last: SessionMark) -> bool:
    if (mark.gen, mark.boot) == (last.gen, last.boot) and mark.salt != last.salt:
        return False
    return (mark.gen, mark.boot, mark.conn) > (last.gen, last.boot, last.conn)


class Counted:
    """Counters of an audit log that nobody reads; what was let through unenforced is listed."""

    def __init__(self) -> None:
        self.unenforced: list[tuple[str, str, str, str]] = []

    def count_accepted(self, client: str, topic: str, label: str) -> None:
        """A message was forwarded."""

    def count_delivered(self, client: str, topic: str, label: str, audit: Audited = ()) -> None:
        """A message was written to a reader."""

    def count_denied(
        self,
        client: str,
        topic: str,
        rule: str,
        label: str = "",
        sender: str = "",
        audit: Audited = (),
    ) -> None:
        """A message was withheld from a reader, or dropped."""

    def count_unenforced(self, client: str, topic: str, rule: str, question: str) -> None:
        """A deny that was none."""
        self.unenforced.append((client, topic, rule, question))


class Asked:
    """A question that the test has to answer."""

    def __init__(self, session: Session, effect: Any) -> None:
        self.session, self.effect = session, effect


class Shell:
    """`later`: kinds of questions that wait in `asked` for `answer`. `done`: statements."""

    def __init__(
        self, *families: Family, text: str = CONFIG, world: World | None = None, **broker: Any
    ) -> None:
        self.world = world or World()
        self.faults: list[tuple[str, str, Exception]] = []
        engine = Engine([Labels(), *families], on_fault=lambda *fault: self.faults.append(fault))
        config = parse(text)
        self.store = Memory()
        self.counts = Counted()
        records = [TopicLabel(TOPIC, "low", "sensor", 0)]
        self.store.commit(records)
        engine.apply(engine.load(config, records))
        self.site = Site(
            number=MEDIATOR,
            config=config,
            ring=self.world.ring,
            engine=engine,
            order=Order(self.world.ring.inst),
            broker=BrokerFace(**broker),
            counts=self.counts,
            now_ms=NOW_MS,
        )
        self.agenda = Agenda()
        self.later: set[type[Any]] = set()
        self.asked: deque[Asked] = deque()
        self.done: list[tuple[Session, Any]] = []
        self.locked: set[tuple[str, str]] = set()
        # Rows of clients that are gone are being put right.
        self.rewriting = False
        self._locks: list[Asked] = []

    # --- effects ---

    def run(self) -> None:
        """Executes what sessions want until nothing is left."""
        agenda = self.agenda
        while agenda.pending:
            pending, agenda.pending = agenda.pending, []
            for session in pending:
                effects, session.effects = session.effects, []
                for effect in effects:
                    self._one(session, effect)

    def _one(self, session: Session, effect: Any) -> None:
        if not isinstance(effect, QUESTIONS):
            self.done.append((session, effect))
            if isinstance(effect, End):
                session.let_go()
            elif isinstance(effect, Unlock):
                self.locked -= effect.rows
                self._unlocked()
        elif type(effect) in self.later:
            self.asked.append(Asked(session, effect))
        elif isinstance(effect, Lock):
            self._lock(Asked(session, effect))
        else:
            self.answer(Asked(session, effect))

    def _lock(self, asked: Asked) -> None:
        if self.rewriting or self.locked & asked.effect.rows:
            self._locks.append(asked)
        else:
            self.locked |= asked.effect.rows
            asked.session.reply(asked.effect.task, None)

    def rewritten(self) -> None:
        """They are right."""
        self.rewriting = False
        self._unlocked()
        self.run()

    def _unlocked(self) -> None:
        waiting, self._locks = self._locks, []
        for asked in waiting:
            self._lock(asked)

    def answer(self, asked: Asked | None = None, *answer: Any) -> None:
        """Answers the oldest question that waits, or this one: as usual, or with `answer`."""
        if asked is None:
            asked = self.asked.popleft()
        effect = asked.effect
        if isinstance(effect, Lock):
            self.locked |= effect.rows
        given = answer[0] if answer else self._usual(effect)
        if effect.task:
            asked.session.reply(effect.task, given)
        self.run()

    def _usual(self, effect: Any) -> Any:
        if isinstance(effect, Commit):
            held = self.store.commit(effect.records)
            self.site.engine.apply([h.record for h in held if isinstance(h.record, Record)])
            return held
        return Opened(False) if isinstance(effect, OpenSession) else None

    # --- what was done ---

    def of(self, kind: type[Any], session: Session | None = None) -> list[Any]:
        """Statements of this kind, in order."""
        return [e for s, e in self.done if isinstance(e, kind) and session in (None, s)]

    def audits(self, event: str = "") -> list[dict[str, Any]]:
        """Fields of the audit records, `event` among them."""
        rows = [{"event": e.event, **e.fields} for e in self.of(Audit)]
        return [row for row in rows if event in ("", row["event"])]

    def forwards(self) -> list[Forward]:
        """Messages on their way to the broker."""
        return self.of(Forward)

    def accept(self, forward: Forward) -> None:
        """Broker and journal have it."""
        session, sent = self._sent(forward)
        session.accepted(sent)
        self.run()

    def not_taken(self, forward: Forward, why: str = "it hung up") -> None:
        """The broker does not take it."""
        session, sent = self._sent(forward)
        session.not_taken(sent, why)
        self.run()

    def _sent(self, forward: Forward) -> tuple[Session, Sent]:
        if forward.sent is None:
            raise ValueError("QoS 0 is not answered")
        return next(s for s, e in self.done if e is forward), forward.sent


class Peer:
    """A client with real keys, and its session in the core. `got`: all that it was sent but control
    packets; those are in `told`, opened: (op, what it says).
    """

    def __init__(
        self, shell: Shell, number: int, client: Client | None = None, client_id: str = "id"
    ) -> None:
        self.shell = shell
        self.client = client or shell.world.session(number)
        self.client_id = client_id
        self.got: list[Packet] = []
        self.told: list[tuple[int, Any]] = []
        self.begin()

    def begin(self) -> None:
        """A new connection."""
        self._decoder = Decoder(1 << 24, "client")
        self.session = Session(self.shell.site, self.shell.agenda, "192.0.2.7")
        self.shell.run()

    def connect(self, clean: bool = True, will: Will | None = None, low: int = 0) -> Peer:
        """CONNECT with a proof."""
        self.send(self.hello(clean, will, low))
        return self

    def hello(
        self, clean: bool = True, will: Will | None = None, low: int = 0, kg_time: bool = False
    ) -> Connect:
        """The CONNECT that `connect` sends."""
        raw = hello(self.client, self.client_id, clean, will, low, kg_time)
        (packet,) = Decoder(1 << 16, "server").feed(raw)
        if not isinstance(packet, Connect):
            raise TypeError("a CONNECT is read as something else")
        return packet

    def hello_without_roots(self) -> Connect:
        """CONNECT of generation 0."""
        head = bytes(self.client.begin_connect(False))
        raw = build.connect(self.client_id, username="sealmq1", password=head)
        (packet,) = Decoder(1 << 16, "server").feed(raw)
        if not isinstance(packet, Connect):
            raise TypeError("a CONNECT is read as something else")
        return packet

    def will(self, topic: str, payload: bytes, qos: int = 1, retain: bool = False) -> Will:
        """A will, sealed."""
        flags = qos << 1 | retain
        return Will(topic, sealed(self.client, topic, payload, flags, kind=WILL), qos, retain)

    def request(self) -> Publish:
        """A provisioning request of this client."""
        ident = self.client.ident
        nonce = self.shell.site.next_order() + bytes(4)
        made = ask(
            make, ident.site, b"s" * 32, ident.suite, ident.client, 0, 1, nonce, ident.mediator
        )
        return Publish("!c1", CONTROL, bytes(made))

    def send(self, packet: Packet) -> None:
        """One packet to the mediator; then all that follows from it."""
        self.session.receive(packet)
        self.shell.run()
        self.take()

    def take(self) -> list[Packet]:
        """What the mediator has for the client; it is in `got`, and `told`, too."""
        self.shell.agenda.dirty.clear()
        out, self.session.out = self.session.out, []
        fresh = []
        for packet in self._decoder.feed(b"".join(out)):
            if isinstance(packet, Publish) and packet.topic_raw == CONTROL:
                self.told.append(self.client.down(packet.payload, 0))
            else:
                self.got.append(packet)
                fresh.append(packet)
        return fresh

    def message(
        self,
        payload: bytes = b"21.5",
        topic: str = TOPIC,
        qos: int = 0,
        packet_id: int = 0,
        retain: bool = False,
        **more: Any,
    ) -> Publish:
        """A PUBLISH, sealed."""
        flags = qos << 1 | retain
        m2 = sealed(self.client, topic, payload, flags, **{"kind": int(retain), **more})
        return Publish(topic, topic.encode(), m2, qos, retain, False, packet_id)

    def up(self, body: bytes) -> Publish:
        """A control packet."""
        return Publish("!c1", CONTROL, bytes(self.client.up(body, 0)))

    def command(self, family: str, body: bytes) -> Publish:
        """A command of a family."""
        return self.up(bytes((OP_COMMAND, len(family))) + family.encode() + body)

    @property
    def ended(self) -> bool:
        """Whether the mediator has ended the connection."""
        return bool(self.shell.of(End, self.session))


def open_peer(shell: Shell, number: int = SENSOR, **more: Any) -> Peer:
    """A client that is in."""
    peer = Peer(shell, number, **more).connect()
    assert peer.session.state == "open"
    return peer


def opened(shell: Shell, number: int = SENSOR, **more: Any) -> Peer:
    """The same; what it was sent until now is forgotten."""
    peer = open_peer(shell, number, **more)
    peer.got.clear()
    peer.told.clear()
    return peer
