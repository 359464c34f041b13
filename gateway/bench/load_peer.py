"""One client of the load generator, as cheap as it can be: what it sends was sealed beforehand,
what it receives is counted by topic and not opened.

Only what is neither a delivery, an acknowledgement nor a receipt is looked into: answers, and
notices, of which none is expected; a notice ends the measurement.
"""

from __future__ import annotations

import select
import socket
import ssl
from collections import Counter, defaultdict
from typing import Any

from load_cpu import LoadError

from sealmq.client.cipher import make
from sealmq.client.core import Core
from sealmq.client.events import Event, Fault, Ready
from sealmq.client.foreign import Reader
from sealmq.client.opening import connect
from sealmq.client.outbox import Outbox
from sealmq.client.randomness import mono_ms, new_salt
from sealmq.client.seal import seal_message
from sealmq.mqtt import Decoder, Pingresp, Publish, QoS2Receiver, Suback, Unsuback, build
from sealmq_spec.const import CONTROL, OP_COMMAND, OP_NOTICE, OP_REPLY, UNSUBSCRIBE
from sealmq_spec.identity import Identity
from sealmq_spec.session import Session

PATIENCE_S = 60.0
_READ = 256 * 1024
_PUBLISH, _PUBACK, _CONNACK = 0x30, 0x40, 0x20
_REFUSED = 0x80
_HEAD = b"\x40\x02"
# What comes after the fixed header: "!c1" and its length, header of a packet down, a receipt, tag.
_RECEIPT = 2 + len(CONTROL) + 14 + 12 + 16


class TlsSocket:
    """A socket whose bytes are TLS 1.3. One read of the network for all records that wait there:
    ssl.SSLSocket reads the head and the body of each by itself."""

    def __init__(self, sock: socket.socket, context: ssl.SSLContext) -> None:
        self._sock = sock
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._in, self._out, server_hostname="localhost")
        self.setblocking, self.fileno, self.close = sock.setblocking, sock.fileno, sock.close

    def handshake(self) -> bool:
        """What can be done of it now; whether it is over."""
        try:
            self._tls.do_handshake()
            done = True
        except ssl.SSLWantReadError:
            done = False
        self._flush()
        return done

    def feed(self) -> bool:
        """Read from the network; False at its end."""
        data = self._sock.recv(_READ)
        self._in.write(data)
        return bool(data)

    def recv(self, size: int) -> bytes:
        """What has arrived; BlockingIOError where that is nothing for us."""
        while True:
            found = []
            try:
                while size and (self._in.pending or self._tls.pending()):
                    found.append(self._tls.read(size))
                    size -= len(found[-1])
            except ssl.SSLWantReadError:
                pass
            if found:
                return b"".join(found)
            if not self.feed():
                return b""

    def send(self, data: bytes) -> int:
        """All of it, or none."""
        self._tls.write(data)
        self._flush()
        return len(data)

    sendall = send

    def _flush(self) -> None:
        data = self._out.read()
        while data:
            try:
                data = data[self._sock.send(data) :]
            except BlockingIOError:
                select.select([], [self._sock], [], PATIENCE_S)


class Peer:
    """A plain MQTT client of a plain broker. qos: of what it publishes and subscribes to."""

    def __init__(
        self, number: int, host: str, port: int, own: str, qos: int = 0, clean: bool = True
    ) -> None:
        self.number, self.qos, self.clean = number, qos, clean
        self.topic = own.encode()
        self.own = len(self.topic).to_bytes(2, "big") + self.topic
        # Deliveries by topic; of these, of what this client published; and its PUBACKs.
        self.counts: defaultdict[bytes, int] = defaultdict(int)
        self.echoed = 0
        self.acked = 0
        self.answered = 0
        # Whether a refusal is an answer as any other.
        self.may_be_refused = False
        # Topics of what came since somebody last looked; None: nobody looks.
        self.arrived: list[bytes] | None = None
        self.queue: list[bytes] = []
        self._rest = b""
        self._ids = 0
        self._decoder = Decoder(1 << 20, role="client")
        self.address = (host, port)
        self.sock: Any = None

    # --- what is made beforehand ---

    def publish(self, payload: bytes) -> bytes:
        """A PUBLISH to this client's own topic."""
        return build.publish(self.topic, payload, self.qos, packet_id=self.qos and self._id())

    def subscribe(self, filters: list[str]) -> bytes:
        """One SUBSCRIBE with this client's QoS."""
        return build.subscribe(self._id(), [(filt, self.qos) for filt in filters])

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

    def receive(self) -> int:
        """How many deliveries have arrived."""
        try:
            data = self.sock.recv(_READ)
        except BlockingIOError:
            return 0
        if not data:
            raise LoadError(f"the connection of client {self.number} was closed")
        return self.take(data)

    def take(self, data: bytes) -> int:
        """The hot part: walks the packets, counts deliveries, acknowledges them."""
        if self._rest:
            data = self._rest + data
        at, n, own = 0, len(data), self.own
        long, first = len(own), own[1]
        delivery = _PUBLISH | self.qos << 1
        counts, arrived = self.counts, self.arrived
        acks: list[bytes] = []
        got = 0
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
            kind = data[at]
            # Topics of a bench have all the same length, and the control topic has not.
            if kind == delivery and data[body + 1] == first:
                topic = data[body : body + long]
                counts[topic] += 1
                got += 1
                if topic == own:
                    self.echoed += 1
                if delivery != _PUBLISH:
                    acks += (_HEAD, data[body + long : body + long + 2])
                if arrived is not None:
                    arrived.append(topic)
            elif kind == _PUBACK:
                self.acked += 1
            else:
                self.other(data[at:end], size)
            at = end
        self._rest = data[at:]
        if acks:
            self.send(b"".join(acks))
        return got

    def other(self, packet: bytes, size: int) -> None:
        """What is no delivery."""
        for answer in self._decoder.feed(packet):
            if isinstance(answer, Suback):
                if _REFUSED in answer.codes and not self.may_be_refused:
                    raise LoadError(f"a subscription of client {self.number} was refused")
                self.answered += 1
            elif isinstance(answer, Unsuback | Pingresp):
                self.answered += 1
            elif isinstance(answer, Publish):
                again = ", once more" if answer.dup else ""
                raise LoadError(
                    f"client {self.number} got a message with QoS {answer.qos}{again}; it "
                    f"subscribed with QoS {self.qos}"
                )

    # --- life ---

    def open(self, context: ssl.SSLContext | None = None) -> None:
        """The connection, and the handshake where it is one of TLS."""
        sock = socket.create_connection(self.address, PATIENCE_S)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.sock = sock
        if context is not None:
            self.sock = secured = TlsSocket(sock, context)
            while not secured.handshake():
                if not secured.feed():
                    raise LoadError(f"the handshake of client {self.number} was ended")

    def hello(self, user: str, password: str, ids: str) -> bytes:
        """CONNECT. ids: what a client id begins with."""
        return build.connect(
            f"{ids}bench-{self.number}",
            clean_session=self.clean,
            keepalive=0,
            username=user,
            password=password.encode(),
        )

    def greet(self, hello: bytes) -> None:
        """CONNECT until the other side has let it in, waited for. LoadError."""
        self.sock.sendall(hello)
        while not self.welcome(self._packet()):
            pass
        self.sock.setblocking(False)

    def said(self) -> None:
        """Its CONNECT, which was made beforehand, is sent now."""

    def welcome(self, packet: bytes) -> bool:
        """Whether this packet lets it in; LoadError when it refuses."""
        if packet[0] != _CONNACK or packet[3]:
            raise LoadError(f"client {self.number} is not let in")
        return True

    def _packet(self) -> bytes:
        head = self._exactly(2)
        size = head[1]
        if size > 127:
            head += self._exactly(1)
            size = size & 127 | head[2] << 7
        return head + self._exactly(size)

    def _exactly(self, n: int) -> bytes:
        data = b""
        while len(data) < n:
            try:
                more = self.sock.recv(n - len(data))
            except TimeoutError:
                raise LoadError(f"client {self.number} is not answered") from None
            if not more:
                raise LoadError(f"the connection of client {self.number} was closed")
            data += more
        return data

    def close(self) -> None:
        """A goodbye, as far as it is heard."""
        if self.sock is None:
            return
        try:
            self.sock.send(build.disconnect())
        except OSError:
            pass
        self.sock.close()


class Sealed(Peer):
    """A client of a mediator."""

    session: Session
    _core: Core
    # By how much this client's clock is behind: it stood still between CONNECT's making and its
    # sending, since a welcome that took long sets no clock.
    _made = 0
    _behind = 0

    def begin(self, identity: Identity, boot: int) -> bytes:
        """A boot session of this identity, and its CONNECT. boot: higher than the last one."""
        self.session = Session(identity, make, boot, new_salt(boot, b""))
        reader = Reader(identity, make, 4)
        refused: Counter[str] = Counter()
        self._core = Core(self.session, reader, Outbox(), QoS2Receiver(), refused)
        name = f"bench-{self.number}"
        self._made = mono_ms()
        return connect(self.session, name, self.clean, 0, None, False, 0, self._made)

    def said(self) -> None:
        self._behind = mono_ms() - self._made

    def welcome(self, packet: bytes) -> bool:
        # Packet by packet: what comes after the welcome is not the core's any more.
        for event in self._core.receive(packet, mono_ms() - self._behind):
            if isinstance(event, Ready):
                return True
            self._not_let_in(event)
        return False

    def _not_let_in(self, event: Event) -> None:
        if isinstance(event, Fault):
            raise LoadError(f"client {self.number} is not let in: {event.error}")
        raise LoadError(f"client {self.number}: {type(event).__name__} for a welcome")

    def publish(self, payload: bytes) -> bytes:
        flags = self.qos << 1
        _, sealed = seal_message(self.session, self.topic, payload, flags, 0, 0, mono_ms())
        return build.publish(self.topic, sealed, self.qos, packet_id=self.qos and self._id())

    def subscribe(self, filters: list[str]) -> bytes:
        made = [(self.session.token(filt, self.qos)[0], self.qos) for filt in filters]
        return build.subscribe(self._id(), made)

    def unsubscribe(self, filters: list[str]) -> bytes:
        made = [self.session.token(filt, 0, UNSUBSCRIBE)[0] for filt in filters]
        return build.unsubscribe(self._id(), made)

    def command(self, family: str, body: bytes) -> bytes:
        name = family.encode()
        packet = self.session.up(bytes((OP_COMMAND, len(name))) + name + body, mono_ms())
        return build.publish(CONTROL, packet)

    def other(self, packet: bytes, size: int) -> None:
        if packet[0] != _PUBLISH or packet[-size:][2 : 2 + len(CONTROL)] != CONTROL:
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
        if self.may_be_refused:
            return
        raise LoadError(f"client {self.number} was refused ({rule}): {reason}")


__all__ = ["PATIENCE_S", "LoadError", "Peer", "Sealed", "TlsSocket"]
