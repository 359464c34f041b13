"""The mediator's two acts on a message: open m2 and judge it, seal m3.

SPEC.md 6.1, GATEWAY.md G2; Chen and Wilson, Algorithm 2.

Sans-IO: times and numbers come in. Nothing here asks the policy; the connection does, between the
two.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from types import MappingProxyType
from typing import NamedTuple

from sealmq.aead import Aead
from sealmq.kinds import BORDER, GATEWAY
from sealmq.order import Order
from sealmq_spec import origin
from sealmq_spec.const import (
    CLEAR,
    LIVE,
    M1_MIN,
    M2_HEAD,
    M3_HEAD,
    MAX_PAYLOAD,
    QUEUED,
    REF_GRANT,
    REF_LABEL,
    REF_LINK,
    RETAINED,
    TAG,
    TLV_FIRED,
    TLV_LABEL,
    TLV_ORIGIN,
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
    Denied,
    Malformed,
    NoKey,
    SealError,
    TooLarge,
    Unauthentic,
    Unavailable,
    Unsupported,
    WrongEpoch,
)
from sealmq_spec.keys import u24
from sealmq_spec.tlv import EMPTY, pack, span, unpack
from sealmq_spec.tlv import fired as fired_at
from sealmq_spec.window import check_fresh, life_s

from .boots import BootSession
from .keyring import Client, Grant, Keyring, Label
from .refusals import of

# Types below are the protocol's own: only mediators and the key generator set them.
FIRST_FAMILY_TLV = 32
_OWN_TLV = tuple(range(FIRST_FAMILY_TLV))
_LABEL = TLV_LABEL | 0x80


class Opened(NamedTuple):
    """What m2 said. `body` is TLV and m1 as they go into m3; `start` is where m1 begins in it.
    `how` it goes out; `own`: the protocol's items that go with it.
    """

    ctr: int
    s1: int
    kind: int
    life: int
    body: bytes
    start: int
    tlv: dict[int, bytes]
    how: int = LIVE
    own: Mapping[int, bytes] = MappingProxyType({})


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
        if client.kind == GATEWAY:
            passed = _judge_passed(ring, client, body, start, s1, flags, is_will, now)
            return Opened(ctr, s1, passed[0], passed[1], body, start, tlv, *passed[2:])
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
    # A border seals m1 first, and sends the same one again in whichever boot session comes after:
    # so readers, who count by what m1 says, take it once (G11). Of another sender it brings none.
    held = client.kind == BORDER
    if sender != link.client or (not held and (boot != link.boot or salt != link.salt)):
        raise Unauthentic(f"m1 of sender {sender} boot {boot} in a packet of client {link.client}")
    if held:
        if not boot or is_will or kind == WILL:
            raise Malformed(f"class {kind} boot {boot} from a border")
        check_fresh("m2", now - s1)
        check_fresh("message", now - t_pub, life_s(life))
    elif m1_ctr != ctr or t_pub != s1:
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


def _judge_passed(
    ring: Keyring,
    client: Client,
    body: bytes,
    start: int,
    s1: int,
    flags: int,
    is_will: bool,
    now: int,
) -> tuple[int, int, int, dict[int, bytes]]:
    """(class, life, how, the protocol's items) of an m1 that a bridge brings from another site
    (GATEWAY.md G11): its header is another sender's, of another time.
    """
    end = len(body)
    suite, kind, untimed, epoch, sender, boot, _, _, t_pub, life = get_m1(body, start, end)
    label = ring.labels.get(client.label)
    if label is None or not label.site:
        if label is not None and label.mount:
            raise WrongEpoch(f"the keys of {label.name} have not come")
        raise NoKey(f"label {client.label} is no peer's")
    if suite != label.suite:
        raise Unsupported(f"m1 of suite {suite}, the label's is {label.suite}")
    if not sender or not boot:
        raise Malformed(f"m1 of sender {sender} boot {boot}")
    if is_will or untimed or kind == WILL or (kind == LIVE) == bool(flags & 1):
        raise Malformed(f"class {kind}, untimed {untimed}, RETAIN {flags & 1} from a bridge")
    if kind == CLEAR and end - start != M1_MIN:
        raise Malformed("class clear needs an empty plaintext")
    check_fresh("m2", now - s1)
    check_fresh("message", now - t_pub, life_s(life))
    if end - start - M1_MIN > MAX_PAYLOAD:
        raise TooLarge(f"plaintext of {end - start - M1_MIN} bytes")
    here = label.epochs.get(epoch)
    if here is None:
        raise WrongEpoch(f"the keys of epoch {epoch} of {label.name} have not come")
    how = QUEUED if is_over(label, here, now) else LIVE
    return kind, life, how, {origin.CRITICAL: origin.put(label.site, label.there, here)}


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
    """What a message from the broker says of itself in clear. `grant`: under which it lies, None:
    under `label`, which is 0 otherwise. `epoch`: of either.
    """

    how: int
    label: int
    epoch: int
    inst: int
    s2: int
    seq: int
    grant: Grant | None = None


def look_m3(ring: Keyring, payload: bytes) -> Delivered:
    """The header of a message from the broker;
    raises SealError for what no mediator of this site sealed.
    """
    suite, ref, how, number, epoch, inst, s2, seq = get_m3(payload)
    if ref == REF_GRANT:
        grant = ring.of_nobody(number, epoch)
        if grant is None:
            raise NoKey(f"grant {number} of epoch {epoch} is none of the mediators' own")
        if suite != grant.suite:
            raise Unsupported(f"m3 of suite {suite}, the grant's is {grant.suite}")
        return Delivered(how, 0, epoch, inst, s2, seq, grant)
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
    label = None
    try:
        if payload:
            seen = look_m3(ring, payload)
            if seen.grant is None:
                label = seen.label
            elif gen is None:
                return False  # nothing in clear says whether its client was relabelled since
    except SealError:
        return False
    return ring.goes_on(client, gen, label)


def is_fresh(seen: Delivered, now_ms: int) -> bool:
    """Whether it was sealed within W."""
    return abs(now_ms - seen.s2) <= WINDOW_S * 1000


class Inside(NamedTuple):
    """What m3 holds, opened: m1 from `start` on in `body`, and what its header says.

    `label` and `epoch` are m1's, as they are called here; `sender`: 0 for one of another site;
    `at`: Unix seconds of publishing, or of a will's firing. `tlv`: the families' items, `passes`:
    the items that go on to readers; `passed`: what they are sealed under a label with, TLV and m1.
    """

    body: bytes
    start: int
    kind: int
    label: int
    epoch: int
    sender: int
    boot: int
    ctr: int
    at: int
    life: int
    tlv: Mapping[int, bytes]
    passes: Mapping[int, bytes]
    passed: bytes

    def age_s(self, now_ms: int) -> int:
        """Seconds since it was published, or, of a will, since it fired (SPEC.md 6.2)."""
        return now_ms // 1000 - self.at


Passes = Callable[[str], Collection[int] | None]
"""Of a family the types of items that go on to readers from under its grant; None: it does not
judge here, so nothing does."""


def open_m3(
    ring: Keyring,
    seen: Delivered,
    topic: bytes,
    payload: bytes,
    known_tlv: tuple[int, ...] = (),
    passes: Passes = lambda family: (),
) -> Inside:
    """Opens the outer layer of a message from the broker. Raises SealError."""
    opener: Aead | None
    if seen.grant is not None:
        opener = ring.opener_of(seen.grant, seen.inst)
    else:
        opener = ring.opener(seen.label, seen.epoch, seen.inst)
    if opener is None:
        raise NoKey(f"no key for label {seen.label} epoch {seen.epoch}")
    aad = payload[:M3_HEAD] + ring.tail(topic)
    body = opener.open(nonce_m3(payload), payload[M3_HEAD:], aad)
    if body is None:
        raise Unauthentic("m3 from the broker: the tag does not verify")
    first, start = span(body, 0, len(body))
    number = seen.label
    if seen.grant is None:
        items = unpack(body, first, start, (*known_tlv, TLV_ORIGIN))
    else:
        items = unpack(body, first, start, (*known_tlv, TLV_LABEL, TLV_ORIGIN))
        number = int.from_bytes(items.pop(_LABEL, b""), "big")
        if number not in ring.labels:
            raise NoKey(f"label {number} is not known here")
    _, kind, untimed, epoch, sender, boot, _, ctr, t_pub, life = get_m1(body, start, len(body))
    if untimed and kind != WILL:
        raise Malformed(f"class {kind}, untimed")
    came = items.get(origin.CRITICAL)
    if came is not None:
        # Its sender's number is another site's, and must not pass for a client's of ours.
        sender, epoch = 0, origin.get(came).epoch
    at = fired_at(items, untimed) or t_pub
    tlv = {item: value for item, value in items.items() if item & 0x7F >= FIRST_FAMILY_TLV}
    passed = body
    if seen.grant is not None:
        family = seen.grant.key[0]
        types = passes(family)
        if types is None:
            raise Denied(f"sealed for the policy family {family}, which does not judge here")
        own = (TLV_FIRED, origin.CRITICAL)
        items = {t: value for t, value in items.items() if t in own or t & 0x7F in types}
        passed = pack(sorted(items.items())) + body[start:]
    return Inside(body, start, kind, number, epoch, sender, boot, ctr, at, life, tlv, items, passed)


def rewrap(
    ring: Keyring,
    order: Order,
    seen: Delivered,
    inside: Inside,
    how: int,
    topic: bytes,
    now_ms: int,
) -> bytes:
    """A message that does not pass to readers as it is, checked and sealed with a fresh s2, under
    its label whatever it lay under (GATEWAY.md G2).

    how: retained, will or queued. Raises SealError for what is no such message, or has outlived its
    life, or was sealed under an epoch that had long been over.
    """
    _check_late(ring, seen, inside, how, now_ms)
    return seal_m3(ring, ring.labels[inside.label], order, how, topic, inside.passed, now_ms)


def rewrap_for_broker(
    ring: Keyring,
    order: Order,
    seen: Delivered,
    inside: Inside,
    how: int,
    topic: bytes,
    now_ms: int,
) -> bytes:
    """As `rewrap`, for the broker (GATEWAY.md G4): what lay under a grant lies under it again, or
    under the one that has taken its place, with all of its items.
    """
    if seen.grant is None:
        return rewrap(ring, order, seen, inside, how, topic, now_ms)
    _check_late(ring, seen, inside, how, now_ms)
    newest = ring.grants.get(seen.grant.key)
    grant = seen.grant if newest is None or newest.holders else newest
    items = dict(inside.tlv)
    for own in (TLV_FIRED, origin.CRITICAL):
        if own in inside.passes:
            items[own] = inside.passes[own]
    label, m1 = ring.labels[inside.label], inside.body[inside.start :]
    return for_holders(ring, order, label, m1, items, grant, how, topic, now_ms)


def _check_late(ring: Keyring, seen: Delivered, inside: Inside, how: int, now_ms: int) -> None:
    if (inside.kind == CLEAR and how != RETAINED) or (how == RETAINED and inside.kind == LIVE):
        raise Malformed(f"how {how} for a message of class {inside.kind}")
    label = ring.labels[inside.label]
    # Of epochs before the previous one the end is not kept; it was not later. Who left the label
    # holds their keys still, but none of a grant under which this may lie.
    if seen.grant is None and label.previous and seen.epoch <= label.previous[0]:
        if seen.s2 // 1000 > label.previous[1] + WINDOW_S:
            raise WrongEpoch(f"sealed under epoch {seen.epoch} of {label.name} after its end")
    check_fresh("message", inside.age_s(now_ms), life_s(inside.life))


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


def for_broker(
    ring: Keyring,
    order: Order,
    label: Label,
    body: bytes,
    start: int,
    lies_under: tuple[str, str] | None,
    items: Mapping[int, bytes],
    how: int,
    topic: bytes,
    now_ms: int,
) -> bytes:
    """m3 as it goes to the broker, with these items: under the label, or under the grant of this
    family and name, never under the label instead. m1 is body[start:]. Raises SealError.
    """
    if lies_under is not None:
        grant = ring.grants.get(lies_under)
        family, name = lies_under
        if grant is None:
            raise Unavailable(f"there is no key yet of the grant {name} of {family}")
        if grant.holders:
            raise Denied(f"the grant {name} of {family} is not the mediators' own: clients hold it")
        return for_holders(ring, order, label, body[start:], items, grant, how, topic, now_ms)
    if items or start != len(EMPTY):
        body = pack(sorted(items.items())) + body[start:]
    return seal_m3(ring, label, order, how, topic, body, now_ms)


def for_holders(
    ring: Keyring,
    order: Order,
    label: Label,
    m1: bytes,
    items: Mapping[int, bytes],
    grant: Grant,
    how: int,
    topic: bytes,
    now_ms: int,
) -> bytes:
    """m3 for all who hold a grant, and for the mediators, with these items and a fresh s2
    (GATEWAY.md G2). Raises SealError.
    """
    head, seal = ring.sealer_to(grant, how)
    block = pack([(TLV_LABEL | 0x80, u24(label.number)), *sorted(items.items())])
    nonce = order.next_bytes(now_ms)
    header = head + nonce
    return header + seal(nonce, block + m1, header + ring.tail(topic))


def tag_of(payload: bytes) -> bytes:
    """The tag of an m2, by which a retransmission is recognised."""
    return payload[-TAG:]
