# What of a publisher's two envelopes stays the same from one message to the next on a topic: keys,
# headers, associated data. A message writes only its counter, its time, its class and its life.
# This runs for each message on a device: flat on purpose, a call costs as much as ten operations.
from struct import pack_into

from .const import M1_HEAD, M2_HEAD, N_INNER, N_LINK, TAG
from .envelope import aad_m1, aad_m2

_TYPING = False
if _TYPING:
    from typing import Any

    from .identity import Identity

    Prepared = tuple[int, bytearray, memoryview, bytearray, memoryview, bytearray, Any, Any]

# Where ctr, with t_pub behind it, stands in the headers, and life; the kind and ctr in a nonce.
_CTR1 = 19
_LIFE1 = 26
_CTR2 = 2
_KIND = 8
_INNER = N_INNER[0]
_LINK = N_LINK[0]


# nonce: 12 bytes that begin with salt; every topic of a boot session may share them.
# inner, link: the ciphers of m1 and m2. flags: RETAIN and QoS bits of PUBLISH.
def prepare(
    ident: "Identity",
    boot: int,
    salt: bytes,
    nonce: bytearray,
    topic: bytes,
    flags: int,
    inner: "Any",
    link: "Any",
) -> "Prepared":
    own = ident.own
    site = ident.site
    client = ident.client
    aad1 = aad_m1(own.suite, own.epoch, client, boot, salt, site, own.label, topic)
    aad2 = aad_m2(ident.suite, site, client, ident.mediator, flags, topic)
    head1, head2 = memoryview(aad1)[:M1_HEAD], memoryview(aad2)[:M2_HEAD]
    return aad1[1], aad1, head1, aad2, head2, nonce, inner, link


# Seals the n bytes from buf[o + 36 + len(tlv)] on, where they stand. Gives the length of m2 from
# buf[o].
def seal(
    prepared: "Prepared",
    buf: bytearray,
    o: int,
    n: int,
    kind_class: int,
    life: int,
    ctr: int,
    t_pub: int,
    tlv: bytes,
) -> int:
    first, aad1, head1, aad2, head2, nonce, inner, link = prepared
    high = ctr >> 16
    low = ctr & 0xFFFF
    aad1[1] = first | kind_class
    aad1[_LIFE1] = life
    pack_into(">BHI", aad1, _CTR1, high, low, t_pub)
    pack_into(">BBH", nonce, _KIND, _INNER, high, low)
    p = o + M2_HEAD
    q = p + len(tlv)
    buf[p:q] = tlv
    end = q + M1_HEAD
    buf[q:end] = head1
    inner.seal_into(nonce, aad1, buf, end, n)
    pack_into(">BHI", aad2, _CTR2, high, low, t_pub)
    buf[o:p] = head2
    nonce[_KIND] = _LINK
    end += n + TAG
    link.seal_into(nonce, aad2, buf, p, end - p)
    return end + TAG - o
