"""MQTT clients that do what a script says, packet by packet: plain ones and sealed ones.

Both keep two lists of what the server did to them: `got`, the deliveries, and `told`, everything
else. A sealed peer writes down what its reader made of a packet, so that both lists can be compared
with those of a plain peer in front of Mosquitto.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

from sealmq_spec.errors import SealError
from sealmq_spec.reader import Reader

from running_site import until
from wire import CONTROL, Cipher, RawClient, Wire, connect, mono, packet, publish, text

RETAINED, WILL, CLEAR = 1, 2, 3
# The topic of marks, and that of the retained one.
SYNC, _HERE = "sync", "here"
# Packet ids of our own packets; a script's begin at 1.
_ERRANDS = 60_000
_NAMES = {0x20: "connack", 0x40: "puback", 0x50: "pubrec", 0x60: "pubrel", 0x70: "pubcomp",
          0x90: "suback", 0xB0: "unsuback", 0xD0: "pingresp"}  # fmt: skip
PATIENCE_S = 30.0


def pid_of(number: int) -> bytes:
    """A packet id's two bytes."""
    return number.to_bytes(2, "big")


class Will:
    """As a script gives it: TOPIC:PAYLOAD:QOS[:r]."""

    def __init__(self, words: str) -> None:
        self.topic, self.payload, qos, *more = words.split(":")
        self.qos, self.retain = int(qos), more == ["r"]

    @property
    def flags(self) -> int:
        """Of CONNECT."""
        return 4 | self.qos << 3 | self.retain << 5


class Peer:
    """One client of a script. `place`: the first level of all its topics."""

    def __init__(self, name: str, place: str, port: int) -> None:
        self.name, self.place, self.port = name, place, port
        self.client_id = f"{place}-{name}"
        self.got: list[str] = []
        self.told: list[str] = []
        self.manual = False
        self.wire: Wire | None = None
        self._pid = 0
        self._errand = itertools.count(_ERRANDS)
        # What was published and not acknowledged: packet id -> packet.
        self.sent: dict[int, bytes] = {}
        self.newest = b""
        # A packet that is made, and is to be sent after another one.
        self.later = b""
        # Whether CONNACK has accepted the connection.
        self.welcome = False
        # Deliveries that a manual peer has not acknowledged: (packet id, QoS).
        self.owed: list[tuple[int, int]] = []
        self._awaited: list[str] = []
        # Used by `sync`.
        self.keeper: Keeper | None = None

    def __repr__(self) -> str:
        """As a test that fails shows it: what it was told last, and of what it was refused."""
        return f"<{self.client_id}: {self.told[-4:]} {self.notices[-2:]}>"

    # --- what plain and sealed peers do differently ---

    def connect_packet(self, clean: bool, keepalive: int, will: Will | None) -> bytes:
        raise NotImplementedError

    def welcomed(self) -> None:
        """After CONNACK 0."""

    def seal(self, topic: str, payload: bytes, qos: int, retain: bool) -> bytes:
        return payload

    def token(self, filt: str, qos: int, op: int) -> str:
        return filt

    def opened(self, topic: bytes, payload: bytes) -> bytes | None:
        """The plaintext, or None for what a reader drops."""
        return payload

    @property
    def notices(self) -> list[str]:
        """The rules of the notices so far."""
        return []

    # --- packets out ---

    def at(self, topic: str) -> str:
        """A script's topic or filter, which begins with t, at its own place."""
        head, slash, rest = topic.partition("/")
        if head == "$share":
            group, _, filt = rest.partition("/")
            return f"$share/{group}/{self.at(filt)}"
        if rest.startswith("~"):
            rest = "x" * int(rest[1:])
        return self.place + slash + rest if head == "t" else topic

    def connect(self, clean: bool = True, keepalive: int = 60, will: Will | None = None) -> None:
        """CONNECT; waits for CONNACK."""
        self.wire = Wire(self.port)
        self.wire.socket.settimeout(PATIENCE_S)
        self.wire.send(self.connect_packet(clean, keepalive, will))
        self.owed.clear()
        self.await_("connack")
        self.welcome = self.told[-1].startswith("connack 0")
        if self.welcome:
            self.welcomed()

    def subscribe(self, filters: list[tuple[str, int]]) -> None:
        """SUBSCRIBE; waits for SUBACK."""
        body = b"".join(
            text(self.token(self.at(f), q, 0).encode()) + bytes((q,)) for f, q in filters
        )
        self.send(packet(0x82, pid_of(self._next()) + body))
        self.await_("suback")

    def unsubscribe(self, filters: list[str]) -> None:
        """UNSUBSCRIBE; waits for UNSUBACK."""
        body = b"".join(text(self.token(self.at(f), 0, 1).encode()) for f in filters)
        self.send(packet(0xA2, pid_of(self._next()) + body))
        self.await_("unsuback")

    def publish(
        self, topic: str, payload: bytes, qos: int, retain: bool, held: bool = False
    ) -> None:
        """PUBLISH; waits for nothing. held: it is made, and another one is sent first."""
        name = self.at(topic)
        pid = self._next() if qos else 0
        sealed = self.seal(name, payload, qos, retain)
        made = publish(name.encode(), sealed, 0x30 | qos << 1 | retain, pid)
        if qos:
            self.sent[pid] = made
        self.newest = made
        if not held:
            self.send(made)

    def again(self) -> None:
        """The newest PUBLISH, with DUP."""
        made = bytearray(self.newest)
        made[0] |= 8
        self.send(bytes(made))

    def release(self, pid: int) -> None:
        """PUBREL."""
        self.send(packet(0x62, pid_of(pid)))

    def acknowledge(self) -> None:
        """PUBACK or PUBREC for the oldest delivery that a manual peer owes one for."""
        pid, qos = self.owed.pop(0)
        self.send(packet(0x40 if qos == 1 else 0x50, pid_of(pid)))

    def send(self, data: bytes) -> None:
        """Bytes as they are."""
        assert self.wire is not None, f"{self.name} is not connected"
        self.wire.send(data)

    def drop(self) -> None:
        """The connection is lost."""
        assert self.wire is not None
        self.wire.close()
        self.wire = None

    def disconnect(self) -> None:
        """DISCONNECT, and the server's end of the connection."""
        self.send(b"\xe0\0")
        assert self.wire is not None
        assert self.wire.closed()
        self.drop()

    def sync(self) -> None:
        """Returns when all that the server has for this client by now is in `got`.

        Through a gateway, retained and live messages come on different ways, so a mark of each kind
        is waited for. (Messages of a shared subscription come on a third way.)
        """
        assert self.keeper is not None, f"{self.name}: nobody publishes {SYNC}"
        pid = next(self._errand)
        self.send(packet(0x82, pid_of(pid) + text(self.token(SYNC, 1, 0).encode()) + b"\1"))
        self.await_(f"errand {pid}")
        self.await_(f"{SYNC} {_HERE}")
        self.await_(f"{SYNC} {self.keeper.mark()}")

    def settle(self) -> None:
        """Returns when the server has dealt with all that this client has published."""
        pid = next(self._errand)
        topic = f"{self.place}-errands"
        self.send(publish(topic.encode(), self.seal(topic, b"x", 1, False), 0x32, pid))
        self.await_(f"errand {pid}")

    def _next(self) -> int:
        self._pid += 1
        return self._pid

    # --- packets in ---

    def await_(self, what: str, count: int = 1) -> None:
        """Reads until `what` came (that often since it was awaited last)."""
        while count:
            if what in self._awaited:
                self._awaited.remove(what)
                count -= 1
                continue
            if self.wire is None or not self._read():
                assert what == "closed", f"{self.name}: closed, not {what}; told {self.told}"
                return

    def _read(self) -> bool:
        assert self.wire is not None
        try:
            got = self.wire.read()
        except TimeoutError:
            raise AssertionError(
                f"{self.name}: {PATIENCE_S:.0f} s in vain; told {self.told}, got {self.got}"
            ) from None
        if got is None:
            self.drop()
            self.told.append("closed")
            return False
        self._take(*got)
        return True

    def _take(self, first: int, body: bytes) -> None:
        kind = _NAMES.get(first & 0xF0)
        if kind is None:
            self._delivered(first, body)
            return
        pid = int.from_bytes(body[:2], "big")
        if kind == "connack":
            self._note(kind, f"{body[1]} present={body[0]}")
        elif kind == "pingresp":
            self._note(kind, "")
        elif pid >= _ERRANDS:
            self._awaited.append(f"errand {pid}")
        elif kind == "pubrel":
            # It may come at any time, so it is only noted where a script waits for it.
            if self.manual:
                self._note(kind, "")
            else:
                self.send(packet(0x70, body[:2]))
        else:
            self._note(kind, f"{pid} {body[2:].hex()}".strip())
            if kind == "pubrec" and not self.manual:
                self.release(pid)
            if kind in ("puback", "pubcomp"):
                self.sent.pop(pid, None)

    def _note(self, kind: str, rest: str) -> None:
        self._awaited.append(kind)
        self.told.append(f"{kind} {rest}".strip())

    def _delivered(self, first: int, body: bytes) -> None:
        size = int.from_bytes(body[:2], "big")
        topic, at, qos = body[2 : 2 + size], 2 + size, first >> 1 & 3
        if topic == CONTROL:
            self.control(first, body)
            return
        if qos:
            pid = int.from_bytes(body[at : at + 2], "big")
            at += 2
            if self.manual:
                self.owed.append((pid, qos))
            else:
                self.send(packet(0x40 if qos == 1 else 0x50, pid_of(pid)))
        payload = self.opened(topic, body[at:])
        if payload is None:
            self._awaited.append("dropped")
            return
        if topic.decode() == SYNC:
            self._awaited.append(f"{SYNC} {payload.decode()}")
            return
        name = topic.decode()
        name = "t" + name.removeprefix(self.place) if name.startswith(self.place) else name
        name = name if len(name) < 50 else f"{len(name)} letters"
        shown = payload.decode() if len(payload) < 50 else f"{len(payload)} bytes"
        self.got.append(f"{name} {shown or '-'} q{qos} r{first & 1} d{first >> 3 & 1}")
        self._awaited.append("got")

    def control(self, first: int, body: bytes) -> None:
        """A packet on the control topic."""
        raise AssertionError("a control packet for a plain peer")


class Plain(Peer):
    """In front of a broker, without SealMQ."""

    def connect_packet(self, clean: bool, keepalive: int, will: Will | None) -> bytes:
        flags = clean << 1 | (will.flags if will else 0)
        body = text(b"MQTT") + bytes((4, flags)) + keepalive.to_bytes(2, "big")
        body += text(self.client_id.encode())
        if will:
            body += text(self.at(will.topic).encode()) + text(will.payload.encode())
        return packet(0x10, body)


class Sealed(Peer):
    """In front of a mediator. `raw`: its keys; a script begins a boot session of it."""

    def __init__(self, name: str, place: str, raw: RawClient) -> None:
        super().__init__(name, place, raw.port)
        self._raw = raw
        raw.begin()
        raw.notices.clear()
        self._reader = Reader(raw.ident, Cipher)
        self._ctrs: dict[int, int] = {}
        # Why the reader dropped what came.
        self.dropped: list[str] = []

    @property
    def notices(self) -> list[str]:
        """The rules of the notices so far."""
        return [str(notice[3]) for notice in self._raw.notices]

    def connect_packet(self, clean: bool, keepalive: int, will: Will | None) -> bytes:
        raw = self._raw
        flags, sealed = 0xC0 | clean << 1, b""
        if will:
            flags |= will.flags
            topic = self.at(will.topic).encode()
            bits = will.qos << 1 | will.retain
            m2 = raw.seal(topic, will.payload.encode(), flags=bits, kind=WILL, life=255)
            sealed = text(topic) + text(m2)
        low = min((self._ctrs[pid] for pid in self.sent if pid in self._ctrs), default=0)
        head = raw.session.begin_connect(False, low)
        made = connect(
            self.client_id.encode(), head + b"A" * 22, will=sealed, flags=flags, keepalive=keepalive
        )
        raw.session.sign(made, mono())
        return bytes(made)

    def welcomed(self) -> None:
        self.await_("control")

    def seal(self, topic: str, payload: bytes, qos: int, retain: bool) -> bytes:
        kind = (RETAINED if payload else CLEAR) if retain else 0
        # What is retained stays for ever: a busy machine takes longer than the minute of life 0.
        life = 255 if kind == RETAINED else 0
        sealed = self._raw.seal(topic.encode(), payload, qos << 1 | retain, kind, life)
        self._ctrs[self._pid] = self._raw.session.ctr
        return sealed

    def token(self, filt: str, qos: int, op: int) -> str:
        return str(self._raw.session.token(filt, qos, op)[0])

    def control(self, first: int, body: bytes) -> None:
        op, what = self._raw.control((first, body))
        if op == 5:
            assert isinstance(what, bytes)
            self._reader.add(what)
        self._awaited.append("control")

    def opened(self, topic: bytes, payload: bytes) -> bytes | None:
        now = self._raw.session.now_ms(mono())
        try:
            return bytes(self._reader.open(topic, bytearray(payload), now).payload)
        except SealError as error:
            self.dropped.append(type(error).__name__)
            return None


class Keeper:
    """A client of its own that publishes the marks on SYNC that `Peer.sync` waits for.

    make: it, with the keys of today.
    """

    def __init__(self, make: Callable[[], Peer]) -> None:
        self._make = make
        self._peer = make()
        self._marks = itertools.count(1)
        self._publish(_HERE, True)

    def mark(self) -> str:
        """A new one, which the broker has."""
        mark = str(next(self._marks))
        self._publish(mark, False)
        return mark

    # With a connection of its own: the gateway may have been killed since the last one.
    def _publish(self, mark: str, retain: bool) -> None:
        until(f"{SYNC} {mark} to be taken", lambda: self._taken(mark, retain))

    def _taken(self, mark: str, retain: bool) -> bool:
        peer = self._peer
        peer.connect()
        if not peer.welcome:
            return False
        peer.publish(SYNC, mark.encode(), 1, retain)
        peer.await_("puback")
        peer.disconnect()
        if peer.notices:
            # Keys were changed meanwhile.
            self._peer = self._make()
        return not peer.notices


def provisioned(port: int, enrolment: Path) -> RawClient:
    """A client's keys."""
    raw = RawClient(port, enrolment)
    raw.provision()
    return raw


def twin(raw: RawClient, enrolment: Path, number: int) -> RawClient:
    """The same client's keys for one more connection, in a boot session of its own."""
    made = RawClient(raw.port, enrolment)
    for field in ("gen", "own", "km", "kseq"):
        setattr(made.ident, field, getattr(raw.ident, field))
    made.boot = number
    return made
