"""What the mediator itself keeps, beside the families' records."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from sealmq.families.records import FamilyRecord, ResetDone, TopicLabel, TopicReset

NEVER = 0xFFFFFFFF
"""The session expiry interval of a session that no clock ends."""


@dataclass(frozen=True, slots=True)
class SessionMark:
    """The highest (gen, boot, conn) that a client has proved, with that boot's salt (SPEC.md 4.1).

    Stored only if (gen, boot, conn) is higher, and an equal (gen, boot) has the stored salt.
    """

    client: int
    gen: int
    boot: int
    salt: bytes
    conn: int


@dataclass(frozen=True, slots=True)
class CacheBlob:
    """A sealed blob by name; the last writer wins. `blob` None deletes it."""

    name: str
    blob: bytes | None


@dataclass(frozen=True, slots=True)
class WillRecord:
    """A will, from its CONNECT until it was published or DISCONNECT took it back.

    (gen, boot, conn) name the CONNECT. `label`: the client's at that time. `body`: TLV and m1 as
    they stood in its m2, the payload inside sealed to readers.
    """

    client: int
    client_id: str
    gen: int
    boot: int
    conn: int
    topic: str
    qos: int
    retain: bool
    label: int
    ctr: int
    body: bytes


@dataclass(frozen=True, slots=True)
class WillGone:
    """The will of that CONNECT is not wanted any more."""

    client: int
    client_id: str
    gen: int
    boot: int
    conn: int


@dataclass(frozen=True, slots=True)
class KeptSession:
    """The broker keeps a session for (client, client id); `gen` is the one it was proved with.

    `expiry`: for how many seconds without a connection, NEVER: no clock ends it. `ends`: Unix
    seconds, 0 while it has a connection, or if nobody came to write it.
    """

    client: int
    client_id: str
    gen: int
    expiry: int = NEVER
    ends: int = 0


@dataclass(frozen=True, slots=True)
class KeptLeft:
    """Its connection is over; nothing happens if there is no row with this `gen`."""

    client: int
    client_id: str
    gen: int
    ends: int


@dataclass(frozen=True, slots=True)
class KeptGone:
    """It does not any more; nothing happens if the row has another `gen` by now."""

    client: int
    client_id: str
    gen: int


@dataclass(frozen=True, slots=True)
class KeptSub:
    """A subscription of a kept session, which must be in the store; the last writer wins.

    `filter`: as it stood behind the token, purpose included. `qos`: what the broker granted. `at`:
    the filter that it stands under at the broker, "" while it does not stand there. `identifier`:
    the client's own for it, 0: none.
    """

    client: int
    client_id: str
    filter: str
    qos: int
    at: str
    identifier: int = 0


@dataclass(frozen=True, slots=True)
class KeptSubGone:
    """The client has left it."""

    client: int
    client_id: str
    filter: str


@dataclass(frozen=True, slots=True)
class KeptSubs:
    """Asks, and writes nothing: what holds is the same with the session's subscriptions."""

    client: int
    client_id: str
    subs: tuple[KeptSub, ...] = ()


StoreRecord = (
    TopicLabel
    | TopicReset
    | ResetDone
    | FamilyRecord
    | SessionMark
    | CacheBlob
    | WillRecord
    | WillGone
    | KeptSession
    | KeptLeft
    | KeptGone
    | KeptSub
    | KeptSubGone
    | KeptSubs
)


class Held(NamedTuple):
    """What holds after a commit. `fresh`: the submitted record is what was written just now.

    Not fresh: `record` is the one that stood before (topic labelled by another client, a session
    mark that is not lower: the CONNECT is refused as behind).
    """

    record: StoreRecord
    fresh: bool
