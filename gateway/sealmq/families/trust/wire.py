"""How records that sites sign are written: a domain, then fields with their length in front.

One text means one thing: what is read is written back byte for byte, and no two kinds of records
begin alike, so a signature of one is none of another.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}\Z")
MOST_BYTES = 16_384
U64 = (1 << 64) - 1


class BadRecord(ValueError):
    """What arrived is refused. `rule` is the id of why; the text says it."""

    def __init__(self, rule: str, what: str) -> None:
        super().__init__(what)
        self.rule = rule


MALFORMED = "trust.record.malformed"


def malformed(what: str) -> BadRecord:
    return BadRecord(MALFORMED, what)


def pack(*fields: bytes) -> bytes:
    """Each field with its length in 2 bytes in front. Of a record the first is its domain."""
    return b"".join(len(field).to_bytes(2, "big") + field for field in fields)


def unpack(data: bytes) -> list[bytes]:
    """The fields. BadRecord."""
    if len(data) > MOST_BYTES:
        raise malformed(f"a record has at most {MOST_BYTES} bytes, this one {len(data)}")
    fields, at = [], 0
    while at < len(data):
        end = at + 2 + int.from_bytes(data[at : at + 2], "big")
        if at + 2 > len(data) or end > len(data):
            raise malformed("a field ends after its record")
        fields.append(data[at + 2 : end])
        at = end
    return fields


def opened(data: bytes, domain: bytes, count: int) -> list[bytes]:
    """What comes after the domain of a record of at least so many fields. BadRecord."""
    fields = unpack(data)
    if not fields or fields[0] != domain or len(fields) - 1 < count:
        raise malformed(f"it is no record of the kind {domain.decode()}")
    return fields[1:]


def name(field: bytes) -> str:
    """A site's name. BadRecord."""
    return check_name(text(field))


def check_name(name: str) -> str:
    """BadRecord, unless a site or a client may be called so."""
    if NAME.match(name) is None:
        raise malformed(f"{name[:64]!r} is no name of a site or client")
    return name


def text(field: bytes) -> str:
    """BadRecord."""
    try:
        return field.decode()
    except UnicodeDecodeError:
        raise malformed("a text that is no UTF-8") from None


def number(field: bytes) -> int:
    """A whole number of 8 bytes. BadRecord."""
    if len(field) != 8:
        raise malformed(f"a number has 8 bytes, this one {len(field)}")
    return int.from_bytes(field, "big")


def u64(value: int) -> bytes:
    """BadRecord, unless it fits."""
    if not 0 <= value <= U64:
        raise malformed(f"{value} is no number of 64 bits")
    return value.to_bytes(8, "big")


def pairs(fields: list[bytes]) -> Iterable[tuple[bytes, bytes]]:
    """The fields, two and two. BadRecord."""
    if len(fields) % 2:
        raise malformed("a field stands alone that belongs to another")
    return zip(fields[::2], fields[1::2], strict=True)
