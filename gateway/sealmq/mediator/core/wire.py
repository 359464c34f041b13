"""Packets to a client, independent of the version of MQTT.

A version is one table of encoders; the core makes bytes in no other way. A client's packets come as
those of `sealmq.mqtt`, whatever version they were decoded from. MQTT 5's table: five.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from sealmq.mqtt import ProtocolError, build
from sealmq_spec.errors import SealError

ACCEPTED, NOT_AUTHORISED, UNAVAILABLE = range(3)
"""Outcomes of a CONNECT."""

# A message is message.Message, which itself needs what stands here.
Alone = Callable[[Any, bytes, int, bool, int, Sequence[int]], bytes]
"""(message, payload, qos, dup, packet id, subscription identifiers): a PUBLISH for one reader."""
Keeps = Callable[[Any, bytes, int, Sequence[int]], str]
"""(message, payload, qos, subscription identifiers): the rule that keeps it from a reader; "":
none."""


class Wire(NamedTuple):
    """Encoders: from checked values to the bytes of a packet.

    `connack(present, outcome, rule)`: rule "" unless it is about what the site's broker does not
    do. `broken(error)`: the answer to a peer that broke MQTT before its session was open, or b"".
    `publish(topic, payload, qos, retain, dup, packet_id)`; `around_id(topic, payload, qos, retain,
    dup)`: the bytes before and after the packet id. `alone`: a message for this reader alone; None:
    readers share the bytes; `keeps`: what keeps one from it, where anything can.
    `refused(packet_id, qos, error, rule)`: the acknowledgement of a PUBLISH that is refused.
    `suback(packet_id, codes, refused)`: the QoS granted, or 0x80; refused: why, by the filter's
    place. `unsuback(packet_id, codes)`: MQTT 5's reason codes. `goodbye(code, rule)`: a DISCONNECT,
    where the version has one.
    """

    connack: Callable[[bool, int, str], bytes]
    broken: Callable[[ProtocolError], bytes]
    publish: Callable[..., bytes]
    around_id: Callable[[bytes, bytes, int, bool, bool], tuple[bytes, bytes]]
    alone: Alone | None
    keeps: Keeps | None
    puback: Callable[[int], bytes]
    pubrec: Callable[[int], bytes]
    pubrel: Callable[[int], bytes]
    pubcomp: Callable[[int], bytes]
    refused: Callable[[int, int, SealError, str], bytes]
    suback: Callable[[int, Iterable[int], Mapping[int, SealError]], bytes]
    unsuback: Callable[[int, Sequence[int]], bytes]
    pingresp: Callable[[], bytes]
    goodbye: Callable[[int, str], bytes]


_CODES_311 = {ACCEPTED: 0, NOT_AUTHORISED: 5, UNAVAILABLE: 3}


def _connack_311(present: bool, outcome: int, rule: str) -> bytes:
    return build.connack(present, _CODES_311[outcome])


def _broken_311(error: ProtocolError) -> bytes:
    return b"" if error.connack is None else build.connack(False, error.connack)


def _refused_311(packet_id: int, qos: int, error: SealError, rule: str) -> bytes:
    return build.puback(packet_id) if qos == 1 else build.pubrec(packet_id)


def _suback_311(packet_id: int, codes: Iterable[int], refused: Mapping[int, SealError]) -> bytes:
    return build.suback(packet_id, codes)


def _unsuback_311(packet_id: int, codes: Sequence[int]) -> bytes:
    return build.unsuback(packet_id)


def _goodbye_311(code: int, rule: str) -> bytes:
    return b""


V311 = Wire(
    connack=_connack_311,
    broken=_broken_311,
    publish=build.publish,
    around_id=build.around_id,
    alone=None,
    keeps=None,
    puback=build.puback,
    pubrec=build.pubrec,
    pubrel=build.pubrel,
    pubcomp=build.pubcomp,
    refused=_refused_311,
    suback=_suback_311,
    unsuback=_unsuback_311,
    pingresp=build.pingresp,
    goodbye=_goodbye_311,
)
"""MQTT 3.1.1."""
