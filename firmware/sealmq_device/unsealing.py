# Both layers of a message that came, in one viper function, for labels under AES-256-CCM: the
# reverse of twofold.py. hearing.py calls it for messages like earlier ones; sealmq_spec/reader.py
# does the same for every message, and is what this must equal: what this refuses or does not know
# (None, and nothing has changed) the reader judges from the start.
#
# The key stream is in ccm.py's shared buffer, and so is a long message; a short one's blocks are
# the client's own, where the associated data stays from message to message. The packet stays as it
# came. Nothing of the plain text leaves here before both tags have verified, and the window is
# marked only then.
import micropython
from micropython import const

_TYPING = const(0)
if _TYPING:
    # Viper takes `object` for "any Python object", and so shall the type checker.
    from typing import Any as object

    from viper_types import ptr8, ptr16, ptr32, uint

_MOST = const(64)  # blocks of a layer: its MAC goes to where its key stream was

# Words of the clock: Unix time in s, ms of it, ticks when that was so; for s2, the time's highest
# byte, the rest of it in units of 1,024 ms, and ms of those.
_SECONDS = const(0)
_MS = const(1)
_TICKS = const(2)
_TOP = const(3)
_UNITS = const(4)
_REST = const(5)
_READ = const(7)  # bytes behind the first two that have been read
_GOT = const(8)  # of those two, or _NOTHING
_NOTHING = const(255)
_OLD_MS = const(4000000)
# Nearer to 60 s than this is the reader's to judge, exactly.
_NEAR_UNITS = const(57)
_NEAR_S = const(58)
_LIFE_S = const(60)
_FOR_EVER = const(0x3FFFFFFF)

_LEAST = const(84)  # bytes of a packet behind its fixed header
_MOST_BYTES = const(1229)  # the most of them, and 129
_MESSAGE = const(3)  # in an ear's list of what is seldom wanted, with what follows
_SETTIMEOUT = const(4)
_PLACES = const(5)
_BEHIND = const(6)
_CUT = const(7)
_LAY = const(24)  # a byte: where the next packet's rest is best read to
# Behind it a byte: by how much the m3 was moved upwards. Then:
_LIMIT = const(9)  # a word: bytes of a packet
_TWO = const(40)  # where a packet's first two bytes are read to
_PACKET = const(44)  # where the others are, or up to 3 behind
_PLACE = const(5)  # in an ear: a view of that

# A front: m1's or m3's associated data behind two bytes of its length, zeros up to whole blocks.
# m3: header 20, site 4, topic's length 2, topic. m1: header 27, site 4, label 3, length 2, topic.
_TOPIC = const(28)  # where it stands in m3's
# An inner plan's image: a TLV block of one byte and m1's header up to ctr, then the front.
_FRONT1 = const(20)
# In the clock behind the packet, words: whose fronts stand behind them (a plan's _ID, or 0),
# where the key stream is. The fronts' places follow.
_OWNER = const(289)
_KEYS = const(290)
# Words of a plan: length of m3 that its views are for; addresses, in two words each, of the outer
# and the inner cipher's state, of the window, of the blocks of both layers; what _OWNER says when
# its fronts stand there (its own low address, or 1 if they never do, as the blocks are the shared
# buffer's); where its inner image stands. Then the outer front, and the inner image.
_CODE = const(0)
_STATE = const(1)
_STATE1 = const(3)
_WINDOW = const(5)
_BASE = const(7)
_BASE1 = const(9)
_ID = const(12)
_HEAD = const(11)
_FRONTS = const(56)
_SAVED = const(1344)  # in the shared buffer, behind the MAC's blocks: the inner tag


# o, r: pointers; of a viper function's variables the first two are kept in registers.
# Reads a packet and opens it. The message, or None: nothing is there, or nothing that this takes,
# and then the clock's last bytes say what has been read.
@micropython.viper
def heard(o: int, r: int, ear: object, wait: int) -> object:
    (
        me,
        sock,
        readinto,
        seldom,
        two,
        place,
        clock,
        ack,
        none,
        plans,
        ticks,
        make,
        out,
        to_bytes,
    ) = ear
    c = ptr32(clock)
    base = int(c)
    c[_READ] = 0
    c[_GOT] = 0
    g = ptr8(base + _LAY)
    g[1] = 0
    if me.sock is not sock or me._ahead:
        return none
    b = base + _PACKET + int(g[0])
    g = ptr8(base + _TWO)
    g[0] = 0
    if wait:
        got = readinto(two)
    else:
        settimeout = seldom[_SETTIMEOUT]
        settimeout(0)
        got = readinto(two)
        settimeout(me.timeout)
    if got is none:
        if (int(ticks()) - c[_TICKS]) & 0x3FFFFFFF < _OLD_MS:
            c[_GOT] = _NOTHING
        return none
    n = int(got)
    c[_GOT] = n
    if n != 2:
        return none
    first = int(g[0])
    n = int(g[1])
    if first & 0xF4 != 0x30 or n < _LEAST or not plans:
        return none
    if n > 127:
        # So much there is at least, if the length is written as it has to be.
        n += 1
    if int(readinto(place, n)) != n:
        seldom[_BEHIND](readinto, place, 0, 0)
    c[_READ] = n
    if n > 127:
        i = int(ptr8(b)[0])
        if i == 0 or i > 127 or n + (i << 7) > _MOST_BYTES:
            return none
        if i > 1:
            n = int(seldom[_BEHIND](readinto, place, n, i))
            c[_READ] = n
        if n > c[_LIMIT]:
            return none
        b += 1
        n -= 1
    late = (int(ticks()) - c[_TICKS]) & 0x3FFFFFFF
    g = ptr8(b)
    k = g[0] << 8 | g[1]
    t = b + 2
    m = t + k
    h = m
    if first & 6:
        m += 2
    i = n - (m - b)
    body = i - 21 >> 4  # of i - 36 bytes, rounded up
    top = body + (k + 43 >> 4) + 1
    if i < 80 or top > _MOST or late > _OLD_MS:
        return none
    if first & 6:
        g = ptr8(ack)
        g[2] = ptr8(h)[0]
        g[3] = ptr8(h)[1]
    n = i
    # m3 has to begin a word. What was guessed for this packet's layout is guessed anew for the next
    # one; m3 moves up if it was wrong.
    h = m & 3
    if h:
        g = ptr8(base + _LAY)
        i = (int(g[0]) - h) & 3
        g[0] = i
        ear[_PLACE] = seldom[_PLACES][i]
        h = 4 - h
        g[1] = h
        s = m + n + 3 & -4
        m += h
        x = h << 3
        y = 32 - x
        u = uint(ptr32(s)[0])
        while s >= m:
            v = uint(ptr32(s - 4)[0])
            ptr32(s)[0] = u << x | v >> y
            u = v
            s -= 4

    # The plan for this topic, label, epoch and instance: the last one, or else a look.
    outer, found = plans
    h = 0
    while True:
        (
            words,
            ecb,
            cbc,
            ecb1,
            cbc1,
            key_view,
            mac_view,
            key_view1,
            mac_view1,
            view,
            topic,
            label,
            sender,
            found1,
            uses,
        ) = outer
        plan = ptr32(words)
        image = int(plan) + _FRONTS
        g = ptr8(image + _TOPIC - 2)
        i = (g[0] << 8 | g[1]) ^ k
        if i == 0:
            o = t
            r = image + _TOPIC
            e = t + k - 3
            while o < e:
                i |= ptr8(o)[0] ^ ptr8(r)[0] | ptr8(o)[1] ^ ptr8(r)[1]
                i |= ptr8(o)[2] ^ ptr8(r)[2] | ptr8(o)[3] ^ ptr8(r)[3]
                o += 4
                r += 4
            e = t + k
            while o < e:
                i |= ptr8(o)[0] ^ ptr8(r)[0]
                o += 1
                r += 1
            r = image
            o = m
            i |= ptr16(o)[0] ^ ptr16(r)[1] | ptr16(o)[1] ^ ptr16(r)[2]
            i |= ptr16(o)[2] ^ ptr16(r)[3] | ptr16(o)[3] ^ ptr16(r)[4]
            i |= ptr16(o)[4] ^ ptr16(r)[5] | ptr8(o)[10] ^ ptr8(r)[12]
        if i == 0:
            break
        if h:
            return none
        s = t
        e = t + k
        while s < e:
            h = h * 31 + ptr8(s)[0]
            s += 1
        s = m
        e = m + 11
        while s < e:
            h = h * 31 + ptr8(s)[0]
            s += 1
        h = (h & 0x1FFFFFFF) << 1 | 1
        outer = found.get(h)
        if not outer:
            return none

    g = ptr8(m)
    i = c[_UNITS] + (c[_REST] + late >> 10)
    i -= g[12] << 22 | g[13] << 14 | g[14] << 6 | g[15] >> 2
    if g[11] != c[_TOP] or i > _NEAR_UNITS or i < 0 - _NEAR_UNITS:
        return none

    # Outer layer: key stream, MAC input, and the MAC over it into the key stream's place.
    if plan[_CODE] != n:
        (
            _,
            _,
            _,
            _,
            _,
            key_view,
            mac_view,
            key_view1,
            mac_view1,
            view,
            _,
            _,
            _,
            _,
            _,
        ) = seldom[_CUT](outer, clock, k, n)
    base = plan[_BASE] | plan[_BASE + 1] << 32
    w = ptr32(base)
    key_at = c[_KEYS] | c[_KEYS + 1] << 32
    iv = ptr32(plan[_STATE] | plan[_STATE + 1] << 32)
    if iv[4] != 3:
        return none
    o = m
    f = ptr32(o)[2] << 8 | 2
    x = (ptr32(o)[2] >> 24 & 0xFF) | ptr32(o)[3] << 8
    y = (ptr32(o)[3] >> 24 & 0xFF) | ptr32(o)[4] << 8
    z = ptr32(o)[4] >> 24 & 0xFF
    o = key_at
    e = o + (body << 4)
    r = z
    while o <= e:
        ptr32(o)[0] = f
        ptr32(o)[1] = x
        ptr32(o)[2] = y
        ptr32(o)[3] = r
        r += 0x1000000
        o += 16
    ecb(key_view, key_view)
    e = base + (top - body << 4)
    if c[_OWNER] != plan[_ID]:
        c[_OWNER] = 0
        r = image
        o = base + 16
        while o < e:
            ptr32(o)[0] = ptr32(r)[0]
            ptr32(o)[1] = ptr32(r)[1]
            ptr32(o)[2] = ptr32(r)[2]
            ptr32(o)[3] = ptr32(r)[3]
            r += 16
            o += 16
    o = base + 26
    r = m + 8
    ptr16(o)[1] = ptr16(r)[1]
    ptr16(o)[2] = ptr16(r)[2]
    ptr16(o)[3] = ptr16(r)[3]
    ptr16(o)[4] = ptr16(r)[4]
    ptr16(o)[5] = ptr16(r)[5]
    i = n - 36
    w[0] = (f | 0x7A) ^ iv[0]
    w[1] = x ^ iv[1]
    w[2] = y ^ iv[2]
    w[3] = (z | (i & 0xFF) << 24 | (i & 0xFF00) << 8) ^ iv[3]
    p = base + (top - body << 4)
    o = p
    r = m + 20
    e = key_at
    tag = r + i
    while r < tag:
        e += 16
        y32 = ptr32(e)
        ptr32(o)[0] = ptr32(r)[0] ^ y32[0]
        ptr32(o)[1] = ptr32(r)[1] ^ y32[1]
        ptr32(o)[2] = ptr32(r)[2] ^ y32[2]
        ptr32(o)[3] = ptr32(r)[3] ^ y32[3]
        r += 16
        o += 16
    d = o
    if i & 15:
        o = p + (i & -4)
        ptr32(o)[0] = ptr32(o)[0] & (1 << ((i & 3) << 3)) - 1
        s = o + 4
        while s < d:
            ptr32(s)[0] = 0
            s += 4
    r = key_at
    f = ptr32(r)[0]
    x = ptr32(r)[1]
    y = ptr32(r)[2]
    z = ptr32(r)[3]
    iv[4] = 2
    cbc(mac_view, out)
    o = key_at + (top << 4) - 16
    iv[0] = ptr32(o)[0]
    iv[1] = ptr32(o)[1]
    iv[2] = ptr32(o)[2]
    iv[3] = ptr32(o)[3]
    iv[4] = 3
    # The tag, in constant time: what differs gathers in i.
    if tag & 3:
        w[0] = f ^ ptr32(o)[0]
        w[1] = x ^ ptr32(o)[1]
        w[2] = y ^ ptr32(o)[2]
        w[3] = z ^ ptr32(o)[3]
        i = 0
        d = base
        e = base + 16
        while d < e:
            i |= ptr8(d)[0] ^ ptr8(tag)[0]
            d += 1
            tag += 1
    else:
        r = tag
        i = (
            f ^ ptr32(o)[0] ^ ptr32(r)[0]
            | x ^ ptr32(o)[1] ^ ptr32(r)[1]
            | y ^ ptr32(o)[2] ^ ptr32(r)[2]
            | z ^ ptr32(o)[3] ^ ptr32(r)[3]
        )
    if i:
        return none
    if h:
        plans[0] = outer
        roots, reader, _ = uses
        h = int(reader._uses) + 1
        reader._uses = h
        roots.used = h

    # m1's header, from p + 1 on: the plan for this sender and boot session.
    h = 0
    w = ptr32(p)
    while True:
        r = int(plan) + plan[_HEAD]
        i = (
            (w[0] ^ ptr32(r)[0])
            | (w[1] ^ ptr32(r)[1])
            | (w[2] ^ ptr32(r)[2])
            | (w[3] ^ ptr32(r)[3])
            | (w[4] ^ ptr32(r)[4])
        )
        if i == 0:
            break
        if h:
            return none
        s = p
        e = p + 20
        while s < e:
            h = h * 31 + ptr8(s)[0]
            s += 1
        h = (h & 0x1FFFFFFF) << 1 | 1
        outer = found1.get(h)
        if not outer:
            return none
        words, _, _, ecb1, cbc1, _, _, key_view1, mac_view1, view, _, _, sender, _, _ = outer
        plan = ptr32(words)
        if plan[_CODE] != n:
            _, _, _, _, _, _, _, key_view1, mac_view1, view, _, _, _, _, _ = seldom[_CUT](
                outer, clock, k, n
            )
    if h:
        plans[0] = outer
    n -= 80
    g = ptr8(p)
    ctr = g[20] << 16 | g[21] << 8 | g[22]
    t_pub = g[23] << 24 | g[24] << 16 | g[25] << 8 | g[26]
    i = int(g[27])
    life = _LIFE_S
    if i > 5:
        if i < 30:
            life = 1 << i
        elif i == 255:
            life = _FOR_EVER
        else:
            return none
    age = c[_SECONDS] + (c[_MS] + late) // 1000 - t_pub
    if age < 0 - _NEAR_S or age > life or ctr == 0 or t_pub == 0:
        return none
    # The window: neither seen nor older than it is wide.
    q = ptr32(plan[_WINDOW] | plan[_WINDOW + 1] << 32)
    back = q[0] - ctr
    if back >= 0:
        if back > 63:
            return none
        if ptr32(int(q) + 4 + (back >> 5 << 2))[0] >> (back & 31) & 1:
            return none

    # Inner layer. Its front goes over m1's header and its payload comes to lie 12 bytes or more
    # below its cipher text, the end of which the zeros behind the payload may reach.
    iv = ptr32(plan[_STATE1] | plan[_STATE1 + 1] << 32)
    if iv[4] != 3:
        return none
    body = n + 15 >> 4
    top = body + (k + 53 >> 4) + 1
    h = w[5]
    i = w[6]
    f = w[3] << 8 | 2
    x = (w[3] >> 24 & 0xFF) | w[4] << 8
    y = (w[4] >> 24 & 0xFF) | (h & 0xFFFF) << 16
    z = h >> 16 & 0xFF
    tag = p + 28 + n
    i1 = plan[_BASE1] | plan[_BASE1 + 1] << 32
    if i1 == base:
        r = tag & -4
        o = base + _SAVED
        ptr32(o)[0] = ptr32(r)[0]
        ptr32(o)[1] = ptr32(r)[1]
        ptr32(o)[2] = ptr32(r)[2]
        ptr32(o)[3] = ptr32(r)[3]
        ptr32(o)[4] = ptr32(r)[4]
        tag = base + _SAVED + (n & 3)
    base = i1
    o = key_at
    e = o + (body << 4)
    r = z
    while o <= e:
        ptr32(o)[0] = f
        ptr32(o)[1] = x
        ptr32(o)[2] = y
        ptr32(o)[3] = r
        r += 0x1000000
        o += 16
    ecb1(key_view1, key_view1)
    e = base + (top - body << 4)
    if c[_OWNER] != plan[_ID]:
        c[_OWNER] = plan[_ID] & -4
        r = int(plan) + plan[_HEAD] + _FRONT1
        o = base + 16
        while o < e:
            ptr32(o)[0] = ptr32(r)[0]
            ptr32(o)[1] = ptr32(r)[1]
            ptr32(o)[2] = ptr32(r)[2]
            ptr32(o)[3] = ptr32(r)[3]
            r += 16
            o += 16
    g = ptr8(base + 37)
    g[0] = h
    g[1] = h >> 8
    g[2] = h >> 16
    g[3] = h >> 24
    g[4] = i
    g[5] = i >> 8
    g[6] = i >> 16
    g[7] = i >> 24
    w = ptr32(base)
    w[0] = (f | 0x7A) ^ iv[0]
    w[1] = x ^ iv[1]
    w[2] = y ^ iv[2]
    w[3] = (z | (n & 0xFF) << 24 | (n & 0xFF00) << 8) ^ iv[3]
    r = p + 28
    p = e
    o = e
    e = key_at
    t = p + n
    while o < t:
        e += 16
        y32 = ptr32(e)
        ptr32(o)[0] = ptr32(r)[0] ^ y32[0]
        ptr32(o)[1] = ptr32(r)[1] ^ y32[1]
        ptr32(o)[2] = ptr32(r)[2] ^ y32[2]
        ptr32(o)[3] = ptr32(r)[3] ^ y32[3]
        r += 16
        o += 16
    d = o
    if n & 15:
        o = p + (n & -4)
        ptr32(o)[0] = ptr32(o)[0] & (1 << ((n & 3) << 3)) - 1
        s = o + 4
        while s < d:
            ptr32(s)[0] = 0
            s += 4
    r = key_at
    f = ptr32(r)[0]
    x = ptr32(r)[1]
    y = ptr32(r)[2]
    z = ptr32(r)[3]
    iv[4] = 2
    cbc1(mac_view1, out)
    o = key_at + (top << 4) - 16
    iv[0] = ptr32(o)[0]
    iv[1] = ptr32(o)[1]
    iv[2] = ptr32(o)[2]
    iv[3] = ptr32(o)[3]
    iv[4] = 3
    if tag & 3:
        w[0] = f ^ ptr32(o)[0]
        w[1] = x ^ ptr32(o)[1]
        w[2] = y ^ ptr32(o)[2]
        w[3] = z ^ ptr32(o)[3]
        i = 0
        d = base
        e = base + 16
        while d < e:
            i |= ptr8(d)[0] ^ ptr8(tag)[0]
            d += 1
            tag += 1
    else:
        r = tag
        i = (
            f ^ ptr32(o)[0] ^ ptr32(r)[0]
            | x ^ ptr32(o)[1] ^ ptr32(r)[1]
            | y ^ ptr32(o)[2] ^ ptr32(r)[2]
            | z ^ ptr32(o)[3] ^ ptr32(r)[3]
        )
    if i:
        return none

    # Genuine. Made before the window is marked: there may be no memory for it.
    result = make(topic, to_bytes(view), label, sender, age, 0, {})

    if back < 0:
        back = 0 - back
        h = 1
        i = 0
        if back < 32:
            u = uint(q[1])
            h = q[1] << back | 1
            i = q[2] << back | int(u >> 32 - back)
        elif back < 64:
            i = q[1] << back - 32
        q[0] = ctr
        q[1] = h
        q[2] = i
    else:
        o = int(q) + 4 + (back >> 5 << 2)
        ptr32(o)[0] = ptr32(o)[0] | 1 << (back & 31)
    if t_pub - q[3] > 0:
        q[3] = t_pub
    g = ptr8(m)
    h = g[11] << 16 | g[12] << 8 | g[13]
    i = g[14] << 16 | g[15] << 8 | g[16]
    if h > q[5] or (h == q[5] and i > q[4]):
        q[4] = i
        q[5] = h
    if first & 2:
        # When that fails, the message is not lost: it would be refused if it came again.
        seldom[_MESSAGE] = result
        sock.write(ack, 0, 4)
        seldom[_MESSAGE] = none
    return result


# An object's address to two words.
@micropython.viper
def point(words: object, i: int, at: object, more: int) -> object:
    w = ptr32(words)
    a = uint(int(ptr8(at)) + more)
    w[i] = int(a)
    w[i + 1] = int(a >> 16 >> 16)
