"""Encoders: one plain function a packet type, from checked values to the bytes of a packet.

Nothing that breaks MQTT 3.1.1 comes out: a wrong argument raises UsageError, whose text names no
payload, no user name and no password.
"""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct
from typing import TypeAlias

from .errors import UsageError
from .packets import Will
from .text import clip, filter_fault, string_fault, topic_fault

Payload: TypeAlias = bytes | bytearray | memoryview

MAX_REMAINING = 268_435_455

_SHORT_HEAD = Struct(">BBH").pack
_MEDIUM_HEAD = Struct(">BBBH").pack
_U16 = Struct(">H").pack
_QOS = frozenset((0, 1, 2))
_ACK = Struct(">BBH").pack


def publish(
    topic: str | bytes,
    payload: Payload,
    qos: int = 0,
    retain: bool = False,
    dup: bool = False,
    packet_id: int = 0,
) -> bytes:
    """PUBLISH, section 3.3. `packet_id` is 1 to 65535 with QoS 1 or 2 and 0 with QoS 0.

    A topic in bytes is taken as already checked (`Publish.topic_raw` is): only its size is looked
    at. A topic in str is checked.
    """
    raw = _topic(topic) if isinstance(topic, str) else topic
    if type(payload) is not bytes and type(payload) is not bytearray:
        payload = bytes(memoryview(payload))
    if qos:
        if not 0 < packet_id < 65536:
            raise _wrong_id(packet_id)
        return b"".join(
            (_publish_head(raw, len(payload), qos, retain, dup), _U16(packet_id), payload)
        )
    if dup or packet_id:
        raise UsageError("DUP or a packet id with QoS 0 [MQTT-3.3.1-2, MQTT-2.3.1-5]")
    return _publish_head(raw, len(payload), 0, retain, False) + payload


def around_id(
    topic: bytes, payload: bytes, qos: int, retain: bool = False, dup: bool = False
) -> tuple[bytes, bytes]:
    """What stands before and after the packet id (2 bytes) of a PUBLISH of QoS 1 or 2, section 3.3,
    for the same message to many readers. The topic is taken as already checked.
    """
    if not qos:
        raise UsageError("a PUBLISH of QoS 0 has no packet id [MQTT-2.3.1-5]")
    return _publish_head(topic, len(payload), qos, retain, dup), payload


def _publish_head(raw: bytes, length: int, qos: int, retain: bool, dup: bool) -> bytes:
    size = len(raw)
    if not 0 < size < 65536:
        raise UsageError(f"topic name of {size} bytes; it has 1 to 65535 [section 1.5.3]")
    if qos not in _QOS:
        raise UsageError(f"QoS {qos}; it is 0, 1 or 2 [MQTT-3.3.1-4]")
    remaining = size + length + (4 if qos else 2)
    first = (0x31 if retain else 0x30) | qos << 1 | (8 if dup and qos else 0)
    if remaining < 128:
        return _SHORT_HEAD(first, remaining, size) + raw
    if remaining < 16384:
        return _MEDIUM_HEAD(first, remaining & 127 | 128, remaining >> 7, size) + raw
    return b"".join((bytes((first,)), remaining_length(remaining), _U16(size), raw))


def connect(
    client_id: str,
    *,
    clean_session: bool = True,
    keepalive: int = 60,
    will: Will | None = None,
    username: str | None = None,
    password: bytes | None = None,
) -> bytes:
    """CONNECT of level 4, section 3.1. `keepalive` is in seconds, 0 to 65535; 0 means none."""
    if not client_id and not clean_session:
        raise UsageError("an empty client id needs a clean session [MQTT-3.1.3-7]")
    if password is not None and username is None:
        raise UsageError("a password needs a user name [MQTT-3.1.2-22]")
    if not 0 <= keepalive <= 65535:
        raise UsageError(f"keep alive {keepalive}; it is 0 to 65535 seconds [section 3.1.2.10]")
    flags = 0x02 if clean_session else 0
    fields = [_text("client id", client_id)]
    if will is not None:
        if will.qos not in (0, 1, 2):
            raise UsageError(f"will QoS {will.qos}; it is 0, 1 or 2 [MQTT-3.1.2-14]")
        flags |= 0x04 | will.qos << 3 | (0x20 if will.retain else 0)
        fields.append(_sized("will topic", _topic(will.topic)))
        fields.append(_sized("will message", will.payload))
    if username is not None:
        flags |= 0x80
        fields.append(_text("user name", username))
    if password is not None:
        flags |= 0x40
        fields.append(_sized("password", password))
    return packet(0x10, b"\x00\x04MQTT\x04", bytes((flags,)), _U16(keepalive), *fields)


def connack(session_present: bool, code: int) -> bytes:
    """CONNACK, section 3.2: code 0 (accepted) to 5 (not authorised)."""
    if code not in range(6):
        raise UsageError(f"return code {code}; it is 0 to 5 [section 3.2.2.3]")
    if session_present and code:
        raise UsageError("session present goes with return code 0 only [MQTT-3.2.2-4]")
    return bytes((0x20, 2, 1 if session_present else 0, code))


def puback(packet_id: int) -> bytes:
    """PUBACK, section 3.4: as many go out as messages of QoS 1 come."""
    if not 0 < packet_id < 65536:
        raise _wrong_id(packet_id)
    return _ACK(0x40, 2, packet_id)


def pubrec(packet_id: int) -> bytes:
    """PUBREC, section 3.5."""
    return _ack(0x50, packet_id)


def pubrel(packet_id: int) -> bytes:
    """PUBREL, section 3.6."""
    return _ack(0x62, packet_id)


def pubcomp(packet_id: int) -> bytes:
    """PUBCOMP, section 3.7."""
    return _ack(0x70, packet_id)


def subscribe(packet_id: int, filters: Iterable[tuple[str, int]]) -> bytes:
    """SUBSCRIBE, section 3.8: at least one (topic filter, requested QoS)."""
    fields = []
    for topic_filter, qos in filters:
        if qos not in (0, 1, 2):
            raise UsageError(f"requested QoS {qos}; it is 0, 1 or 2 [MQTT-3.8.3-4]")
        fields.append(_filter(topic_filter) + bytes((qos,)))
    if not fields:
        raise UsageError("no topic filter to subscribe to [MQTT-3.8.3-3]")
    return packet(0x82, _id(packet_id), *fields)


def suback(packet_id: int, codes: Iterable[int]) -> bytes:
    """SUBACK, section 3.9: for each filter the granted QoS, or 0x80 for a refusal."""
    answers = list(codes)
    for code in answers:
        if code not in (0, 1, 2, 0x80):
            raise UsageError(f"return code {code}; it is 0, 1, 2 or 0x80 [MQTT-3.9.3-2]")
    if not answers:
        raise UsageError("no return code; there is one for each filter [MQTT-3.8.4-5]")
    return packet(0x90, _id(packet_id), bytes(answers))


def unsubscribe(packet_id: int, filters: Iterable[str]) -> bytes:
    """UNSUBSCRIBE, section 3.10: at least one topic filter."""
    if isinstance(filters, str):
        raise UsageError("one topic filter where a list of them is due")
    fields = [_filter(topic_filter) for topic_filter in filters]
    if not fields:
        raise UsageError("no topic filter to unsubscribe from [MQTT-3.10.3-2]")
    return packet(0xA2, _id(packet_id), *fields)


def unsuback(packet_id: int) -> bytes:
    """UNSUBACK, section 3.11."""
    return _ack(0xB0, packet_id)


def pingreq() -> bytes:
    """PINGREQ, section 3.12."""
    return b"\xc0\x00"


def pingresp() -> bytes:
    """PINGRESP, section 3.13."""
    return b"\xd0\x00"


def disconnect() -> bytes:
    """DISCONNECT, section 3.14."""
    return b"\xe0\x00"


def remaining_length(remaining: int) -> bytes:
    """The remaining length in as few bytes as possible, section 2.2.3."""
    if remaining > MAX_REMAINING:
        raise UsageError(f"remaining length {remaining}; it is at most {MAX_REMAINING}")
    out = bytearray()
    while remaining > 127:
        out.append(remaining & 127 | 128)
        remaining >>= 7
    out.append(remaining)
    return bytes(out)


def packet(first: int, *fields: bytes) -> bytes:
    """Of any type, from its first byte and what follows the remaining length."""
    body = b"".join(fields)
    return bytes((first,)) + remaining_length(len(body)) + body


def _ack(first: int, packet_id: int) -> bytes:
    if not 0 < packet_id < 65536:
        raise _wrong_id(packet_id)
    return _ACK(first, 2, packet_id)


def _id(packet_id: int) -> bytes:
    if not 0 < packet_id < 65536:
        raise _wrong_id(packet_id)
    return _U16(packet_id)


def _wrong_id(packet_id: int) -> UsageError:
    return UsageError(f"packet id {packet_id}; it is 1 to 65535 [MQTT-2.3.1-1]")


def _sized(name: str, raw: bytes) -> bytes:
    if len(raw) > 65535:
        raise UsageError(f"{name} of {len(raw)} bytes; it has at most 65535 [section 1.5.3]")
    return _U16(len(raw)) + raw


def _utf8(name: str, text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise UsageError(
            f"{name} holds a surrogate at character {error.start} [MQTT-1.5.3-1]"
        ) from None


def _text(name: str, text: str) -> bytes:
    fault = string_fault(text)
    if fault:
        raise UsageError(f"{name} holds {fault}")
    return _sized(name, _utf8(name, text))


def _topic(topic: str) -> bytes:
    if not topic or "+" in topic or "#" in topic or "\0" in topic:
        raise UsageError(f"topic name {topic_fault(topic)}")
    return _utf8("topic name", topic)


def _filter(topic_filter: str) -> bytes:
    fault = filter_fault(topic_filter)
    if fault:
        raise UsageError(f"topic filter {fault}: {clip(topic_filter)}")
    return _sized("topic filter", _utf8("topic filter", topic_filter))
