"""What an application sees: messages, notices, and the options of a client."""

from __future__ import annotations

import enum
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple

from sealmq_spec.const import LIVE, TLV_FAMILIES
from sealmq_spec.envelope import CTR1, LIFE1
from sealmq_spec.errors import Malformed

# In m1's header: boot, salt, counter.
_BOOT = CTR1 - 11
_NUMBER = struct.Struct(">BH8xBH").unpack_from
_LIFE_MOST = 31


class How(enum.IntEnum):
    """How a message came (SPEC.md 3.3): as it was published, or from what was kept."""

    LIVE = 0
    RETAINED = 1
    WILL = 2
    QUEUED = 3


HOWS = tuple(How)
_NONE: Mapping[int, bytes] = MappingProxyType({})


class Came(NamedTuple):
    """How a message came over the wire. ack: what acknowledges it; of: the connection."""

    packet_id: int
    dup: bool
    ack: bytes
    of: object


class Message(NamedTuple):
    """A message that verified under both layers (SPEC.md 6.2).

    label, sender: names of the publisher's label and of the publisher, as the mediator tells them;
    "#" and the number where it does not. label_number, sender_number: what the message proves.
    age: seconds since it was published, by verified time; may be slightly negative. tlv: what
    the site's policy families say of it, {type: value}, with bit 7 in critical types. id: what
    `Client.feedback` names a message of another site by; b"" for one of the own site.
    """

    topic: str
    payload: bytes
    label: str
    sender: str
    age: int
    how: How
    qos: int = 0
    retain: bool = False
    tlv: Mapping[int, bytes] = _NONE
    label_number: int = 0
    sender_number: int = 0
    id: bytes = b""
    # With Options.settle: what `Client.settle` needs.
    came: Came | None = None
    # The header of what its publisher sealed (SPEC.md 3.1).
    m1: bytes = b""

    @property
    def kind(self) -> int:
        """The class in which it was published: LIVE, RETAINED, WILL."""
        return self.m1[1] & 3 if self.m1 else LIVE

    @property
    def number(self) -> tuple[int, int]:
        """Boot and counter: its sender gives no two messages the same."""
        if not self.m1:
            return 0, 0
        *boot, high, low = _NUMBER(self.m1, _BOOT)
        return boot[0] << 16 | boot[1], high << 16 | low

    @property
    def left(self) -> int | None:
        """Seconds that are left of the life which its publisher gave it; None: it gave it none."""
        life = self.m1[LIFE1] if self.m1 else 0
        return max(0, (1 << life) - self.age) if 0 < life <= _LIFE_MOST else None

    def __repr__(self) -> str:
        return (
            f"Message(topic={self.topic!r}, payload=<{len(self.payload)} bytes>, "
            f"label={self.label!r}, sender={self.sender!r}, age={self.age}, how={self.how.name}, "
            f"qos={self.qos}, retain={self.retain})"
        )


@dataclass(frozen=True, slots=True)
class Notice:
    """The gateway's word about something refused (SPEC.md 4.4).

    what: "publish", "subscribe", "unsubscribe", "control", "session" or "". ctr: of what was sent.
    code: the class; rule and reason as the gateway gives them.
    """

    what: str
    ctr: int
    code: int
    rule: str
    reason: str


@dataclass(frozen=True, slots=True)
class News:
    """What a policy family tells without having been asked (SPEC.md 4.4). said: as it says."""

    family: str
    said: bytes


WHAT = {1: "publish", 2: "subscribe", 3: "unsubscribe", 4: "control", 5: "session"}


@dataclass(frozen=True, slots=True)
class Will:
    """What the mediator publishes for a client that vanishes. Sealed anew at each CONNECT."""

    topic: str
    payload: bytes = field(default=b"", repr=False)
    qos: int = 0
    retain: bool = False
    life: int = 0


@dataclass(frozen=True, slots=True)
class Options:
    """How a client behaves. Times in seconds.

    client_id: 1 to 64 bytes, None for a random one; a session that is to outlive the connection
    (clean=False) needs its own. reconnect: try again where the first connection does not succeed,
    and after a loss connect again (each time after a random wait below 1, 2, 4 ... 60 s), resend
    what was not acknowledged and subscribe again; what cannot heal is raised at once. Without it
    every loss is raised.
    connect_timeout: of one try; timeout: of an operation, `connect` with all its tries included.
    inbox_messages, inbox_bytes: what may wait unread before reading from the socket pauses.
    inflight: messages of QoS 1 and 2 that may be unacknowledged at once, at most 60.
    known_tlv: types of items, 32 to 127, that the application understands: a message with a
    critical one of another type is refused.
    protocol: of MQTT, 4 (3.1.1) or 5. With 5 a refusal's reason also comes in the clear, as a hint;
    what counts stays sealed.
    expiry: with protocol 5 and clean=False, for how many seconds the site keeps the session without
    a connection; None: until a clean one takes its place.
    settle: messages of QoS 1 and 2 are acknowledged by `Client.settle`, not as they are queued.
    """

    client_id: str | None = None
    clean: bool = True
    keepalive: int = 60
    will: Will | None = None
    reconnect: bool = True
    connect_timeout: float = 10.0
    timeout: float = 30.0
    inbox_messages: int = 1024
    inbox_bytes: int = 8 * 1024 * 1024
    inflight: int = 20
    known_tlv: tuple[int, ...] = ()
    settle: bool = False
    protocol: int = 4
    expiry: int | None = None

    def __post_init__(self) -> None:
        if self.protocol not in (4, 5):
            raise Malformed(f"protocol {self.protocol}; it is 4 (MQTT 3.1.1) or 5")
        if self.expiry is not None and (self.protocol == 4 or self.clean):
            raise Malformed(f"expiry {self.expiry}; it needs protocol=5 and clean=False")
        if self.expiry is not None and not 0 < self.expiry < 0xFFFFFFFF:
            raise Malformed(f"expiry {self.expiry}; it is 1 to {0xFFFFFFFE:,} s, or None")
        for kind in self.known_tlv:
            if not TLV_FAMILIES <= kind <= 127:
                raise Malformed(f"known_tlv has {kind}; types that families use are 32 to 127")
