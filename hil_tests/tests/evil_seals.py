"""What attackers seal with keys that they have: a client's own, those of labels below it, or, as
insiders of the gateway, topic keys. Ciphers are the tests' own, formats the protocol's.
"""

from __future__ import annotations

import os
from typing import NamedTuple

from sealmq_spec.const import (
    LIVE,
    M1_HEAD,
    M2,
    M2_HEAD,
    M3_HEAD,
    TAG,
    UNTIMED,
    USE_PUBLISH,
    WILL,
)
from sealmq_spec.envelope import (
    nonce_link,
    nonce_m1,
    nonce_m3,
    put_m1,
    put_m2,
    put_m3,
    tail_m1,
    tail_m2,
    tail_m3,
)
from sealmq_spec.keys import inner_key, link_key, outer_key, topic_key
from sealmq_spec.records import Roots
from sealmq_spec.tlv import EMPTY

from wire import Cipher, RawClient

_INST = 0xABCDEF


class Sender(NamedTuple):
    """Whom an m1 names: client number, boot, salt."""

    client: int
    boot: int
    salt: bytes

    @classmethod
    def of(cls, raw: RawClient) -> Sender:
        """The boot session of a client; siblings see it in every m1."""
        return cls(raw.ident.client, raw.session.boot, raw.session.salt)


def now_of(raw: RawClient) -> int:
    """Unix seconds as a client has them from its mediator."""
    from wire import mono

    now = raw.session.now_ms(mono())
    assert now is not None
    return int(now) // 1000


def m1(
    site: bytes,
    roots: Roots,
    sender: Sender,
    topic: bytes,
    payload: bytes,
    ctr: int,
    t_pub: int,
    kind: int = LIVE,
    life: int = 0,
    suite: int = 0,
) -> bytes:
    """An inner envelope by whoever has R-bar of the label."""
    suite = suite or roots.suite
    if kind == WILL:
        kind, t_pub = kind | UNTIMED, 0
    buf = bytearray(M1_HEAD) + payload + bytes(TAG)
    who = sender.client, sender.boot, sender.salt
    put_m1(buf, 0, suite, kind, roots.epoch, *who, ctr, t_pub, life)
    key = inner_key(site, suite, *who, roots.r_bar)
    aad = bytes(buf[:M1_HEAD]) + tail_m1(site, roots.label, topic)
    Cipher(suite, key).seal_into(nonce_m1(buf, 0), aad, buf, M1_HEAD, len(payload))
    return bytes(buf)


def m2(
    raw: RawClient, topic: bytes, body: bytes, ctr: int, s1: int, flags: int = 2, suite: int = 0
) -> bytes:
    """A link envelope around anything, by a client that has its own link root."""
    i, s = raw.ident, raw.session
    suite = suite or i.suite
    buf = bytearray(M2_HEAD) + body + bytes(TAG)
    put_m2(buf, 0, M2, suite, ctr, s1)
    key = link_key(i.site, USE_PUBLISH, suite, i.mediator, s.boot, s.salt, i.km)
    aad = bytes(buf[:M2_HEAD]) + tail_m2(i.site, i.client, i.mediator, flags, topic)
    Cipher(suite, key).seal_into(nonce_link(s.salt, buf), aad, buf, M2_HEAD, len(body))
    return bytes(buf)


def outer(site: bytes, roots: Roots, inst: int, suite: int = 0) -> Cipher:
    """The outer cipher, as whoever has R of a label, or EK alone, makes it."""
    return Cipher(suite or roots.suite, outer_bytes(site, roots, inst, suite))


def outer_bytes(site: bytes, roots: Roots, inst: int = _INST, suite: int = 0) -> bytes:
    """The key O itself."""
    suite = suite or roots.suite
    ek = topic_key(site, suite, roots.label, roots.epoch, roots.r)
    return outer_key(site, suite, roots.label, roots.epoch, inst, ek)


def opened(site: bytes, roots: Roots, topic: bytes, sealed: bytes) -> bytes:
    """TLV and m1 of an m3, for whoever has the label's topic key."""
    buf = bytearray(sealed)
    cipher = outer(site, roots, int.from_bytes(sealed[8:11], "big"))
    n = len(sealed) - M3_HEAD - TAG
    aad = sealed[:M3_HEAD] + tail_m3(site, topic)
    assert cipher.open_into(nonce_m3(sealed), aad, buf, M3_HEAD, n)
    return bytes(buf[M3_HEAD : M3_HEAD + n])


def m3_head(roots: Roots, ms: int, how: int = LIVE, suite: int = 0, ref: int = 0) -> bytes:
    """A header with an inst that no mediator has, and a seq drawn anew."""
    head = bytearray(M3_HEAD)
    seq = int.from_bytes(os.urandom(3), "big")
    suite = suite or roots.suite
    put_m3(head, 0, suite, ref, how, roots.label, roots.epoch, _INST, ms, seq)
    return bytes(head)


def m3(site: bytes, head: bytes, cipher: Cipher, topic: bytes, inner: bytes) -> bytes:
    """An outer envelope around an m1, under any key."""
    buf = bytearray(head + EMPTY + inner + bytes(TAG))
    aad = head + tail_m3(site, topic)
    cipher.seal_into(nonce_m3(head), aad, buf, M3_HEAD, len(inner) + 1)
    return bytes(buf)
