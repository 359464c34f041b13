# publish for messages like the last ones: a topic that was published to before, QoS 0 or 1, neither
# retained nor with a life, both layers under AES-256-CCM, nothing due. Loaded and laid over a
# client's publish after some messages (client.py), so that a device that wakes for one does not pay
# for it. Whatever is not so goes to the general publish, which prepares the way for the next one.
import errno
import time
from struct import pack_into, unpack_from

import micropython
from micropython import const

from sealmq_spec.const import M1_HEAD, M2_HEAD
from sealmq_spec.envelope import CTR1, CTR2, LIFE1

from .ccm import work
from .twofold import send

_TYPING = const(0)
if _TYPING:
    from collections.abc import Callable
    from typing import Any

_LAST_CTR = const(0xFFFFFE)
_MOST = const(496)  # as in twofold.py, with what follows
_MOST_TOPIC = const(74)
_MAC1 = const(128)
_KEY1 = const(624)
_MAC2 = const(1264)
_KEY2 = const(1808)
_IMAGE_SALT = const(25)
_IMAGE_HEAD = const(37)
_IMAGE_DONE = const(64)
_IMAGE_FRONTS = const(72)
_PUBLISH = const(0x30)
_OVERHEAD = const(69)  # of m2 over a payload
_HOLDS = const(16)  # plans
_STEP = const(64)  # by which a plan's packet grows
if _IMAGE_HEAD + M1_HEAD != _IMAGE_DONE:
    raise ImportError("quick.py and SPEC.md 3.1 differ")

# What publish has at hand, a list: looking up an attribute costs as much as unpacking all of it, a
# built-in name more.
_TOPIC = const(0)  # as given last, and its QoS
_QOS = const(1)
_PLAN = const(2)  # what twofold.py needs for these
_ROOM = const(3)  # bytes of payload that the plan's packet can hold
_SOCK = const(4)
_WRITE = const(5)
_PREPARED = const(6)  # the session's, replaced with its keys and headers
_OFFSET = const(7)  # of the session's clock, replaced with it
_PLANS = const(9)  # for each QoS, by topic
_GENERAL = const(10)
_CLOCK = const(11)
_CLIENT = const(12)


# Lays it over a client whose publish is `general`.
def lay(c: "Any", general: "Callable[..., int]") -> None:
    view: "Any" = memoryview if hasattr(memoryview(b""), "itemsize") else None
    ticks = time.ticks_ms  # type: ignore[attr-defined]
    at_hand = c, c.session, ticks, type, len, bytes, bytearray, view
    q: "list[Any]" = [None, None, None, -1, None, None, None, None]
    q += [at_hand, ({}, {}), general, bytearray(20), c]

    # As a default value q costs neither an attribute nor, as a closure would, heap.
    @micropython.native
    def publish(
        topic: "str | bytes",
        msg: "Any",
        retain: bool = False,
        qos: int = 0,
        life: int = 0,
        q: "Any" = q,
    ) -> "Any":
        like, of, plan, room, sock, write, prepared, offset, rest, _, _, _, _ = q
        c, s, ticks, kind, length, raw, array, view = rest
        if topic is like and qos is of and not retain and not life:
            k = kind(msg)
            if k is raw or k is array or (k is view and msg.itemsize == 1):
                n = length(msg)
                ctr = s.ctr + 1
                if (
                    n <= room
                    and ctr <= _LAST_CTR
                    and c.sock is sock
                    and s._prepared is prepared
                    and s._offset is offset
                    and not s.due
                    and not c._astray
                ):
                    done = pid = 0
                    if qos:
                        pid = c.pid % 65535 + 1
                        c.pid = pid
                    try:
                        done = send(plan, write, msg, n, ctr, ticks(), pid)
                        if done == 2:
                            raise OSError(errno.ETIMEDOUT)
                        if done and qos:
                            c._settle(ctr)
                    except BaseException as error:
                        done = _lost(q, error, ctr, pid)
                    if done:
                        if qos and c._denied is not None:
                            return c._anew(topic, msg, retain, qos, life)
                        return ctr
        return _other(q, topic, msg, retain, qos, life)

    c.publish = publish


# What came up while a packet was made, written, or waited for; raised, but for a wait that ended
# because a notice refuses the message.
def _lost(q: "Any", error: BaseException, ctr: int, pid: int) -> int:
    _, _, _, image, _, out, _ = q[_PLAN]
    at, n = unpack_from("<II", image, _IMAGE_DONE)
    if not n:
        raise error  # nothing has left
    q[_CLIENT]._unacknowledged(error, ctr, pid, out, at, n)
    return 1


# publish for what is not like the last message.
def _other(
    q: "Any", topic: "str | bytes", msg: "bytes | str", retain: bool, qos: int, life: int
) -> int:
    c = q[_CLIENT]
    if isinstance(msg, str):
        msg = msg.encode()
    usual = not retain and not life and qos in (0, 1)
    if usual and (topic is not q[_TOPIC] or qos is not q[_QOS]):
        found = q[_PLANS][qos].get(topic)
        if found is not None:
            _turn(q, topic, qos, found)
            again: int = c.publish(topic, msg, False, qos)
            return again
    ctr: int = q[_GENERAL](c, topic, msg, retain, qos, life)
    if usual:
        try:
            _prepare(q, topic, qos, len(msg))
        except MemoryError:
            q[_ROOM] = -1
    return ctr


def _turn(q: "Any", topic: "str | bytes", qos: int, found: "tuple[Any, int]") -> None:
    q[_TOPIC] = topic
    q[_QOS] = qos
    q[_PLAN], q[_ROOM] = found


# Makes all ready for another message of n bytes on this topic, as far as it can be.
def _prepare(q: "Any", topic: "str | bytes", qos: int, n: int) -> None:
    c = q[_CLIENT]
    s = c.session
    sock = c.sock
    raw = c._topics.get(topic)
    if sock is None or raw is None:
        return
    last = s._prepared.get((raw, qos << 1))
    rest = len(raw) + qos + qos + (_OVERHEAD + 2)
    if last is None or len(raw) > _MOST_TOPIC or n > _MOST or n + rest > c.limit:
        return
    ciphers = s._inner, s._publish
    if not (hasattr(ciphers[0], "_s") and hasattr(ciphers[1], "_s")):
        return
    plans = q[_PLANS]
    if s._prepared is not q[_PREPARED] or len(plans[0]) + len(plans[1]) >= _HOLDS:
        plans[0].clear()
        plans[1].clear()
        q[_PREPARED] = s._prepared
    found = plans[qos].get(topic)
    if found is None or n > found[1]:
        room = min(n + _STEP & -_STEP, _MOST, c.limit - rest)
        found = _plan(s, ciphers, raw, qos, last, room, q[_CLOCK]), room
        plans[qos][topic] = found
    _look(found[0], n)
    _turn(q, topic, qos, found)
    q[_SOCK] = sock
    q[_WRITE] = sock.write
    ticks = time.ticks_ms()  # type: ignore[attr-defined]
    q[_OFFSET] = s._offset
    now = c.mono() + s._offset
    pack_into("<III", q[_CLOCK], 0, now // 1000, now % 1000, ticks & 0x3FFFFFFF)
    pack_into(">II", q[_CLOCK], 12, now // 1000, 0)


# last: what the session has prepared for this topic.
def _plan(
    s: "Any", ciphers: "Any", raw: bytes, qos: int, last: "Any", room: int, clock: bytearray
) -> "Any":
    first, aad1, _, aad2, _ = last
    k = len(raw)
    at = (3 + 2 + k + qos + qos) | 3
    where = at - 2 - k - qos - qos
    one = len(aad1) + 17 & -16
    two = len(aad2) + 17 & -16
    image = bytearray(_IMAGE_FRONTS + one + two)
    pack_into("<6I", image, 0, at, where, one, two, _PUBLISH | qos << 1, aad2[1])
    image[_IMAGE_SALT : _IMAGE_SALT + 8] = s.salt
    for aad, start in ((aad1, _IMAGE_FRONTS), (aad2, _IMAGE_FRONTS + one)):
        pack_into(">H", image, start, len(aad))
        image[start + 2 : start + 2 + len(aad)] = aad
    start = _IMAGE_FRONTS + 2
    image[start + 1] = first
    image[start + LIFE1] = 0
    for zero in (start + CTR1, start + one + CTR2):
        image[zero : zero + 7] = bytes(7)
    image[_IMAGE_HEAD:_IMAGE_DONE] = image[start : start + M1_HEAD]
    out = bytearray(at + room + (_OVERHEAD + 4))
    out[where : where + 2] = k.to_bytes(2, "big")
    out[where + 2 : where + 2 + k] = raw
    out[at : at + M2_HEAD] = aad2[:M2_HEAD]
    views = [None] * ((room + 15 >> 4) + (room + 59 >> 4) + 1)
    return ciphers[0]._s, ciphers[1]._s, s, image, views, out, clock


# What the ciphers work on for a payload of n bytes.
def _look(plan: "Any", n: int) -> None:
    _, _, _, image, views, _, _ = plan
    i = (n + 15 >> 4) + (n + 59 >> 4)
    if views[i] is None:
        one, two = unpack_from("<II", image, 8)
        view = memoryview(work)
        views[i] = (
            view[_MAC1 - 16 - one : _MAC1 + (n + 15 & -16)],
            view[_KEY1 : _KEY1 + (n + 31 & -16)],
            view[_MAC2 - 16 - two : _MAC2 + (n + 59 & -16)],
            view[_KEY2 : _KEY2 + (n + 75 & -16)],
        )
