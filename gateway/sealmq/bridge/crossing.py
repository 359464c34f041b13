"""What passes over one line, both ways. No socket and no clock of its own.

A message crosses as its site sealed it: a frame says whose it is (site, the label's number there),
how many sites it has passed, its topic there and the token of who published it. It is answered when
it is where it belongs, or with the reason why it never will be.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import NamedTuple

from sealmq_spec.errors import Malformed
from sealmq_spec.topics import check_topic, is_reserved

HOPS = 8
"""Sites that a message may pass, the first one included."""
TOKEN = 8

OK, DROPPED = 0, 1
_HEAD, _ANSWER = struct.Struct(">QBB4sI8sH"), struct.Struct(">QB")
_SIZE = _HEAD.size
_new = tuple.__new__


class Crossing(NamedTuple):
    """One message. seq: the line's number for it. flags: RETAIN + 2·QoS. site: 4 bytes, where it
    was published, and `label` the label's number there. token: 8 bytes. topic: there.
    """

    seq: int
    flags: int
    hops: int
    site: bytes
    label: int
    token: bytes
    topic: str
    m1: bytes

    def pack(self) -> bytes:
        """The body of its frame."""
        return head(*self[:-1]) + self.m1


def head(
    seq: int, flags: int, hops: int, site: bytes, label: int, token: bytes, topic: str
) -> bytes:
    """What stands before m1 in the body of a message's frame."""
    raw = topic.encode()
    return _HEAD.pack(seq, flags, hops, site, label, token, len(raw)) + raw


def unpack(body: bytes) -> Crossing:
    """Malformed."""
    if len(body) < _SIZE:
        raise Malformed(f"a frame of {len(body)} bytes")
    seq, flags, hops, site, label, token, size = _HEAD.unpack_from(body)
    end = _SIZE + size
    try:
        topic = body[_SIZE:end].decode()
    except UnicodeDecodeError:
        raise Malformed("a topic that is no UTF-8") from None
    return _new(Crossing, (seq, flags, hops, site, label, token, topic, body[end:]))


def check(one: Crossing, own: bytes) -> None:
    """What no site may take, whoever sends it: own is this site. Raises SealError."""
    if one.site == own:
        raise Malformed("loop: it was published at this site")
    if not 0 < one.hops <= HOPS:
        raise Malformed(f"hops: it has passed {one.hops} sites, at most {HOPS} are allowed")
    if not 0 <= one.flags < 6:  # RETAIN, and a QoS of 0 to 2
        raise Malformed(f"flags {one.flags}")
    check_name(one.topic)


@lru_cache(1024)  # of those that are right
def check_name(topic: str) -> None:
    """Of a topic that crosses, at its own site. Raises SealError."""
    check_topic(topic)
    if is_reserved(topic):
        raise Malformed("a topic of the protocol's own, or of a third site")


def answer(seq: int, code: int, reason: str = "") -> bytes:
    """The body of an answer."""
    head = _ANSWER.pack(seq, code)
    return head + reason.encode()[:500] if reason else head


def read_answer(body: bytes) -> tuple[int, int, str]:
    """(seq, code, reason); Malformed."""
    if len(body) < 9:
        raise Malformed("an answer that is too short")
    seq, code = _ANSWER.unpack_from(body)
    return seq, code, body[9:509].decode(errors="replace") if len(body) > 9 else ""
