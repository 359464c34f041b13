"""What the first byte of a packet decides: its parser and how long it may be.

A table has 256 entries, so that one look-up checks packet type, reserved flags (MQTT 3.1.1 section
2.2.2), QoS and DUP of a PUBLISH, and whether this peer may send it now. No entry means refused.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Literal, TypeAlias

from . import parse
from .errors import MalformedPacket, PacketTooLarge
from .parse import Parser

Role: TypeAlias = Literal["server", "client"]
# Where a connection stands: "any" asks for no order, the two others hold a CONNECT to be the first
# packet and the only one of its kind (MQTT-3.1.0-1 and -2).
Stage: TypeAlias = Literal["any", "opening", "open"]
Table: TypeAlias = tuple[tuple[Parser | None, ...], tuple[int, ...]]

CONNECT, PUBACK = 0x10, 0x40
# Type of a packet, whatever its flags.
PUBLISH = 3

# name, flags of the fixed header, remaining length where it is always the same, parser.
# PUBLISH (3) is not here: its flags vary.
_KINDS: dict[int, tuple[str, int, int | None, Parser]] = {
    1: ("CONNECT", 0, None, parse.connect),
    2: ("CONNACK", 0, 2, parse.connack),
    4: ("PUBACK", 0, 2, parse.puback),
    5: ("PUBREC", 0, 2, parse.pubrec),
    6: ("PUBREL", 2, 2, parse.pubrel),
    7: ("PUBCOMP", 0, 2, parse.pubcomp),
    8: ("SUBSCRIBE", 2, None, parse.subscribe),
    9: ("SUBACK", 0, None, parse.suback),
    10: ("UNSUBSCRIBE", 2, None, parse.unsubscribe),
    11: ("UNSUBACK", 0, 2, parse.unsuback),
    12: ("PINGREQ", 0, 0, parse.pingreq),
    13: ("PINGRESP", 0, 0, parse.pingresp),
    14: ("DISCONNECT", 0, 0, parse.disconnect),
}
# What reaches a server comes from a client, and the other way round (section 2.2.1, table 2.1).
_INBOUND: dict[Role, frozenset[int]] = {
    "server": frozenset((1, 3, 4, 5, 6, 7, 8, 10, 12, 14)),
    "client": frozenset((2, 3, 4, 5, 6, 7, 9, 11, 13)),
}


def _admitted(role: Role, stage: Stage) -> frozenset[int]:
    kinds = _INBOUND[role]
    if stage == "opening":
        return kinds & {1}
    if stage == "open":
        return kinds - {1}
    return kinds


@lru_cache(maxsize=64)
def table(role: Role, stage: Stage, max_packet: int, max_connect: int) -> Table:
    """Parsers and largest remaining lengths by first byte; shared by all decoders alike."""
    parsers: list[Parser | None] = [None] * 256
    most = [0] * 256
    for kind in _admitted(role, stage):
        if kind == PUBLISH:
            for flags in range(16):
                if _publish_flags_fault(flags) is None:
                    parsers[0x30 | flags] = parse.publish
                    most[0x30 | flags] = max_packet
            continue
        _, flags, fixed, parser = _KINDS[kind]
        first = kind << 4 | flags
        parsers[first] = parser
        if fixed is None:
            most[first] = max_connect if first == CONNECT else max_packet
        else:
            most[first] = fixed
    return tuple(parsers), tuple(most)


def name(first: int) -> str:
    """The packet type that a first byte says, for a text."""
    kind = first >> 4
    return "PUBLISH" if kind == PUBLISH else _KINDS[kind][0] if kind in _KINDS else f"type {kind}"


def _publish_flags_fault(flags: int) -> str | None:
    qos = flags >> 1 & 3
    if qos == 3:
        return "QoS 3; it is 0, 1 or 2 [MQTT-3.3.1-4]"
    if flags & 8 and qos == 0:
        return "DUP with QoS 0; DUP is then 0 [MQTT-3.3.1-2]"
    return None


def first_byte_fault(first: int, role: Role, stage: Stage) -> MalformedPacket:
    """Why a first byte has no entry in the table of this role and stage."""
    kind, flags = first >> 4, first & 15
    kind_name = name(first)
    admitted = _admitted(role, stage)
    if kind in (0, 15):
        return MalformedPacket(f"packet {kind_name} is reserved [section 2.2.1]")
    if kind not in admitted:
        if stage == "opening":
            return MalformedPacket(
                f"{kind_name}: arrived first; the first packet is CONNECT [MQTT-3.1.0-1]"
            )
        if kind == 1 and stage == "open":
            return MalformedPacket(
                "CONNECT: arrived again; a client sends it once a connection [MQTT-3.1.0-2]"
            )
        names = ", ".join(name(allowed << 4) for allowed in sorted(admitted))
        return MalformedPacket(
            f"{kind_name}: arrived at a {role}, which takes {names} [section 2.2.1]"
        )
    if kind == PUBLISH:
        return MalformedPacket(f"{kind_name}: {_publish_flags_fault(flags)}")
    right = _KINDS[kind][1]
    return MalformedPacket(
        f"{kind_name}: flags 0b{flags:04b}; they are 0b{right:04b} [MQTT-2.2.2-2]"
    )


def length_fault(first: int, remaining: int, most: int) -> MalformedPacket | PacketTooLarge:
    """Why a remaining length is refused before the body is there."""
    kind = _KINDS.get(first >> 4)
    if kind is not None and kind[2] is not None:
        return MalformedPacket(
            f"{kind[0]}: remaining length {remaining}; it is always {kind[2]} [section 3]"
        )
    return PacketTooLarge(
        f"{name(first)}: remaining length {remaining}; at most {most} bytes are taken here"
    )
