# check_msg and wait_msg for messages like earlier ones: topic, label, sender and boot session that
# a message had before, live, both layers under AES-256-CCM, nothing due. Laid over a client's own
# after some messages (incoming.py), so that a device that wakes for one does not pay for it.
# Whatever is not so goes to the general path, as it came, and that prepares the way for the next.
import errno
import time
from struct import pack_into, unpack_from

import micropython
from micropython import const

from sealmq_spec.const import CCM, LIVE, M1_HEAD, M3_HEAD, TAG
from sealmq_spec.envelope import get_m1, get_m3, tail_m1, tail_m3

from .ccm import _key_views, _mac_views, _ready, _views, work
from .unsealing import heard, point

_TYPING = const(0)
if _TYPING:
    from collections.abc import Callable
    from typing import Any

_MOST = const(1100)  # bytes of a packet behind its fixed header, as far as the shared buffer goes
_KEY_AT = const(1376)  # as in unsealing.py, with what follows
_MAC_LEN = const(1040)
_LAY = const(24)
_MOVED = const(25)
_READ = const(28)
_GOT = const(32)
_NOTHING = const(255)
_LIMIT = const(36)
_TWO_AT = const(40)
_PACKET = const(44)
_TO_CTR = const(19)  # bytes of m1's header
_TO_S2 = const(11)  # and of m3's
_MOST_TOPIC = const(255)
_HOLDS = const(32)  # plans
_MASK = const(4)  # in a window
_MASK_END = const(12)
_OWNER = const(1156)  # in the clock, behind the packet
_KEYS = const(290)  # a word's number
_AREA = const(1168)  # blocks of both layers, of messages that they are enough for
_ROOM = const(512)
# Words of a plan, as in unsealing.py, and where its fronts begin.
_CODE = const(0)
_STATE = const(1)
_STATE1 = const(3)
_WINDOW = const(5)
_BASE = const(7)
_BASE1 = const(9)
_ID = const(12)
_HEAD = const(11)
_FRONTS = const(56)
_NO_BYTES = bytearray()
# What an ear holds, a list: looking up an attribute costs as much as unpacking all of it.
_SOCK = const(1)
_READINTO = const(2)
_SELDOM = const(3)
_TWO = const(4)
_STAMP = const(6)
_TOPIC = const(10)  # in a plan
_INNERS = const(13)
# Of what is seldom called:
_OTHER = const(0)
_BROKEN = const(1)
_UNHEARD = const(2)
_MESSAGE = const(3)
_SETTIMEOUT = const(4)
_PLACES = const(5)


# Lays them over a client. Gives what is called for each packet that goes the general way; with
# a message's topic and payload it prepares the way for others like that.
def lay(c: "Any") -> "Callable[..., None]":
    from sealmq_spec.reader import Message

    clock = bytearray(_AREA + _ROOM)
    point(clock, _KEYS, work, _KEY_AT)
    view = memoryview(clock)
    # One for each remainder by which a packet's rest may be best read.
    places = [view[_PACKET + i :] for i in range(4)]
    ticks = time.ticks_ms  # type: ignore[attr-defined]
    seldom = [_other, _broken, _unheard, None, None, places, _rest, _cut]
    ear: "list[Any]" = [c, None, None, seldom, view[_TWO_AT : _TWO_AT + 2], places[0], clock]
    ear += [bytearray(b"\x40\x02\0\0"), None, c.reader.plans, ticks, Message]
    out = memoryview(work)[_KEY_AT : _KEY_AT + _MAC_LEN]
    ear += [out, bytes]
    c.wait_msg = _made(c, ear, heard, True)
    c.check_msg = _made(c, ear, heard, False)
    return lambda *message: _prepare(ear, *message)


# In viper a closure is cheapest: neither an attribute, nor a look-up, nor arguments. Of more than
# five variables it would make an object at each call.
def _made(
    c: "Any", ear: "list[Any]", took: "Any", wait: bool, error: "Any" = None
) -> "Callable[[], object]":
    @micropython.viper
    def hear() -> object:
        nonlocal error
        try:
            message = took(0, 0, ear, wait)
        except BaseException as error:
            return ear[_SELDOM][_BROKEN](ear, wait, error)
        if message:
            back = c.cb
            if back:
                back(message)
            else:
                ear[_SELDOM][_UNHEARD](c, message)
            return ear is not took  # a Python True: viper's own is a number
        return ear[_SELDOM][_OTHER](ear, wait)

    return hear


# The rest of a packet whose length's second byte is `more`, behind n bytes.
def _rest(readinto: "Any", place: memoryview, n: int, more: int) -> int:
    k = more - 1 << 7
    if not n or readinto(place[n:], k) != k:
        raise OSError(errno.ECONNRESET)
    return n + k


# No callback, or one that is false.
def _unheard(c: "Any", message: "Any") -> None:
    if c.cb is not None:
        c.cb(message)


# What came up in a wait. When nothing had come, waiting goes on; else the stream is in doubt.
def _broken(ear: "list[Any]", wait: bool, error: BaseException) -> bool:
    c = ear[0]
    begun = ear[_TWO][0]
    message = ear[_SELDOM][_MESSAGE]
    if message is not None:
        ear[_SELDOM][_MESSAGE] = None
        c._queue.append(message)
        ear[_SOCK] = None
    if isinstance(error, OSError):
        if wait and not begun and error.errno == errno.ETIMEDOUT:
            return bool(c._step(True))
        begun = 1
    if begun:
        c._close()
    raise error


# The general path takes what has been read, as it came.
def _other(ear: "list[Any]", wait: bool) -> bool:
    c = ear[0]
    clock = ear[_STAMP]
    got = clock[_GOT]
    if got == _NOTHING:
        return False
    if ear[_SOCK] is None and not c._queue and _arm(ear):
        return bool((c.wait_msg if wait else c.check_msg)())
    n, _ = unpack_from("<II", clock, _READ)
    moved = clock[_MOVED]
    if got:
        two = ear[_TWO]
        raw = bytes(two[:got])
        place = ear[_SELDOM][_PLACES][clock[_LAY]]
        if moved:
            place = ear[_SELDOM][_PLACES][clock[_LAY] - moved & 3]
            at = 1 if two[1] > 127 else 0
            at += 2 + (place[at] << 8 | place[at + 1]) + (2 if two[0] & 6 else 0)
            raw += bytes(place[:at]) + bytes(place[at + moved : n + moved])
        elif n:
            raw += bytes(place[:n])
        c._ahead = raw
    ear[_SOCK] = None  # armed anew, before ticks come round: pings alone do not tell the time here
    return bool(c._step(wait))


# Views of both layers' blocks and of the payload, kept for the length of a sender's last message.
# Each plan comes here before its first use, so that no other's fronts count as its own.
# k: bytes of the topic, n: of the m3.
def _cut(plan: "list[Any]", clock: bytearray, k: int, n: int) -> "list[Any]":
    body = n - 21 >> 4
    top = body + (k + 43 >> 4) + 1
    body1 = n - 65 >> 4
    top1 = body1 + (k + 53 >> 4) + 1
    _views(top, body)
    _views(top1, body1)
    words = plan[0]
    at = top1 - body1 << 4
    both = top + top1 << 4
    if both > _ROOM:
        view = memoryview(work)
        mac, mac1 = _mac_views[top], _mac_views[top1]
        point(words, _BASE, work, 0)
        point(words, _BASE1, work, 0)
        pack_into("<I", words, _ID << 2, 1)
    else:
        view = memoryview(clock)[_AREA : _AREA + both]
        mac = view[: top << 4]
        view = mac1 = view[top << 4 :]
        point(words, _BASE, clock, _AREA)
        point(words, _BASE1, clock, _AREA + (top << 4))
        point(words, _ID, words, 0)
    plan[5:10] = _key_views[body], mac, _key_views[body1], mac1, view[at : at + n - 80]
    pack_into("<I", words, 0, n)
    pack_into("<I", clock, _OWNER, 0)
    return plan


# As unsealing.py does it.
def _hash(a: bytes, b: "bytes | bytearray") -> int:
    h = 0
    for byte in a + b:
        h = h * 31 + byte & 0x1FFFFFFF
    return h << 1 | 1


# From now on there is something to wait for, and nothing that comes first: no message in the queue,
# nothing due.
def _arm(ear: "list[Any]") -> bool:
    c = ear[0]
    s = c.session
    c._upkeep()
    sock = c.sock
    now = c.now_ms()
    if sock is None or now is None or c._queue or s.due or c._astray:
        return False
    ear[_SOCK] = sock
    ear[_READINTO] = sock.readinto
    ear[_SELDOM][_SETTIMEOUT] = sock.settimeout
    ticks = time.ticks_ms() & 0x3FFFFFFF  # type: ignore[attr-defined]
    units = now >> 10 & 0x3FFFFFFF
    rest = now & 1023
    pack_into("<I", ear[_STAMP], _LIMIT, c.limit)
    pack_into("<6I", ear[_STAMP], 0, now // 1000, now % 1000, ticks, now >> 40, units, rest)
    return True


# A packet went the general way, so there may be something else to do first: for each call that is
# looked after. If it was a message, all is made ready for others like it, as far as it can be.
# payload: as reader.open has left it, opened in place.
def _prepare(ear: "list[Any]", topic: bytes = b"", payload: bytearray = _NO_BYTES) -> None:
    ear[_SOCK] = None
    if not topic:
        return
    r = ear[0].reader
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
    if window[_MASK] == 1 and not any(window[_MASK + 1 : _MASK_END]):
        return  # the first of its boot session: perhaps there is no other
    _, _, _, state = inner._s
    if state[16] == 1:
        _ready(inner._s, 1, 2)  # no payload came yet, so there is no ECB
        state[16] = 3
    if state[16] != 3 or outer._s[3][16] != 3:
        return  # only long messages came yet, or one was interrupted: those made no ciphers here
    if plans:
        _, found = plans
        held = 0
        for plan in found.values():
            held += len(plan[_INNERS])
        if held >= _HOLDS:
            plans.clear()
    if not plans:
        plans.append(_NOBODY)
        plans.append({})
    site = r.ident.site
    found = plans[1]
    h = _hash(topic, payload[:_TO_S2])
    plan = found.get(h)
    front = _front(bytes(payload[:M3_HEAD]) + tail_m3(site, topic), 0)
    same = _FRONTS + 2 + _TO_S2
    inners = {}
    text = r._tails[topic][3]
    if plan and plan[_TOPIC] == text and plan[0][_FRONTS + 2 : same] == payload[:_TO_S2]:
        inners = plan[_INNERS]
    head = bytes(payload[M3_HEAD : o + _TO_CTR])
    image = _front(bytes(payload[o : o + M1_HEAD]) + tail_m1(site, label, topic), _TO_CTR + 1)
    image[: _TO_CTR + 1] = head
    words = bytearray(_FRONTS) + front + image
    pack_into("<I", words, _HEAD << 2, _FRONTS + len(front))
    for i, at in (_STATE, outer._s[3]), (_STATE1, state), (_WINDOW, window):
        point(words, i, at, 0)
    # What the words point to lives as long.
    uses = r._roots[(label, epoch)], r, (outer._s[3], state, window)
    plan = [words, outer._s[1].encrypt, outer._s[0].encrypt]
    plan += [inner._s[1].encrypt, inner._s[0].encrypt, None, None, None, None, None]
    plan += [text, label, sender, inners, uses]
    inners[_hash(head, b"")] = found[h] = plans[0] = plan


# Associated data behind its length, at `at`, and zeros up to whole blocks.
def _front(aad: bytes, at: int) -> bytearray:
    front = bytearray(at + (len(aad) + 17 & -16))
    front[at : at + 2] = len(aad).to_bytes(2, "big")
    front[at + 2 : at + 2 + len(aad)] = aad
    return front


# Its topic has 65,535 bytes: no packet that is looked at has.
_NOBODY = [bytearray(b"\xff" * 96)] + [None] * 14
