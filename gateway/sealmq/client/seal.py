"""A payload sealed under both layers, in one buffer (SPEC.md 3.1, 3.2). Sans-IO."""

from __future__ import annotations

from sealmq_spec.const import M1_HEAD, M2_HEAD, TAG
from sealmq_spec.session import Session
from sealmq_spec.tlv import EMPTY

_FRONT = M2_HEAD + len(EMPTY) + M1_HEAD


def seal_message(
    session: Session, topic: bytes, payload: bytes, flags: int, kind: int, life: int, mono: int
) -> tuple[int, bytes]:
    """(ctr, m2). flags: RETAIN and QoS bits of PUBLISH. kind: m1's class. mono: ms."""
    n = len(payload)
    buf = bytearray(_FRONT + n + 2 * TAG)
    buf[_FRONT : _FRONT + n] = payload
    session.seal_publish(buf, 0, n, topic, flags, kind, life, mono)
    return session.ctr, bytes(buf)
