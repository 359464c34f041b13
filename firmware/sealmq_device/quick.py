# publish for messages like the last ones: a topic that was published to before, QoS 0 or 1, neither
# retained nor with a life, up to 1,024 bytes, nothing due. Loaded and laid over a
# client's publish after some messages (client.py), so that a device that wakes for one does not pay
# for it. Whatever is not so goes to the general publish, which prepares the way for the next one.
import time
from struct import pack, pack_into, unpack_from

import micropython
from micropython import const

from .ccm import Ccm, work
from .twofold import send

_TYPING = const(0)
if _TYPING:
    from collections.abc import Callable
    from typing import Any

_LARGEST = const(1024)
_MOST = const(496)  # as in twofold.py, with what follows
_MOST_TOPIC = const(74)
_MAC1 = const(128)
_KEY1 = const(624)
_MAC2 = const(1264)
_KEY2 = const(1808)
_BEGIN = const(68)
_NONCE = const(25)
_FRONTS = const(80)
_M1_HEAD = const(27)
_OVERHEAD = const(69)  # of m2 over a payload
_PUBLISH = const(0x30)
_HOLDS = const(16)  # plans
_STEP = const(64)  # by which a plan's packet grows

# What publish has at hand, a list: looking up an attribute costs as much as unpacking all of it, a
# built-in name more.
_TOPIC = const(0)  # as given last, and its QoS
_QOS = const(1)
_PLAN = const(2)  # what twofold.py needs for these
_SOCK = const(3)
_PREPARED = const(5)  # the session's, replaced with its keys and headers
_PLANS = const(8)  # for each QoS, by topic: (QoS, plan, bytes of payload that it can hold)
_GENERAL = const(9)
_CLOCK = const(10)
_CLIENT = const(11)
_SEEN = const(12)  # the socket of the last message that came this way


# Lays it over a client whose publish is `general`.
def lay(c: "Any", general: "Callable[..., int]") -> None:
    # Of other kinds, such as a view, len() is perhaps no number of bytes.
    at_hand = c, c.session, time.ticks_ms, len, type, (bytes, bytearray)  # type: ignore[attr-defined]
    q: "list[Any]" = [None, None, None, None, None, None, None]
    q += [at_hand, ({}, {}), general, bytearray(16), c, None]

    # As a default value q costs neither an attribute nor, as a closure would, heap.
    @micropython.native
    def publish(
        topic: "str | bytes",
        msg: "Any",
        retain: bool = False,
        qos: int = 0,
        life: int = 0,
        q: "Any" = q,
    ) -> int:
        like, of, plan, sock, write, prepared, offset, rest, _, _, _, _, _ = q
        c, s, ticks, length, kind, kinds = rest
        if (
            topic is like
            and qos is of
            and c.sock is sock
            and s._prepared is prepared
            and s._offset is offset
            and not (retain or life or s.due or c._astray)
        ):
            if kind(msg) in kinds:
                try:
                    ctr: int = send(plan, write, msg, length(msg), ticks())
                except BaseException as error:
                    return _rest(q, error, topic, msg, qos)
                if ctr:
                    if qos:
                        return _rest(q, None, topic, msg, qos)
                    return ctr
        return _other(q, topic, msg, retain, qos, life)

    c.publish = publish
    c._quick = q


# What comes behind sealing and writing: something was raised, or a PUBACK is to be waited for.
def _rest(
    q: "Any", error: "BaseException | None", topic: "str | bytes", msg: bytes, qos: int
) -> int:
    c = q[_CLIENT]
    ctr: int = c.session.ctr
    if not error:
        try:
            c._settle(ctr)
        except BaseException as it:
            error = it
    if error:
        _, _, _, image, _, out, _, _, _ = q[_PLAN]
        at, n = unpack_from("<II", image, _BEGIN)
        if not n:
            raise error  # nothing has left
        c._unacknowledged(error, ctr, qos and c.pid, out, at, n)
    if c._denied is not None:
        ctr = c._anew(topic, msg, False, qos, 0)
    return ctr


# publish for what is not like the last message.
def _other(
    q: "Any", topic: "str | bytes", msg: "bytes | str", retain: bool, qos: int, life: int
) -> int:
    c = q[_CLIENT]
    ctr: int
    text = isinstance(msg, str)
    if isinstance(msg, str):
        msg = msg.encode()
    usual = not (retain or life) and qos in (0, 1) and type(msg) in (bytes, bytearray)
    if usual and (text or topic is not q[_TOPIC] or qos is not q[_QOS]):
        found = q[_PLANS][qos].get(topic)
        if found:
            q[:_SOCK] = (topic,) + found[:2]  # at one stroke, whatever interrupts
            ctr = c.publish(topic, msg, False, qos)
            return ctr
    ctr = q[_GENERAL](c, topic, msg, retain, qos, life)
    if usual:
        # A connection's first message may be its last.
        if q[_SEEN] is c.sock:
            try:
                _prepare(q, topic, qos, len(msg))
            except MemoryError:
                pass  # the next one goes this way as well
        q[_SEEN] = c.sock
    return ctr


# Makes all ready for another message of n bytes on this topic, as far as it can be.
def _prepare(q: "Any", topic: "str | bytes", qos: int, n: int) -> None:
    c = q[_CLIENT]
    s = c.session
    raw = c._topics.get(topic)
    last = s._prepared.get((raw, qos << 1))
    if c.sock is None or last is None:
        return
    rest = len(raw) + qos + qos + (_OVERHEAD + 2)
    room = min(n + _STEP & -_STEP, _LARGEST, c.limit - rest)
    if n > room:
        return
    zero, one = plans = q[_PLANS]
    if s._prepared is not q[_PREPARED]:
        zero.clear()
        one.clear()
    found = plans[qos].get(topic)
    if not found or n > found[2]:
        if len(zero) + len(one) >= _HOLDS:
            if s.ctr & 63:
                return  # rather some topics as now than all in turn
            zero.clear()
            one.clear()
        found = plans[qos][topic] = qos, _plan(c, raw, qos, last, room, q[_CLOCK]), room
    layers, _, _, image, views, _, _, _, _ = found[1]
    i = (n + 15 >> 4) + (n + 59 >> 4)
    if layers and n <= _MOST and not views[i]:
        a, b = unpack_from("<II", image, 8)
        view = memoryview(work)
        views[i] = (
            view[_MAC1 - 16 - a : _MAC1 + (n + 15 & -16)],
            view[_KEY1 : _KEY1 + (n + 31 & -16)],
            view[_MAC2 - 16 - b : _MAC2 + (n + 59 & -16)],
            view[_KEY2 : _KEY2 + (n + 75 & -16)],
        )
    ticks = time.ticks_ms()  # type: ignore[attr-defined]
    now = c.mono() + s._offset
    pack_into("<4I", q[_CLOCK], 0, now // 1000, now % 1000, ticks & 0x3FFFFFFF, 0)
    q[:7] = (topic,) + found[:2] + (c.sock, c.sock.write, s._prepared, s._offset)


# last: what the session has prepared for this topic, and used for a message like those to come.
def _plan(c: "Any", raw: bytes, qos: int, last: "Any", room: int, clock: bytearray) -> "Any":
    s = c.session
    _, aad1, _, aad2, _ = last
    size = len(raw) + 2 + qos + qos
    at = size + 3 | 3
    one = _front(aad1)
    two = _front(aad2)
    first = _PUBLISH | qos << 1
    head = bytes(aad1[:_M1_HEAD])
    sizes = at, at - size, len(one), len(two)
    image = bytearray(
        pack("<6Ix8s8x27s8xI", *sizes, first, aad2[1], s.salt, head, room) + one + two
    )
    out = b"".join((bytes(at - size), len(raw).to_bytes(2, "big"), raw, bytes(qos + qos)))
    out += bytes(aad2[:1]) + bytes(room + (_OVERHEAD + 4))
    layers = None
    if type(s._inner) is type(s._publish) is Ccm and len(raw) <= _MOST_TOPIC:
        layers = s._inner._s, s._publish._s
    room = min(room, _MOST)
    views = [None] * ((room + 15 >> 4) + (room + 59 >> 4) + 1)
    view = memoryview(image)[: _FRONTS + 2 + len(aad1)]
    behind = _FRONTS + len(one) + 2
    sealers = (
        s._inner,
        s._publish,
        view[_NONCE : _NONCE + 12],
        view[_FRONTS + 2 :],
        memoryview(image)[behind : behind + len(aad2)],
    )
    return layers, s, c, image, views, bytearray(out), clock, work, sealers


# Associated data as both ciphers take it: with its length before it, and zeros behind.
def _front(aad: bytearray) -> bytes:
    n = len(aad)
    return n.to_bytes(2, "big") + aad + bytes(-2 - n & 15)


# For measuring: a function that does to a message like the last ones all but writing it.
def seals(c: "Any") -> "Callable[[bytes], object]":
    ticks = time.ticks_ms  # type: ignore[attr-defined]

    @micropython.native
    def write(out: bytearray, at: int, n: int) -> int:
        return n

    at_hand = c._quick[_PLAN], write, len, ticks, send

    @micropython.native
    def both(msg: bytes, at_hand: "Any" = at_hand) -> object:
        plan, write, length, ticks, send = at_hand
        return send(plan, write, msg, length(msg), ticks())

    return both
