"""The mediator's two acts on a message: open m2 and judge it, seal m3.

SPEC.md 6.1, GATEWAY.md G2; Chen and Wilson, Algorithm 2.

Sans-IO: times and numbers come in. Nothing here asks the policy; the connection does, between the
two.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from sealmq.order import Order
from sealmq_spec.const import (
    CLEAR,
    M1_MIN,
    M2_HEAD,
    M3_HEAD,
    MAX_PAYLOAD,
    REF_LABEL,
    REF_LINK,
    RETAINED,
    TAG,
    TLV_FIRED,
    TLV_LABEL,
    WILL,
    WINDOW_S,
)
from sealmq_spec.delivery import seal_delivery
from sealmq_spec.envelope import (
    get_m1,
    get_m2,
    get_m3,
    nonce_link,
    nonce_m3,
    put_m3,
)
from sealmq_spec.errors import (
    Malformed,
    NoKey,
    SealError,
    TooLarge,
    Unauthentic,
    Unsupported,
    WrongEpoch,
)
from sealmq_spec.keys import u24
from sealmq_spec.tlv import fired as fired_at
from sealmq_spec.tlv import pack, span, unpack
from sealmq_spec.window import check_fresh, life_s

from .boots import BootSession
from .keyring import Client, Grant, Keyring, Label
from .refusals import of

# Types below are the protocol's own: only mediators and the key generator set them.
FIRST_FAMILY_TLV = 32
_OWN_TLV = tuple(range(FIRST_FAMILY_TLV))


class Opened(NamedTuple):
    """What m2 said. `body` is TLV and m1 as they go into m3; `start` is where m1 begins in it."""

    ctr: int
    s1: int
    kind: int
    life: int
    body: bytes
    start: int
    tlv: dict[int, bytes]


# ctr, s1 and body of an m2 whose tag has verified on its topic, with its flags; nothing in it is
# judged yet.
Verified = tuple[int, int, bytes]


def verify_m2(link: BootSession, topic: bytes, payload: bytes, flags: int) -> Verified:
    """Step 1 of SPEC.md 6.1. flags: RETAIN and QoS bits of PUBLISH. Raises SealError."""
    suite, ctr, s1 = get_m2(payload)
    if suite != link.suite:
        raise Unsupported(f"suite {suite} on a link of suite {link.suite}")
    tail = link.tail(topic, flags)
    nonce = nonce_link(link.salt, payload)
    body = link.publish.open(nonce, payload[M2_HEAD:], payload[:M2_HEAD] + tail)
    if body is None:
        raise Unauthentic("m2: the tag does not verify")
    return ctr, s1, body


def open_m2(
    link: BootSession,
    ring: Keyring,
    client: Client,
    verified: Verified,
    flags: int,
    now: int,
    known_tlv: tuple[int, ...] = (),
) -> Opened:
    """Step 4 of SPEC.md 6.1.

    flags: as in verify_m2; for a will with bit 7 set. Raises SealError, with the packet's counter.
    """
    ctr, s1, body = verified
    is_will = bool(flags & 0x80)
    flags &= 7
    try:
        tlv: dict[int, bytes] = {}
        start = 1
        if body[0]:
            first, start = span(body, 0, len(body))
            tlv = unpack(body, first, start, _OWN_TLV + known_tlv)
            if any(item & 0x7F < FIRST_FAMILY_TLV for item in tlv):
                raise Malformed("a publisher's TLV types are the policy families', from 32")
        kind, life = _judge_m1(link, ring, client, body, start, ctr, s1, flags, is_will, now)
    except SealError as error:
        raise of(error, ctr) from None
    return Opened(ctr, s1, kind, life, body, start, tlv)


def _judge_m1(
    link: BootSession,
    ring: Keyring,
    client: Client,
    body: bytes,
    start: int,
    ctr: int,
    s1: int,
    flags: int,
    is_will: bool,
    now: int,
) -> tuple[int, int]:
    """(class, life) of the m1 at body[start:], whose header must be this sender's, now (claims 5,
    10, 13).
    """
    end = len(body)
    suite, kind, untimed, epoch, sender, boot, salt, m1_ctr, t_pub, life = get_m1(body, start, end)
    label = ring.labels.get(client.label)
    if label is None:
        raise NoKey(f"label {client.label} is not known here")
    if suite != label.suite:
        raise Unsupported(f"m1 of suite {suite}, the label's is {label.suite}")
    if sender != link.client or boot != link.boot or salt != link.salt:
        raise Unauthentic(f"m1 of sender {sender} boot {boot} in a packet of client {link.client}")
    if m1_ctr != ctr or t_pub != s1:
        raise Malformed("m1 and m2 differ in counter or time")
    if is_will != (kind == WILL) or is_will != untimed:
        raise Malformed(f"class {kind}, untimed {untimed}: a will is untimed and comes in CONNECT")
    if not is_will:
        if kind == CLEAR and (not flags & 1 or end - start != M1_MIN):
            raise Malformed("class clear needs RETAIN and an empty plaintext")
        if kind != CLEAR and (kind == RETAINED) != bool(flags & 1):
            raise Malformed(f"class {kind} with RETAIN {flags & 1}")
        if not -WINDOW_S <= now - s1 <= WINDOW_S:
            check_fresh("message", now - s1, life_s(life) if flags & 6 else WINDOW_S)
    if end - start - M1_MIN > MAX_PAYLOAD:
        raise TooLarge(
            f"plaintext of {end - start - M1_MIN} bytes, at most {MAX_PAYLOAD} are taken"
        )
    if is_over(label, epoch, now):
        raise WrongEpoch(f"not the epoch of {label.name}, which is {label.epoch}: provision")
    return kind, life


def is_over(label: Label, epoch: int, at: int) -> bool:
    """Whether live messages of that epoch are refused at this time (Unix seconds)."""
    before = label.previous
    return epoch != label.epoch and not (before and epoch == before[0] and at < before[1])


def seal_m3(
    ring: Keyring, label: Label, order: Order, how: int, topic: bytes, body: bytes, now_ms: int
) -> bytes:
    """m3 for `body` (TLV and m1) under the label's current epoch, with the next (s2, seq)."""
    head, seal = ring.sealer(label, how)
    nonce = order.next_bytes(now_ms)
    header = head + nonce
    return header + seal(nonce, body, header + ring.tail(topic))


class Delivered(NamedTuple):
    """What a message from the broker says of itself in clear."""

    how: int
    label: int
    epoch: int
    inst: int
    s2: int
    seq: int


def look_m3(ring: Keyring, payload: bytes) -> Delivered:
    """The header of a message from the broker;
    raises SealError for what no mediator of this site sealed.
    """
    suite, ref, how, number, epoch, inst, s2, seq = get_m3(payload)
    if ref != REF_LABEL:
        raise Unsupported(f"key reference {ref}")
    label = ring.labels.get(number)
    if label is None:
        raise NoKey(f"label {number} is not known here")
    if suite != label.suite:
        raise Unsupported(f"m3 of suite {suite}, the label's is {label.suite}")
    return Delivered(how, number, epoch, inst, s2, seq)


def may_go_out(ring: Keyring, client: int, gen: int | None, payload: bytes) -> bool:
    """Whether what was let through before may still go to the broker: asked of all that does not go
    there in the step in which it was judged. `payload`: m3, or b"" for a clear.
    """
    try:
        label = look_m3(ring, payload).label if payload else None
    except SealError:
        return False
    return ring.goes_on(client, gen, label)


def is_fresh(seen: Delivered, now_ms: int) -> bool:
    """Whether it was sealed within W."""
    return abs(now_ms - seen.s2) <= WINDOW_S * 1000


class Inside(NamedTuple):
    """What m3 holds, opened with the topic key: TLV and m1, and what m1's header says.

    `epoch` is m1's; `at`: Unix seconds of publishing, or of a will's firing.
    """

    body: bytes
    start: int
    kind: int
    epoch: int
    sender: int
    boot: int
    ctr: int
    at: int
    life: int

    tlv: dict[int, bytes]

    def age_s(self, now_ms: int) -> int:
        """Seconds since it was published, or, of a will, since it fired (SPEC.md 6.2)."""
        return now_ms // 1000 - self.at


def open_m3(
    ring: Keyring,
    seen: Delivered,
    topic: bytes,
    payload: bytes,
    known_tlv: tuple[int, ...] = (),
) -> Inside:
    """Opens the outer layer of a message from the broker. Raises SealError."""
    opener = ring.opener(seen.label, seen.epoch, seen.inst)
    if opener is None:
        raise NoKey(f"no key for label {seen.label} epoch {seen.epoch}")
    aad = payload[:M3_HEAD] + ring.tail(topic)
    body = opener.open(nonce_m3(payload), payload[M3_HEAD:], aad)
    if body is None:
        raise Unauthentic("m3 from the broker: the tag does not verify")
    first, start = span(body, 0, len(body))
    tlv = unpack(body, first, start, known_tlv)
    _, kind, untimed, epoch, sender, boot, _, ctr, t_pub, life = get_m1(body, start, len(body))
    if untimed and kind != WILL:
        raise Malformed(f"class {kind}, untimed")
    at = fired_at(tlv, untimed) or t_pub
    return Inside(body, start, kind, epoch, sender, boot, ctr, at, life, tlv)


def rewrap(
    ring: Keyring,
    order: Order,
    seen: Delivered,
    inside: Inside,
    how: int,
    topic: bytes,
    now_ms: int,
) -> bytes:
    """A message that does not pass as it is, checked and sealed with a fresh s2 (GATEWAY.md G2).

    how: retained, will or queued. Raises SealError for what is no such message, or has outlived its
    life, or was sealed under an epoch that had long been over.
    """
    if inside.kind == CLEAR or (how == RETAINED and inside.kind not in (RETAINED, WILL)):
        raise Malformed(f"how {how} for a message of class {inside.kind}")
    label = ring.labels[seen.label]
    # Of epochs before the previous one the end is not kept; it was not later.
    if label.previous and seen.epoch <= label.previous[0]:
        if seen.s2 // 1000 > label.previous[1] + WINDOW_S:
            raise WrongEpoch(f"sealed under epoch {seen.epoch} of {label.name} after its end")
    check_fresh("message", inside.age_s(now_ms), life_s(inside.life))
    return seal_m3(ring, label, order, how, topic, inside.body, now_ms)


def for_one(
    ring: Keyring,
    order: Order,
    label: Label,
    inside: Inside,
    items: Mapping[int, bytes],
    link: BootSession | None,
    how: int,
    topic: bytes,
    now_ms: int,
) -> bytes:
    """m3 for one reader, with these items and a fresh s2: sealed to the link of its connection, or
    without one to the label (GATEWAY.md G2). Raises SealError.
    """
    m1, sorted_items = inside.body[inside.start :], sorted(items.items())
    if link is None:
        return seal_m3(ring, label, order, how, topic, pack(sorted_items) + m1, now_ms)
    ms, seq = order.next(now_ms)
    head = bytearray(M3_HEAD)
    put_m3(head, 0, link.suite, REF_LINK, how, link.client, 0, order.inst, ms, seq)
    return seal_delivery(
        link.delivery, bytes(head), link.site, topic, label.number, m1, sorted_items
    )


def for_holders(
    ring: Keyring,
    order: Order,
    label: Label,
    inside: Inside,
    items: Mapping[int, bytes],
    grant: Grant,
    how: int,
    topic: bytes,
    now_ms: int,
) -> bytes:
    """m3 for all who hold a grant, with these items and a fresh s2 (GATEWAY.md G2). Raises
    SealError.
    """
    head, seal = ring.sealer_to(grant, how)
    block = pack([(TLV_LABEL | 0x80, u24(label.number)), *sorted(items.items())])
    nonce = order.next_bytes(now_ms)
    header = head + nonce
    return header + seal(nonce, block + inside.body[inside.start :], header + ring.tail(topic))


def fired(body: bytes, start: int, tlv: dict[int, bytes], now_ms: int) -> bytes:
    """TLV and m1 of a will that fires now: the time goes into the TLV block (SPEC.md 3.4)."""
    items = {**tlv, TLV_FIRED: (now_ms // 1000).to_bytes(4, "big")}
    return pack(sorted(items.items())) + body[start:]


def tag_of(payload: bytes) -> bytes:
    """The tag of an m2, by which a retransmission is recognised."""
    return payload[-TAG:]
