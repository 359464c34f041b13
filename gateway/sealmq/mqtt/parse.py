"""From the bytes of one complete packet to its value; one function a packet type.

Every parser takes (data, start, body, stop): the packet is data[start:stop], its variable header
starts at `body`. It reads nothing at or past `stop`, uses every byte before it, and raises nothing
but ProtocolError. The fixed header's type and flags were checked before (see tables.py).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from struct import unpack_from
from typing import TypeAlias

from .errors import IdentifierRejected, MalformedPacket, UnsupportedProtocol
from .packets import (
    Connack,
    Connect,
    Disconnect,
    Packet,
    Pingreq,
    Pingresp,
    Puback,
    Pubacks,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Suback,
    Subscribe,
    Unfit,
    Unsuback,
    Unsubscribe,
    Will,
)
from .reader import Reader, not_utf8, short, zero_id
from .text import clip, topic_fault

Parser: TypeAlias = Callable[[bytes, int, int, int], Packet]

_new_tuple = tuple.__new__
# A frozen class's own constructor takes four times as long.
_new, _set_id = object.__new__, Puback.__dict__["packet_id"].__set__


def publish(data: bytes, start: int, body: int, stop: int) -> Publish:
    """PUBLISH, section 3.3: the hot path, hence no reader object and no NamedTuple constructor."""
    name = body + 2
    if name > stop:
        raise MalformedPacket(short("PUBLISH", "topic name", 2, stop - body))
    after = name + (data[body] << 8 | data[body + 1])
    if after > stop:
        raise MalformedPacket(short("PUBLISH", "topic name", after - name, stop - name))
    raw = data[name:after]
    topic = _topics.get(raw) or _topic(raw)
    qos, retain, dup = _FLAGS[data[start] & 15]
    if not qos:
        return _new_tuple(Publish, (topic, raw, data[after:stop], 0, retain, False, 0))
    packet_id_at, after = after, after + 2
    if after > stop:
        raise MalformedPacket(short("PUBLISH", "packet id", 2, stop - packet_id_at))
    packet_id = data[packet_id_at] << 8 | data[packet_id_at + 1]
    if not packet_id:
        raise MalformedPacket(zero_id("PUBLISH"))
    return _new_tuple(Publish, (topic, raw, data[after:stop], qos, retain, dup, packet_id))


# QoS, RETAIN and DUP, by a PUBLISH's flags.
_FLAGS = tuple((flags >> 1 & 3, flags & 1 == 1, flags & 8 == 8) for flags in range(16))
# Topic names that were right, as text.
_topics: dict[bytes, str] = {}
_TOPICS, _TOPIC = 1024, 256


def _topic(raw: bytes) -> str:
    try:
        topic = raw.decode()
    except UnicodeDecodeError as error:
        raise not_utf8("PUBLISH", "topic name", error) from None
    if not topic or "+" in topic or "#" in topic or "\0" in topic:
        raise MalformedPacket(f"PUBLISH: topic name {topic_fault(topic)}")
    if len(raw) <= _TOPIC:
        if len(_topics) >= _TOPICS:
            _topics.clear()
        _topics[raw] = topic
    return topic


_SHOWN = 200


def publish_head(data: bytes, start: int, body: int, stop: int) -> int:
    """Where the payload of the PUBLISH whose body is data[body:stop] begins; its topic may be no
    topic name. What is needed may lie beyond the end of `data`: as much of it is then needed.
    """
    needed = body + 2
    if needed <= len(data):
        needed += data[body] << 8 | data[body + 1]
        if data[start] & 6:
            needed += 2
    if needed > stop:
        raise MalformedPacket(short("PUBLISH", "its head", needed - body, stop - body))
    return needed


def unfit(data: bytes, start: int, body: int, stop: int, reason: str) -> Unfit:
    """What is to be said of a PUBLISH that nobody should take; its head is there."""
    after = publish_head(data, start, body, stop)
    qos, packet_id = data[start] >> 1 & 3, 0
    if qos:
        after -= 2
        packet_id = data[after] << 8 | data[after + 1]
        if not packet_id:
            raise MalformedPacket(zero_id("PUBLISH"))
    return Unfit(data[body + 2 : min(after, body + 2 + _SHOWN)], qos, packet_id, reason)


def connect(data: bytes, start: int, body: int, stop: int) -> Connect:
    """CONNECT, section 3.1."""
    reader = Reader("CONNECT", data, body, stop)
    level = _protocol_level(reader)
    flags = reader.byte("connect flags")
    _check_connect_flags(reader, flags)
    clean_session = flags & 0x02 != 0
    keepalive = reader.number("keep alive")
    client_id = reader.text("client id")
    will = None
    if flags & 0x04:
        topic = reader.topic("will topic")
        will = Will(topic, reader.binary("will message"), flags >> 3 & 3, flags & 0x20 != 0)
    username = reader.text("user name") if flags & 0x80 else None
    password = reader.binary("password") if flags & 0x40 else None
    reader.end()
    if not client_id and not clean_session:
        raise IdentifierRejected(
            "CONNECT: the client id is empty and clean session is 0; "
            "a client without an id asks for a clean session [MQTT-3.1.3-8]"
        )
    return Connect(
        client_id, level, clean_session, keepalive, will, username, password, data[start:stop]
    )


def _protocol_level(reader: Reader) -> int:
    name = reader.binary("protocol name")
    if name not in (b"MQTT", b"MQIsdp"):
        shown = name[:16].hex(" ") or "nothing"
        raise reader.fault(f"protocol name is {shown}; it is 'MQTT' [MQTT-3.1.2-1]")
    level = reader.byte("protocol level")
    # A bridge sets bit 7 to say what it is; it takes the refusal as a hint to try without.
    if name != b"MQTT" or level != 4:
        raise UnsupportedProtocol(
            f"CONNECT: protocol {name.decode()} level {level}; "
            "only MQTT level 4 (MQTT 3.1.1) is spoken here [MQTT-3.1.2-2]"
        )
    return level


def _check_connect_flags(reader: Reader, flags: int) -> None:
    shown = f"connect flags 0x{flags:02x}"
    if flags & 0x01:
        raise reader.fault(f"{shown}: reserved bit 0 is 1; it is 0 [MQTT-3.1.2-3]")
    if flags & 0x04:
        if flags & 0x18 == 0x18:
            raise reader.fault(f"{shown}: will QoS is 3; it is 0, 1 or 2 [MQTT-3.1.2-14]")
    elif flags & 0x18:
        raise reader.fault(f"{shown}: a will QoS but no will; it is then 0 [MQTT-3.1.2-13]")
    elif flags & 0x20:
        raise reader.fault(f"{shown}: will retain but no will; it is then 0 [MQTT-3.1.2-15]")
    if flags & 0xC0 == 0x40:
        raise reader.fault(
            f"{shown}: a password but no user name; it comes only with one [MQTT-3.1.2-22]"
        )


def connack(data: bytes, start: int, body: int, stop: int) -> Connack:
    """CONNACK, section 3.2."""
    reader = Reader("CONNACK", data, body, stop)
    flags = reader.byte("acknowledge flags")
    code = reader.byte("return code")
    reader.end()
    if flags & 0xFE:
        raise reader.fault(f"acknowledge flags 0x{flags:02x}; bits 7 to 1 are 0 [section 3.2.2.1]")
    if code > 5:
        raise reader.fault(f"return code {code}; it is 0 to 5 [section 3.2.2.3]")
    if flags and code:
        raise reader.fault(f"session present with return code {code}; it is then 0 [MQTT-3.2.2-4]")
    return Connack(flags == 1, code)


def subscribe(data: bytes, start: int, body: int, stop: int) -> Subscribe:
    """SUBSCRIBE, section 3.8."""
    reader = Reader("SUBSCRIBE", data, body, stop)

    def one() -> tuple[str, int]:
        topic_filter = reader.filter()
        qos = reader.byte("requested QoS")
        if qos > 2:
            raise reader.fault(
                f"requested QoS byte 0x{qos:02x} for {clip(topic_filter)}; "
                "it is 0, 1 or 2 [MQTT-3.8.3-4]"
            )
        return topic_filter, qos

    return Subscribe(reader.packet_id(), reader.filters(one))


def suback(data: bytes, start: int, body: int, stop: int) -> Suback:
    """SUBACK, section 3.9."""
    reader = Reader("SUBACK", data, body, stop)
    packet_id = reader.packet_id()
    codes = []
    while reader.more():
        code = reader.byte("return code")
        if code > 2 and code != 0x80:
            raise reader.fault(
                f"return code 0x{code:02x}; it is 0x00, 0x01, 0x02 or 0x80 [MQTT-3.9.3-2]"
            )
        codes.append(code)
    if not codes:
        raise reader.fault("no return code; there is one for each filter [MQTT-3.8.4-5]")
    return Suback(packet_id, tuple(codes))


def unsubscribe(data: bytes, start: int, body: int, stop: int) -> Unsubscribe:
    """UNSUBSCRIBE, section 3.10."""
    reader = Reader("UNSUBSCRIBE", data, body, stop)
    return Unsubscribe(reader.packet_id(), reader.filters(reader.filter))


def puback(data: bytes, start: int, body: int, stop: int) -> Puback:
    """PUBACK, section 3.4: as many come as messages of QoS 1 are delivered."""
    if stop - body == 2 and (packet_id := data[body] << 8 | data[body + 1]):
        packet = _new(Puback)
        _set_id(packet, packet_id)
        return packet
    raise _no_id("PUBACK", body, stop)


RUN = 256
"""The most PUBACKs that are one Pubacks."""
_RUN = re.compile(rb"(?:\x40\x02..){1,%d}" % RUN, re.DOTALL)


def pubacks(data: bytes, start: int, end: int) -> Pubacks | None:
    """The PUBACKs at data[start:end], up to what is none, or not whole, or wrong; None: there is
    none.
    """
    run = _RUN.match(data, start, end)
    if run is None:
        return None
    # A head and a packet id each.
    ids = unpack_from(f">{(run.end() - start) >> 1}H", data, start)[1::2]
    if 0 in ids:
        ids = ids[: ids.index(0)]
    return _new_tuple(Pubacks, (ids,)) if ids else None


def pubrec(data: bytes, start: int, body: int, stop: int) -> Pubrec:
    """PUBREC, section 3.5."""
    return Pubrec(_only_id("PUBREC", data, body, stop))


def pubrel(data: bytes, start: int, body: int, stop: int) -> Pubrel:
    """PUBREL, section 3.6."""
    return Pubrel(_only_id("PUBREL", data, body, stop))


def pubcomp(data: bytes, start: int, body: int, stop: int) -> Pubcomp:
    """PUBCOMP, section 3.7."""
    return Pubcomp(_only_id("PUBCOMP", data, body, stop))


def unsuback(data: bytes, start: int, body: int, stop: int) -> Unsuback:
    """UNSUBACK, section 3.11."""
    return Unsuback(_only_id("UNSUBACK", data, body, stop))


# Packets without fields are shared, so that a flood of two-byte packets costs a pointer each.
_PINGREQ, _PINGRESP, _DISCONNECT = Pingreq(), Pingresp(), Disconnect()


def pingreq(data: bytes, start: int, body: int, stop: int) -> Pingreq:
    """PINGREQ, section 3.12; its length was checked with the fixed header."""
    return _PINGREQ


def pingresp(data: bytes, start: int, body: int, stop: int) -> Pingresp:
    """PINGRESP, section 3.13; its length was checked with the fixed header."""
    return _PINGRESP


def disconnect(data: bytes, start: int, body: int, stop: int) -> Disconnect:
    """DISCONNECT, section 3.14; its length was checked with the fixed header."""
    return _DISCONNECT


def _only_id(kind: str, data: bytes, body: int, stop: int) -> int:
    if stop - body == 2 and (packet_id := data[body] << 8 | data[body + 1]):
        return packet_id
    raise _no_id(kind, body, stop)


def _no_id(kind: str, body: int, stop: int) -> MalformedPacket:
    if stop - body != 2:
        return MalformedPacket(short(kind, "packet id", 2, stop - body))
    return MalformedPacket(zero_id(kind))
