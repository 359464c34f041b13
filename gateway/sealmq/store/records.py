"""What the mediator itself keeps, beside the families' records."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from sealmq.families.records import FamilyRecord, ResetDone, TopicLabel, TopicReset


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


StoreRecord = TopicLabel | TopicReset | ResetDone | FamilyRecord | SessionMark | CacheBlob


class Held(NamedTuple):
    """What holds after a commit. `fresh`: the submitted record is what was written just now.

    Not fresh: `record` is the one that stood before (topic labelled by another client, a session
    mark that is not lower: the CONNECT is refused as behind).
    """

    record: StoreRecord
    fresh: bool
