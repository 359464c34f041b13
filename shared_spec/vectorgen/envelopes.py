"""SPEC.md sections 3 and 8 written out a second time: m1, m2, m3, records, manifests."""

from __future__ import annotations

from .model import Client, F, Grant, Order, Roots, lentopic, rnd, seal, tag, tlv, u, xor

LIVE, RETAINED, WILL, CLEAR, QUEUED = 0, 1, 2, 3, 3


def m1_header(
    c: Client, ctr: int, t_pub: int, kind: int = LIVE, life: int = 0, untimed: int | None = None
) -> bytes:
    """Section 3.1: the 27 bytes in front. untimed follows t_pub unless it is given."""
    bit = (t_pub == 0) if untimed is None else bool(untimed)
    return (
        u(0x11, 1)
        + u(16 * c.own.suite + 8 * bit + kind, 1)
        + u(c.own.epoch, 3)
        + u(c.client, 3)
        + u(c.boot, 3)
        + c.salt
        + u(ctr, 3)
        + u(t_pub, 4)
        + u(life, 1)
    )


def m1_seal(c: Client, header: bytes, topic: bytes, plain: bytes) -> bytes:
    """Section 3.1 with any header, also with one that nobody should accept."""
    aad = header + c.site + u(c.own.label, 3) + lentopic(topic)
    nonce = c.salt + b"\x00" + header[19:22]
    key = c.own.inner(c.site, c.client, c.boot, c.salt)
    return header + seal(c.own.suite, key, nonce, plain, aad)


def m1(
    c: Client, topic: bytes, plain: bytes, ctr: int, t_pub: int, kind: int = LIVE, life: int = 0
) -> bytes:
    """Section 3.1."""
    return m1_seal(c, m1_header(c, ctr, t_pub, kind, life), topic, plain)


def m2(c: Client, topic: bytes, inner: bytes, ctr: int, s1: int, flags: int, block: bytes) -> bytes:
    """Section 3.2: `inner` is m1, `block` the TLV block."""
    header = u(0x12, 1) + u(16 * c.suite, 1) + u(ctr, 3) + u(s1, 4)
    aad = header + c.site + u(c.client, 3) + u(c.mediator, 3) + u(flags, 1) + lentopic(topic)
    return header + seal(c.suite, c.key(1), c.salt + b"\x01" + u(ctr, 3), block + inner, aad)


def fired(at: int) -> bytes:
    """Section 3.4: the TLV block of a will that fired at `at`, in seconds."""
    return tlv((2, u(at, 4)))


def m3(
    site: bytes,
    label: Roots,
    order: Order,
    topic: bytes,
    inner: bytes,
    how: int = LIVE,
    block: bytes = b"\x00",
) -> bytes:
    """Section 3.3 with ref 0."""
    header = (
        u(0x13, 1)
        + u(32 * label.suite + how, 1)
        + u(label.label, 3)
        + u(label.epoch, 3)
        + order.raw
    )
    aad = header + site + lentopic(topic)
    return header + seal(label.suite, label.outer(site, order.inst), order.raw, block + inner, aad)


def labelled(label: int, *items: tuple[int, bytes]) -> bytes:
    """Section 3.4: the TLV block of an m3 whose header does not name m1's label."""
    return tlv((0x83, u(label, 3)), *items)


def m3_link(
    c: Client,
    order: Order,
    topic: bytes,
    inner: bytes,
    ref: int = 1,
    how: int = 0,
    block: bytes | None = None,
    epoch: int = 0,
) -> bytes:
    """Section 3.3 with ref 1 (or any other, under the same key); block: c's label, unless given."""
    header = u(0x13, 1) + u(32 * c.suite + 4 * ref + how, 1) + u(c.client, 3) + u(epoch, 3)
    header += order.raw
    aad = header + c.site + lentopic(topic)
    body = (labelled(c.own.label) if block is None else block) + inner
    return header + seal(c.suite, c.key(4), order.raw, body, aad)


def m3_grant(
    site: bytes, to: Grant, order: Order, topic: bytes, inner: bytes, block: bytes, how: int = 0
) -> bytes:
    """Section 3.3 with ref 2."""
    header = u(0x13, 1) + u(32 * to.suite + 4 * 2 + how, 1) + u(to.number, 3) + u(to.epoch, 3)
    header += order.raw
    aad = header + site + lentopic(topic)
    return header + seal(to.suite, to.outer(site, order.inst), order.raw, block + inner, aad)


def record(
    site: bytes,
    top: Roots,
    n: Roots,
    kseq: int,
    order: Order,
    handover_end: int = 0,
    kids: str = "kid",
) -> bytes:
    """Section 8, record from `top` to `n`, z and z̄ after section 2."""
    kid, kid_bar = rnd(kids, 8), rnd(kids + " bar", 8)
    where = u(n.label, 3) + u(n.epoch, 3)
    z = xor(n.r, F("z1", site, u(0, 1) + where + kid, top.r))
    z_bar = xor(n.r_bar, F("z1", site, u(1, 1) + where + kid_bar, top.r_bar))
    body = u(0x18, 1) + u(16 * top.suite + n.suite, 1) + where + u(top.label, 3) + u(top.epoch, 3)
    body += kid + kid_bar + z + z_bar + u(kseq, 4) + u(handover_end, 4) + order.raw
    return body + tag(top.suite, top.record_key(site), order.raw, body + site)


def manifest(site: bytes, own: Roots, kseq: int, order: Order, handover_end: int = 0) -> bytes:
    """Section 8, manifest."""
    body = u(0x19, 1) + u(16 * own.suite, 1) + u(own.label, 3) + u(own.epoch, 3)
    body += u(kseq, 4) + u(handover_end, 4) + order.raw
    return body + tag(own.suite, own.record_key(site), order.raw, body + site)
