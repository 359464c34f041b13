"""Sans-IO MQTT 5: what clients send, as values; what they are sent, as bytes. (What servers send,
as values, and what they are sent: `five_client`.)

One table says which property stands where and how often; what is not in it ends the connection.
Limits hold before a body is there. Sections are those of the OASIS standard of March 2019.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from struct import Struct
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias

from .build import packet, remaining_length
from .errors import (
    BadAlias,
    DecoderDead,
    MalformedPacket,
    PacketTooLarge,
    ProtocolError,
    UsageError,
)
from .reader import Reader
from .text import string_fault, topic_fault

Properties: TypeAlias = Mapping[int, Any]
NONE: Properties = MappingProxyType({})

# Properties, section 2.2.2.2.
PAYLOAD_FORMAT, EXPIRY, CONTENT_TYPE, RESPONSE_TOPIC, CORRELATION = 1, 2, 3, 8, 9
SUBSCRIPTION_ID, SESSION_EXPIRY, ASSIGNED_ID, SERVER_KEEPALIVE = 11, 17, 18, 19
AUTH_METHOD, AUTH_DATA, PROBLEM_INFO, WILL_DELAY, RESPONSE_INFO = 21, 22, 23, 24, 25
RESPONSE = 26
SERVER_REFERENCE, REASON, RECEIVE_MAX, ALIAS_MAX, ALIAS = 28, 31, 33, 34, 35
MAX_QOS, RETAINS, USER, MAX_PACKET = 36, 37, 38, 39
WILDCARDS, SUBSCRIPTION_IDS, SHARED = 40, 41, 42

# B: byte of 0 or 1; H: u16; I: u32; V: variable; S: text; D: bytes; P: pair of texts.
_FORMS = {
    PAYLOAD_FORMAT: "B", EXPIRY: "I", CONTENT_TYPE: "S", RESPONSE_TOPIC: "S", CORRELATION: "D",
    SUBSCRIPTION_ID: "V", SESSION_EXPIRY: "I", ASSIGNED_ID: "S", SERVER_KEEPALIVE: "H",
    AUTH_METHOD: "S", AUTH_DATA: "D", PROBLEM_INFO: "B", WILL_DELAY: "I", RESPONSE_INFO: "B",
    RESPONSE: "S", SERVER_REFERENCE: "S", REASON: "S", RECEIVE_MAX: "H", ALIAS_MAX: "H", ALIAS: "H",
    MAX_QOS: "B", RETAINS: "B", USER: "P", MAX_PACKET: "I", WILDCARDS: "B", SUBSCRIPTION_IDS: "B",
    SHARED: "B",
}  # fmt: skip
_ACK = frozenset((REASON, USER))
_MESSAGE = frozenset((PAYLOAD_FORMAT, EXPIRY, CONTENT_TYPE, RESPONSE_TOPIC, CORRELATION, USER))
_MAY: dict[str, frozenset[int]] = {
    "CONNECT": frozenset(
        (SESSION_EXPIRY, AUTH_METHOD, AUTH_DATA, PROBLEM_INFO, RESPONSE_INFO, RECEIVE_MAX,
         ALIAS_MAX, USER, MAX_PACKET)
    ),
    "will": _MESSAGE | {WILL_DELAY},
    # No subscription identifier: that is the server's to send [MQTT-3.3.4-6].
    "PUBLISH": _MESSAGE | {ALIAS},
    # A PUBLISH that a server sends.
    "delivery": _MESSAGE | {ALIAS, SUBSCRIPTION_ID},
    "CONNACK": frozenset(
        (SESSION_EXPIRY, RECEIVE_MAX, MAX_QOS, RETAINS, MAX_PACKET, ASSIGNED_ID, ALIAS_MAX, REASON,
         USER, WILDCARDS, SUBSCRIPTION_IDS, SHARED, SERVER_KEEPALIVE, RESPONSE, SERVER_REFERENCE,
         AUTH_METHOD, AUTH_DATA)
    ),
    "SUBACK": _ACK, "UNSUBACK": _ACK,
    "PUBACK": _ACK, "PUBREC": _ACK, "PUBREL": _ACK, "PUBCOMP": _ACK,
    "SUBSCRIBE": frozenset((SUBSCRIPTION_ID, USER)),
    "UNSUBSCRIBE": frozenset((USER,)),
    "DISCONNECT": _ACK | {SESSION_EXPIRY},
}  # fmt: skip
# What may not be 0: sections 3.1.2.11.3 and .4, 3.3.2.3.4, 3.8.2.1.2.
_NOT_ZERO = frozenset((RECEIVE_MAX, MAX_PACKET, ALIAS, SUBSCRIPTION_ID))
# User properties of one packet; no client needs as many.
_PAIRS = 64
# What may have several subscription identifiers, and how many.
_MANY = frozenset(("delivery",))
_IDS = 1024

_U16, _U32 = Struct(">H").pack, Struct(">I").pack


class Will5(NamedTuple):
    """Section 3.1.3.2 to .4."""

    topic: str
    payload: bytes
    qos: int
    retain: bool
    properties: Properties

    def __repr__(self) -> str:
        return f"Will5(topic={self.topic!r}, payload=<{len(self.payload)} bytes>)"


@dataclass(frozen=True, slots=True)
class Connect5:
    """CONNECT, section 3.1. `raw`: the whole packet, as packets.Connect has it."""

    client_id: str
    clean_start: bool
    keepalive: int
    will: Will5 | None = field(repr=False)
    username: str | None = field(repr=False)
    password: bytes | None = field(repr=False)
    properties: Properties = field(repr=False)
    raw: bytes = field(default=b"", repr=False)


class Publish5(NamedTuple):
    """PUBLISH, section 3.3. `packet_id` is 0 exactly when `qos` is 0."""

    topic: str
    payload: bytes
    qos: int
    retain: bool
    dup: bool
    packet_id: int
    properties: Properties

    def __repr__(self) -> str:
        return (
            f"Publish5(topic={self.topic!r}, payload=<{len(self.payload)} bytes>, qos={self.qos})"
        )


class Ack5(NamedTuple):
    """PUBACK, PUBREC, PUBREL or PUBCOMP, sections 3.4 to 3.7."""

    kind: str
    packet_id: int
    code: int


class Filter5(NamedTuple):
    """One subscription of a SUBSCRIBE, section 3.8.3."""

    filter: str
    qos: int
    no_local: bool
    retain_handling: int
    as_published: bool = False


class Subscribe5(NamedTuple):
    """SUBSCRIBE, section 3.8."""

    packet_id: int
    filters: tuple[Filter5, ...]
    properties: Properties


class Unsubscribe5(NamedTuple):
    """UNSUBSCRIBE, section 3.10."""

    packet_id: int
    filters: tuple[str, ...]
    properties: Properties


class Pingreq5(NamedTuple):
    """PINGREQ, section 3.12."""


class Disconnect5(NamedTuple):
    """DISCONNECT, section 3.14. Code 4 asks for the will."""

    code: int
    properties: Properties


def speaks(data: bytes) -> bool:
    """Whether a stream that begins so is one of MQTT 5: with a CONNECT of that level, whose first
    bytes are there.
    """
    at = 2
    while 2 <= at < min(len(data), 5) and data[at - 1] > 127:
        at += 1
    return data[:1] == b"\x10" and data[at : at + 7] == b"\0\4MQTT\5"


Packet5: TypeAlias = Connect5 | Publish5 | Ack5 | Subscribe5 | Unsubscribe5 | Pingreq5 | Disconnect5


class Decoder5:
    """Takes what a client sends. `max_packet`, `max_connect`: largest remaining lengths. `aliases`:
    the highest topic alias that is taken; a message with one has its topic.
    """

    _FIRST = 0x10, "CONNECT"

    def __init__(self, max_packet: int, max_connect: int = 16384, aliases: int = 0) -> None:
        self._max_packet, self._max_connect = max_packet, max_connect
        self._held = bytearray()
        self._connected = False
        self._fault: str | None = None
        self._aliases = Aliases(aliases)

    @property
    def buffered(self) -> int:
        """Bytes held of a packet that is not complete."""
        return len(self._held)

    def feed(self, data: bytes) -> list[Any]:
        """The packets (Packet5) that `data` completes. A ProtocolError has those before the fault,
        and ends the stream for good.
        """
        if self._fault is not None:
            raise DecoderDead(f"bytes after a fault that ended the stream: {self._fault}")
        held = self._held
        held += data
        packets: list[Any] = []
        pos = 0
        try:
            while (found := self._next(pos)) is not None:
                first, body, stop = found
                one = self._packet(first, bytes(memoryview(held)[body:stop]))
                if type(one) is Connect5:
                    one = replace(one, raw=bytes(memoryview(held)[pos:stop]))
                packets.append(one)
                pos = stop
        except ProtocolError as error:
            self._fault = str(error)
            self._held = bytearray()
            error.packets = tuple(packets)
            raise
        del held[:pos]
        return packets

    def _next(self, pos: int) -> tuple[int, int, int] | None:
        """First byte, start and end of the body; None while it is not all there."""
        held = self._held
        if len(held) < pos + 2:
            return None
        first = held[pos]
        if (first == self._FIRST[0]) == self._connected:
            # Before all else: whatever comes from a stranger is no longer than a CONNECT.
            raise MalformedPacket(f"{self._FIRST[1]} is the first packet, and comes once")
        remaining, shift, at = 0, 0, pos + 1
        while True:
            if at == len(held):
                return None
            byte = held[at]
            at += 1
            remaining |= (byte & 127) << shift
            if byte < 128:
                break
            shift += 7
            if shift > 21:
                raise MalformedPacket("remaining length goes on after four bytes [section 1.5.5]")
        most = self._max_packet if self._connected else self._max_connect
        if remaining > most:
            raise PacketTooLarge(f"remaining length {remaining}; at most {most} bytes are taken")
        return None if len(held) < at + remaining else (first, at, at + remaining)

    def _packet(self, first: int, body: bytes) -> Any:
        kind = first >> 4
        if kind == 3:
            return read_publish(first & 15, body, self._aliases)
        name, flags = _KINDS.get(kind, ("", 0))
        if not name:
            raise MalformedPacket(f"packet type {kind} arrived at a server [section 2.1.2]")
        if first & 15 != flags:
            raise MalformedPacket(f"{name}: flags {first & 15}; they are {flags} [MQTT-2.1.3-1]")
        r = Reader(name, body, 0, len(body))
        packet: Packet5
        if kind == 1:
            packet = _connect(r)
            self._connected = True
        elif kind == 8:
            packet = _subscribe(r)
        elif kind == 10:
            packet = _unsubscribe(r)
        elif kind == 12:
            packet = Pingreq5()
        elif kind == 14:
            code = r.byte("reason code") if r.more() else 0
            packet = Disconnect5(code, read_properties(r, name) if r.more() else {})
        else:
            packet_id = r.packet_id()
            code = r.byte("reason code") if r.more() else 0
            if r.more():
                read_properties(r, name)
            packet = Ack5(name, packet_id, code)
        r.end()
        return packet


_KINDS = {
    1: ("CONNECT", 0),
    4: ("PUBACK", 0),
    5: ("PUBREC", 0),
    6: ("PUBREL", 2),
    7: ("PUBCOMP", 0),
    8: ("SUBSCRIBE", 2),
    10: ("UNSUBSCRIBE", 2),
    12: ("PINGREQ", 0),
    14: ("DISCONNECT", 0),
}


def _variable(r: Reader, name: str) -> int:
    value = 0
    for shift in (0, 7, 14, 21):
        byte = r.byte(name)
        value |= (byte & 127) << shift
        if byte < 128:
            return value
    raise r.fault(f"{name} goes on after four bytes [section 1.5.5]")


def read_properties(r: Reader, where: str) -> dict[int, Any]:
    """The properties of a packet, by their numbers; which may stand there is looked up."""
    size = _variable(r, "property length")
    # Read on a reader of its own, so that none reaches past the length that was said.
    p = Reader(r.kind, r.take("properties", size), 0, size)
    found: dict[int, Any] = {}
    while p.more():
        kind = _variable(p, "property")
        if kind not in _MAY[where]:
            raise p.fault(f"property {kind} does not belong to {where} [section 2.2.2.2]")
        form = _FORMS[kind]
        if form == "P":
            pairs = found.setdefault(USER, [])
            pairs.append((p.text("user property"), p.text("user property")))
            if len(pairs) > _PAIRS:
                raise p.fault(f"more than {_PAIRS} user properties")
            continue
        if kind == SUBSCRIPTION_ID and where in _MANY:
            ids = found.setdefault(kind, [])
            ids.append(_variable(p, "subscription identifier"))
            if not ids[-1] or len(ids) > _IDS:
                raise p.fault(f"subscription identifier {ids[-1]}, the {len(ids)}th of them")
            continue
        if kind in found:
            raise p.fault(f"property {kind} stands there twice [section 2.2.2.2]")
        value: Any
        if form == "B":
            value = p.byte("property")
            if value > 1:
                raise p.fault(f"property {kind} is {value}; it is 0 or 1")
        elif form == "H":
            value = p.number("property")
        elif form == "I":
            value = p.number("property") << 16 | p.number("property")
        elif form == "V":
            value = _variable(p, "property")
        elif form == "S":
            value = p.text("property")
        else:
            value = p.binary("property")
        if not value and kind in _NOT_ZERO:
            raise p.fault(f"property {kind} is 0")
        found[kind] = value
    return found


def _connect(r: Reader) -> Connect5:
    if r.binary("protocol name") != b"MQTT" or r.byte("protocol level") != 5:
        raise r.fault("it is not of MQTT 5 [section 3.1.2]")
    flags = r.byte("connect flags")
    if flags & 1:
        raise r.fault("its reserved flag is set [MQTT-3.1.2-3]")
    has_will, qos = bool(flags & 4), flags >> 3 & 3
    if qos == 3 or (not has_will and flags & 0x38):
        raise r.fault("its will flags contradict each other [MQTT-3.1.2-11 to -15]")
    keepalive = r.number("keep alive")
    properties = read_properties(r, "CONNECT")
    if AUTH_DATA in properties and AUTH_METHOD not in properties:
        raise r.fault("authentication data without a method [section 3.1.2.11.10]")
    client_id = r.text("client id")
    will = None
    if has_will:
        of = read_properties(r, "will")
        topic = r.topic("will topic")
        will = Will5(topic, r.binary("will payload"), qos, bool(flags & 0x20), of)
    username = r.text("user name") if flags & 0x80 else None
    password = r.binary("password") if flags & 0x40 else None
    return Connect5(client_id, bool(flags & 2), keepalive, will, username, password, properties)


class Aliases:
    """Topics by their numbers, as one side of a connection has named them (section 3.3.2.3.4).
    `most`: the highest number that is taken.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._topics: dict[int, str] = {}

    def topic(self, number: int, said: str) -> str:
        """The topic of a PUBLISH that has this number; `said`: what stands in its place, or ""."""
        if number > self._most:
            most = f"1 to {self._most}" if self._most else "none"
            raise BadAlias(f"PUBLISH: topic alias {number}; taken here: {most} [MQTT-3.3.2-9]")
        if said:
            self._topics[number] = said
            return said
        topic = self._topics.get(number)
        if topic is None:
            raise BadAlias(f"PUBLISH: topic alias {number}, which stands for no topic yet")
        return topic


def read_publish(flags: int, body: bytes, aliases: Aliases, where: str = "PUBLISH") -> Publish5:
    """PUBLISH, section 3.3. where: whose properties it may have."""
    r = Reader("PUBLISH", body, 0, len(body))
    qos, dup = flags >> 1 & 3, bool(flags & 8)
    if qos == 3 or (dup and not qos):
        raise r.fault("its QoS is 3, or DUP stands with QoS 0 [MQTT-3.3.1-2, -4]")
    topic = r.any_text("topic name")
    packet_id = r.packet_id() if qos else 0
    properties = read_properties(r, where)
    number = properties.get(ALIAS, 0)
    # No alias is entered for what is no topic name.
    if (topic or not number) and (fault := topic_fault(topic)):
        raise r.fault(f"topic name {fault}")
    if number:
        topic = aliases.topic(number, topic)
    return Publish5(topic, r.rest(), qos, bool(flags & 1), dup, packet_id, properties)


def _subscribe(r: Reader) -> Subscribe5:
    def one() -> Filter5:
        text = r.filter()
        options = r.byte("subscription options")
        qos, handling = options & 3, options >> 4 & 3
        if qos == 3 or handling == 3 or options & 0xC0:
            raise r.fault(f"subscription options {options:#04x} [section 3.8.3.1]")
        return Filter5(text, qos, bool(options & 4), handling, bool(options & 8))

    packet_id, properties = r.packet_id(), read_properties(r, "SUBSCRIBE")
    return Subscribe5(packet_id, r.filters(one), properties)


def _unsubscribe(r: Reader) -> Unsubscribe5:
    packet_id, properties = r.packet_id(), read_properties(r, "UNSUBSCRIBE")
    return Unsubscribe5(packet_id, r.filters(r.filter), properties)


# --- what a server sends -------------------------------------------------------------------------


def connack(present: bool, code: int, properties: Properties) -> bytes:
    """CONNACK, section 3.2."""
    return packet(0x20, bytes((present, code)), put_properties(properties))


def publish(
    topic: str,
    payload: bytes,
    qos: int,
    retain: bool,
    dup: bool,
    packet_id: int,
    properties: Properties,
) -> bytes:
    """PUBLISH, section 3.3."""
    first = 0x30 | qos << 1 | retain | (8 if dup else 0)
    head = put_text(topic) + (_U16(packet_id) if qos else b"")
    return packet(first, head, put_properties(properties), payload)


_ACKS = {"PUBACK": 0x40, "PUBREC": 0x50, "PUBREL": 0x62, "PUBCOMP": 0x70}


def ack(kind: str, packet_id: int, code: int = 0, properties: Properties = NONE) -> bytes:
    """PUBACK, PUBREC, PUBREL, PUBCOMP, sections 3.4 to 3.7."""
    if not code and not properties:
        return packet(_ACKS[kind], _U16(packet_id))
    return packet(_ACKS[kind], _U16(packet_id), bytes((code,)), put_properties(properties))


def suback(packet_id: int, codes: Sequence[int], properties: Properties = NONE) -> bytes:
    """SUBACK, section 3.9."""
    return packet(0x90, _U16(packet_id), put_properties(properties), bytes(codes))


def unsuback(packet_id: int, codes: Sequence[int], properties: Properties = NONE) -> bytes:
    """UNSUBACK, section 3.11."""
    return packet(0xB0, _U16(packet_id), put_properties(properties), bytes(codes))


def disconnect(code: int, properties: Properties = NONE) -> bytes:
    """DISCONNECT, section 3.14."""
    return packet(0xE0, bytes((code,)), put_properties(properties))


def put_properties(properties: Properties) -> bytes:
    """Properties with their length, section 2.2.2."""
    out = bytearray()
    for kind, value in properties.items():
        form = _FORMS[kind]
        if form == "P":
            for name, text in value:
                out += bytes((kind,)) + put_text(name) + put_text(text)
        elif form == "B":
            out += bytes((kind, value))
        elif form == "H":
            out += bytes((kind,)) + _U16(value)
        elif form == "I":
            out += bytes((kind,)) + _U32(value)
        elif form == "S":
            out += bytes((kind,)) + put_text(value)
        elif form == "V":
            for one in value:
                out += bytes((kind,)) + remaining_length(one)
        else:
            raise UsageError(f"property {kind} is none that is sent here")
    return remaining_length(len(out)) + bytes(out)


def put_text(text: str) -> bytes:
    """A text with its length, section 1.5.4. UsageError."""
    raw = text.encode()
    if len(raw) > 65535 or string_fault(text):
        raise UsageError("text that MQTT has no room for [section 1.5.4]")
    return _U16(len(raw)) + raw
