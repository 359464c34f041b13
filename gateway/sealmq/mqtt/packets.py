"""The 14 packets of MQTT 3.1.1 (section 3) as immutable values.

A packet from the decoder is valid; the constructors themselves check nothing (the encoders do).
What a repr shows may reach a log: it never holds a password, a payload or raw bytes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias


class Publish(NamedTuple):
    """PUBLISH, section 3.3. A tuple, because no other immutable class is built as fast.

    `topic_raw` is `topic` in UTF-8, as received, so that forwarding need not encode it again.
    `packet_id` is 0 exactly when `qos` is 0.
    """

    topic: str
    topic_raw: bytes
    payload: bytes
    qos: int = 0
    retain: bool = False
    dup: bool = False
    packet_id: int = 0

    def __repr__(self) -> str:
        return (
            f"Publish(topic={self.topic!r}, payload=<{len(self.payload)} bytes>, qos={self.qos}, "
            f"retain={self.retain}, dup={self.dup}, packet_id={self.packet_id})"
        )


@dataclass(frozen=True, slots=True)
class Unfit:
    """A PUBLISH that is whole, and whose packet id can be read, but that nobody should take: its
    topic is no topic name, or it is larger than the limit. `topic`: as it came, cut.
    """

    topic: bytes
    qos: int
    packet_id: int
    reason: str


@dataclass(frozen=True, slots=True)
class Will:
    """The message that the server publishes for a client that vanishes, section 3.1.2.5."""

    topic: str
    payload: bytes = field(repr=False)
    qos: int = 0
    retain: bool = False


class Wishes(NamedTuple):
    """What a CONNECT may ask besides; only MQTT 5 has room for it (sections 3.1.2.4, 3.1.2.11).

    `fresh`: nothing of an older session of this identifier, though this one may be kept.
    `receive_max`: messages of QoS 1 and 2 under way to the client. `max_packet`: bytes of a whole
    packet to it. `alias_max`: topic aliases that it takes. `reasons`: whether it wants texts.
    `expiry`: for how many seconds a session that is kept outlives its connection; 0xFFFFFFFF: no
    clock ends it.
    """

    fresh: bool = False
    receive_max: int = 65_535
    max_packet: int = 268_435_460
    alias_max: int = 0
    reasons: bool = True
    expiry: int = 0xFFFFFFFF


NO_WISHES = Wishes()


@dataclass(frozen=True, slots=True)
class Connect:
    """CONNECT, section 3.1. `keepalive` is in seconds, 0 means none.

    `raw` is the whole packet as received, fixed header included. The password, where there is
    one, is the last field of a CONNECT: `raw` ends with its bytes.
    """

    client_id: str
    protocol_level: int = 4
    clean_session: bool = True
    keepalive: int = 0
    will: Will | None = None
    username: str | None = field(default=None, repr=False)
    password: bytes | None = field(default=None, repr=False)
    raw: bytes = field(default=b"", repr=False)
    wishes: Wishes = NO_WISHES


@dataclass(frozen=True, slots=True)
class Connack:
    """CONNACK, section 3.2. `code` is 0 (accepted) to 5 (not authorised)."""

    session_present: bool
    code: int


@dataclass(frozen=True, slots=True)
class Puback:
    """PUBACK, section 3.4: the answer to a PUBLISH of QoS 1."""

    packet_id: int


class Pubacks(NamedTuple):
    """PUBACKs that came one directly after the other. Only from a decoder that puts them
    `together`.
    """

    packet_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Pubrec:
    """PUBREC, section 3.5: the first answer to a PUBLISH of QoS 2."""

    packet_id: int


@dataclass(frozen=True, slots=True)
class Pubrel:
    """PUBREL, section 3.6: the answer to a PUBREC."""

    packet_id: int


@dataclass(frozen=True, slots=True)
class Pubcomp:
    """PUBCOMP, section 3.7: the answer to a PUBREL."""

    packet_id: int


class FilterWishes(NamedTuple):
    """What is asked of one subscription besides; only MQTT 5 has room for it (section 3.8.3.1).

    `retained`: 0 always, 1 if the subscription is new, 2 never. `identifier`: 0: none.
    """

    no_local: bool = False
    as_published: bool = False
    retained: int = 0
    identifier: int = 0


@dataclass(frozen=True, slots=True)
class Subscribe:
    """SUBSCRIBE, section 3.8: at least one (topic filter, requested QoS). `wishes`: of each filter;
    none where nothing more is asked.
    """

    packet_id: int
    filters: tuple[tuple[str, int], ...]
    wishes: tuple[FilterWishes, ...] = ()


@dataclass(frozen=True, slots=True)
class Suback:
    """SUBACK, section 3.9: for each filter the granted QoS, or 0x80 for a refusal."""

    packet_id: int
    codes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Unsubscribe:
    """UNSUBSCRIBE, section 3.10: at least one topic filter."""

    packet_id: int
    filters: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Unsuback:
    """UNSUBACK, section 3.11."""

    packet_id: int


@dataclass(frozen=True, slots=True)
class Pingreq:
    """PINGREQ, section 3.12."""


@dataclass(frozen=True, slots=True)
class Pingresp:
    """PINGRESP, section 3.13."""


@dataclass(frozen=True, slots=True)
class Disconnect:
    """DISCONNECT, section 3.14. `with_will`: the client wants its will published all the same, as
    only MQTT 5 lets it say.
    """

    with_will: bool = False


Packet: TypeAlias = (
    Publish
    | Unfit
    | Connect
    | Connack
    | Puback
    | Pubacks
    | Pubrec
    | Pubrel
    | Pubcomp
    | Subscribe
    | Suback
    | Unsubscribe
    | Unsuback
    | Pingreq
    | Pingresp
    | Disconnect
)
