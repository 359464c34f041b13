# AES-256-CCM (RFC 3610, NIST SP 800-38C) with 12-byte nonces and 16-byte tags, for MicroPython.
#
# cryptolib has CBC and ECB only: one bulk CBC call is the MAC, one bulk ECB call makes the key
# stream, and viper does the rest in one buffer that every Ccm shares. So a message that fits it
# allocates nothing once its length in blocks has been seen; a longer one goes to ccm_long.py.
# Sharing is safe because no Python code of others runs inside seal_into or open_into: no await, no
# scheduled callback, no other thread under the interpreter's lock. Never call them from a hard
# interrupt handler.
import micropython
from cryptolib import aes
from micropython import const

from sealmq_spec.errors import TooLarge

_TYPING = const(0)
if _TYPING:
    # Viper takes `object` for "any Python object", and so shall the type checker.
    from typing import Any
    from typing import Any as object

    from viper_types import ptr8, ptr16, ptr32, uint

# The shared buffer: blocks for the MAC, blocks of key stream, then a byte for each view: made?
_MAC_BLOCKS = const(84)  # B0, up to 238 bytes of associated data and 1088 of payload
_KEY_BLOCKS = const(69)
_KEY_AT = const(1376)  # the MAC's and two spare blocks: whole blocks are written
_MADE_AT = const(2512)  # the key stream's and two spare blocks
_KEY_MADE_AT = const(2597)
work = bytearray(2667)  # twofold.py divides it in its own way
_mac_views: "list[Any]" = [None] * 85
_key_views: "list[Any]" = [None] * 70

# Looking up a built-in name costs 420 instructions, a name of this module 100.
_len = len
_bytes = bytes
_bytearray = bytearray
_shared = (work, _mac_views, _key_views, len)
_zero = bytes(16)


class Ccm:
    # key: 32 bytes. cryptolib's objects are made when first needed, not here.
    @micropython.viper
    def __init__(self, key: object):
        if int(_len(key)) != 32:
            raise ValueError("an AES-256 key has 32 bytes")
        # [CBC, ECB, key, CBC's next IV (its last block) and a word: 1 CBC is usable, 2 ECB exists]
        self._s: "list[Any]" = [None, None, _bytes(key), _bytearray(20)]

    # From here on under another key. Cheaper than another object, and leaves nothing to collect.
    @micropython.viper
    def rekey(self, key: object) -> object:
        if int(_len(key)) != 32:
            raise ValueError("an AES-256 key has 32 bytes")
        s = self._s
        s[0] = None
        s[1] = None
        s[2] = _bytes(key)
        state = ptr32(s[3])
        state[4] = 0

    # Encrypts buf[start:start+n] in place and writes the tag to the 16 bytes behind it.
    # nonce: 12 bytes. aad: 0 to 65279 bytes. ValueError when a length is wrong.
    @micropython.viper
    def seal_into(
        self, nonce: object, aad: object, buf: object, start: object, n: object
    ) -> object:
        _crypt(self, nonce, aad, buf, start, n, 0)

    # The reverse. False when the tag does not verify: buf[start:start+n] is zero then.
    @micropython.viper
    def open_into(
        self, nonce: object, aad: object, buf: object, start: object, n: object
    ) -> object:
        return _crypt(self, nonce, aad, buf, start, n, 1)


# One long function for both directions: a call costs 400 instructions, a branch 3.
@micropython.viper
def _crypt(
    me: object, nonce: object, aad: object, buf: object, start: int, n: int, opening: int
) -> bool:
    work, mac_views, key_views, length = _shared
    a = int(length(aad))
    room = int(length(buf)) - 16 - start
    if start < 0 or n < 0 or n > room or a > 65279 or int(length(nonce)) != 12:
        return bool(_long(me, nonce, aad, buf, start, n, opening))  # which raises
    body = (n + 15) >> 4
    top = body + ((a + 33) >> 4 if a else 1)
    if top > _MAC_BLOCKS or body >= _KEY_BLOCKS:
        return bool(_long(me, nonce, aad, buf, start, n, opening))
    w = ptr32(work)
    base = int(w)
    i = base + _MADE_AT
    if not (ptr8(i)[top] and ptr8(i + 85)[body]):
        _views(top, body)
    cbc, ecb, _, state = me._s
    iv = ptr32(state)
    flags = 2 if n else iv[4] & 2
    if iv[4] & (flags | 1) != flags | 1:
        _ready(me._s, iv[4], flags)
        cbc, ecb, _, state = me._s
        iv = ptr32(state)

    # A_0 ... A_body: flags, nonce, counter.
    g = ptr8(nonce)
    t0 = g[0] << 8 | g[1] << 16 | g[2] << 24
    t1 = g[3] | g[4] << 8 | g[5] << 16 | g[6] << 24
    t2 = g[7] | g[8] << 8 | g[9] << 16 | g[10] << 24
    t3 = int(g[11])
    f = t0 | 2
    s = base + _KEY_AT
    i = 0
    while i <= body:
        q = ptr32(s)
        q[0] = f
        q[1] = t1
        q[2] = t2
        q[3] = t3 | i << 24
        i += 1
        s += 16

    x = base + (top - body << 4)
    tag = start + int(ptr8(buf))  # an address: the payload's now, the tag's below
    if n:
        view = key_views[body]
        ecb.encrypt(view, view)
        # XOR into whole words of `buf`, with key stream that is zero behind n: what they hold in
        # front of the payload stays, what they hold behind it is the tag's place. The plaintext
        # goes to the MAC's blocks.
        s = base + _KEY_AT + 16
        r = (1 << ((n & 3) << 3)) - 1
        q = ptr32(s + (n & 0xFFFFFFC))
        q[0] = q[0] & r
        q[1] = 0
        q[2] = 0
        q[3] = 0
        q[4] = 0
        i = tag & 3
        b = tag - i
        tag += n
        d = x
        if i:
            # `buf` is i bytes off the words of the key stream and the MAC: carry k and t over (the
            # first t lands in front of x, where nothing stands yet). uint: shifts zeros in.
            up = i << 3
            down = 32 - up
            d -= 4
            k = uint(0)
            t = uint(0)
            while b < tag:
                q = ptr32(s)
                o = ptr32(b)
                p = ptr32(d)
                e = uint(q[0])
                c = uint(o[0])
                o[0] = c ^ (k | e << up)
                if opening:
                    c = uint(o[0])
                k = e >> down
                p[0] = t | c << down
                t = c >> up
                e = uint(q[1])
                c = uint(o[1])
                o[1] = c ^ (k | e << up)
                if opening:
                    c = uint(o[1])
                k = e >> down
                p[1] = t | c << down
                t = c >> up
                b += 8
                s += 8
                d += 8
            ptr32(d)[0] = t
        else:
            while b < tag:
                q = ptr32(s)
                o = ptr32(b)
                p = ptr32(d)
                p[0] = o[0]
                p[1] = o[1]
                p[2] = o[2]
                p[3] = o[3]
                o[0] = o[0] ^ q[0]
                o[1] = o[1] ^ q[1]
                o[2] = o[2] ^ q[2]
                o[3] = o[3] ^ q[3]
                if opening:
                    p[0] = o[0]
                    p[1] = o[1]
                    p[2] = o[2]
                    p[3] = o[3]
                s += 16
                b += 16
                d += 16
        p = ptr32(x + (n & 0xFFFFFFC))
        p[0] = p[0] & r
        p[1] = 0
        p[2] = 0
        p[3] = 0

    # B_0, made up for the IV that CBC kept from its last message, and the associated data.
    i = t0 | 0x3A
    if a:
        i = t0 | 0x7A
        p = ptr32(x - 16)
        p[0] = 0
        p[1] = 0
        p[2] = 0
        p[3] = 0
        d = base + 16
        g = ptr8(d)
        g[0] = a >> 8
        g[1] = a
        d += 2
        s = int(ptr8(aad))
        b = s + a
        if s & 1 == 0:
            f = b & -2
            while s < f:
                if f - s < 16:
                    if a < 16:
                        break
                    d -= s - f + 16
                    s = f - 16
                h = ptr16(d)
                e2 = ptr16(s)
                h[0] = e2[0]
                h[1] = e2[1]
                h[2] = e2[2]
                h[3] = e2[3]
                h[4] = e2[4]
                h[5] = e2[5]
                h[6] = e2[6]
                h[7] = e2[7]
                s += 16
                d += 16
        while s < b:
            ptr8(d)[0] = ptr8(s)[0]
            s += 1
            d += 1
    w[0] = i ^ iv[0]
    w[1] = t1 ^ iv[1]
    w[2] = t2 ^ iv[2]
    w[3] = (t3 | (n & 0xFF) << 24 | (n & 0xFF00) << 8) ^ iv[3]

    iv[4] = 2
    cbc.encrypt(mac_views[top], work)
    p = ptr32(base + (top << 4) - 16)
    t0 = p[0]
    t1 = p[1]
    t2 = p[2]
    t3 = p[3]
    q = ptr32(base + _KEY_AT)
    if n == 0:
        # The one block of key stream: through CBC too, which spares a MAC-only key its ECB.
        q[0] = q[0] ^ t0
        q[1] = q[1] ^ t1
        q[2] = q[2] ^ t2
        q[3] = q[3] ^ t3
        view = key_views[0]
        cbc.encrypt(view, view)
        p = q
    iv[0] = p[0]
    iv[1] = p[1]
    iv[2] = p[2]
    iv[3] = p[3]
    iv[4] = 1 | flags
    t0 ^= q[0]
    t1 ^= q[1]
    t2 ^= q[2]
    t3 ^= q[3]
    g = ptr8(tag)
    if opening:
        d = (g[0] ^ t0) | (g[1] ^ t0 >> 8) | (g[2] ^ t0 >> 16) | (g[3] ^ t0 >> 24)
        d |= (g[4] ^ t1) | (g[5] ^ t1 >> 8) | (g[6] ^ t1 >> 16) | (g[7] ^ t1 >> 24)
        d |= (g[8] ^ t2) | (g[9] ^ t2 >> 8) | (g[10] ^ t2 >> 16) | (g[11] ^ t2 >> 24)
        d |= (g[12] ^ t3) | (g[13] ^ t3 >> 8) | (g[14] ^ t3 >> 16) | (g[15] ^ t3 >> 24)
        if d & 0xFF == 0:
            return True
        while n:
            n -= 1
            tag -= 1
            ptr8(tag)[0] = 0
        return False
    g[0] = t0
    g[1] = t0 >> 8
    g[2] = t0 >> 16
    g[3] = t0 >> 24
    g[4] = t1
    g[5] = t1 >> 8
    g[6] = t1 >> 16
    g[7] = t1 >> 24
    g[8] = t2
    g[9] = t2 >> 8
    g[10] = t2 >> 16
    g[11] = t2 >> 24
    g[12] = t3
    g[13] = t3 >> 8
    g[14] = t3 >> 16
    g[15] = t3 >> 24
    return True


# Makes the cryptolib objects that a message needs: ECB (2) only for one with a payload.
@micropython.viper
def _ready(s: object, have: int, want: int) -> object:
    cbc, _, key, state = s
    if have & 1 == 0:
        # New, or something raised while CBC ran, so that its IV is unknown. Who kept that CBC
        # and its state (hearing.py) shall not take the state for the new one's.
        if cbc:
            state = _bytearray(20)
            s[3] = state
        s[0] = aes(key, 2, _zero)
        iv = ptr32(state)
        iv[0] = 0
        iv[1] = 0
        iv[2] = 0
        iv[3] = 0
    if want & ~have:
        s[1] = aes(key, 1)


def _views(top: int, body: int) -> None:
    view = memoryview(work)
    _mac_views[top] = view[: top * 16]
    work[_MADE_AT + top] = 1
    _key_views[body] = view[_KEY_AT : _KEY_AT + body * 16 + 16]
    work[_KEY_MADE_AT + body] = 1


# ccm_long's functions, once needed: the module takes memory, and importing it again takes 12,000
# instructions.
_longer: "Any" = None


def _long(
    me: Ccm, nonce: bytes, aad: bytes, buf: bytearray, start: int, n: int, opening: int
) -> bool:
    global _longer
    if _longer is None:
        try:
            from .ccm_long import check, crypt
        except ImportError:
            # A board whose files have none (build_mpy.py's sets): refused, not a program's end.
            raise TooLarge("no ccm_long") from None
        _longer = check, crypt
    check, crypt = _longer
    check(nonce, aad, buf, start, n)
    return bool(crypt(me._s[2], nonce, aad, buf, start, n, bool(opening)))
