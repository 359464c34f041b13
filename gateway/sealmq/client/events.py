"""What the sans-IO core tells its shell. `ctr` names the same thing on both sides (SPEC.md 1)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from .values import Message, News, Notice


@dataclass(frozen=True, slots=True)
class Ready:
    """A valid welcome: the connection may be used. `present`: the MQTT session was still there."""

    present: bool


@dataclass(frozen=True, slots=True)
class Behind:
    """A valid welcome that says: take a boot above `floor` and a new salt, connect again."""

    floor: int


@dataclass(frozen=True, slots=True)
class OtherTime:
    """A valid welcome with another time than this boot session has: begin a new one. Nothing that
    came behind it was looked at or acknowledged, since by the old time it is stale."""


@dataclass(slots=True)
class Arrived:
    """Messages to deliver, which came one after the other. `due` is sent once they are queued:
    acknowledgements, but for those of messages that the application settles."""

    messages: list[Message]
    due: bytearray


@dataclass(frozen=True, slots=True)
class Released:
    """PUBREL, where the application says when its PUBCOMP is due."""

    packet_id: int


@dataclass(frozen=True, slots=True)
class Dismissed:
    """A message that the reader refuses: counted, acknowledged, never delivered."""

    topic: str
    error: Exception
    ack: bytes


@dataclass(frozen=True, slots=True)
class Acked:
    """PUBACK or PUBCOMP for the messages `ctrs`."""

    ctrs: Sequence[int]


@dataclass(frozen=True, slots=True)
class Lost:
    """The message `ctr` of QoS 2 cannot be finished: the other side forgot the exchange."""

    ctr: int


@dataclass(frozen=True, slots=True)
class Doubtful:
    """The message `ctr` was refused when it was sent again; what became of it before is unknown."""

    ctr: int


@dataclass(frozen=True, slots=True)
class Granted:
    """SUBACK's code for the token `ctr`: 0 to 2, or 0x80."""

    ctr: int
    code: int


@dataclass(frozen=True, slots=True)
class Removed:
    """UNSUBACK for the token `ctr`."""

    ctr: int


@dataclass(frozen=True, slots=True)
class Told:
    """A notice."""

    notice: Notice


@dataclass(frozen=True, slots=True)
class Heard:
    """What a policy family tells without having been asked."""

    news: News


@dataclass(frozen=True, slots=True)
class Replied:
    """A policy family's answer to the command `ctr`."""

    ctr: int
    data: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Receipted:
    """The session's receipt has changed; ask `Session.receipted`."""


@dataclass(frozen=True, slots=True)
class Outdated:
    """The client's label has a newer epoch than the roots held."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A provisioning answer, unopened."""

    packet: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Pong:
    """PINGRESP. Anyone on the network could have sent it."""


@dataclass(frozen=True, slots=True)
class Fault:
    """The connection has to be closed; always the last event."""

    error: Exception


Event: TypeAlias = (
    Ready
    | Behind
    | OtherTime
    | Arrived
    | Released
    | Dismissed
    | Acked
    | Lost
    | Doubtful
    | Granted
    | Removed
    | Told
    | Heard
    | Replied
    | Receipted
    | Outdated
    | Answer
    | Pong
    | Fault
)
