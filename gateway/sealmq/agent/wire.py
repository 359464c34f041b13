"""MQTT 3.1.1 and MQTT 5 of local clients as one language. Sans-IO: bytes in, packets out, and back.

What SealMQ has no room for, and an MQTT 5 client asks for, is a `fault` of its packet: refused with
a reason, never silently left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple, Protocol, TypeAlias

from sealmq.client import Message
from sealmq.mqtt import (
    Connect,
    Decoder,
    Disconnect,
    FilterWishes,
    MalformedPacket,
    Packet,
    Pingreq,
    ProtocolError,
    Pubacks,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Subscribe,
    Unsubscribe,
    build,
    speaks_five,
)
from sealmq.mqtt import five as v5
from sealmq_spec import errors as spec
from sealmq_spec.const import MAX_PAYLOAD, MAX_TOPIC

MAX_PACKET = MAX_PAYLOAD + MAX_TOPIC + 4096
MAX_CONNECT = 16384
# Messages of one client that may be unacknowledged, each way.
WINDOW = 20
FOREVER = 0xFFFFFFFF


class Refusal(NamedTuple):
    """Why something is refused. kind: a name of REASONS; rule: "" for none; reason: for people."""

    kind: str
    rule: str
    reason: str

    def __str__(self) -> str:
        return f"{self.rule}: {self.reason}" if self.rule else self.reason

    @classmethod
    def of(cls, error: Exception) -> Refusal:
        """Of what the client library raises."""
        kind = next((name for of, name in _KINDS if isinstance(error, of)), "impossible")
        reason = getattr(error, "reason", "") or str(error)
        return cls(kind, getattr(error, "rule", ""), reason)


class End(Exception):
    """This connection ends. refusal: why, if it is not in good order; will: whether it is sent;
    expiry: what its session's expiry interval is from now on, in seconds; None: as CONNECT said.
    """

    def __init__(
        self, refusal: Refusal | None = None, will: bool = True, expiry: int | None = None
    ) -> None:
        super().__init__(str(refusal) if refusal else "goodbye")
        self.refusal, self.will, self.expiry = refusal, will, expiry


_KINDS: tuple[tuple[type[Exception], str], ...] = (
    (spec.Denied, "denied"),
    (spec.RateLimited, "much"),
    (spec.Unavailable, "much"),
    (spec.TooLarge, "much"),
)
# For each: MQTT 5's reason code in PUBACK, PUBREC, SUBACK and UNSUBACK; in CONNACK; in DISCONNECT;
# and CONNACK's return code of 3.1.1.
REASONS: Mapping[str, tuple[int, int, int, int]] = {
    "denied": (0x87, 0x87, 0x87, 5),
    "password": (0x87, 0x86, 0x87, 4),
    "much": (0x97, 0x97, 0x97, 3),
    "away": (0x80, 0x88, 0x89, 3),
    "impossible": (0x83, 0x83, 0x83, 5),
    "identifier": (0x83, 0x85, 0x83, 2),
    "unknown": (0x92, 0x83, 0x83, 5),
    "taken over": (0x83, 0x83, 0x8E, 3),
    "silent": (0x83, 0x83, 0x8D, 3),
    "ending": (0x83, 0x88, 0x8B, 3),
    "broken": (0x83, 0x81, 0x81, 5),
}


@dataclass(frozen=True, slots=True)
class LastWill:
    """A will as it is published. delay: seconds that it waits for its client's return."""

    topic: str
    payload: bytes = field(repr=False)
    qos: int
    retain: bool
    delay: int = 0


@dataclass(frozen=True, slots=True)
class Hello:
    """CONNECT. kept: a session that outlives the connection; fresh: it begins anew. expiry: by how
    many seconds, FOREVER: no clock ends it. fault: what it asks for and cannot have."""

    client_id: str
    fresh: bool
    kept: bool
    keepalive: int
    will: LastWill | None
    user: str | None = field(repr=False)
    password: bytes | None = field(repr=False)
    window: int = WINDOW
    fault: str = ""
    expiry: int = FOREVER


_NOTHING: Mapping[str, Sequence[str]] = MappingProxyType({})


class Pub(NamedTuple):
    """PUBLISH. put: for policy families. expiry: seconds, None for none."""

    topic: str
    payload: bytes
    qos: int
    retain: bool
    dup: bool
    packet_id: int
    put: Mapping[str, Sequence[str]] = _NOTHING
    expiry: int | None = None
    fault: str = ""


class Sub(NamedTuple):
    """SUBSCRIBE, or UNSUBSCRIBE where `add` is not set. said: for policy families. wishes: of each
    filter, of a SUBSCRIBE of MQTT 5."""

    add: bool
    packet_id: int
    filters: tuple[tuple[str, int], ...]
    said: Mapping[str, str] = {}
    faults: tuple[str, ...] = ()
    wishes: tuple[FilterWishes, ...] = ()


class Ack(NamedTuple):
    """PUBACK, PUBREC, PUBREL or PUBCOMP; `code` is 0 with 3.1.1."""

    kind: str
    packet_id: int
    code: int = 0


class Acks(NamedTuple):
    """PUBACKs of 3.1.1 that came one after the other."""

    packet_ids: tuple[int, ...]


class Ping(NamedTuple):
    """PINGREQ."""


class Bye(NamedTuple):
    """DISCONNECT. will: whether it asks for its will; expiry: of its session from now on, in
    seconds, None where it does not say.
    """

    will: bool
    expiry: int | None = None


Said: TypeAlias = Hello | Pub | Sub | Ack | Acks | Ping | Bye


class Dialect(Protocol):
    """One version of MQTT, of one connection."""

    tells: bool
    """Whether a refused PUBLISH can be told with its reason."""

    def feed(self, data: bytes) -> list[Said]: ...

    def connack(self, present: bool, refusal: Refusal | None, made: str) -> bytes: ...

    def message(
        self, m: Message, packet_id: int, qos: int, dup: bool, ids: Sequence[int] = ()
    ) -> bytes: ...

    def note(self, topic: str, payload: bytes) -> bytes: ...

    def ack(self, kind: str, packet_id: int, refusal: Refusal | None = None) -> bytes: ...

    def granted(self, asked: Sub, answers: Sequence[int | Refusal]) -> bytes: ...

    def pong(self) -> bytes: ...

    def goodbye(self, refusal: Refusal) -> bytes: ...


class Three:
    """MQTT 3.1.1."""

    tells = False

    def __init__(self) -> None:
        self._decoder = Decoder(
            MAX_PACKET, max_connect=MAX_CONNECT, connect_first=True, together=True
        )

    def feed(self, data: bytes) -> list[Said]:
        said: list[Said] = []
        for packet in self._decoder.feed(data):
            if type(packet) is Publish:
                topic, _, payload, qos, retain, dup, packet_id = packet
                # NamedTuple's own constructor takes longer than the rest.
                fields = topic, payload, qos, retain, dup, packet_id, _NOTHING, None, ""
                said.append(tuple.__new__(Pub, fields))
            elif type(packet) is Pubacks:
                said.append(Acks(packet.packet_ids))
            else:
                said.append(_from_three(packet))
        return said

    def connack(self, present: bool, refusal: Refusal | None, made: str) -> bytes:
        if refusal is not None:
            return build.connack(False, REASONS[refusal.kind][3])
        return build.connack(present, 0)

    def message(
        self, m: Message, packet_id: int, qos: int, dup: bool, ids: Sequence[int] = ()
    ) -> bytes:
        # Whoever opened it has checked its topic.
        return build.publish(m.topic.encode(), m.payload, qos, m.retain, dup, packet_id)

    def note(self, topic: str, payload: bytes) -> bytes:
        return build.publish(topic, payload)

    def ack(self, kind: str, packet_id: int, refusal: Refusal | None = None) -> bytes:
        return _THREE[kind](packet_id)

    def granted(self, asked: Sub, answers: Sequence[int | Refusal]) -> bytes:
        if not asked.add:
            return build.unsuback(asked.packet_id)
        codes = [0x80 if isinstance(a, Refusal) else a for a in answers]
        return build.suback(asked.packet_id, codes)

    def pong(self) -> bytes:
        return build.pingresp()

    def goodbye(self, refusal: Refusal) -> bytes:
        return b""  # 3.1.1 has no words for it


_THREE = {
    "PUBACK": build.puback,
    "PUBREC": build.pubrec,
    "PUBREL": build.pubrel,
    "PUBCOMP": build.pubcomp,
}


def _from_three(packet: Packet) -> Said:
    match packet:
        case Connect():
            will = packet.will
            last = LastWill(will.topic, will.payload, will.qos, will.retain) if will else None
            clean = packet.clean_session
            return Hello(
                packet.client_id, clean, not clean, packet.keepalive, last, packet.username,
                packet.password,
            )  # fmt: skip
        case Subscribe():
            return Sub(True, packet.packet_id, packet.filters)
        case Unsubscribe():
            return Sub(False, packet.packet_id, tuple((f, 0) for f in packet.filters))
        case Pubrec() | Pubrel() | Pubcomp():
            return Ack(type(packet).__name__.upper(), packet.packet_id)
        case Pingreq():
            return Ping()
        case Disconnect():
            return Bye(False)
    raise MalformedPacket(f"{type(packet).__name__} arrived at a server")


class Five:
    """MQTT 5."""

    tells = True

    def __init__(self) -> None:
        self._decoder = v5.Decoder5(MAX_PACKET, MAX_CONNECT)
        self._reasons = True
        self._most = FOREVER

    def feed(self, data: bytes) -> list[Said]:
        return [self._from(packet) for packet in self._decoder.feed(data)]

    def _from(self, packet: v5.Packet5) -> Said:
        match packet:
            case v5.Connect5():
                self._reasons = bool(packet.properties.get(v5.PROBLEM_INFO, 1))
                self._most = packet.properties.get(v5.MAX_PACKET, FOREVER)
                return _hello(packet)
            case v5.Publish5():
                put, fault = _put(packet.properties)
                expiry = packet.properties.get(v5.EXPIRY)
                p = packet
                return Pub(
                    p.topic, p.payload, p.qos, p.retain, p.dup, p.packet_id, put, expiry, fault
                )
            case v5.Subscribe5():
                return _sub(packet)
            case v5.Unsubscribe5():
                said, fault = _said(packet.properties)
                filters = tuple((f, 0) for f in packet.filters)
                faults = (fault,) * len(filters) if fault else ()
                return Sub(False, packet.packet_id, filters, said, faults)
            case v5.Ack5():
                return Ack(packet.kind, packet.packet_id, packet.code)
            case v5.Pingreq5():
                return Ping()
            case v5.Disconnect5():
                return Bye(packet.code != 0, packet.properties.get(v5.SESSION_EXPIRY))

    def connack(self, present: bool, refusal: Refusal | None, made: str) -> bytes:
        if refusal is not None:
            return v5.connack(False, REASONS[refusal.kind][1], self._reason(refusal))
        said: dict[int, object] = {
            v5.RECEIVE_MAX: WINDOW,
            v5.MAX_PACKET: MAX_PACKET,
        }
        if made:
            said[v5.ASSIGNED_ID] = made
        return v5.connack(present, 0, said)

    def message(
        self, m: Message, packet_id: int, qos: int, dup: bool, ids: Sequence[int] = ()
    ) -> bytes:
        about = [
            ("sealmq-sender", m.sender),
            ("sealmq-label", m.label),
            ("sealmq-age", str(m.age)),
            ("sealmq-how", m.how.name.lower()),
        ]
        said: dict[int, object] = {v5.USER: about}
        if ids:
            said[v5.SUBSCRIPTION_ID] = ids
        if (left := m.left) is not None:
            said[v5.EXPIRY] = left
        return self._fits(v5.publish(m.topic, m.payload, qos, m.retain, dup, packet_id, said))

    def note(self, topic: str, payload: bytes) -> bytes:
        return self._fits(v5.publish(topic, payload, 0, False, False, 0, {}))

    def _fits(self, packet: bytes) -> bytes:
        """What the client would not take is not sent [MQTT-3.1.2-25]."""
        return packet if len(packet) <= self._most else b""

    def ack(self, kind: str, packet_id: int, refusal: Refusal | None = None) -> bytes:
        if refusal is None:
            return v5.ack(kind, packet_id)
        return v5.ack(kind, packet_id, REASONS[refusal.kind][0], self._reason(refusal))

    def granted(self, asked: Sub, answers: Sequence[int | Refusal]) -> bytes:
        codes = [REASONS[a.kind][0] if isinstance(a, Refusal) else a for a in answers]
        refused = [a for a in answers if isinstance(a, Refusal)]
        said = self._reason(refused[0]) if refused else {}
        if asked.add:
            return v5.suback(asked.packet_id, codes, said)
        return v5.unsuback(asked.packet_id, codes, said)

    def pong(self) -> bytes:
        return build.pingresp()

    def goodbye(self, refusal: Refusal) -> bytes:
        if refusal.kind in ("away", "ending"):
            # Clients are to come again. libmosquitto does after an end without a word, and takes a
            # DISCONNECT for the last one.
            return b""
        return v5.disconnect(REASONS[refusal.kind][2], self._reason(refusal))

    def _reason(self, refusal: Refusal) -> dict[int, object]:
        # U+0000 has no place in a text; whoever wrote the words may be another machine.
        text = str(refusal).replace("\0", "")[:500]
        return {v5.REASON: text} if self._reasons else {}


def _hello(c: v5.Connect5) -> Hello:
    of = c.properties
    fault = "no authentication methods are known here" if v5.AUTH_METHOD in of else ""
    will = None
    if c.will is not None:
        w = c.will
        will = LastWill(w.topic, w.payload, w.qos, w.retain, w.properties.get(v5.WILL_DELAY, 0))
        _, fault = _put(w.properties) if not fault else ({}, fault)
        if v5.USER in w.properties or v5.EXPIRY in w.properties:
            fault = fault or "a will has no user properties and no expiry here"
    expiry = of.get(v5.SESSION_EXPIRY, 0)
    most = of.get(v5.RECEIVE_MAX, 0xFFFF)
    # libmosquitto counts a message of QoS 2 that comes again in another connection twice, and ends
    # for good, with all that it holds, where that is too many.
    window = min(WINDOW, max(1, most // 2) if expiry else most)
    return Hello(
        c.client_id, c.clean_start, expiry > 0, c.keepalive, will, c.username, c.password, window,
        fault, expiry or FOREVER,
    )  # fmt: skip


def _put(of: v5.Properties) -> tuple[dict[str, list[str]], str]:
    """What user properties put into a message, and what stands there that has no room."""
    for kind, name in _NO_ROOM.items():
        if kind in of:
            return {}, f"SealMQ does not carry the property {name!r}"
    put: dict[str, list[str]] = {}
    for name, value in of.get(v5.USER, ()):
        if not name.startswith("put-"):
            return {}, (
                f"SealMQ does not carry the user property {name[:64]!r}; who sent a message and "
                "when is the message's own to prove; put-OPTION is for policy families"
            )
        put.setdefault(name.removeprefix("put-"), []).append(value)
    return put, ""


_NO_ROOM = {
    v5.CONTENT_TYPE: "content type",
    v5.RESPONSE_TOPIC: "response topic",
    v5.CORRELATION: "correlation data",
}


def _said(of: v5.Properties) -> tuple[dict[str, str], str]:
    said: dict[str, str] = {}
    for name, value in of.get(v5.USER, ()):
        if name in said:
            return {}, f"the user property {name[:64]!r} stands there twice"
        said[name] = value
    return said, ""


def _sub(packet: v5.Subscribe5) -> Sub:
    said, fault = _said(packet.properties)
    number = packet.properties.get(v5.SUBSCRIPTION_ID, 0)
    wishes = []
    for one in packet.filters:
        if one.no_local and one.filter.startswith("$share/"):
            raise MalformedPacket("no local in a shared subscription [MQTT-3.8.3-4]")
        wishes.append(FilterWishes(one.no_local, one.as_published, one.retain_handling, number))
    filters = tuple((one.filter, one.qos) for one in packet.filters)
    faults = (fault,) * len(filters) if fault else ()
    return Sub(True, packet.packet_id, filters, said, faults, tuple(wishes))


class Opening:
    """Which version the first bytes are of. MalformedPacket: none that is known here."""

    def __init__(self) -> None:
        self._held = b""

    def feed(self, data: bytes) -> tuple[Dialect, bytes] | None:
        """The dialect and all bytes so far; None while it cannot be told."""
        self._held += data
        held = self._held
        if held[:1] not in (b"", b"\x10"):
            raise MalformedPacket("CONNECT is the first packet [MQTT-3.1.0-1]")
        at = next((i for i in range(1, min(5, len(held))) if held[i] < 128), 0)
        if not at:
            if len(held) >= 5:
                raise MalformedPacket("remaining length goes on after four bytes")
            return None
        name = held[at + 1 : at + 8]
        if len(name) < 7:
            if len(held) > at + 1 + 7 or not b"\0\4MQTT".startswith(name[:6]):
                raise MalformedPacket("the protocol name is MQTT")
            return None
        # 3.1.1's decoder says what is wrong with all others.
        return Five() if speaks_five(held) else Three(), held


__all__ = [
    "Ack", "Acks", "Bye", "Dialect", "End", "Five", "Hello", "LastWill", "Opening", "Ping",
    "ProtocolError", "Pub",
    "Refusal", "Said", "Sub", "Three",
]  # fmt: skip
