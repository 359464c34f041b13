"""MQTT 5's reason codes for what a session says: one table, and nothing else decides them.

They go in the clear, and so do reason strings, which are rule ids and nothing more: hints for
programs and people. What proves a refusal is its sealed notice (SPEC.md 4.4, 4.6).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from sealmq.broker.promises import QOS, RETAINED, SESSION, SHARED
from sealmq.mqtt import BadAlias, NotTaken, PacketTooLarge, ProtocolError, UnsupportedProtocol
from sealmq_spec.errors import (
    Denied,
    Malformed,
    RateLimited,
    Replay,
    SealError,
    Stale,
    TooLarge,
    Unauthentic,
    Unavailable,
    Unsupported,
    WrongEpoch,
)

OK, NO_SUBSCRIPTION = 0x00, 0x11
UNSPECIFIED, MALFORMED, PROTOCOL, SPECIFIC = 0x80, 0x81, 0x82, 0x83
VERSION, NOT_AUTHORIZED, SERVER_AWAY, BUSY, STOPS = 0x84, 0x87, 0x88, 0x89, 0x8B
AUTH_METHOD, KEEP_ALIVE, TAKEN_OVER, BAD_FILTER = 0x8C, 0x8D, 0x8E, 0x8F
BAD_ALIAS, TOO_LARGE, QUOTA, BAD_PAYLOAD = 0x94, 0x95, 0x97, 0x99
NO_RETAIN, NO_QOS, NO_SHARED = 0x9A, 0x9B, 0x9E


class Codes(NamedTuple):
    """Of one class of refusal: in PUBACK and PUBREC, in SUBACK, in UNSUBACK, in DISCONNECT. Each is
    one that the standard lets stand there (sections 3.4.2.1, 3.9.3, 3.11.3, 3.14.2.1).
    """

    publish: int
    subscribe: int
    unsubscribe: int
    end: int


TABLE: Mapping[int, Codes] = {
    SealError.code: Codes(UNSPECIFIED, UNSPECIFIED, UNSPECIFIED, UNSPECIFIED),
    Malformed.code: Codes(BAD_PAYLOAD, BAD_FILTER, BAD_FILTER, PROTOCOL),
    Unauthentic.code: Codes(NOT_AUTHORIZED, NOT_AUTHORIZED, NOT_AUTHORIZED, NOT_AUTHORIZED),
    Stale.code: Codes(SPECIFIC, SPECIFIC, SPECIFIC, SPECIFIC),
    Replay.code: Codes(SPECIFIC, SPECIFIC, SPECIFIC, SPECIFIC),
    Denied.code: Codes(NOT_AUTHORIZED, NOT_AUTHORIZED, NOT_AUTHORIZED, NOT_AUTHORIZED),
    WrongEpoch.code: Codes(SPECIFIC, SPECIFIC, SPECIFIC, SPECIFIC),
    Unavailable.code: Codes(SPECIFIC, SPECIFIC, SPECIFIC, BUSY),
    TooLarge.code: Codes(QUOTA, QUOTA, SPECIFIC, TOO_LARGE),
    RateLimited.code: Codes(QUOTA, QUOTA, SPECIFIC, QUOTA),
    Unsupported.code: Codes(SPECIFIC, SPECIFIC, SPECIFIC, SPECIFIC),
}
"""By class of error (SPEC.md 11)."""

CONNACKS: Mapping[str, int] = {SESSION: SPECIFIC, RETAINED: NO_RETAIN, QOS: NO_QOS}
"""By rule: what the site's broker does not keep. Any other refusal of a CONNECT is NOT_AUTHORIZED,
whatever its reason."""


def codes(error: SealError) -> Codes:
    """What a refusal for this reason is answered with."""
    found = TABLE.get(error.code, TABLE[SealError.code])
    if error.rule == SHARED:
        return found._replace(subscribe=NO_SHARED)
    return found


def fault(error: ProtocolError) -> int:
    """What a packet is answered with that is no MQTT, or none that is taken here."""
    if isinstance(error, NotTaken):
        return error.code
    for kind, code in ((BadAlias, BAD_ALIAS), (PacketTooLarge, TOO_LARGE)):
        if isinstance(error, kind):
            return code
    return VERSION if isinstance(error, UnsupportedProtocol) else MALFORMED


def fault_rule(error: ProtocolError) -> str:
    """The rule id of that, for audit records and reason strings."""
    return "mqtt." + type(error).__name__
