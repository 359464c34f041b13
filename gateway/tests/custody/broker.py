"""A broker that behaves as Mosquitto does (gateway/tests/broker/test_broker_links.py tests that it
does), and links to it: links.broker.BrokerLink without a socket.

Modelled: QoS 0 to 2 both ways, clean and kept sessions with their queues and packet ids, saves to
disk, a loss of all that was not saved. Not modelled: bounds of queues, and retained
messages other than the sentinel of snapshots. The broker reads at once what a link sends: a packet
that was lost with its link is the same as one that was never sent. What the broker sends waits in
`down`.
"""

from __future__ import annotations

import asyncio
import copy
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

from sealmq.mediator.core.effects import BrokerAway
from sealmq.mqtt import (
    Decoder,
    Packet,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Suback,
    Subscribe,
    Unsuback,
    Unsubscribe,
)
from sealmq_spec.topics import matches


@dataclass
class Out:
    """A message on its way to a subscriber. `number` counts all that the broker handed on."""

    number: int
    topic: str
    payload: bytes
    qos: int
    sent: bool = False
    received: bool = False


@dataclass
class Kept:
    """A session."""

    clean: bool
    filters: dict[str, int] = field(default_factory=dict)
    out: dict[int, Out] = field(default_factory=dict)
    incoming: dict[int, Publish] = field(default_factory=dict)
    last: int = 0


class Conn:
    """One connection. `alive`: it has not fallen; `heard`: the mediator knows that it has."""

    def __init__(self, link: Link, client_id: str, session: Kept) -> None:
        self.link, self.client_id, self.session = link, client_id, session
        self.down: deque[Packet] = deque()
        self.alive = True
        self.explored = "/snapshot/" not in client_id and "/mediator-" not in client_id[-12:]


class Broker:
    """`told`: what it hands on, and what is acknowledged to it, is told to the world."""

    def __init__(self) -> None:
        self.up = True
        self.sessions: dict[str, Kept] = {}
        self.conns: list[Conn] = []
        self.numbers = 0
        # What the saved files hold, the newest first.
        self.saved: list[dict[str, Kept]] = [{}, {}]
        self.sentinel: Publish | None = None
        self.routed: Callable[[Publish, int], None] = lambda packet, number: None
        self.acknowledged: Callable[[Conn, Packet, Out], None] = lambda conn, packet, out: None

    # --- life ---

    def save(self) -> None:
        """All kept sessions are on its disk."""
        kept = {name: copy.deepcopy(s) for name, s in self.sessions.items() if not s.clean}
        for session in kept.values():
            session.incoming.clear()
        self.saved = [kept, self.saved[0]]

    def die(self) -> None:
        """The broker is gone; links hear of it one after the other."""
        self.up = False
        for conn in self.conns:
            conn.alive = False
            conn.down.clear()
        self.sessions = {}

    def start(self, back: int) -> None:
        """Starts with the newest file, or with the one before."""
        self.up = True
        self.saved = [self.saved[back], self.saved[back]]
        self.sessions = copy.deepcopy(self.saved[0])

    def of(self, end: str) -> Conn | None:
        """The newest connection whose client id ends so."""
        return next((c for c in reversed(self.conns) if c.client_id.endswith(end)), None)

    # --- connections ---

    def connect(self, link: Link, client_id: str, clean: bool) -> tuple[Conn, bool]:
        for other in self.conns:
            if other.client_id == client_id and other.alive:
                self.cut(other)
        held = self.sessions.get(client_id)
        present = held is not None and not clean
        session = held if held is not None and present else Kept(clean)
        self.sessions[client_id] = session
        conn = Conn(link, client_id, session)
        self.conns.append(conn)
        for packet_id, out in session.out.items():
            if out.received:
                conn.down.append(Pubrel(packet_id))
            else:
                self._send(conn, packet_id, out)
        return conn, present

    def cut(self, conn: Conn) -> None:
        """The connection falls; the mediator's side hears of it later."""
        conn.alive = False
        conn.down.clear()
        if conn.session.clean and self.sessions.get(conn.client_id) is conn.session:
            del self.sessions[conn.client_id]

    def forget(self, conn: Conn) -> None:
        """Both sides know that it is over."""
        if conn.alive:
            self.cut(conn)
        if conn in self.conns:
            self.conns.remove(conn)

    # --- packets ---

    def took(self, conn: Conn, packet: Packet) -> None:
        session = conn.session
        match packet:
            case Publish(qos=2):
                session.incoming.setdefault(packet.packet_id, packet)
                conn.down.append(Pubrec(packet.packet_id))
            case Publish():
                self.route(packet)
                if packet.qos:
                    conn.down.append(Puback(packet.packet_id))
            case Pubrel():
                if (held := session.incoming.pop(packet.packet_id, None)) is not None:
                    self.route(held)
                conn.down.append(Pubcomp(packet.packet_id))
            case Puback() | Pubrec() | Pubcomp():
                self._answered(conn, packet)
            case Subscribe():
                session.filters.update(packet.filters)
                conn.down.append(Suback(packet.packet_id, tuple(q for _, q in packet.filters)))
                held = self.sentinel
                if held is not None and any(f == held.topic for f, _ in packet.filters):
                    conn.down.append(held._replace(qos=0, packet_id=0, retain=True))
            case Unsubscribe():
                for filt in packet.filters:
                    session.filters.pop(filt, None)
                conn.down.append(Unsuback(packet.packet_id))

    def route(self, packet: Publish) -> None:
        """Hands a message on to all that are subscribed."""
        if packet.topic[0] == "@":
            if packet.retain and "/end/" in packet.topic:
                self.sentinel = packet
        else:
            self.numbers += 1
            self.routed(packet, self.numbers)
        for name, session in self.sessions.items():
            qos = [qos for filt, qos in session.filters.items() if matches(filt, packet.topic)]
            if qos:
                made = Out(self.numbers, packet.topic, packet.payload, min(packet.qos, max(qos)))
                self._hand_on(name, session, made)

    def _hand_on(self, name: str, session: Kept, out: Out) -> None:
        conn = next((c for c in self.conns if c.client_id == name and c.alive), None)
        if not out.qos:
            if conn is not None:
                conn.down.append(Publish(out.topic, out.topic.encode(), out.payload))
            return
        session.last += 1
        while session.last in session.out:
            session.last += 1
        session.out[session.last] = out
        if conn is not None:
            self._send(conn, session.last, out)

    def _send(self, conn: Conn, packet_id: int, out: Out) -> None:
        raw = out.topic.encode()
        conn.down.append(Publish(out.topic, raw, out.payload, out.qos, False, out.sent, packet_id))
        out.sent = True

    def _answered(self, conn: Conn, packet: Puback | Pubrec | Pubcomp) -> None:
        out = conn.session.out.get(packet.packet_id)
        if out is None:
            if isinstance(packet, Pubrec):
                conn.down.append(Pubrel(packet.packet_id))
            return
        self.acknowledged(conn, packet, out)
        if isinstance(packet, Pubrec):
            out.received = True
            conn.down.append(Pubrel(packet.packet_id))
        elif (out.qos == 1) == isinstance(packet, Puback):
            del conn.session.out[packet.packet_id]


class Link:
    """Stands in for BrokerLink. `net`: the broker of the world that runs."""

    net: ClassVar[Broker]

    def __init__(
        self,
        on_packet: Callable[[Packet], None],
        on_lost: Callable[[str], None],
        on_pressure: Callable[[bool], None] = lambda full: None,
        overdue: Callable[[], str | None] = lambda: None,
        on_unfit: Callable[[Any], None] = lambda packet: None,
        as_event: Callable[..., None] = lambda call, *words: call(*words),
    ) -> None:
        self._on_packet, self._on_lost, self._as_event = on_packet, on_lost, as_event
        self._broker = Link.net
        self._loop: Any = asyncio.get_running_loop()
        self._decoder = Decoder(1 << 24, "server")
        self._conn: Conn | None = None
        self._pongs: list[asyncio.Future[None]] = []
        self._closed = False
        self.paused = False

    @property
    def up(self) -> bool:
        return self._conn is not None and not self._closed

    async def open(self, address: Any, client_id: str, clean: bool = True) -> bool:
        if not self._broker.up or self._loop.gone:
            self._closed = True
            raise BrokerAway("the broker is away")
        self._conn, present = self._broker.connect(self, client_id, clean)
        return present

    def send(self, data: bytes) -> None:
        conn = self._conn
        if conn is None or self._closed or self._loop.gone:
            return
        for packet in self._decoder.feed(data):
            if conn.alive:
                self._broker.took(conn, packet)
        self.prompt()

    def prompt(self) -> None:
        """Reads at once what comes over connections that are not explored."""
        conn = self._conn
        if conn is not None and conn.down and not conn.explored:
            self._loop.call_soon(self.read)

    def ping(self) -> asyncio.Future[None]:
        answer: asyncio.Future[None] = self._loop.create_future()
        if self._closed or self._conn is None:
            answer.set_exception(BrokerAway("the connection to the broker is lost"))
            answer.exception()
        elif self._conn.alive:
            answer.set_result(None)
        else:
            self._pongs.append(answer)
        return answer

    async def answers(self) -> None:
        await self.ping()

    def pause(self, on: bool) -> None:
        self.paused = on

    def close(self) -> None:
        self._over("the connection to the broker was closed")

    abort = close

    def give_up(self, reason: str) -> None:
        if not self._closed:
            self._over(reason)
            self._on_lost(reason)

    def _over(self, reason: str) -> None:
        if self._closed:
            return
        self._closed = True
        if self._conn is not None and not self._loop.gone:
            self._broker.forget(self._conn)
        for pong in self._pongs:
            if not pong.done():
                pong.set_exception(BrokerAway(reason))
                pong.exception()

    # --- for the world ---

    def read(self) -> None:
        """The next packet of the broker."""
        conn = self._conn
        if conn is not None and conn.down and not self._closed:
            self._as_event(self._on_packet, conn.down.popleft())
            self.prompt()

    def hear(self) -> None:
        """The connection has fallen."""
        self.give_up("the broker closed the connection")
