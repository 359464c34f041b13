# AES-256-CCM (RFC 3610, NIST SP 800-38C) with 12-byte nonces and 16-byte tags, for MicroPython.
#
# cryptolib has CBC and ECB only: bulk CBC is the MAC, bulk ECB makes the key stream, and viper does
# the rest in one buffer that every Ccm shares, in pieces of 1 KiB. So a message of any length
# allocates nothing once its last piece's length in blocks has been seen.
# Sharing is safe because no Python code of others runs inside seal_into or open_into: no await, no
# scheduled callback, no other thread under the interpreter's lock. Never call them from a hard
# interrupt handler.
import micropython
from cryptolib import aes
from micropython import const

from .aead import refuse

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
_KEYS_MADE = const(85)
_PIECE = const(1024)  # bytes of payload that are sealed or opened at a time
work = bytearray(2667)  # publish_fast.py divides it in its own way
_mac_views: "list[Any]" = [None] * 85
_key_views: "list[Any]" = [None] * 70

# Looking up a built-in name costs 420 instructions, a name of this module 100.
_len = len
_bytearray = bytearray
# cryptolib's function, as a method's look-up would cost 70 more each time.
_process: "Any" = aes.encrypt
_shared = (work, _mac_views, _key_views, len, _process)
_zero = bytes(16)


class Ccm:
    # key: 32 bytes, kept and not copied. cryptolib's objects are made when first needed, not here.
    @micropython.viper
    def __init__(self, key: object):
        if int(_len(key)) != 32:
            raise ValueError("a key has 32 bytes")
        # [CBC, ECB, key, CBC's next IV (its last block) and a word: 1 CBC is usable, 2 ECB exists]
        self._s: "list[Any]" = [None, None, key, _bytearray(20)]

    # From here on under another key. Cheaper than another object, and leaves nothing to collect.
    @micropython.viper
    def rekey(self, key: object) -> object:
        if int(_len(key)) != 32:
            raise ValueError("a key has 32 bytes")
        s = self._s
        s[0] = None
        s[1] = None
        s[2] = key
        state = ptr32(s[3])
        state[4] = 0

    # Encrypts buf[start:start+n] in place and writes the tag to the 16 bytes after it.
    # nonce: 12 bytes. aad: 0 to 65279 bytes. ValueError when a length is wrong.
    @micropython.viper
    def seal_into(
        self, nonce: object, aad: object, buf: object, start: object, n: object
    ) -> object:
        _crypt(0, 0, self._s, nonce, aad, buf, start, n, 0)

    # The reverse. False when the tag does not verify: buf[start:start+n] is zero then.
    @micropython.viper
    def open_into(
        self, nonce: object, aad: object, buf: object, start: object, n: object
    ) -> object:
        return _crypt(0, 0, self._s, nonce, aad, buf, start, n, 1)


# One long function for both directions: a call costs 400 instructions, a branch 3. o, r: pointers;
# of a viper function's variables the first two are kept in registers; whoever calls passes zeros.
@micropython.viper
def _crypt(
    o: int,
    r: int,
    s: object,
    nonce: object,
    aad: object,
    buf: object,
    start: int,
    n: int,
    opening: int,
) -> bool:
    work, mac_views, key_views, length, process = _shared
    a = int(length(aad))
    i = int(length(buf)) - 16 - start
    if start < 0 or n < 0 or n > i or n > 0xFFFFFF or a > 65279 or int(length(nonce)) != 12:
        refuse(nonce, aad, buf, start, n)
    cbc, ecb, _, state = s
    iv = ptr32(state)
    flags = 3 if n else iv[4] & 2 | 1
    if iv[4] & flags != flags:
        _ready(s, iv[4], flags)
        cbc, ecb, _, state = s
        iv = ptr32(state)
    base = int(ptr8(work))
    made = ptr8(base + _MADE_AT)
    key = base + _KEY_AT
    g = ptr8(nonce)
    t0 = g[0] << 8 | g[1] << 16 | g[2] << 24
    t1 = g[3] | g[4] << 8 | g[5] << 16 | g[6] << 24
    t2 = g[7] | g[8] << 8 | g[9] << 16 | g[10] << 24
    t3 = int(g[11])

    # B_0, made up for the IV that CBC kept from its last message.
    o = base
    ptr32(o)[0] = (t0 | 0x3A | (0x40 if a else 0)) ^ iv[0]
    ptr32(o)[1] = t1 ^ iv[1]
    ptr32(o)[2] = t2 ^ iv[2]
    ptr32(o)[3] = (t3 | (n & 0xFF) << 24 | (n & 0xFF00) << 8 | n >> 8 & 0xFF00) ^ iv[3]
    iv[4] = 2
    # The associated data after its length, padded with zeros to whole blocks.
    o += 16
    if a:
        ptr8(o)[0] = a >> 8
        ptr8(o)[1] = a
        o += 2
        r = int(ptr8(aad))
        tag = r + a
        while True:
            b = r + (key - o) - 32
            if b > tag:
                b = tag
            if r & 1 == 0:
                e = b - 15
                while r < e:
                    ptr16(o)[0] = ptr16(r)[0]
                    ptr16(o)[1] = ptr16(r)[1]
                    ptr16(o)[2] = ptr16(r)[2]
                    ptr16(o)[3] = ptr16(r)[3]
                    ptr16(o)[4] = ptr16(r)[4]
                    ptr16(o)[5] = ptr16(r)[5]
                    ptr16(o)[6] = ptr16(r)[6]
                    ptr16(o)[7] = ptr16(r)[7]
                    r += 16
                    o += 16
            while r < b:
                ptr8(o)[0] = ptr8(r)[0]
                r += 1
                o += 1
            if r == tag:
                break
            if not made[_MAC_BLOCKS]:
                _views(_MAC_BLOCKS, 0)
            view = mac_views[_MAC_BLOCKS]
            process(cbc, view, view)
            o = base
        while (o - base) & 15:
            ptr8(o)[0] = 0
            o += 1

    tag = start + int(ptr8(buf))  # an address: of what is left of the payload, at last of the tag
    left = n
    i = 1  # the number of the next block of key stream
    while True:
        size = left if left < _PIECE else _PIECE
        body = size + 15 >> 4
        top = (o - base >> 4) + body
        if top > _MAC_BLOCKS:
            # After much associated data.
            top -= body
            if not made[top]:
                _views(top, 0)
            view = mac_views[top]
            process(cbc, view, view)
            o = base
            top = body
        if not (made[top] and made[_KEYS_MADE + body]):
            _views(top, body)
        # A_0, and the counter blocks of this piece.
        x = o
        o = key
        r = t0 | 2
        e = key + (body << 4)
        f = t3
        d = t3 | (i & 0xFF) << 24 | (i & 0xFF00) << 8 | i >> 8 & 0xFF00
        while o <= e:
            ptr32(o)[0] = r
            ptr32(o)[1] = t1
            ptr32(o)[2] = t2
            ptr32(o)[3] = f
            f = d
            d += 0x1000000
            o += 16
        i += body
        if i & 0xFF == 1:
            # The last one's number ends in a zero, which the addition has not carried.
            f = i - 1
            ptr32(e)[3] = t3 | (f & 0xFF00) << 8 | f >> 8 & 0xFF00
        o = x
        if size:
            view = key_views[body]
            process(ecb, view, view)
            # XOR into whole words of `buf`, with key stream that is zero after the payload: what
            # they hold in front of it stays, what they hold after it is the tag's place. The
            # plaintext goes to the MAC's blocks.
            y = key + 16
            c = (1 << ((size & 3) << 3)) - 1
            q = ptr32(y + (size & 0xFFC))
            q[0] = q[0] & c
            q[1] = 0
            q[2] = 0
            q[3] = 0
            q[4] = 0
            e = tag & 3
            b = tag - e
            tag += size
            if e:
                # `buf` is e bytes off the words of the key stream and the MAC: carry k and t over.
                # uint: shifts zeros in.
                up = e << 3
                down = 32 - up
                k = uint(0)
                t = uint(0)
                r = b
                while True:
                    v = uint(ptr32(y)[0])
                    u = uint(ptr32(r)[0])
                    ptr32(r)[0] = u ^ (k | v << up)
                    if opening:
                        u = uint(ptr32(r)[0])
                    k = v >> down
                    if r != b:
                        ptr32(o)[0] = t | u << down
                        o += 4
                    t = u >> up
                    r += 4
                    y += 4
                    if r >= tag:
                        break
                ptr32(o)[0] = t
            elif opening:
                r = b
                while r < tag:
                    q = ptr32(y)
                    p = ptr32(o)
                    p[0] = ptr32(r)[0] ^ q[0]
                    p[1] = ptr32(r)[1] ^ q[1]
                    p[2] = ptr32(r)[2] ^ q[2]
                    p[3] = ptr32(r)[3] ^ q[3]
                    ptr32(r)[0] = p[0]
                    ptr32(r)[1] = p[1]
                    ptr32(r)[2] = p[2]
                    ptr32(r)[3] = p[3]
                    y += 16
                    r += 16
                    o += 16
            else:
                r = b
                while r < tag:
                    q = ptr32(y)
                    ptr32(o)[0] = ptr32(r)[0]
                    ptr32(o)[1] = ptr32(r)[1]
                    ptr32(o)[2] = ptr32(r)[2]
                    ptr32(o)[3] = ptr32(r)[3]
                    ptr32(r)[0] = ptr32(r)[0] ^ q[0]
                    ptr32(r)[1] = ptr32(r)[1] ^ q[1]
                    ptr32(r)[2] = ptr32(r)[2] ^ q[2]
                    ptr32(r)[3] = ptr32(r)[3] ^ q[3]
                    y += 16
                    r += 16
                    o += 16
            p = ptr32(x + (size & 0xFFC))
            p[0] = p[0] & c
            p[1] = 0
            p[2] = 0
            p[3] = 0
        view = mac_views[top]
        process(cbc, view, view)
        left -= size
        if left == 0:
            break
        o = base

    p = ptr32(base + (top << 4) - 16)
    t0 = p[0]
    t1 = p[1]
    t2 = p[2]
    t3 = p[3]
    q = ptr32(key)
    if n == 0:
        # The one block of key stream: through CBC too, which spares a MAC-only key its ECB.
        q[0] = q[0] ^ t0
        q[1] = q[1] ^ t1
        q[2] = q[2] ^ t2
        q[3] = q[3] ^ t3
        view = key_views[0]
        process(cbc, view, view)
        p = q
    iv[0] = p[0]
    iv[1] = p[1]
    iv[2] = p[2]
    iv[3] = p[3]
    iv[4] = flags
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
        # and its state (receive_fast.py) shall not take the state for the new one's.
        if cbc:
            state = _bytearray(20)
            s[3] = state
        s[0] = aes(key, 2, _zero)
        iv = ptr32(state)
        iv[0] = 0
        iv[1] = 0
        iv[2] = 0
        iv[3] = 0
    if want & ~have & 2:
        s[1] = aes(key, 1)
        iv = ptr32(state)
        iv[4] = iv[4] | 2


def _views(top: int, body: int) -> None:
    view = memoryview(work)
    _mac_views[top] = view[: top * 16]
    work[_MADE_AT + top] = 1
    _key_views[body] = view[_KEY_AT : _KEY_AT + body * 16 + 16]
    work[_MADE_AT + _KEYS_MADE + body] = 1


# For those who work in the buffer themselves: an object's address to two words.
@micropython.viper
def point(words: object, i: int, at: object) -> object:
    w = ptr32(words)
    a = uint(int(ptr8(at)))
    w[i] = int(a)
    w[i + 1] = int(a >> 16 >> 16)


# Associated data after its length, and zeros up to whole blocks.
def in_front(aad: "bytes | bytearray") -> bytes:
    n = len(aad)
    return n.to_bytes(2, "big") + aad + bytes(-2 - n & 15)
