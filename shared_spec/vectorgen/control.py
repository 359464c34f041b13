"""SPEC.md sections 4 and 7 written out a second time: proofs, tokens, control, provisioning."""

from __future__ import annotations

from .model import Client, F, Grant, Order, Roots, b64u, lentopic, seal, tag, u


def proof_head(c: Client, conn: int, low: int, flags: int = 0) -> bytes:
    """Section 4.1: the first 32 characters of the password."""
    p = u(16 * c.suite + flags, 1) + u(c.gen, 3) + u(c.client, 3) + u(c.boot, 3) + c.salt
    return b64u(p + u(conn, 3) + u(low, 3))


def sign_connect(c: Client, conn: int, x: bytes) -> bytes:
    """Section 4.1: X with the tag's 22 characters behind it."""
    aad = u(0x16, 1) + c.site + u(c.mediator, 3) + x
    return x + b64u(tag(c.suite, c.key(2), c.salt + b"\x03" + u(conn, 3), aad))


def token(c: Client, ctr: int, filt: bytes, qos: int, op: int) -> bytes:
    """Section 4.2: what goes into SUBSCRIBE (op 0) or UNSUBSCRIBE (op 1)."""
    aad = u(0x17, 1) + u(16 * c.suite + op, 1) + u(ctr, 3) + c.site + u(c.client, 3)
    aad += u(c.mediator, 3) + u(qos, 1) + lentopic(filt)
    raw = u(ctr, 3) + tag(c.suite, c.key(2), c.salt + b"\x04" + u(ctr, 3), aad)
    return b"!s1/" + b64u(raw) + b"/" + filt


def up(c: Client, ctr: int, s1: int, body: bytes) -> bytes:
    """Section 4.4, up."""
    header = u(0x14, 1) + u(16 * c.suite, 1) + u(ctr, 3) + u(s1, 4)
    aad = header + c.site + u(c.client, 3) + u(c.mediator, 3) + u(0, 1) + lentopic(b"!c1")
    return header + seal(c.suite, c.key(2), c.salt + b"\x02" + u(ctr, 3), body, aad)


def down(c: Client, order: Order, conn: int, body: bytes) -> bytes:
    """Section 4.4, down."""
    header = u(0x15, 1) + u(16 * c.suite, 1) + order.raw
    aad = header + c.site + u(c.client, 3) + u(c.mediator, 3) + u(conn, 3) + lentopic(b"!c1")
    return header + seal(c.suite, c.key(3), order.raw, body, aad)


def welcome(
    ms: int,
    status: int = 0,
    boot_floor: int = 41,
    top: int = 0,
    mask: int = 0,
    epoch: int = 5,
    kseq: int = 90,
    block: bytes = b"\x00",
) -> bytes:
    """Section 4.4, op 1."""
    head = u(1, 1) + u(status, 1) + u(ms, 6) + u(boot_floor, 3) + u(top, 3) + u(mask, 8)
    return head + u(epoch, 3) + u(kseq, 4) + block


def grant(to: Grant) -> bytes:
    """Section 4.4, op 8, after op."""
    return u(to.number, 3) + u(to.epoch, 3) + u(to.suite, 1) + u(to.until, 4) + to.g


def request(c: Client, boot: int, n_c: bytes, gen: int | None = None) -> bytes:
    """Section 7.2, request."""
    head = u(0x1A, 1) + u(16 * c.suite, 1) + u(c.client, 3) + u(c.gen if gen is None else gen, 3)
    head += u(boot, 3) + n_c
    key = F("p1", c.site, u(c.suite, 1) + n_c, c.ps)
    return head + tag(c.suite, key, bytes(12), head + c.site + u(c.mediator, 3))


def answer_body(
    c: Client,
    gen: int,
    kseq: int,
    now_ms: int,
    label: Roots | None = None,
    link_suite: int = 0,
    block: bytes = b"\x00",
) -> bytes:
    """Section 7.2, body of status 0."""
    own = label or c.own
    head = u(gen, 3) + u(own.label, 3) + u(own.epoch, 3)
    head += u(16 * own.suite + (link_suite or c.suite), 1)
    head += u(c.mediator, 3) + u(kseq, 4) + u(now_ms, 6)
    return head + own.r + own.r_bar + c.km + block


def answer(c: Client, n_c: bytes, order: Order, body: bytes, status: int = 0) -> bytes:
    """Section 7.2, answer."""
    header = u(0x1B, 1) + u(16 * c.suite + status, 1) + order.raw
    key = F("p1", c.site, u(16 + c.suite, 1) + n_c, c.ps)
    return header + seal(c.suite, key, order.raw, body, header + c.site + u(c.client, 3))


def kg_time(c: Client, n_c: bytes, order: Order, now_ms: int, epoch: int, kseq: int) -> bytes:
    """Section 7.3."""
    header = u(0x1D, 1) + u(16 * c.suite, 1) + order.raw
    key = F("t1", c.site, u(16 + c.suite, 1) + n_c, c.ps)
    plain = u(now_ms, 6) + u(epoch, 3) + u(kseq, 4)
    return header + seal(c.suite, key, order.raw, plain, header + c.site + u(c.client, 3))
