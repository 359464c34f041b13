# mypy: disable-error-code="possibly-undefined"
# (bound where `here` is, which costs nothing; None would make them objects to viper)
# A message in one viper function, from counter to write: what a publisher does over and over.
# quick.py calls it when nothing stands against another message like the last; client.py, session.py
# and ccm.py do the same for every message, and are what this must equal.
#
# Under AES-256-CCM both layers are sealed here, in ccm.py's shared buffer, divided so that the
# areas of both fit at once: the inner layer's output is written to where the outer one takes it
# from. Longer messages, and other suites, are sealed by their ciphers. No Python code of others
# runs in here before the packet is written.
from errno import ETIMEDOUT

import micropython
from micropython import const

_TYPING = const(0)
if _TYPING:
    # Viper takes `object` for "any Python object", and so shall the type checker.
    from typing import Any as object

    from viper_types import ptr8, ptr32

_MOST = const(496)  # bytes of payload, and a topic of 74, have room in the shared buffer
# Where the areas stand in it, in bytes: MAC input and key stream of the inner layer (its A_0, then
# the blocks), of the outer one.
_MAC1 = const(128)  # B_0 and associated data lie before it, as before _MAC2
_KEY1 = const(624)
_MAC2 = const(1264)
_KEY2 = const(1808)
_HEADS = const(28)  # a TLV block of one byte and m1's header
_TAG = const(16)

# Words of a plan's image, then fronts: associated data of both layers with their lengths before
# them and zeros up to whole blocks behind.
_AT = const(0)  # where m2 stands in the packet, 3 behind a word's beginning
_WHERE = const(1)  # where the packet's variable header begins
_FRONT1 = const(2)  # bytes of the front
_FRONT2 = const(3)
_FIRST = const(4)  # PUBLISH's first byte
_SUITE = const(5)  # m2's second byte
_SALT = const(6)  # behind one byte, in three words; from there on the ciphers' nonce
_LOW = const(9)  # whose last byte is this one's first
_HEAD = const(10)  # the TLV block and m1's header, in seven words
_BEGIN = const(17)  # of the packet that is complete
_LENGTH = const(18)  # of it, else 0
_ROOM = const(19)  # bytes of payload that the packet can hold
_FRONTS = const(80)
_LAST_CTR = const(0xFFFFFD)

# Words of the clock: Unix time in s, ms of it, ticks when that was so, seconds since it was set.
_MS = const(1)
_TICKS = const(2)
_AGE = const(3)
_LATE_MS = const(999999)
_OLD = const(3600)


# Seals msg[:n] under the session's next ctr, writes the packet, and gives ctr. 0: not done, and
# nothing has changed: ciphers, clock, views for this length, or counters are not what they must be.
# Whoever calls has checked that the plan is the session's.
@micropython.viper
def send(plan: object, write: object, msg: object, n: int, ticks: int) -> int:
    layers, session, client, image, views, out, clock, work, sealers = plan
    y = ptr32(image)
    y[_LENGTH] = 0
    ctr = int(session.ctr)
    if n > y[_ROOM] or ctr > _LAST_CTR:
        return 0
    here = 0
    if n <= _MOST:
        if layers:
            here = 1
            inner, outer = layers
            cbc, ecb, _, state = inner
            cbc2, ecb2, _, state2 = outer
            iv = ptr32(state)
            iv2 = ptr32(state2)
            if iv[4] & iv2[4] != 3:
                return 0
            view = views[(n + 15 >> 4) + (n + 59 >> 4)]
            if not view:
                return 0
            blocks, stream, blocks2, stream2 = view

    q = ptr32(clock)
    i = (ticks - q[_TICKS]) & 0x3FFFFFFF
    if i > _LATE_MS or q[_AGE] > _OLD:
        return 0
    q[_TICKS] = ticks
    i += q[_MS]
    while i > 999:
        i -= 1000
        q[0] = q[0] + 1
        q[_AGE] = q[_AGE] + 1
    q[_MS] = i
    t = q[0]

    # From here on the counter is used up, whatever happens.
    ctr += 1
    session.ctr = ctr
    g = ctr >> 16 | ctr & 0xFF00 | (ctr & 0xFF) << 16
    t = t >> 24 & 0xFF | t >> 8 & 0xFF00 | (t & 0xFF00) << 8 | t << 24
    y[_HEAD + 5] = g | (t & 0xFF) << 24
    y[_HEAD + 6] = t >> 8 & 0xFFFFFF
    o = int(ptr8(out)) + y[_AT] + 1
    q = ptr32(o)
    q[0] = y[_SUITE] | g << 8
    q[1] = t

    # The payload, and what stands before it, to where they are sealed: to both layers' blocks, or
    # into the packet.
    mac = o + 36
    d = o + 8
    if here:
        base = int(ptr8(work))
        mac = base + _MAC1
        d = base + _MAC2
    i = 0
    while i < 7:
        ptr32(d)[0] = y[_HEAD + i]
        d += 4
        i += 1
    a = mac
    s = int(ptr8(msg))
    e = s + n
    if s & 3 == 0:
        i = e - 3
        while s < i:
            ptr32(a)[0] = ptr32(s)[0]
            s += 4
            a += 4
    while s < e:
        ptr8(a)[0] = ptr8(s)[0]
        s += 1
        a += 1

    # d: where the layer's cipher text and tag go.
    s = int(y) + _FRONTS
    key = base + _KEY1
    front = y[_FRONT1]
    t0 = y[_SALT] | 2
    t1 = y[_SALT + 1]
    t2 = y[_SALT + 2] & 0xFF | (g & 0xFFFF) << 16
    i = n
    if not here:
        p = ptr32(s)
        p[5] = y[_SALT + 2] & 0xFF | g << 8
        p[6] = t
        p = ptr32(s + front)
        p[1] = y[_HEAD + 5]
        p[2] = p[2] >> 24 << 24 | y[_HEAD + 6]
        cipher, cipher2, nonce, aad, aad2 = sealers
        y[_SALT + 2] = t2
        y[_LOW] = ctr & 0xFF
        i = y[_AT] + 37
        cipher.seal_into(nonce, aad, out, i, n)
        y[_SALT + 2] = t2 | 0x100
        cipher2.seal_into(nonce, aad2, out, i - _HEADS, n + (_HEADS + _TAG))
    while here:
        # A_0 and the counter blocks, and from them the key stream.
        a = key
        e = key + (i + 31 & -16)
        c = ctr & 0xFF
        while a < e:
            q = ptr32(a)
            q[0] = t0
            q[1] = t1
            q[2] = t2
            q[3] = c
            c += 0x1000000
            a += 16
        ecb.encrypt(stream, stream)
        # B_0, made up for the IV that CBC kept from its last message, and the associated data.
        a = mac - front
        p = ptr32(a)
        q = ptr32(a - 16)
        q[0] = (t0 | 0x78) ^ iv[0]
        q[1] = t1 ^ iv[1]
        q[2] = t2 ^ iv[2]
        q[3] = (ctr & 0xFF | (i & 0xFF) << 24 | (i & 0xFF00) << 8) ^ iv[3]
        while a < mac:
            q = ptr32(a)
            m = ptr32(s)
            q[0] = m[0]
            q[1] = m[1]
            q[2] = m[2]
            q[3] = m[3]
            s += 16
            a += 16
        if t2 & 0x100:
            p[1] = y[_HEAD + 5]
            p[2] = p[2] >> 24 << 24 | y[_HEAD + 6]
        else:
            p[5] = y[_SALT + 2] & 0xFF | g << 8
            p[6] = t
        # Zeros behind the text, and its cipher text. What that has beyond i bytes the tag covers.
        a = mac + i
        e = mac + (i + 15 & -16)
        while a < e:
            ptr8(a)[0] = 0
            a += 1
        a = mac
        e = a + i
        c = key + 16
        while a < e:
            p = ptr32(d)
            q = ptr32(a)
            m = ptr32(c)
            p[0] = q[0] ^ m[0]
            p[1] = q[1] ^ m[1]
            p[2] = q[2] ^ m[2]
            p[3] = q[3] ^ m[3]
            a += 16
            c += 16
            d += 16
        iv[4] = 2
        cbc.encrypt(blocks, blocks)
        # d is as far behind the text as whole blocks are.
        a = mac - 16 + (i + 15 & -16)
        d -= -i & 15
        e = d + 16
        while d < e:
            c = ptr32(a)[0]
            iv[0] = c
            c ^= ptr32(key)[0]
            if d & 3:
                h = ptr8(d)
                h[0] = c
                h[1] = c >> 8
                h[2] = c >> 16
                h[3] = c >> 24
            else:
                ptr32(d)[0] = c
            iv = ptr32(int(iv) + 4)
            a += 4
            key += 4
            d += 4
        iv[0] = 3
        if t2 & 0x100:
            break
        d = o + 8
        mac = base + _MAC2
        key = base + _KEY2
        front = y[_FRONT2]
        t2 |= 0x100
        i = n + (_HEADS + _TAG)
        iv = iv2
        cbc = cbc2
        ecb = ecb2
        blocks = blocks2
        stream = stream2

    # The fixed header, the packet identifier, and what leaves.
    e = o + n + 68
    o -= y[_AT] + 1
    d = o + y[_WHERE]
    i = e - d
    d -= 2
    h = ptr8(d)
    if i > 127:
        d -= 1
        h[1] = i >> 7
        i = i & 127 | 128
        h = ptr8(d)
    h[0] = y[_FIRST]
    h[1] = i
    if y[_FIRST] & 2:
        i = int(client.pid) + 1
        if i > 65535:
            i = 1
        client.pid = i
        h = ptr8(o + y[_AT] - 2)
        h[0] = i >> 8
        h[1] = i
    i = e - d
    y[_LENGTH] = i
    d -= o
    y[_BEGIN] = d
    done = write(out, d, i)
    if done:
        if int(done) == i:
            return ctr
    raise OSError(ETIMEDOUT)
