"""Packets to a client, independent of the version of MQTT.

A version is one table of encoders; the core makes bytes in no other way. A client's packets come as
those of `sealmq.mqtt`, whatever version they were decoded from.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from sealmq.mqtt import ProtocolError, build

ACCEPTED, NOT_AUTHORISED, UNAVAILABLE = range(3)
"""Outcomes of a CONNECT."""


class Wire(NamedTuple):
    """Encoders: from checked values to the bytes of a packet.

    `connack(present, outcome)`; `broken(error)`: the answer to a peer that broke MQTT before its
    session was open, or b""; `publish(topic, payload, qos, retain, dup, packet_id)`;
    `around_id(topic, payload, qos, retain, dup)`: the bytes before and after the packet id;
    `suback(packet_id, codes)`: the QoS granted, or 0x80.
    """

    connack: Callable[[bool, int], bytes]
    broken: Callable[[ProtocolError], bytes]
    publish: Callable[..., bytes]
    around_id: Callable[[bytes, bytes, int, bool, bool], tuple[bytes, bytes]]
    puback: Callable[[int], bytes]
    pubrec: Callable[[int], bytes]
    pubrel: Callable[[int], bytes]
    pubcomp: Callable[[int], bytes]
    suback: Callable[[int, Iterable[int]], bytes]
    unsuback: Callable[[int], bytes]
    pingresp: Callable[[], bytes]


_CODES_311 = {ACCEPTED: 0, NOT_AUTHORISED: 5, UNAVAILABLE: 3}


def _connack_311(present: bool, outcome: int) -> bytes:
    return build.connack(present, _CODES_311[outcome])


def _broken_311(error: ProtocolError) -> bytes:
    return b"" if error.connack is None else build.connack(False, error.connack)


V311 = Wire(
    connack=_connack_311,
    broken=_broken_311,
    publish=build.publish,
    around_id=build.around_id,
    puback=build.puback,
    pubrec=build.pubrec,
    pubrel=build.pubrel,
    pubcomp=build.pubcomp,
    suback=build.suback,
    unsuback=build.unsuback,
    pingresp=build.pingresp,
)
"""MQTT 3.1.1."""
