# What of a publisher's two envelopes stays the same from one message to the next on a topic: keys,
# headers, associated data. A message writes only its counter, its time, its class and its life.
from struct import pack_into

from .const import M1_HEAD, M2, M2_HEAD, N_INNER, N_LINK, TAG
from .envelope import put_m1, put_m2, tail_m1, tail_m2
from .tlv import EMPTY

_TYPING = False
if _TYPING:
    from typing import Any

# Where ctr and the time behind it stand in the headers, and ctr in a nonce.
_M1_CTR = 19
_M2_CTR = 2
_NONCE_CTR = 9
_M1_LIFE = 26


class Outgoing:
    # inner, link: the ciphers of m1 and m2. flags: RETAIN and QoS bits of PUBLISH.
    def __init__(
        self,
        ident: "Any",
        boot: int,
        salt: bytes,
        topic: bytes,
        flags: int,
        inner: "Any",
        link: "Any",
    ) -> None:
        own = ident.own
        head = bytearray(M1_HEAD)
        put_m1(head, 0, own.suite, 0, own.epoch, ident.client, boot, salt, 0, 0, 0)
        self._first = head[1]
        self._aad1 = head + tail_m1(ident.site, own.label, topic)
        self._head1 = memoryview(self._aad1)[:M1_HEAD]
        head = bytearray(M2_HEAD)
        put_m2(head, 0, M2, ident.suite, 0, 0)
        self._aad2 = head + tail_m2(ident.site, ident.client, ident.mediator, flags, topic)
        self._head2 = memoryview(self._aad2)[:M2_HEAD]
        self._nonce1 = bytearray(salt + N_INNER + b"\0\0\0")
        self._nonce2 = bytearray(salt + N_LINK + b"\0\0\0")
        self._inner = inner
        self._link = link

    # Seals buf[o + 36 + len(tlv):], n bytes, where it stands. Returns the length of m2 from buf[o].
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
        aad = self._aad1
        aad[1] = self._first | kind_class
        aad[_M1_LIFE] = life
        pack_into(">BHI", aad, _M1_CTR, high, low, t_pub)
        nonce = self._nonce1
        pack_into(">BH", nonce, _NONCE_CTR, high, low)
        p = o + M2_HEAD
        t = len(tlv)
        if t == 1:
            buf[p] = tlv[0]
        else:
            buf[p : p + t] = tlv
        q = p + t
        buf[q : q + M1_HEAD] = self._head1
        self._inner.seal_into(nonce, aad, buf, q + M1_HEAD, n)
        aad = self._aad2
        pack_into(">BHI", aad, _M2_CTR, high, low, t_pub)
        nonce = self._nonce2
        pack_into(">BH", nonce, _NONCE_CTR, high, low)
        buf[o:p] = self._head2
        n += t + M1_HEAD + TAG
        self._link.seal_into(nonce, aad, buf, p, n)
        return M2_HEAD + n + TAG
