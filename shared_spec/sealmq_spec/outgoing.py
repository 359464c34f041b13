# What of a publisher's two envelopes stays the same from one message to the next on a topic: keys,
# headers, associated data. A message writes only its counter, its time, its class and its life.
from struct import pack_into

from .const import M1_HEAD, M2_HEAD, N_INNER, N_LINK, TAG
from .envelope import aad_m1, aad_m2
from .tlv import EMPTY

_TYPING = False
if _TYPING:
    from typing import Any

# Where ctr, with t_pub behind it, stands in the headers, and life; the kind and ctr in a nonce.
_CTR1 = 19
_LIFE1 = 26
_CTR2 = 2
_KIND = 8
_CTR = 9
_INNER = N_INNER[0]
_LINK = N_LINK[0]


class Outgoing:
    # nonce: 12 bytes that begin with the salt; every topic of a boot session may share it.
    # inner, link: the ciphers of m1 and m2. flags: RETAIN and QoS bits of PUBLISH.
    def __init__(
        self,
        ident: "Any",
        boot: int,
        salt: bytes,
        nonce: bytearray,
        topic: bytes,
        flags: int,
        inner: "Any",
        link: "Any",
    ) -> None:
        own = ident.own
        site = ident.site
        client = ident.client
        aad = aad_m1(own.suite, own.epoch, client, boot, salt, site, own.label, topic)
        self._first = aad[1]
        self._aad1 = aad
        self._head1 = memoryview(aad)[:M1_HEAD]
        aad = aad_m2(ident.suite, site, client, ident.mediator, flags, topic)
        self._aad2 = aad
        self._head2 = memoryview(aad)[:M2_HEAD]
        self._nonce = nonce
        self._inner = inner
        self._link = link

    # Seals the n bytes from buf[o + 36 + len(tlv)] on, where they stand. Returns the length of m2
    # from buf[o].
    def seal(
        self,
        buf: bytearray,
        o: int,
        n: int,
        kind_class: int,
        life: int,
        ctr: int,
        t_pub: int,
        tlv: bytes = EMPTY,
    ) -> int:
        high = ctr >> 16
        low = ctr & 0xFFFF
        nonce = self._nonce
        aad = self._aad1
        aad[1] = self._first | kind_class
        aad[_LIFE1] = life
        pack_into(">BHI", aad, _CTR1, high, low, t_pub)
        pack_into(">BBH", nonce, _KIND, _INNER, high, low)
        p = o + M2_HEAD
        t = len(tlv)
        if t == 1:
            buf[p] = 0
        else:
            buf[p : p + t] = tlv
        q = p + t
        end = q + M1_HEAD
        buf[q:end] = self._head1
        self._inner.seal_into(nonce, aad, buf, end, n)
        aad = self._aad2
        pack_into(">BHI", aad, _CTR2, high, low, t_pub)
        buf[o:p] = self._head2
        nonce[_KIND] = _LINK
        n += end + TAG - p
        self._link.seal_into(nonce, aad, buf, p, n)
        return n + M2_HEAD + TAG
