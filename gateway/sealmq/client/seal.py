"""A payload sealed under both layers, in one buffer (SPEC.md 3.1, 3.2); or under the outer one
alone, where a bridge passes on what another site's client has sealed. Sans-IO.
"""

from __future__ import annotations

from sealmq.aead import Seal
from sealmq_spec.aead import seal
from sealmq_spec.const import M1_HEAD, M2, M2_HEAD, OP_COMMAND, TAG, USE_PUBLISH
from sealmq_spec.envelope import nonce_link, nonce_m1, put_m1, put_m2, tail_m1, tail_m2
from sealmq_spec.errors import Malformed, Misuse
from sealmq_spec.keys import inner_key, link_key
from sealmq_spec.session import Session
from sealmq_spec.tlv import EMPTY

_HEADS = M2_HEAD + M1_HEAD
# Topics that a link has been used for.
_TAILS = 256


def seal_message(
    session: Session,
    topic: bytes,
    payload: bytes,
    flags: int,
    kind: int,
    life: int,
    mono: int,
    block: bytes = EMPTY,
) -> tuple[int, bytearray]:
    """(ctr, m2). flags: RETAIN and QoS bits of PUBLISH. kind: m1's class. mono: ms. block: TLV."""
    n = len(payload)
    front = _HEADS + len(block)
    buf = bytearray(front + n + 2 * TAG)
    buf[front : front + n] = payload
    session.seal_publish(buf, 0, n, topic, flags, kind, life, mono, block)
    return session.ctr, buf


def seal_inner(
    session: Session, topic: bytes, payload: bytes, kind: int, life: int, t_pub: int
) -> bytes:
    """m1 alone, which `seal_passed` sends, in whichever boot session; its counter is this one's.
    t_pub: Unix seconds, of the message that it is made from.
    """
    i = session.ident
    own = i.own
    if own is None:
        raise Misuse("no roots yet: connect first")
    head = bytearray(M1_HEAD)
    who = i.client, session.boot, session.salt
    put_m1(head, 0, own.suite, kind, own.epoch, *who, session.next_ctr(), t_pub, life)
    key = inner_key(i.site, own.suite, *who, own.r_bar)
    tail = tail_m1(i.site, own.label, topic)
    return seal(session.make(own.suite, key), nonce_m1(head, 0), bytes(head), tail, payload)


class Link:
    """A session's link, to pass on by: the key material that it is of, the cipher under what that
    gives, and what comes after the header in the associated data, by topic and flags.
    """

    def __init__(self, session: Session) -> None:
        i, s = session.ident, session
        self.session, self.km = session, i.km
        self.tails: dict[tuple[bytes, int], bytes] = {}
        key = link_key(i.site, USE_PUBLISH, i.suite, i.mediator, s.boot, s.salt, i.km)
        self.seal: Seal = s.make(i.suite, key).seal

    def tail(self, topic: bytes, flags: int) -> bytes:
        """Made, and kept."""
        i = self.session.ident
        if len(self.tails) >= _TAILS:
            self.tails.clear()
        made = self.tails[(topic, flags)] = tail_m2(i.site, i.client, i.mediator, flags, topic)
        return made


def seal_passed(
    link: Link, topic: bytes, m1: bytes, flags: int, mono: int, block: bytes = EMPTY
) -> tuple[int, bytes]:
    """(ctr, m2) around an m1 that another client has sealed. As `seal_message` otherwise."""
    session = link.session
    now = session.now_ms(mono)
    if now is None:
        raise Misuse("no time yet: connect first")
    ctr = session.next_ctr()
    head = bytearray(M2_HEAD)
    put_m2(head, 0, M2, session.ident.suite, ctr, now // 1000)
    tail = link.tails.get((topic, flags)) or link.tail(topic, flags)
    header = bytes(head)
    return ctr, header + link.seal(nonce_link(session.salt, head), block + m1, header + tail)


def command_body(family: str, body: bytes) -> bytes:
    """A family's command as a control packet has it (SPEC.md 4.4). Malformed."""
    name = family.encode()
    if not 0 < len(name) < 256:
        raise Malformed(f"a family's name has 1 to 255 bytes, this one {len(name)}")
    return bytes((OP_COMMAND, len(name))) + name + body
