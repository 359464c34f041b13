# check_msg and wait_msg for messages like earlier ones: topic, label, sender and boot session that
# a message had before, live, both layers under AES-256-CCM, nothing due. Laid over a client's own
# after some messages (incoming.py), so that a device that wakes for one does not pay for it.
# Whatever is not so goes to the general path, as it came, and that prepares the way for the next.
import errno
import time
from struct import pack_into

import micropython
from micropython import const

from sealmq_spec.const import CCM, LIVE, M1_HEAD, M3_HEAD, TAG
from sealmq_spec.envelope import get_m1, get_m3, tail_m1, tail_m3

from .ccm import _key_views, _mac_views, _ready, _views, work
from .unsealing import opened

_TYPING = const(0)
if _TYPING:
    from collections.abc import Callable
    from typing import Any

_MOST = const(1100)  # bytes of a packet behind its fixed header, as far as the shared buffer goes
_LEAST = const(84)  # in one of ours
_KEY_AT = const(1312)  # as in unsealing.py, with what follows
_MAC_LEN = const(1040)
_LAY = const(24)
_MOVED = const(25)
_TO_CTR = const(19)  # bytes of m1's header
_TO_S2 = const(11)  # and of m3's
_MOST_TOPIC = const(255)
_HOLDS = const(32)  # plans
# What hears holds, a list: looking up an attribute costs as much as unpacking all of it.
_SOCK = const(1)
_READINTO = const(2)
_SETTIMEOUT = const(3)
_OFFSET = const(9)


# Lays them over a client. Gives what prepares the way for messages like one that has been opened.
def lay(c: "Any") -> "Callable[[bytes, bytearray], None]":
    from sealmq_spec.reader import Message

    inside = bytearray(_MOST + 12)
    view = memoryview(inside)
    raw = memoryview(work)
    clock = bytearray(28)
    ticks = time.ticks_ms  # type: ignore[attr-defined]
    shared = work, _mac_views, _key_views, _views
    out = raw[_KEY_AT : _KEY_AT + _MAC_LEN]
    ack = bytearray(b"\x40\x02\0\0")
    q = inside, c.reader.plans, clock, ticks, shared, _cut, Message, raw, out, ack, bytes
    # One for each remainder by which a packet's rest may be best read.
    places = [view[i:] for i in range(4)]
    two = bytearray(2)
    hears: "list[Any]" = [c, None, None, None, two, places, clock, c.session, ack, None, q]
    c.wait_msg = _made(hears, True)
    c.check_msg = _made(hears, False)
    return lambda topic, payload: _prepare(hears, topic, payload)


def _made(hears: "list[Any]", wait: bool) -> "Callable[[], bool]":
    # As a default value a list costs neither an attribute nor, as a closure would, a lookup.
    @micropython.native
    def hear(hears: "list[Any]" = hears, wait: bool = wait) -> bool:
        c, sock, readinto, settimeout, two, places, clock, s, ack, offset, q = hears
        if (
            c.sock is not sock
            or c._ahead
            or c._queue
            or s.due
            or c._astray
            or s._offset is not offset
        ):
            return bool(c._step(wait))
        n = first = 0
        message = None
        two[0] = 0
        try:
            if wait:
                got = readinto(two)
            else:
                settimeout(0)
                got = readinto(two)
                settimeout(c.timeout)
                if got is None:
                    return False
            lies = clock[_LAY]
            place = places[lies]
            if got == 2:
                first = two[0]
                n = two[1]
                if first & 0xF4 == 0x30 and n >= _LEAST:
                    if n < 128:
                        if readinto(place, n) != n:
                            raise OSError(errno.ECONNRESET)
                        message = opened(q, first, lies, n)
                    else:
                        # So much there is at least, if the length is written as it has to be.
                        n += 1
                        if readinto(place, n) != n:
                            raise OSError(errno.ECONNRESET)
                        more = place[0]
                        if 1 < more < 128 and n + (more << 7) <= _MOST + 129:
                            more = (more - 1) << 7
                            if readinto(place[n:], more) != more:
                                raise OSError(errno.ECONNRESET)
                            n += more
                            more = 1
                        if more == 1 and n <= c.limit:
                            message = opened(q, first, lies + 1, n - 1)
                else:
                    n = 0
            if message is not None and first & 2:
                sock.write(ack, 0, 4)
        except BaseException as error:
            return _broken(hears, error, wait, message)
        if message is None:
            return _other(hears, wait, got, place, n)
        if c.cb is not None:
            c.cb(message)
        return True

    return hear


# What came up in a wait. When nothing had come, waiting goes on; else the stream is in doubt. What
# has been opened is not lost: it would be refused if it came again.
def _broken(hears: "list[Any]", error: BaseException, wait: bool, message: "Any") -> bool:
    c = hears[0]
    begun = hears[4][0]
    if isinstance(error, OSError) and wait and not begun and error.errno == errno.ETIMEDOUT:
        return bool(c._step(True))
    if message is not None:
        c._queue.append(message)
    if begun or isinstance(error, OSError):
        c._close()
    raise error


# The general path takes what has been read, as it came.
def _other(hears: "list[Any]", wait: bool, got: "int | None", place: memoryview, n: int) -> bool:
    c, _, _, _, two, _, clock, _, _, _, _ = hears
    moved = clock[_MOVED]
    raw = bytes(two[: got or 0])
    if moved:
        clock[_MOVED] = 0
        at = 1 if two[1] > 127 else 0
        at += 2 + (place[at] << 8 | place[at + 1]) + (2 if two[0] & 6 else 0)
        raw += bytes(place[:at]) + bytes(place[at + moved : n + moved])
    elif n:
        raw += bytes(place[:n])
    c._ahead = raw
    return bool(c._step(wait))


# Views are kept for the length of a sender's last message.
def _cut(inners: "list[Any]", raw: memoryview, at: int, n: int) -> memoryview:
    view = raw[at : at + n]
    inners[2] = at << 10 | n
    inners[3] = view
    return view


# As unsealing.py does it.
def _hash(a: bytes, b: "bytes | bytearray") -> int:
    h = 0
    for byte in a + b:
        h = h * 31 + byte & 0x1FFFFFFF
    return h << 1 | 1


# Makes all ready for another message like this one, as far as it can be. payload: as reader.open
# has left it, opened in place.
def _prepare(hears: "list[Any]", topic: bytes, payload: bytearray) -> None:
    c = hears[0]
    r = c.reader
    s = hears[7]
    sock = c.sock
    now = c.now_ms()
    if sock is None or now is None:
        return
    if sock is not hears[_SOCK]:
        hears[_SOCK] = sock
        hears[_READINTO] = sock.readinto
        hears[_SETTIMEOUT] = sock.settimeout
    hears[_OFFSET] = s._offset
    clock = hears[6]
    ticks = time.ticks_ms() & 0x3FFFFFFF  # type: ignore[attr-defined]
    units = now >> 10 & 0x3FFFFFFF
    pack_into("<6I", clock, 0, now // 1000, now % 1000, ticks, now >> 40, units, now & 1023)
    plans = r.plans
    if plans:
        plans[0] = _NOBODY  # other roots may have been used: what is used next has to be noted
    suite, _, how, label, epoch, inst, _, _ = get_m3(payload)
    o = M3_HEAD + 1
    if suite != CCM or how != LIVE or payload[M3_HEAD] or len(topic) > _MOST_TOPIC:
        return
    suite, kind, untimed, epoch1, sender, boot, salt, _, _, _ = get_m1(
        payload, o, len(payload) - TAG
    )
    if suite != CCM or kind != LIVE or untimed or epoch1 != epoch or epoch != r._now[label][0]:
        return
    outer = r._outer.get((label, epoch, inst))
    inner = r._inner.get((label, epoch, sender, boot, salt))
    window = r._windows.get((label, sender, boot, salt, False))
    if not (hasattr(outer, "_s") and hasattr(inner, "_s")) or window is None:
        return
    _, _, _, state = inner._s
    if state[16] == 1:
        _ready(inner._s, 1, 2)  # no payload came yet, so there is no ECB
        state[16] = 3
    if plans:
        _, found = plans
        held = 1
        for plan in found.values():
            held += 1 + len(plan[2][1])
        if held >= _HOLDS:
            plans.clear()
    if not plans:
        plans.append(_NOBODY)
        plans.append({})
    site = r.ident.site
    found = plans[1]
    h = _hash(topic, payload[:_TO_S2])
    plan = found.get(h)
    if plan is None or plan[3] != topic or plan[1][2 : 2 + _TO_S2] != payload[:_TO_S2]:
        front = _front(bytes(payload[:M3_HEAD]) + tail_m3(site, topic), 0)
        roots = r._roots[(label, epoch)]
        plan = outer._s, front, [None, {}, -1, None], topic, label, roots, r
        found[h] = plan
    inners = plan[2]
    head = bytes(payload[M3_HEAD : o + _TO_CTR])
    image = _front(bytes(payload[o : o + M1_HEAD]) + tail_m1(site, label, topic), _TO_CTR + 1)
    image[: _TO_CTR + 1] = head
    inners[0] = inner._s, image, window, sender
    inners[1][_hash(head, b"")] = inners[0]
    plans[0] = plan


# Associated data behind its length, at `at`, and zeros up to whole blocks.
def _front(aad: bytes, at: int) -> bytearray:
    front = bytearray(at + (len(aad) + 17 & -16))
    front[at : at + 2] = len(aad).to_bytes(2, "big")
    front[at + 2 : at + 2 + len(aad)] = aad
    return front


_NOBODY = (None, bytearray(32), None, b"", 0, None, None)  # no topic has no bytes
