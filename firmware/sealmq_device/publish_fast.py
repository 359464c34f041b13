# mypy: disable-error-code="possibly-undefined"
# (bound where `here` is, which costs nothing; None would make them objects to viper)
# A message in one viper function, from counter to write: what Client.publish calls for topics that
# were published to before. Loaded after some messages, so that a device that wakes for one does not
# pay for it. session.py's seal_publish does the same for every message, and is what this must
# equal. It allocates nothing, and no Python code of others runs in here.
#
# Under AES-256-CCM both layers of a short message are sealed here, in ccm.py's shared buffer,
# divided so that the areas of both fit at once: the inner layer's output is written to where the
# outer one takes it from. Long messages, and other suites, are sealed by their ciphers.
import time
from errno import ETIMEDOUT
from struct import pack, pack_into, unpack_from

import micropython
from micropython import const

from .ccm import Ccm, _process, _ready, in_front, point, work

_TYPING = const(0)
if _TYPING:
    # Viper takes `object` for "any Python object", and so shall the type checker.
    from typing import Any
    from typing import Any as object

    from viper_types import ptr8, ptr32

_PUBLISH = const(0x30)
_START = const(5)  # as in link.py
_RETAINED = const(1)
_CLEAR = const(3)
_M1_HEAD = const(27)
_HEADS = const(28)  # a TLV block of one byte and m1's header
_TAG = const(16)
_PLAIN = const(37)  # from m2 to the plaintext
_PLANS = const(16)
_LAST_CTR = const(0xFFFFFD)

# Bytes of payload that have room in the shared buffer, beside a topic of 74.
_MOST = const(496)
_MOST_TOPIC = const(74)
# Where the areas stand in it, in bytes: MAC input and key stream of the inner layer (its A_0, then
# the blocks), of the outer one.
_MAC1 = const(128)  # B_0 and associated data lie before it, as before _MAC2
_KEY1 = const(624)
_MAC2 = const(1264)
_KEY2 = const(1808)

# Words of a plan's image, then fronts: associated data of both layers with their lengths before
# them and zeros up to whole blocks after them; then the packet up to m2's first byte.
_AT = const(0)  # where m2 stands in the packet, 3 after a word's beginning
_BEGIN = const(1)  # where the packet's variable header begins
_FRONT1 = const(2)  # bytes of the front
_FRONT2 = const(3)
_SUITE = const(4)  # m2's second byte
_FIRST = const(5)  # m1's second byte, but for the class
_SALT = const(6)  # after one byte, in three words; from there on the ciphers' nonce
_LOW = const(9)  # whose last byte is this one's first
_HEAD = const(10)  # the TLV block and m1's header, in seven words
_STATE = const(17)  # addresses of the ciphers' states, in two words each
_STATE2 = const(19)
_HERE = const(21)  # 1: both layers under AES-CCM, and the topic is short
_FRONTS = const(88)
_NONCE = const(25)  # in bytes

# Words of the clock: Unix time in s, ms of it, ticks when that was so, seconds since it was set;
# then bytes of the packet's buffer, addresses of that and of the shared one; where the packet
# begins and its length, 0 before it is complete.
_MS = const(1)
_TICKS = const(2)
_AGE = const(3)
_ROOM = const(4)
_OUT_AT = const(5)
_WORK_AT = const(7)
_BEGINS = const(9)
_LENGTH = const(10)
_FLAGS = const(11)  # of the last topic's plan
_LATE_MS = const(999999)
_OLD = const(3600)

# What seal has at hand, a list: looking up an attribute costs as much as unpacking all of it, a
# built-in name more.
_CLIENT = const(1)
# The session's, replaced with its keys and headers. None: the connection is another one (link.py);
# or the mediator has said something, so that the clock may be, or something be due (incoming.py).
_PREPARED = const(3)
_WRITE = const(4)
_BY_FLAGS = const(5)  # plans: for each flags of PUBLISH, by topic as given
_TOPIC = const(6)  # as given last, and its plan
_PLAN = const(7)
_CLOCK = const(8)
_OUT = const(9)  # the client's packet buffer


# What the functions below need for a client; and makes its _quick, which is publish.
def at_hand(c: "Any") -> "list[Any]":
    ticks = time.ticks_ms  # type: ignore[attr-defined]
    h: "list[Any]" = [prepare, c, c.session, None, None]
    h += [({}, {}, {}, {}), None, None, bytearray(48), None]
    h += [None, ticks, len, type, bytes, bytearray, _process]
    point(h[_CLOCK], _WORK_AT, work)

    # As a default value h costs neither an attribute nor, as a closure would, heap.
    @micropython.native
    def quick(topic: "str | bytes", msg: "Any", how: int, h: "Any" = h) -> int:
        try:
            ctr: int = seal(0, 0, h, topic, msg, how)
        except BaseException as error:
            ctr = failed(h, error, how)
        if not ctr:
            return other(h, topic, msg, how)
        if how & 2:
            return settle(h, ctr, topic, msg, how)
        return ctr

    c._quick = quick
    return h


# What seal did not take.
def other(h: "list[Any]", topic: "str | bytes", msg: "bytes | str", how: int) -> int:
    ctr: int
    c = h[_CLIENT]
    ctr = c._quick(topic, msg.encode(), how) if isinstance(msg, str) else c._seal(topic, msg, how)
    return ctr


def settle(h: "list[Any]", ctr: int, topic: "str | bytes", msg: bytes, how: int) -> int:
    ctr = h[_CLIENT]._settle(ctr, topic, msg, how)
    return ctr


# Seals msg under the session's next ctr, writes the packet, and gives ctr. 0: not done, and nothing
# has changed: another topic, connection, keys, clock or kind of message than those prepared for,
# something due, longer than the buffer, or ciphers that are not what they must be. o, r: pointers;
# of a viper function's variables the first two are kept in registers, and whoever calls passes
# zeros.
@micropython.viper
def seal(o: int, r: int, h: object, topic: object, msg: object, how: int) -> int:
    (
        _,
        client,
        session,
        prepared,
        write,
        plans,
        like,
        plan,
        clock,
        out,
        none,
        ticks,
        length,
        kind,
        kind1,
        kind2,
        process,
    ) = h
    q = ptr32(clock)
    q[_LENGTH] = 0
    if session._prepared is not prepared:
        return 0
    # Of other kinds, such as a view, len() is perhaps no number of bytes.
    found = kind(msg)
    if not (found is kind1 or found is kind2):
        return 0
    f = how & 3
    life = how >> 2
    if topic is not like or f != q[_FLAGS]:
        plan = plans[f].get(topic)
        if plan is none:
            return 0
        h[_TOPIC] = topic
        h[_PLAN] = plan
        q[_FLAGS] = f
    image, ecb, cbc, ecb2, cbc2, views, sealers, _ = plan
    y = ptr32(image)
    n = int(length(msg))
    ctr = int(session.ctr)
    if n + y[_AT] + 69 > q[_ROOM] or ctr > _LAST_CTR:
        return 0
    here = 0
    if n <= _MOST:
        if y[_HERE]:
            here = 1
            iv = ptr32(y[_STATE] | y[_STATE + 1] << 32)
            iv2 = ptr32(y[_STATE2] | y[_STATE2 + 1] << 32)
            if iv[4] & iv2[4] != 3:
                return 0
            view = views[(n + 15 >> 4) + (n + 59 >> 4)]
            if view is none:
                return 0
            blocks, stream, blocks2, stream2 = view

    i = int(ticks()) & 0x3FFFFFFF
    c = (i - q[_TICKS]) & 0x3FFFFFFF
    if c > _LATE_MS or q[_AGE] > _OLD:
        return 0
    q[_TICKS] = i
    i = c + q[_MS]
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
    c = y[_FIRST]
    if f & 1:
        c |= _RETAINED if n else _CLEAR
    s = int(y) + _FRONTS
    front = y[_FRONT1]
    ptr8(y)[42] = c
    y[_HEAD + 5] = g | t << 24
    y[_HEAD + 6] = t >> 8 & 0xFFFFFF | life << 24
    ptr8(s)[3] = c
    p = ptr32(s)
    p[5] = y[_SALT + 2] & 0xFF | g << 8
    p[6] = t
    ptr8(s)[28] = life
    p = ptr32(s + front)
    p[1] = g | t << 24
    p[2] = p[2] >> 24 << 24 | t >> 8 & 0xFFFFFF

    # The packet up to the sealed part.
    o = q[_OUT_AT] | q[_OUT_AT + 1] << 32
    r = s + front + y[_FRONT2]
    e = o + y[_AT]
    while o < e:
        ptr32(o)[0] = ptr32(r)[0]
        o += 4
        r += 4
    if f & 2:
        pid = int(client.pid) + 1
        if pid > 65535:
            pid = 1
        client.pid = pid
        ptr8(o - 3)[0] = pid >> 8
        ptr8(o - 2)[0] = pid
    ptr32(o)[0] = y[_SUITE] | g << 8
    ptr32(o)[1] = t
    out_at = o

    # The payload, and what stands before it, to where they are sealed: to both layers' blocks, or
    # into the packet.
    mac = o + 36
    o += 8
    if here:
        base = q[_WORK_AT] | q[_WORK_AT + 1] << 32
        mac = base + _MAC1
        o = base + _MAC2
    d = o + _HEADS
    r = int(y) + 40
    ptr32(o)[0] = ptr32(r)[0]
    ptr32(o)[1] = ptr32(r)[1]
    ptr32(o)[2] = ptr32(r)[2]
    ptr32(o)[3] = ptr32(r)[3]
    ptr32(o)[4] = ptr32(r)[4]
    ptr32(o)[5] = ptr32(r)[5]
    ptr32(o)[6] = ptr32(r)[6]
    o = mac
    r = int(ptr8(msg))
    e = r + n
    if r & 3 == 0:
        i = e - 15
        while r < i:
            ptr32(o)[0] = ptr32(r)[0]
            ptr32(o)[1] = ptr32(r)[1]
            ptr32(o)[2] = ptr32(r)[2]
            ptr32(o)[3] = ptr32(r)[3]
            r += 16
            o += 16
        # Whole words: after the payload is the tag's place, or zeros will be.
        while r < e:
            ptr32(o)[0] = ptr32(r)[0]
            r += 4
            o += 4
    while r < e:
        ptr8(o)[0] = ptr8(r)[0]
        r += 1
        o += 1

    t0 = y[_SALT] | 2
    t1 = y[_SALT + 1]
    t2 = y[_SALT + 2] & 0xFF | (g & 0xFFFF) << 16
    if not here:
        seal1, seal2, nonce, aad, aad2 = sealers
        y[_SALT + 2] = t2
        y[_LOW] = ctr & 0xFF
        i = y[_AT] + _PLAIN
        seal1(nonce, aad, out, i, n)
        # Whole again: sealing may have let others run.
        y[_SALT + 2] = t2 | 0x100
        y[_LOW] = ctr & 0xFF
        seal2(nonce, aad2, out, i - _HEADS, n + (_HEADS + _TAG))
    i = n
    key = base + _KEY1
    # d: where the layer's cipher text and tag go.
    while here:
        # A_0 and the counter blocks, and from them the key stream.
        o = key
        e = key + (i + 31 & -16)
        c = ctr & 0xFF
        while o < e:
            ptr32(o)[0] = t0
            ptr32(o)[1] = t1
            ptr32(o)[2] = t2
            ptr32(o)[3] = c
            c += 0x1000000
            o += 16
        process(ecb, stream, stream)
        # B_0, made up for the IV that CBC kept from its last message, and the associated data.
        o = mac - front - 16
        ptr32(o)[0] = (t0 | 0x78) ^ iv[0]
        ptr32(o)[1] = t1 ^ iv[1]
        ptr32(o)[2] = t2 ^ iv[2]
        ptr32(o)[3] = (ctr & 0xFF | (i & 0xFF) << 24 | (i & 0xFF00) << 8) ^ iv[3]
        o += 16
        r = s
        while o < mac:
            ptr32(o)[0] = ptr32(r)[0]
            ptr32(o)[1] = ptr32(r)[1]
            ptr32(o)[2] = ptr32(r)[2]
            ptr32(o)[3] = ptr32(r)[3]
            r += 16
            o += 16
        s = r
        # Zeros after the text, and its cipher text. What that has beyond i bytes the tag covers.
        e = o + i
        if i & 15:
            r = mac + (i & -4)
            ptr32(r)[0] = ptr32(r)[0] & (1 << ((i & 3) << 3)) - 1
            r += 4
            while r & 15 != mac & 15:
                ptr32(r)[0] = 0
                r += 4
        r = key
        while o < e:
            r += 16
            p = ptr32(d)
            p[0] = ptr32(o)[0] ^ ptr32(r)[0]
            p[1] = ptr32(o)[1] ^ ptr32(r)[1]
            p[2] = ptr32(o)[2] ^ ptr32(r)[2]
            p[3] = ptr32(o)[3] ^ ptr32(r)[3]
            o += 16
            d += 16
        iv[4] = 2
        process(cbc, blocks, blocks)
        o -= 16
        r = key
        # d is as far after the text as whole blocks are.
        d -= -i & 15
        c = ptr32(o)[0]
        e = ptr32(o)[1]
        m = ptr32(o)[2]
        k = ptr32(o)[3]
        iv[0] = c
        iv[1] = e
        iv[2] = m
        iv[3] = k
        iv[4] = 3
        c ^= ptr32(r)[0]
        e ^= ptr32(r)[1]
        m ^= ptr32(r)[2]
        k ^= ptr32(r)[3]
        o = d
        if o & 3:
            ptr32(r)[0] = c
            ptr32(r)[1] = e
            ptr32(r)[2] = m
            ptr32(r)[3] = k
            e = o + 16
            while o < e:
                ptr8(o)[0] = ptr8(r)[0]
                r += 1
                o += 1
        else:
            ptr32(o)[0] = c
            ptr32(o)[1] = e
            ptr32(o)[2] = m
            ptr32(o)[3] = k
        if t2 & 0x100:
            break
        d = out_at + 8
        mac = base + _MAC2
        key = base + _KEY2
        front = y[_FRONT2]
        t2 |= 0x100
        i += _HEADS + _TAG
        iv = iv2
        cbc = cbc2
        ecb = ecb2
        blocks = blocks2
        stream = stream2

    # The fixed header in front.
    o = out_at - y[_AT] - 1 + y[_BEGIN]
    n += out_at + 68 - o
    e = n
    r = o - 2
    while e > 127:
        e >>= 7
        r -= 1
    ptr8(r)[0] = _PUBLISH | f
    e = n
    i = r + 1
    while e > 127:
        ptr8(i)[0] = e & 127 | 128
        e >>= 7
        i += 1
    ptr8(i)[0] = e
    n += o - r
    r -= out_at - y[_AT] - 1
    if f & 2:
        client._sent = r
        client._size = n
    q[_BEGINS] = r
    q[_LENGTH] = n
    done = write(out, r, n)
    if done:
        if int(done) == n:
            return ctr
    raise OSError(ETIMEDOUT)


# What seal raised. Gives the message's ctr if there is more to say.
def failed(h: "list[Any]", error: BaseException, how: int) -> int:
    at, n = unpack_from("<II", h[_CLOCK], 4 * _BEGINS)
    if not n:
        raise error  # nothing has left
    c = h[_CLIENT]
    ctr: int = c.session.ctr
    c._unacknowledged(error, ctr, how & 2 and c.pid, h[_OUT], at, n)
    return ctr


# After a message that seal did not take: makes all ready for more of n bytes on its topic.
def prepare(h: "list[Any]", c: "Any", topic: "str | bytes", raw: bytes, flags: int, n: int) -> None:
    s = c.session
    if s.due or c._astray:
        return  # the client has to look before each message
    plans = h[_BY_FLAGS]
    if h[_PREPARED] is not s._prepared:
        for found in plans:
            found.clear()
    if topic not in plans[flags] and sum(map(len, plans)) >= _PLANS:
        if s.ctr & 63:
            return  # rather some topics as now than all in turn
        for found in plans:
            found.clear()
    # Anew each time: a cipher that failed has other objects now.
    plan = plans[flags][topic] = _plan(s, raw, flags, plans[flags].get(topic))
    h[_TOPIC] = topic
    h[_PLAN] = plan
    image, views = plan[0], plan[5]
    i = (n + 15 >> 4) + (n + 59 >> 4)
    if n <= _MOST and not views[i]:
        _, _, a, b = unpack_from("<4I", image)
        view = memoryview(work)
        views[i] = (
            view[_MAC1 - 16 - a : _MAC1 + (n + 15 & -16)],
            view[_KEY1 : _KEY1 + (n + 31 & -16)],
            view[_MAC2 - 16 - b : _MAC2 + (n + 59 & -16)],
            view[_KEY2 : _KEY2 + (n + 75 & -16)],
        )
    h[_OUT] = out = c._out
    h[_WRITE] = c.sock.write
    h[_PREPARED] = s._prepared
    clock = h[_CLOCK]
    point(clock, _OUT_AT, out)
    ticks = time.ticks_ms()  # type: ignore[attr-defined]
    now = c.mono() + s._offset
    pack_into("<5I", clock, 0, now // 1000, now % 1000, ticks & 0x3FFFFFFF, 0, len(out))
    pack_into("<I", clock, 4 * _FLAGS, flags)


# Of what the session used for its last message, one like those to come.
def _plan(s: "Any", raw: bytes, flags: int, old: "Any") -> "Any":
    _, aad1, _, aad2, _ = s._last
    one = in_front(aad1)
    two = in_front(aad2)
    k = len(raw) + (flags & 2)
    begin = _START + (-k & 3)
    at = begin + 2 + k
    inner, outer = s._inner, s._publish
    here = type(inner) is type(outer) is Ccm and len(raw) <= _MOST_TOPIC
    ciphers = [None] * 8
    if here:
        if not inner._s[1]:
            _ready(inner._s, 1, 2)  # no payload came yet, so there is no ECB
        ciphers = inner._s + outer._s
    words = at, begin, len(one), len(two), aad2[1], aad1[1] & 0xF0
    image = bytearray(pack("<6Ix8s7x28s16xI", *words, s.salt, b"\0" + aad1[:_M1_HEAD], here))
    image += one + two + bytes(begin) + len(raw).to_bytes(2, "big") + raw + bytes(flags & 2)
    image += aad2[:1]
    ecb, cbc, ecb2, cbc2 = ciphers[1], ciphers[0], ciphers[5], ciphers[4]
    if here:
        point(image, _STATE, ciphers[3])
        point(image, _STATE2, ciphers[7])
    view = memoryview(image)
    at = _FRONTS + len(one) + 2
    aad = view[_FRONTS + 2 : _FRONTS + 2 + len(aad1)]
    aad2 = view[at : at + len(aad2)]
    sealers = inner.seal_into, outer.seal_into, view[_NONCE : _NONCE + 12], aad, aad2
    views = old[5] if old else [None] * ((_MOST + 15 >> 4) + (_MOST + 59 >> 4) + 1)
    return image, ecb, cbc, ecb2, cbc2, views, sealers, ciphers
