"""What clients of the host say: under which policy id a message is published."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sealmq_spec.errors import Malformed

from .coded import ID, TLV


def items(values: Sequence[str]) -> Mapping[int, bytes]:
    """The item of a policy id, 16 hex digits. Malformed."""
    if len(values) != 1:
        raise Malformed("a message has one policy id")
    try:
        raw = bytes.fromhex(values[0])
    except ValueError:
        raw = b""
    if len(raw) != ID or len(values[0]) != 2 * ID:
        raise Malformed(f"{values[0][:32]!r} is no policy id: it has {2 * ID} hex digits")
    return {TLV: raw}
