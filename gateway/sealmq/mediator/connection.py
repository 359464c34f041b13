"""One client's connection: bytes to packets, one after the other, each to its part.

A packet that has to wait (for the store, for the key generator) holds back those behind it, so
order stays what the client sent. States: new, opening, quarantine (SPEC.md 4.1), open, closed.
Nothing reaches the broker before open.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any

from sealmq.families.engine import Conn
from sealmq.mqtt import (
    Connect,
    Decoder,
    Disconnect,
    Packet,
    Pingreq,
    ProtocolError,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Subscribe,
    Unsubscribe,
    build,
)
from sealmq_spec import control
from sealmq_spec.const import CONTROL, OP_EPOCH, OP_RECORD
from sealmq_spec.errors import SealError
from sealmq_spec.keys import u24

from .controlling import Controlling
from .delivering import Delivering
from .hub import Hub
from .keyring import Client
from .limits import MAX_PACKET, OPENING_S, QUARANTINE_S, QUEUE
from .link import Link
from .opening import open_session
from .publishing import Publishing, StoredWill
from .subscribing import Subscribing
from .upstream import Upstream

log = logging.getLogger("sealmq.mediator")

Handler = Callable[[Any], Coroutine[Any, Any, None] | None]

_CONTROL = CONTROL.decode()

PUBLISH, SUBSCRIBE, UNSUBSCRIBE, CONTROL_PACKET, SESSION = 1, 2, 3, 4, 5
_EVENTS = {
    PUBLISH: "publish-refused",
    SUBSCRIBE: "subscribe-refused",
    UNSUBSCRIBE: "subscribe-refused",
    CONTROL_PACKET: "packet-refused",
    SESSION: "packet-refused",
}


class Connection(asyncio.Protocol):
    """What the parts share:
    who it is, its link, its policy connection, its upstream, and ways to answer.
    """

    client: Client
    link: Link
    policy: Conn
    upstream: Upstream

    def __init__(self, hub: Hub) -> None:
        self.hub = hub
        self.state = "new"
        self.peer = ""
        self.client_id = ""
        self.conn_no = 0
        self.low = 0
        self.keepalive_s = 0
        self.will: StoredWill | None = None
        self._decoder = Decoder(MAX_PACKET, "server", connect_first=True)
        self._transport: asyncio.Transport
        self._queue: deque[Packet] = deque()
        self._waiting = False
        self._reading = True
        self._full = False
        self._heard = 0.0
        self._deadline: asyncio.TimerHandle | None = None
        self._told_records: set[tuple[int, int, int]] = set()
        self.publishing = Publishing(self)
        self.subscribing = Subscribing(self)
        self.delivering = Delivering(self)
        self.controlling = Controlling(self)
        self._handlers: dict[type[Packet], Handler] = {
            Publish: self._publish,
            Puback: self.delivering.acked,
            Pubrec: self.delivering.acked,
            Pubrel: self.publishing.released,
            Pubcomp: self.delivering.acked,
            Subscribe: self.subscribing.subscribe,
            Unsubscribe: self.subscribing.unsubscribe,
            Pingreq: self._ping,
        }

    # --- transport ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]
        address = transport.get_extra_info("peername")
        self.peer = address[0] if address else "?"
        self.hub.connections.add(self)
        self.hub.strangers += 1
        self.set_deadline(OPENING_S)
        if not self.hub.admits():
            self.close("too many connections")

    def connection_lost(self, exc: Exception | None) -> None:
        self._end(str(exc) if exc else "the client closed the connection", clean=False)

    def data_received(self, data: bytes) -> None:
        self._heard = asyncio.get_running_loop().time()
        try:
            self._queue.extend(self._decoder.feed(data))
        except ProtocolError as error:
            self._queue.extend(error.packets)
            self._pump()
            self.broken(error)
            return
        self._pump()

    def eof_received(self) -> bool:
        return False

    def pause_writing(self) -> None:
        if self.state == "open":
            self.upstream.pause(True)

    def resume_writing(self) -> None:
        if self.state == "open":
            self.upstream.pause(False)

    def pressure(self, full: bool) -> None:
        """The broker takes no more for now: neither do we."""
        self._full = full
        self._throttle()

    def _throttle(self) -> None:
        reading = not self._full and len(self._queue) < QUEUE
        if reading != self._reading and not self._transport.is_closing():
            self._reading = reading
            (self._transport.resume_reading if reading else self._transport.pause_reading)()

    # --- one packet after the other ---

    def _pump(self) -> None:
        while self._queue and not self._waiting and self.state != "closed":
            work = self._handle(self._queue.popleft())
            if work is not None:
                self._waiting = True
                self.hub.spawn(self._wait(work), f"client {self.peer}")
        self._throttle()

    async def _wait(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except Exception:
            log.exception("a packet of %s could not be handled", self.who)
            self.close("internal error")
        finally:
            self._waiting = False
        self._pump()

    def _handle(self, packet: Packet) -> Coroutine[Any, Any, None] | None:
        if isinstance(packet, Disconnect):
            self._end("DISCONNECT", clean=True)
            return None
        if isinstance(packet, Connect):
            self.state = "opening"
            return open_session(self, packet)
        if self.state == "quarantine":
            return self._in_quarantine(packet)
        if self.state != "open":
            return None
        return self._handlers[type(packet)](packet)

    def _in_quarantine(self, packet: Packet) -> Coroutine[Any, Any, None] | None:
        if isinstance(packet, Pingreq):
            self.send(build.pingresp())
        elif isinstance(packet, Publish) and packet.topic == _CONTROL:
            return self.controlling.provision(packet)
        else:
            self.refuse(
                SESSION,
                0,
                SealError("only provisioning before there are keys"),
                rule="mediator.quarantine",
            )
            self.close("quarantine")
        return None

    def _publish(self, packet: Publish) -> Coroutine[Any, Any, None] | None:
        if packet.topic == _CONTROL:
            return self.controlling.packet(packet)
        return self.publishing.publish(packet)

    def _ping(self, packet: Pingreq) -> None:
        if self.link.owed:
            self.down(self.link.receipt())
        self.send(build.pingresp())

    # --- answers ---

    @property
    def who(self) -> str:
        """The client's name once its proof has verified, else its address."""
        return self.client.name if self.state == "open" else self.peer

    def send(self, data: bytes) -> None:
        """Writes towards the client."""
        if not self._transport.is_closing():
            self._transport.write(data)

    def sealed_down(self, body: bytes) -> bytes:
        """A PUBLISH on the control topic with a sealed body."""
        order = self.hub.next_order()
        return build.publish(CONTROL, self.link.down(order, self.conn_no, body))

    def down(self, body: bytes) -> None:
        """Sends a control packet (SPEC.md 4.4)."""
        self.send(self.sealed_down(body))

    def refuse(
        self, what: int, ctr: int, error: SealError, rule: str, topic: str = "", event: str = ""
    ) -> None:
        """One audit record and, once there is a link, one notice;
        `error` says what arrived and what was expected.
        """
        self.hub.audit.write(
            event or _EVENTS[what],
            client=self.who if self.state == "open" else None,
            peer=self.peer,
            topic=topic or None,
            rule=rule,
            reason=str(error)[:500],
        )
        if self.state == "open":
            self.down(control.notice(what, ctr, error.code, rule, str(error)))

    def broken(self, error: ProtocolError) -> None:
        """The client broke MQTT: one record, the CONNACK code where MQTT has one, the end."""
        if self.state == "closed":
            return
        self.hub.audit.write(
            "packet-refused",
            client=self.who if self.state == "open" else None,
            peer=self.peer,
            rule="mqtt." + type(error).__name__,
            reason=str(error)[:500],
        )
        if error.connack is not None and self.state == "new":
            self.send(build.connack(False, error.connack))
        self.close("malformed MQTT")

    def show_records(self, label: int, epoch: int) -> None:
        """Before the first message of a (label, epoch):
        the public records that open it (SPEC.md 4.4).
        """
        ring = self.hub.ring
        key = (label, epoch, ring.kseq)
        if key in self._told_records:
            return
        if len(self._told_records) >= 4096:
            self._told_records.clear()
        self._told_records.add(key)
        for record in ring.records_for(self.client.label, label):
            self.down(bytes((OP_RECORD,)) + record)

    def keys_changed(self) -> None:
        """The hub has a new keyring: take over what concerns this client, or end."""
        if self.state != "open":
            return
        ring, before = self.hub.ring, self.client
        client = ring.clients.get(before.number)
        if client is None or client.disabled or self.link.gen not in client.links:
            self.close("the client was disabled or has new keys")
            return
        self.client = client
        label = ring.labels[client.label]
        end = label.previous[1] if label.previous else 0
        body = u24(label.number) + u24(label.epoch) + ring.kseq.to_bytes(4, "big")
        self.down(bytes((OP_EPOCH,)) + body + end.to_bytes(4, "big"))

    def policy_changed(self, changed: set[Conn]) -> None:
        """The configuration changed: a client that may not connect any more ends."""
        if self.state != "open" or self.policy not in changed:
            return
        decision = self.policy.connect(self.hub.now_ms())
        if not decision.allow:
            self.close(f"refused from now on: {decision.rule}")

    # --- life ---

    def opened(self) -> None:
        """The proof has verified and the broker is there."""
        self.state = "open"
        self.hub.strangers -= 1
        self.set_deadline(0)

    def quarantined(self) -> None:
        """Provisioning only, and not for long."""
        self.state = "quarantine"
        self.set_deadline(QUARANTINE_S)

    def set_deadline(self, seconds: float) -> None:
        """Ends the connection unless it has moved on by then; 0 for no deadline."""
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        if seconds:
            loop = asyncio.get_running_loop()
            self._deadline = loop.call_later(seconds, self.close, "too slow")

    def beat(self, now: float) -> None:
        """Called about once a second:
        a client that is silent for one and a half keep alives is gone (MQTT 3.1.2.10).
        """
        if self.state == "open" and self.keepalive_s and now - self._heard > 1.5 * self.keepalive_s:
            self.close("keep alive ran out")

    def close(self, reason: str) -> None:
        """Ends the connection as not clean: a will fires."""
        self._end(reason, clean=False)

    def upstream_lost(self, reason: str) -> None:
        """The broker is gone for this client."""
        if self.state == "open":
            self.hub.audit.write("broker-away", client=self.client.name, reason=reason[:500])
        self.close("broker lost")

    def _end(self, reason: str, clean: bool) -> None:
        if self.state == "closed":
            return
        was, self.state = self.state, "closed"
        self.set_deadline(0)
        self._queue.clear()
        self.hub.connections.discard(self)
        if was != "open":
            self.hub.strangers -= 1
        self._transport.close()
        if was != "open":
            return
        self.upstream.close()
        now_ms = self.hub.now_ms()
        if self.will is not None and not clean:
            self.hub.spawn(self.publishing.fire(self.will), f"will of {self.client.name}")
        self.policy.close(now_ms)
        self.hub.audit.write(
            "disconnect", client=self.client.name, reason=reason[:500], clean=clean
        )
