# mypy: disable-error-code="possibly-undefined"
# The fast path of receive: one viper function that reads a packet and opens both its layers when
# all stands ready for it (receive_fast.py): topic, label, epoch, mediator, sender and boot session
# of an earlier message, live, AES-256-CCM, no TLV items; at any length.
#
# Whatever is not so goes to sealmq_spec/reader.py, which is what this must equal: before the outer
# layer is open with nothing changed but what was read, or behind it, for the inner one. Nothing
# leaves here before both tags have verified, and the window is marked only then.
import micropython
from micropython import const

_TYPING = const(0)
if _TYPING:
    # Viper takes `object` for "any Python object", and so shall the type checker.
    from typing import Any as object

    from viper_types import ptr8, ptr16, ptr32, uint

# Words of an ear's area. Unix time in s, ms of it, ticks when that was so; for s2, the time's
# highest byte, the rest of it in units of 1,024 ms, and ms of those.
_SECONDS = const(0)
_MS = const(1)
_TICKS = const(2)
_TOP = const(3)
_UNITS = const(4)
_REST = const(5)
LIMIT = const(6)  # bytes of a packet, as the client is told, and as the buffer has room for
_ROOM = const(7)
# Of the last packet, by which the next one is placed so that its m3 begins a word: bytes of its
# topic, and of its length after the first one of those.
K = const(8)
_LENGTHS = const(9)
# What has been read and done, for who goes on.
_GOT = const(10)  # of the first two bytes
_READ = const(11)  # bytes after these
AT = const(12)  # where they begin in the buffer
M = const(13)  # where m3 begins, or would begin a word
_N = const(14)  # its bytes
_MOVED = const(15)  # by how much it was moved up for that
STAGE = const(16)
OPEN = const(1)  # the outer layer is
_WRONG = const(2)  # its tag is, or, plus 1, the inner one's
DONE = const(4)
TAIL = const(17)  # what the tail's view is for
# Addresses, in two words each: the buffer, ccm.py's shared one.
BUFFER = const(18)
WORK = const(20)
TWO = const(88)  # where a packet's first two bytes are read to
# Then a byte: 1 is for check_msg. It is for one packet, so it goes to the next byte.

_OLD_MS = const(4000000)
# Nearer to 60 s than this is the reader's to judge, exactly.
_NEAR_UNITS = const(57)
_NEAR_S = const(58)
_LIFE_S = const(60)
_FOR_EVER = const(0x3FFFFFFF)
_LEAST = const(84)  # bytes of a packet after its fixed header
_LEAST_M3 = const(80)

# Words of a plan: m3's header up to inst, bytes of the topic, what its views are for, its hash and
# number; a TLV block of one byte and m1's header up to ctr. Then the associated data of m3 and m1,
# after their lengths, zeros up to whole blocks.
_TOPIC = const(3)
SIZE = const(4)
_PAYLOAD = const(5)
_HASH = const(6)
NUMBER = const(7)
_M1 = const(8)
# Addresses of the outer and the inner cipher's state, and of the window.
STATE = const(13)
STATE1 = const(15)
WINDOW = const(17)
TOPIC_END = const(19)  # where a copy of the topic ends
_FRONTS = const(80)

# Of what receive needs: the place where the next packet's rest is read to. Of what it seldom needs:
# the four places that there are, then
PLACE = const(3)
PLAN = const(8)
_NO = const(4)
_ME = const(5)
_LOST = const(6)
_CUT = const(7)
_ACK = const(8)
SETTIMEOUT = const(9)
WRITE = const(10)
_TAIL_OF = const(11)
TAIL_VIEW = const(12)

# In ccm.py's shared buffer: after room for B_0 and associated data the key stream, in whose place
# the MAC's blocks come.
KEY_AT = const(320)
MOST = const(128)  # blocks of a piece


# Reads a packet, opens it and hands it over. False: nothing is there. None: the rest is to be done
# by the general path, from where the area says.
# o, r: pointers; of a viper function's variables the first two are kept in registers.
@micropython.viper
def receive(o: int, r: int, ear: object) -> object:
    (
        _,
        area,
        two,
        place,
        sock,
        readinto,
        encrypt,
        plans,
        plan,
        ticks,
        make,
        to_bytes,
        call,
        none,
        yes,
        seldom,
    ) = ear
    c = ptr32(area)
    c[_GOT] = 0
    c[_READ] = 0
    c[_MOVED] = 0
    c[STAGE] = 0
    g = ptr8(int(c) + TWO)
    g[0] = 0
    i = int(g[2])
    g[2] = 0
    g[3] = i
    if i == 0:
        got = readinto(sock, two)
    else:
        at_once = seldom[SETTIMEOUT]
        at_once(0)
        got = readinto(sock, two)
        at_once(seldom[_ME].timeout)
    if got is none:
        if (int(ticks()) - c[_TICKS]) & 0x3FFFFFFF > _OLD_MS:
            return none
        # A callback may have asked, of the message before.
        c[STAGE] = DONE
        return seldom[_NO]
    n = int(got)
    c[_GOT] = n
    first = int(g[0])
    i = int(g[1])
    if n != 2 or first & 0xF4 != 0x30 or i < _LEAST or not plans:
        return none
    n = i
    b = c[K] + 2 + (first & 2)
    if n > 127:
        # So much there is at least, if the length is written as it has to be.
        n += 1
        b += c[_LENGTHS]
    b = 0 - b & 3
    if c[AT] != b:
        c[AT] = b
        place = seldom[b]
        ear[PLACE] = place
    if int(readinto(sock, place, n)) != n:
        seldom[_LOST]()
    c[_READ] = n
    s = b
    b += c[BUFFER] | c[BUFFER + 1] << 32
    t = b
    if n > 127:
        h = int(ptr8(t)[0])
        i = n - 129 + ((h & 127) << 7)
        t += 1
        if h > 127:
            h = int(ptr8(t)[0])
            i += h << 14
            t += 1
        k = i + (t - b) - n
        if h > 127 or k < 0 or i > c[LIMIT] or i > c[_ROOM]:
            return none
        c[_LENGTHS] = t - b
        if k:
            s |= n << 2
            if c[TAIL] != s:
                c[TAIL] = s
                seldom[_TAIL_OF](seldom, place, n)
            if int(readinto(sock, seldom[TAIL_VIEW], k)) != k:
                seldom[_LOST]()
            c[_READ] = n + k
        n = i
    late = (int(ticks()) - c[_TICKS]) & 0x3FFFFFFF
    g = ptr8(t)
    k = g[0] << 8 | g[1]
    t += 2
    m = t + k
    if first & 2:
        m += 2
    n -= m - t + 2
    if n < _LEAST_M3 or late > _OLD_MS:
        return none
    if first & 2:
        g = ptr8(seldom[_ACK])
        g[2] = ptr8(m - 2)[0]
        g[3] = ptr8(m - 1)[0]
    c[K] = k
    h = 0 - m & 3
    if h:
        # The topic moves with it, as its end is expected to be even.
        c[_MOVED] = h
        o = m + n
        while o > t:
            o -= 1
            ptr8(o + h)[0] = ptr8(o)[0]
        m += h
        t += h
    c[M] = m - b + c[AT]
    c[_N] = n

    # The plan for this topic, label, epoch and instance: the last one, or else a look.
    last = plan
    w = ptr32(m)
    h = 0
    while True:
        (
            words,
            ecb,
            cbc,
            ecb1,
            cbc1,
            views,
            topic,
            label,
            sender,
            uses,
        ) = plan
        y = ptr32(words)
        i = y[0] ^ w[0] | y[1] ^ w[1] | (y[2] ^ w[2]) & 0xFFFFFF | y[_TOPIC] ^ k
        if i == 0:
            # From its end, which is even here and in the plan.
            o = t + k
            r = int(y) + y[TOPIC_END]
            s = t + 3
            while o > s:
                o -= 4
                r -= 4
                i |= ptr16(o)[0] ^ ptr16(r)[0] | ptr16(o)[1] ^ ptr16(r)[1]
            while o > t:
                o -= 1
                r -= 1
                i |= ptr8(o)[0] ^ ptr8(r)[0]
        if i == 0:
            break
        if h:
            return none
        o = t
        s = t + k
        while o < s:
            h = h * 31 + ptr8(o)[0] & 0x1FFFFFFF
            o += 1
        o = m
        s = m + 11
        while o < s:
            h = h * 31 + ptr8(o)[0] & 0x1FFFFFFF
            o += 1
        h |= 0x20000000
        plan = plans[0](h)
        if not plan:
            return none
    g = ptr8(m)
    i = c[_UNITS] + (c[_REST] + late >> 10)
    i -= g[12] << 22 | g[13] << 14 | g[14] << 6 | g[15] >> 2
    if g[11] != c[_TOP] or i > _NEAR_UNITS or i < 0 - _NEAR_UNITS:
        return none
    iv = ptr32(y[STATE] | y[STATE + 1] << 32)
    if iv[4] != 3:
        return none
    c[STAGE] = _WRONG

    # The outer layer; then, with what is inside and after some checks, the inner one.
    key_at = (c[WORK] | c[WORK + 1] << 32) + KEY_AT
    a = k + 43 >> 4
    front = int(y) + _FRONTS
    x0 = w[2] << 8 | 2
    x1 = (w[2] >> 24 & 0xFF) | w[3] << 8
    x2 = (w[3] >> 24 & 0xFF) | w[4] << 8
    x3 = w[4] >> 24 & 0xFF
    s = m + 20
    left = n - 36
    if y[SIZE] != n or y[_PAYLOAD] != c[M]:
        views = seldom[_CUT](seldom, plan, area, k)
    key_view, mac_view, key_view1, mac_view1, view, later = views
    inner = 0
    while True:
        # In pieces: key stream, XOR into the packet and the MAC's blocks, MAC. Before the first one
        # B_0, made up for the IV that CBC kept from its last message, and the associated data: the
        # key stream's first block, in whose place they end, is the tag's.
        iv[4] = 2
        more = 0
        while True:
            i = left + 15 >> 4
            e = key_at
            if more:
                if i > MOST:
                    i = MOST
                key_view = later[inner + 1]
                if i == MOST:
                    key_view = later[0]
                mac_view = key_view
            else:
                if i > MOST - 1:
                    i = MOST - 1
                e += 16
            e += i << 4
            o = key_at
            r = x3 | more << 24 | (more & 0xFF00) << 8 | more >> 16 << 8
            while o < e:
                ptr32(o)[0] = x0
                ptr32(o)[1] = x1
                ptr32(o)[2] = x2
                ptr32(o)[3] = r
                r += 0x1000000
                o += 16
            encrypt(ecb, key_view, key_view)
            r = key_at
            if more == 0:
                q = ptr32(key_at)
                t0 = q[0]
                t1 = q[1]
                t2 = q[2]
                t3 = q[3]
                o = key_at - (a << 4)
                q = ptr32(o)
                q[0] = (x0 | 0x78) ^ iv[0]
                q[1] = x1 ^ iv[1]
                q[2] = x2 ^ iv[2]
                q[3] = (x3 | left << 24 | (left & 0xFF00) << 8 | left >> 16 << 8) ^ iv[3]
                more = 1
                r = front
                while o < key_at:
                    o += 16
                    ptr32(o)[0] = ptr32(r)[0]
                    ptr32(o)[1] = ptr32(r)[1]
                    ptr32(o)[2] = ptr32(r)[2]
                    ptr32(o)[3] = ptr32(r)[3]
                    r += 16
                o = int(q) + 28
                r = m + 10
                if inner:
                    o += 9
                    r = m + 40
                    ptr8(o)[0] = ptr8(r)[0]
                    ptr8(o)[1] = ptr8(r)[1]
                    ptr8(o)[2] = ptr8(r)[2]
                    ptr8(o)[3] = ptr8(r)[3]
                    ptr8(o)[4] = ptr8(r)[4]
                    ptr8(o)[5] = ptr8(r)[5]
                    ptr8(o)[6] = ptr8(r)[6]
                    ptr8(o)[7] = ptr8(r)[7]
                else:
                    ptr16(o)[0] = ptr16(r)[0]
                    ptr16(o)[1] = ptr16(r)[1]
                    ptr16(o)[2] = ptr16(r)[2]
                    ptr16(o)[3] = ptr16(r)[3]
                    ptr16(o)[4] = ptr16(r)[4]
                r = key_at + 16
            more += i
            i <<= 4
            h = e
            if i > left:
                # What comes after the payload stays as it is in the packet, and is 0 in the MAC.
                i = left
                h = r + (i & -4)
                q = ptr32(h)
                q[0] = q[0] & (1 << ((i & 3) << 3)) - 1
                o = h + 4
                while o < e:
                    ptr32(o)[0] = 0
                    o += 4
            o = s
            while r < e:
                ptr32(r)[0] = ptr32(o)[0] ^ ptr32(r)[0]
                ptr32(o)[0] = ptr32(r)[0]
                ptr32(r)[1] = ptr32(o)[1] ^ ptr32(r)[1]
                ptr32(o)[1] = ptr32(r)[1]
                ptr32(r)[2] = ptr32(o)[2] ^ ptr32(r)[2]
                ptr32(o)[2] = ptr32(r)[2]
                ptr32(r)[3] = ptr32(o)[3] ^ ptr32(r)[3]
                ptr32(o)[3] = ptr32(r)[3]
                o += 16
                r += 16
            if h < e:
                q = ptr32(h)
                q[0] = q[0] & (1 << ((i & 3) << 3)) - 1
                o = h + 4
                while o < e:
                    ptr32(o)[0] = 0
                    o += 4
            encrypt(cbc, mac_view, mac_view)
            left -= i
            s += i
            if left == 0:
                break
        q = ptr32(e - 16)
        iv[0] = q[0]
        iv[1] = q[1]
        iv[2] = q[2]
        iv[3] = q[3]
        iv[4] = 3
        # The tag, in constant time: what differs gathers in i.
        r = s
        if r & 3:
            q[0] = q[0] ^ t0
            q[1] = q[1] ^ t1
            q[2] = q[2] ^ t2
            q[3] = q[3] ^ t3
            i = 0
            o = e - 16
            while o < e:
                i |= ptr8(o)[0] ^ ptr8(r)[0]
                o += 1
                r += 1
        else:
            o = e - 16
            i = (
                ptr32(o)[0] ^ ptr32(r)[0] ^ t0
                | ptr32(o)[1] ^ ptr32(r)[1] ^ t1
                | ptr32(o)[2] ^ ptr32(r)[2] ^ t2
                | ptr32(o)[3] ^ ptr32(r)[3] ^ t3
            )
        if i:
            return none
        if inner:
            break

        # What is open now, m1 from w[5] on, the reader takes from here when it is not as planned.
        c[STAGE] = OPEN
        w = ptr32(m + 20)
        h = 0
        while True:
            i = w[0] ^ y[_M1] | w[1] ^ y[_M1 + 1] | w[2] ^ y[_M1 + 2]
            i |= w[3] ^ y[_M1 + 3] | w[4] ^ y[_M1 + 4]
            if i == 0:
                break
            if h:
                return none
            h = y[_HASH]
            s = y[NUMBER]
            o = m + 20
            e = o + 20
            while o < e:
                h = h * 31 + ptr8(o)[0] & 0x1FFFFFFF
                o += 1
            h |= 0x20000000
            plan = plans[0](h)
            if not plan:
                return none
            words, _, _, ecb1, cbc1, views, _, _, sender, uses = plan
            y = ptr32(words)
            if y[NUMBER] != s:
                return none
            if y[SIZE] != n or y[_PAYLOAD] != c[M]:
                views = seldom[_CUT](seldom, plan, area, k)
            _, _, key_view1, mac_view1, view, later = views
        if plan is not last:
            ear[PLAN] = plan
            roots, reader, _ = uses
            h = int(reader._uses) + 1
            reader._uses = h
            roots.used = h
        g = ptr8(w)
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
        q = ptr32(y[WINDOW] | y[WINDOW + 1] << 32)
        back = q[0] - ctr
        if back >= 0:
            if back > 63:
                return none
            if ptr32(int(q) + 4 + (back >> 5 << 2))[0] >> (back & 31) & 1:
                return none
        iv = ptr32(y[STATE1] | y[STATE1 + 1] << 32)
        if iv[4] != 3:
            return none
        c[STAGE] = _WRONG + 1
        inner = 1
        ecb = ecb1
        cbc = cbc1
        key_view = key_view1
        mac_view = mac_view1
        front = int(y) + _FRONTS + (a << 4)
        a = k + 53 >> 4
        x0 = w[3] << 8 | 2
        x1 = (w[3] >> 24 & 0xFF) | w[4] << 8
        x2 = (w[4] >> 24 & 0xFF) | (w[5] & 0xFFFF) << 16
        x3 = w[5] >> 16 & 0xFF
        s = m + 48
        left = n - _LEAST_M3

    # Genuine. First what may fail, for want of memory or as the connection is over.
    result = make(topic, to_bytes(view), label, sender, age, 0, {})
    if first & 2:
        seldom[WRITE](seldom[_ACK], 0, 4)
    q = ptr32(y[WINDOW] | y[WINDOW + 1] << 32)
    if back < 0:
        back = 0 - back
        h = 1
        i = 0
        if back < 32:
            v = uint(q[1])
            h = q[1] << back | 1
            i = q[2] << back | int(v >> 32 - back)
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
    c[STAGE] = DONE
    call(result)
    return yes
