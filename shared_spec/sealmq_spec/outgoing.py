# What of a publisher's two envelopes stays the same from one message to the next on a topic: keys,
# headers, associated data. A message writes only its counter, its time, its class and its life.
# This runs for each message on a device: flat on purpose, a call costs as much as ten operations.
from struct import pack_into

from .const import M1_HEAD, M2_HEAD, N_INNER, N_LINK, TAG

_TYPING = False
if _TYPING:
    from typing import Any

    Prepared = tuple[int, bytearray, memoryview, bytearray, memoryview, bytearray, Any, Any]

# Where ctr, with t_pub behind it, stands in the headers, and life; the kind and ctr in a nonce.
_CTR1 = 19
_LIFE1 = 26
_CTR2 = 2
_KIND = 8
_INNER = N_INNER[0]
_LINK = N_LINK[0]


# front1, front2: of envelope.py, for this boot session and these flags (RETAIN and QoS bits of
# PUBLISH). nonce: 12 bytes that begin with salt; every topic of a boot session may share them.
# inner, link: the ciphers of m1 and m2.
def prepare(
    front1: bytearray,
    front2: bytearray,
    topic: bytes,
    nonce: bytearray,
    inner: "Any",
    link: "Any",
) -> "Prepared":
    text = len(topic).to_bytes(2, "big") + topic
    aad1 = front1 + text
    aad2 = front2 + text
    head1 = memoryview(aad1)[:M1_HEAD]
    head2 = memoryview(aad2)[:M2_HEAD]
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
