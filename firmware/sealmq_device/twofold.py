# Both layers of a message in one viper function, for labels and links under AES-256-CCM: what a
# publisher does over and over. quick.py calls it when nothing stands against another message like
# the last; client.py and session.py do the same for every message, and are what this must equal.
#
# It works in ccm.py's shared buffer, divided so that the four areas of both layers fit at once, and
# one pass makes MAC input and cipher text of both. The inner message is written to where the outer
# needs it. No Python code of others runs in here before the packet is written.
import micropython
from micropython import const

from .ccm import work

_TYPING = const(0)
if _TYPING:
    # Viper takes `object` for "any Python object", and so shall the type checker.
    from typing import Any as object

    from viper_types import ptr8, ptr32

MOST = const(496)  # bytes of payload
MOST_TOPIC = const(74)

# Where the areas stand in the shared buffer, in bytes: MAC input and key stream of the inner layer
# (its A_0, then the blocks), of the outer one.
_MAC1 = const(128)  # B_0 and associated data lie before it, as before _MAC2
_KEY1 = const(624)
_MAC2 = const(1264)
_KEY2 = const(1808)
# From a word of the payload in _MAC1 to the same one in the other areas, in words: the inner cipher
# text begins 28 bytes behind _MAC2, behind a TLV block of one byte and m1's header.
_TO_KEY1 = const(128)
_TO_MAC2 = const(291)
_TO_KEY2 = const(431)

# Words of a plan's image, then fronts: associated data of both layers with their lengths before
# them and zeros up to whole blocks behind.
_AT = const(0)  # where m2 stands in the packet, 3 behind a word's beginning
_WHERE = const(1)  # where the packet's variable header begins
_FRONT1 = const(2)  # bytes of the front
_FRONT2 = const(3)
_FIRST = const(4)  # PUBLISH's first byte
_SUITE = const(5)  # m2's second byte
_SALT = const(6)  # in three words, as in a nonce behind one byte
_HEAD = const(9)  # a TLV block of one byte and m1's header, in seven words
_BEGIN = const(16)  # of the packet that is complete
_LENGTH = const(17)  # of it, else 0
_FRONTS = const(72)

# Words of the clock: Unix time in s, ms of it, ticks when that was so, the seconds big-endian,
# seconds since it was set.
_SECONDS = const(0)
_MS = const(1)
_TICKS = const(2)
_STAMP = const(3)
_AGE = const(4)
_LATE_MS = const(999999)
_OLD = const(3600)


# Seals msg[:n] under ctr and writes the packet. 0: not done, and nothing has changed: the ciphers,
# the clock or the views for this length are not ready. 1: done. 2: it was not written to the end.
# Whoever calls has checked n, ctr, and that the plan is the session's.
@micropython.viper
def send(plan: object, write: object, msg: object, n: int, ctr: int, ticks: int, pid: int) -> int:
    inner, outer, session, image, views, out, clock = plan
    cbc1, ecb1, _, state1 = inner
    cbc2, ecb2, _, state2 = outer
    y = ptr32(image)
    a = ptr32(state1)
    b = ptr32(state2)
    y[_LENGTH] = 0
    if a[4] & b[4] != 3:
        return 0
    view = views[(n + 15 >> 4) + (n + 59 >> 4)]
    if not view:
        return 0
    mac1, key1, mac2, key2 = view

    c = ptr32(clock)
    i = (ticks - c[_TICKS]) & 0x3FFFFFFF
    if i > _LATE_MS or c[_AGE] > _OLD:
        return 0
    c[_TICKS] = ticks
    i += c[_MS]
    if i > 999:
        t = c[_SECONDS]
        while i > 999:
            i -= 1000
            t += 1
        c[_AGE] = c[_AGE] + t - c[_SECONDS]
        c[_SECONDS] = t
        c[_STAMP] = t >> 24 & 0xFF | t >> 8 & 0xFF00 | (t & 0xFF00) << 8 | t << 24
    c[_MS] = i

    # From here on the counter is used up, whatever happens.
    session.ctr = ctr
    t = c[_STAMP]
    g = ctr >> 16 | ctr & 0xFF00 | (ctr & 0xFF) << 16
    y[_HEAD + 5] = g | (t & 0xFF) << 24
    y[_HEAD + 6] = t >> 8 & 0xFFFFFF

    # A_0 and the counter blocks of both layers.
    base = int(ptr8(work))
    t0 = y[_SALT] | 2
    t1 = y[_SALT + 1]
    t2 = y[_SALT + 2] | (g & 0xFFFF) << 16
    d = base + _KEY1
    e = d + (n + 31 & -16)
    i = ctr & 0xFF
    while d < e:
        q = ptr32(d)
        q[0] = t0
        q[1] = t1
        q[2] = t2
        q[3] = i
        i += 0x1000000
        d += 16
    ecb1.encrypt(key1, key1)
    t2 |= 0x100
    d = base + _KEY2
    e = d + (n + 75 & -16)
    i = ctr & 0xFF
    while d < e:
        q = ptr32(d)
        q[0] = t0
        q[1] = t1
        q[2] = t2
        q[3] = i
        i += 0x1000000
        d += 16
    ecb2.encrypt(key2, key2)

    # B_0, made up for the IV that CBC kept from its last message, and the associated data.
    t0 |= 0x78
    e = base + _MAC2
    d = e - y[_FRONT2]
    q = ptr32(d - 16)
    i = n + 44
    q[0] = t0 ^ b[0]
    q[1] = t1 ^ b[1]
    q[2] = t2 ^ b[2]
    q[3] = (ctr & 0xFF | (i & 0xFF) << 24 | (i & 0xFF00) << 8) ^ b[3]
    s = int(y) + _FRONTS + y[_FRONT1]
    p = ptr32(d)
    while d < e:
        q = ptr32(d)
        m = ptr32(s)
        q[0] = m[0]
        q[1] = m[1]
        q[2] = m[2]
        q[3] = m[3]
        s += 16
        d += 16
    p[1] = p[1] | y[_HEAD + 5]
    p[2] = p[2] | y[_HEAD + 6]
    e = base + _MAC1
    d = e - y[_FRONT1]
    q = ptr32(d - 16)
    q[0] = t0 ^ a[0]
    q[1] = t1 ^ a[1]
    q[2] = (t2 ^ 0x100) ^ a[2]
    q[3] = (ctr & 0xFF | (n & 0xFF) << 24 | (n & 0xFF00) << 8) ^ a[3]
    s = int(y) + _FRONTS
    p = ptr32(d)
    while d < e:
        q = ptr32(d)
        m = ptr32(s)
        q[0] = m[0]
        q[1] = m[1]
        q[2] = m[2]
        q[3] = m[3]
        s += 16
        d += 16
    p[5] = p[5] | g << 8
    p[6] = t

    # m2's header; behind it, sealed by the outer layer, the TLV block and m1's header.
    o = int(ptr8(out)) + y[_AT] + 1
    q = ptr32(o)
    q[0] = y[_SUITE] | g << 8
    q[1] = t
    o += 8
    d = base + _MAC2
    s = int(y) + (_HEAD << 2)
    e = s + 28
    while s < e:
        q = ptr32(d)
        i = ptr32(s)[0]
        q[0] = i
        ptr32(o)[0] = i ^ q[_TO_KEY2 - _TO_MAC2]
        s += 4
        d += 4
        o += 4

    # The payload. Zeros first where a last block is filled up.
    if n & 15:
        q = ptr32(base + _MAC1 + (n & -16))
        q[0] = 0
        q[1] = 0
        q[2] = 0
        q[3] = 0
    i = n + 44
    if i & 15:
        q = ptr32(base + _MAC2 + (i & -16))
        q[0] = 0
        q[1] = 0
        q[2] = 0
        q[3] = 0
    d = base + _MAC1
    s = int(ptr8(msg))
    r = n & 3
    e = s + n - r
    if s & 3 == 0:
        i = e - 15
        while s < i:
            q = ptr32(d)
            m = ptr32(s)
            p = ptr32(o)
            t = m[0]
            q[0] = t
            t ^= q[_TO_KEY1]
            q[_TO_MAC2] = t
            p[0] = t ^ q[_TO_KEY2]
            t = m[1]
            q[1] = t
            t ^= q[_TO_KEY1 + 1]
            q[_TO_MAC2 + 1] = t
            p[1] = t ^ q[_TO_KEY2 + 1]
            t = m[2]
            q[2] = t
            t ^= q[_TO_KEY1 + 2]
            q[_TO_MAC2 + 2] = t
            p[2] = t ^ q[_TO_KEY2 + 2]
            t = m[3]
            q[3] = t
            t ^= q[_TO_KEY1 + 3]
            q[_TO_MAC2 + 3] = t
            p[3] = t ^ q[_TO_KEY2 + 3]
            s += 16
            d += 16
            o += 16
    while s < e:
        q = ptr32(d)
        h = ptr8(s)
        t = h[0] | h[1] << 8 | h[2] << 16 | h[3] << 24
        q[0] = t
        t ^= q[_TO_KEY1]
        q[_TO_MAC2] = t
        ptr32(o)[0] = t ^ q[_TO_KEY2]
        s += 4
        d += 4
        o += 4
    t = 0
    if r:
        q = ptr32(d)
        h = ptr8(s)
        t = int(h[0])
        if r > 1:
            t |= h[1] << 8
        if r > 2:
            t |= h[2] << 16
        q[0] = t
        t = (t ^ q[_TO_KEY1]) & (1 << (r << 3)) - 1

    # The inner tag goes behind the cipher text, r bytes into a word.
    a[4] = 2
    cbc1.encrypt(mac1, mac1)
    m = ptr32(base + _MAC1 - 16 + (n + 15 & -16))
    p = ptr32(base + _KEY1)
    i = 0
    while i < 4:
        g = m[i]
        a[i] = g
        g ^= p[i]
        q = ptr32(d)
        t |= g << (r << 3)
        q[_TO_MAC2] = t
        ptr32(o)[0] = t ^ q[_TO_KEY2]
        t = (g >> 8 & 0xFFFFFF) >> 24 - (r << 3)
        d += 4
        o += 4
        i += 1
    a[4] = 3
    if r:
        q = ptr32(d)
        q[_TO_MAC2] = t
        ptr32(o)[0] = t ^ q[_TO_KEY2]
    b[4] = 2
    cbc2.encrypt(mac2, mac2)
    m = ptr32(base + _MAC2 - 16 + (n + 59 & -16))
    p = ptr32(base + _KEY2)
    i = 0
    while i < 4:
        g = m[i]
        b[i] = g
        g ^= p[i]
        if r:
            h = ptr8(o + r)
            h[0] = g
            h[1] = g >> 8
            h[2] = g >> 16
            h[3] = g >> 24
        else:
            ptr32(o)[0] = g
        o += 4
        i += 1
    b[4] = 3

    # The fixed header, and what leaves.
    d = y[_WHERE]
    i = y[_AT] - d + n + 69
    h = ptr8(int(ptr8(out)) + d - 3)
    d -= 2
    if i < 128:
        h[1] = y[_FIRST]
        h[2] = i
        i += 2
    else:
        h[0] = y[_FIRST]
        h[1] = i & 127 | 128
        h[2] = i >> 7
        d -= 1
        i += 3
    if pid:
        h = ptr8(int(ptr8(out)) + y[_AT] - 2)
        h[0] = pid >> 8
        h[1] = pid
    y[_BEGIN] = d
    y[_LENGTH] = i
    done = write(out, d, i)
    if done:
        if int(done) == i:
            return 1
    return 2
