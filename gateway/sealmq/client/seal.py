"""A payload sealed under both layers, in one buffer (SPEC.md 3.1, 3.2). Sans-IO."""

from __future__ import annotations

from sealmq_spec.const import M1_HEAD, M2_HEAD, TAG
from sealmq_spec.session import Session
from sealmq_spec.tlv import EMPTY

_HEADS = M2_HEAD + M1_HEAD


def seal_message(
    session: Session,
    topic: bytes,
    payload: bytes,
    flags: int,
    kind: int,
    life: int,
    mono: int,
    block: bytes = EMPTY,
) -> tuple[int, bytes]:
    """(ctr, m2). flags: RETAIN and QoS bits of PUBLISH. kind: m1's class. mono: ms. block: TLV."""
    n = len(payload)
    front = _HEADS + len(block)
    buf = bytearray(front + n + 2 * TAG)
    buf[front : front + n] = payload
    session.seal_publish(buf, 0, n, topic, flags, kind, life, mono, block)
    return session.ctr, bytes(buf)
