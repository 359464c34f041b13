"""One client of the load generator, as cheap as it can be: what it sends was sealed beforehand,
what it receives is counted and not opened.

Only what is neither a delivery nor a receipt is looked into: answers, and notices, of which none is
expected; a notice ends the measurement.
"""

from __future__ import annotations

import os
import select
import socket
import time
from collections import Counter
from typing import Any

from sealmq.client.cipher import make
from sealmq.client.core import Core
from sealmq.client.events import Fault, Ready
from sealmq.client.opening import connect
from sealmq.client.outbox import Outbox
from sealmq.client.randomness import mono_ms, new_salt
from sealmq.client.seal import seal_message
from sealmq.mqtt import Decoder, QoS2Receiver, Suback, Unsuback, build
from sealmq_spec.const import CONTROL, OP_COMMAND, OP_NOTICE, OP_REPLY, UNSUBSCRIBE
from sealmq_spec.identity import Identity
from sealmq_spec.reader import Reader
from sealmq_spec.session import Session

PATIENCE_S = 60.0
_READ = 256 * 1024
_PUBLISH = 0x30
_REFUSED = 0x80
# What follows the fixed header: "!c1" and its length, header of a packet down, a receipt, tag.
_RECEIPT = 2 + len(CONTROL) + 14 + 12 + 16


class LoadError(Exception):
    """The measurement cannot be taken, or what was taken counts for nothing."""


class Peer:
    """A plain MQTT client of a plain broker."""

    def __init__(self, number: int, host: str, port: int, own: str) -> None:
        self.number = number
        self.topic = own.encode()
        self.own = len(self.topic).to_bytes(2, "big") + self.topic
        # Deliveries of what anybody published, and of what this client did.
        self.delivered = 0
        self.echoed = 0
        self.answered = 0
        self.queue: list[bytes] = []
        self._rest = b""
        self._ids = 0
        self._decoder = Decoder(1 << 20, role="client")
        self.sock = socket.create_connection((host, port), PATIENCE_S)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    # --- what is made beforehand ---

    def publish(self, payload: bytes) -> bytes:
        """A PUBLISH to this client's own topic."""
        return build.publish(self.topic, payload)

    def subscribe(self, filters: list[str]) -> bytes:
        """One SUBSCRIBE with QoS 0."""
        return build.subscribe(self._id(), [(filt, 0) for filt in filters])

    def unsubscribe(self, filters: list[str]) -> bytes:
        """One UNSUBSCRIBE."""
        return build.unsubscribe(self._id(), filters)

    def command(self, family: str, body: bytes) -> bytes:
        """A policy family's command."""
        raise LoadError("a plain broker takes no commands")

    def _id(self) -> int:
        self._ids = self._ids % 65535 + 1
        return self._ids

    # --- bytes ---

    def send(self, data: bytes) -> None:
        """All of it. It blocks only where the other side does not read, which it then counts as."""
        sent = self.sock.send(data)
        while sent < len(data):
            select.select([], [self.sock], [], PATIENCE_S)
            sent += self.sock.send(data[sent:])

    def receive(self) -> None:
        """What has arrived, counted."""
        data = self.sock.recv(_READ)
        if not data:
            raise LoadError(f"the connection of client {self.number} was closed")
        self.take(data)

    def take(self, data: bytes) -> None:
        """The hot part: walks the packets."""
        if self._rest:
            data = self._rest + data
        at, n, own = 0, len(data), self.own
        long, first = len(own), own[1]
        while n - at >= 2:
            body, size = at + 2, data[at + 1]
            if size > 127:
                if n - at < 3:
                    break
                more = data[body]
                if more > 127:
                    raise LoadError("a packet longer than any that is expected")
                size = size & 127 | more << 7
                body += 1
            end = body + size
            if end > n:
                break
            # Topics of the bench have all the same length, and the control topic has not.
            if data[at] == _PUBLISH and data[body + 1] == first:
                self.delivered += 1
                if data[body : body + long] == own:
                    self.echoed += 1
            else:
                self.other(data[at:end], size)
            at = end
        self._rest = data[at:]

    def other(self, packet: bytes, size: int) -> None:
        """What is no delivery."""
        for answer in self._decoder.feed(packet):
            if isinstance(answer, Suback):
                if _REFUSED in answer.codes:
                    raise LoadError(f"a subscription of client {self.number} was refused")
                self.answered += 1
            elif isinstance(answer, Unsuback):
                self.answered += 1

    # --- life ---

    def login(self, user: str, password: str) -> None:
        """CONNECT and CONNACK, waited for."""
        name = f"bench-{self.number}-{os.getpid()}"
        words = {"username": user, "password": password.encode()}
        self.sock.sendall(build.connect(name, keepalive=0, **words))  # type: ignore[arg-type]
        if self._exactly(4) != build.connack(False, 0):
            raise LoadError(f"client {self.number} is not let in")
        self.sock.setblocking(False)

    def _exactly(self, n: int) -> bytes:
        data = b""
        while len(data) < n:
            more = self.sock.recv(n - len(data))
            if not more:
                raise LoadError(f"the connection of client {self.number} was closed")
            data += more
        return data

    def close(self) -> None:
        """A goodbye, as far as it is heard."""
        try:
            self.sock.send(build.disconnect())
        except OSError:
            pass
        self.sock.close()


class Sealed(Peer):
    """A client of a mediator."""

    session: Session

    def greet(self, identity: Identity) -> None:
        """CONNECT to the welcome, waited for. LoadError."""
        self.session = Session(identity, make, 1, new_salt(1, b""))
        reader = Reader(identity, make, 4)
        refused: Counter[str] = Counter()
        core = Core(self.session, reader, Outbox(), QoS2Receiver(), refused)
        name = f"bench-{self.number}"
        self.sock.sendall(connect(self.session, name, True, 0, None, False, 0, mono_ms()))
        while True:
            # Packet by packet: what comes behind the welcome is not the core's any more.
            head = self._exactly(2)
            size = head[1]
            if size > 127:
                head += self._exactly(1)
                size = size & 127 | head[2] << 7
            for event in core.receive(head + self._exactly(size), mono_ms()):
                if isinstance(event, Ready):
                    self.sock.setblocking(False)
                    return
                if isinstance(event, Fault):
                    raise LoadError(f"client {self.number} is not let in: {event.error}")
                raise LoadError(f"client {self.number}: {type(event).__name__} for a welcome")

    def publish(self, payload: bytes) -> bytes:
        _, sealed = seal_message(self.session, self.topic, payload, 0, 0, 0, mono_ms())
        return build.publish(self.topic, sealed)

    def subscribe(self, filters: list[str]) -> bytes:
        made = [(self.session.token(filt)[0], 0) for filt in filters]
        return build.subscribe(self._id(), made)

    def unsubscribe(self, filters: list[str]) -> bytes:
        made = [self.session.token(filt, 0, UNSUBSCRIBE)[0] for filt in filters]
        return build.unsubscribe(self._id(), made)

    def command(self, family: str, body: bytes) -> bytes:
        name = family.encode()
        packet = self.session.up(bytes((OP_COMMAND, len(name))) + name + body, mono_ms())
        return build.publish(CONTROL, packet)

    def other(self, packet: bytes, size: int) -> None:
        if packet[0] != _PUBLISH:
            super().other(packet, size)
            return
        if size == _RECEIPT:
            return
        op, said = self.session.down(packet[-(size - 2 - len(CONTROL)) :], mono_ms())
        if op == OP_REPLY:
            self.answered += 1
        elif op == OP_NOTICE:
            self._noticed(said)

    def _noticed(self, said: Any) -> None:
        _, _, _, rule, reason = said
        raise LoadError(f"client {self.number} was refused ({rule}): {reason}")


def cpu_ns(pid: int) -> int:
    """Nanoseconds of CPU that a process has used, all its threads. LoadError when it is gone."""
    try:
        # The clock of another process as Linux numbers it (man 3 clock_getcpuclockid).
        return time.clock_gettime_ns(~pid << 3 | 2)
    except OSError as error:
        raise LoadError(f"process {pid} has ended ({error.strerror})") from None
