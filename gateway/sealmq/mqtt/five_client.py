"""Sans-IO MQTT 5, the client's side: what servers send, as values; what they are sent, as bytes.

Acknowledgements, PINGREQ and a DISCONNECT that says nothing are as those of 3.1.1 (`build`).
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import Any, NamedTuple

from . import build
from . import five as v5
from .errors import MalformedPacket
from .packets import Will
from .reader import Reader

_U16 = Struct(">H").pack


class Connack5(NamedTuple):
    """CONNACK, section 3.2."""

    session_present: bool
    code: int
    properties: v5.Properties


class Answer5(NamedTuple):
    """SUBACK or UNSUBACK, sections 3.9 and 3.11: a reason code for each filter."""

    kind: str
    packet_id: int
    codes: tuple[int, ...]
    properties: v5.Properties


class Refused5(NamedTuple):
    """PUBACK or PUBREC with a reason code of a failure, sections 3.4 and 3.5."""

    kind: str
    packet_id: int
    code: int
    properties: v5.Properties


class Pingresp5(NamedTuple):
    """PINGRESP, section 3.13."""


_ACKS = {4: ("PUBACK", 0), 5: ("PUBREC", 0), 6: ("PUBREL", 2), 7: ("PUBCOMP", 0)}
_ANSWERS = {9: "SUBACK", 11: "UNSUBACK"}


class ServerDecoder5(v5.Decoder5):
    """Takes what a server sends. Limits as of Decoder5; `aliases`: as CONNECT has said."""

    _FIRST = 0x20, "CONNACK"

    def _packet(self, first: int, body: bytes) -> Any:
        kind, flags = first >> 4, first & 15
        if kind == 3:
            return v5.read_publish(flags, body, self._aliases, "delivery")
        if kind in _ACKS:
            name, right = _ACKS[kind]
        else:
            name, right = (
                _ANSWERS.get(kind)
                or {2: "CONNACK", 13: "PINGRESP", 14: "DISCONNECT"}.get(kind, ""),
                0,
            )
        if not name or flags != right:
            raise MalformedPacket(f"first byte {first:#04x} arrived at a client [section 2.1.2]")
        r = Reader(name, body, 0, len(body))
        packet: Any
        if kind == 2:
            present, code = r.byte("acknowledge flags"), r.byte("reason code")
            if present > 1 or (present and code):
                raise r.fault(f"acknowledge flags {present} with code {code} [section 3.2.2.1]")
            # A server that does not speak MQTT 5 says so as 3.1.1 does, without properties.
            old = 0 < code < 6 and not r.more()
            packet = Connack5(present == 1, code, v5.NONE if old else v5.read_properties(r, name))
            self._connected = True
        elif kind in _ACKS:
            packet_id = r.packet_id()
            code = r.byte("reason code") if r.more() else 0
            said = v5.read_properties(r, name) if r.more() else v5.NONE
            packet = v5.Ack5(name, packet_id, code)
            if code > 127 and kind < 6:
                packet = Refused5(name, packet_id, code, said)
        elif kind in _ANSWERS:
            packet_id = r.packet_id()
            said = v5.read_properties(r, name)
            packet = Answer5(name, packet_id, tuple(r.rest()), said)
            if not packet.codes:
                raise r.fault("no reason code; there is one for each filter")
        elif kind == 13:
            packet = Pingresp5()
        else:
            code = r.byte("reason code") if r.more() else 0
            packet = v5.Disconnect5(code, v5.read_properties(r, name) if r.more() else v5.NONE)
        r.end()
        return packet


def connect(
    client_id: str,
    *,
    fresh: bool = True,
    keepalive: int = 60,
    will: Will | None = None,
    username: str | None = None,
    password: bytes | None = None,
    properties: v5.Properties = v5.NONE,
) -> bytes:
    """CONNECT of level 5, section 3.1. `fresh`: Clean Start."""
    # The same packet of 3.1.1, with what is new put where it belongs.
    old = build.connect(
        client_id,
        clean_session=True,
        keepalive=keepalive,
        will=will,
        username=username,
        password=password,
    )
    body = old[next(at for at in range(1, 5) if old[at] < 128) + 1 :]
    flags = body[7] if fresh else body[7] & ~2
    name, rest = 2 + len(client_id.encode()), body[10:]
    parts = [b"\0\4MQTT\5", bytes((flags,)), body[8:10], v5.put_properties(properties), rest[:name]]
    # A will has properties of its own; none are sent.
    parts += [b"\0" if will is not None else b"", rest[name:]]
    return build.packet(0x10, *parts)


def publish(
    topic: bytes,
    payload: bytes,
    qos: int = 0,
    retain: bool = False,
    dup: bool = False,
    packet_id: int = 0,
    properties: v5.Properties = v5.NONE,
) -> bytes:
    """PUBLISH, section 3.3. The topic is taken as already checked."""
    return v5.publish(topic.decode(), payload, qos, retain, dup, packet_id, properties)


def subscribe(
    packet_id: int, filters: Sequence[tuple[str, int]], properties: v5.Properties = v5.NONE
) -> bytes:
    """SUBSCRIBE, section 3.8: (topic filter, subscription options), the lowest two bits the QoS."""
    fields = [v5.put_text(text) + bytes((options,)) for text, options in filters]
    return build.packet(0x82, _U16(packet_id), v5.put_properties(properties), *fields)


def unsubscribe(packet_id: int, filters: Sequence[str]) -> bytes:
    """UNSUBSCRIBE, section 3.10."""
    return build.packet(0xA2, _U16(packet_id), b"\0", *map(v5.put_text, filters))
