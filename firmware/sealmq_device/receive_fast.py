# What the fast path of receive (open_fast.py) works with: an ear, one a client, and plans, one for
# each topic, mediator, sender and boot session of earlier messages. Loaded after some messages
# (incoming.py), so that a device that wakes for one does not pay for it.
import errno
import time
from struct import pack, pack_into, unpack_from

from cryptolib import aes
from micropython import const

from sealmq_spec.const import CCM, LIVE, M1_HEAD, M3_HEAD, REF_LABEL, TAG
from sealmq_spec.envelope import get_m1, get_m3, tail_m1, tail_m3
from sealmq_spec.errors import Unauthentic
from sealmq_spec.reader import Message

from . import open_fast as fast
from .ccm import _ready, in_front, point, work

_TYPING = const(0)
if _TYPING:
    from typing import Any

    Ear = list[Any]

_ROOM = const(1152)  # bytes of a packet at first
_SPARE = const(32)  # of the buffer: places, lengths, moves, whole blocks
_MOST_TOPIC = const(255)
_PLANS = const(32)
_MASK = const(4)  # in a window
_MASK_END = const(12)
_OPENED = const(3)  # a cipher: both its objects are made, and CBC's IV is known
# Bytes of the area, and in it whether the wait is over at once.
_AREA = const(92)
_CHECKED = const(91)
_HEAD3 = const(11)  # of m3's header up to inst; of a TLV block and m1's header up to ctr
_HEAD1 = const(20)
# Of an ear and of what is seldom needed of it: lists, as looking up an attribute costs as much as
# unpacking all of one.
_SOCK = const(4)
_BACK = const(12)
_DATA = const(13)
_VIEWS = const(5)  # in a plan
_TEXT = const(6)


def _unheard(message: "Message") -> None:
    pass


def _lost() -> None:
    raise OSError(errno.ECONNRESET)


# Where the rest of a packet is read to, after n bytes of it; kept for the next one of that length.
def _tail_of(seldom: "Ear", place: memoryview, n: int) -> None:
    seldom[fast.TAIL_VIEW] = place[n:]


# Views for messages as long as this one, and as far into the buffer: of the first pieces' key
# stream and MAC in both layers, and of the payload. k: bytes of the topic.
def _cut(seldom: "Ear", plan: "Any", area: bytearray, k: int) -> "Any":
    m, n = unpack_from("<II", area, 4 * fast.M)
    view = memoryview(work)
    made: "list[Any]" = []
    later: "list[Any]" = [view[fast.KEY_AT : fast.KEY_AT + 16 * fast.MOST]]
    for size, front in (n - 36, k + 43 >> 4), (n - 80, k + 53 >> 4):
        i = size + 15 >> 4
        end = fast.KEY_AT + 16 * min(i + 1, fast.MOST)
        made += [view[fast.KEY_AT : end], view[fast.KEY_AT - 16 * front : end]]
        if i >= fast.MOST:
            later.append(view[fast.KEY_AT : fast.KEY_AT + 16 * (i + 1 & fast.MOST - 1)])
    made += [memoryview(seldom[_DATA])[m + 48 : m + n - 32], later]
    plan[_VIEWS] = made
    pack_into("<II", plan[0], 4 * fast.SIZE, n, m)
    return made


def _hash(h: int, data: "bytes | bytearray") -> int:
    for byte in data:
        h = h * 31 + byte & 0x1FFFFFFF
    return h


# Its topic has more bytes than any.
_NOBODY = [bytearray(b"\xff" * 16)] + [None] * 9


# A client's fast path. Methods find it here and not in the client, whose code each board loads.
class Fast:
    def __init__(self, c: "Any") -> None:
        area = bytearray(_AREA)
        point(area, fast.WORK, work)
        ticks = time.ticks_ms  # type: ignore[attr-defined]
        self.c = c
        self.area = area
        self.seldom: "Ear" = [None, None, None, None, False, c, _lost, _cut, c._ack, None, None]
        self.seldom += [_tail_of, None, None]
        self.found: "dict[int, Any]" = {}
        self.ear: "Ear" = [
            fast.receive,
            area,
            memoryview(area)[fast.TWO : fast.TWO + 2],
            None,
            None,
            None,
        ]
        self.ear += [aes.encrypt, c.reader.plans, _NOBODY, ticks, Message, bytes, None, None, True]
        self.ear.append(self.seldom)
        self._grow(_ROOM)

    # A buffer for packets of so many bytes. No plan goes on with the old one.
    def _grow(self, size: int) -> None:
        buffer = bytearray(size + _SPARE)
        view = memoryview(buffer)
        self.seldom[:4] = [view, view[1:], view[2:], view[3:]]
        self.seldom[_DATA] = buffer
        self.ear[fast.PLACE] = view
        area = self.area
        pack_into("<I", area, 4 * fast.LIMIT + 4, size)
        pack_into("<I", area, 4 * fast.AT, 0)
        pack_into("<I", area, 4 * fast.TAIL, 0)
        point(area, fast.BUFFER, buffer)
        self.c.reader.plans.clear()

    # wait_msg and check_msg when the fast path is not ready: readies it, unless something else
    # comes first: a message in the queue, upkeep.
    def general(self, wait: bool) -> bool:
        c = self.c
        if not c._queue:
            c._upkeep()
        plans = c.reader.plans
        s = c.session
        sock = c.sock
        now = c.now_ms()
        if not plans or sock is None or now is None or c._queue or c._ahead or s.due or c._astray:
            return bool(c._step(wait))
        ear = self.ear
        ear[_BACK] = _unheard if c.cb is None else c.cb
        # Other roots may have been used: what is used next has to be noted.
        ear[fast.PLAN] = _NOBODY
        ear[_SOCK : _SOCK + 2] = [sock, type(sock).readinto]
        self.seldom[fast.SETTIMEOUT : fast.WRITE + 1] = [sock.settimeout, sock.write]
        ticks = time.ticks_ms() & 0x3FFFFFFF  # type: ignore[attr-defined]
        units = now >> 10 & 0x3FFFFFFF
        at = now // 1000, now % 1000, ticks, now >> 40, units, now & 1023, c.limit
        pack_into("<7I", self.area, 0, *at)
        c._ear = ear
        return bool(c.wait_msg() if wait else c.check_msg())

    # After an OSError: False when nothing had come, so that waiting goes on.
    def lost(self) -> bool:
        area = self.area
        if area[4 * fast.STAGE] != fast.DONE and not area[fast.TWO] and not area[_CHECKED]:
            return False
        self.broken(True)
        return True

    # What came up in the callback is the application's; else the stream is in doubt.
    def broken(self, lost: bool = False) -> None:
        if self.area[4 * fast.STAGE] != fast.DONE and (lost or self.area[fast.TWO]):
            self.c._close()

    # What the fast path has left to do.
    def rest(self) -> bool:
        c, area, buffer = self.c, self.area, self.seldom[_DATA]
        c._ear = None
        k, _, got, read, at, m, n, moved, stage = unpack_from("<9I", area, 4 * fast.K)
        area[4 * fast.STAGE] = fast.DONE  # what comes up from here on is no fault of the stream
        two = area[fast.TWO :]
        wait = not area[_CHECKED]
        if stage:
            end = m - (two[0] & 2)
            c._acknowledge(two[0], buffer[end], buffer[end + 1])
            if stage == fast.OPEN:
                c._judge(two[0], bytes(buffer[end - k : end]), buffer[m : m + n], True)
            else:
                buffer[m : m + n] = bytes(n)
                c._refuse(Unauthentic("m%d: the tag does not verify" % (7 - 2 * stage)))
            return bool(c._hand_over())
        if got:
            if moved:
                t = m - (two[0] & 2) - k
                buffer[t - moved : m + n - moved] = buffer[t : m + n]
            c._ahead = bytes(two[:got]) + bytes(buffer[at : at + read])
        return bool(c._step(wait))

    # After a message that the general path has opened, in place: makes all ready for others like
    # it, as far as it can be.
    def prepare(self, topic: bytes, payload: bytearray) -> None:
        r = self.c.reader
        suite, ref, how, label, epoch, inst, _, _ = get_m3(payload)
        o = M3_HEAD + 1
        if suite != CCM or ref != REF_LABEL or how != LIVE or payload[M3_HEAD]:
            return
        suite, kind, _, epoch1, sender, boot, salt, _, _, _ = get_m1(payload, o, len(payload) - TAG)
        if suite != CCM or kind != LIVE or epoch1 != epoch or epoch != r._now[label][0]:
            return
        outer = r._outer.get((label, epoch, inst))
        inner = r._inner.get((label, epoch, sender, boot, salt))
        window = r._windows.get((label, sender, boot, salt, False))
        if not (hasattr(outer, "_s") and hasattr(inner, "_s")) or window is None:
            return
        if window[_MASK] == 1 and not any(window[_MASK + 1 : _MASK_END]):
            return  # the first of its boot session: perhaps there is no other
        for cipher in (outer._s, inner._s):
            have = cipher[3][16]
            if have != _OPENED:
                # No message came yet that needed both, or one was interrupted.
                _ready(cipher, have, 2)
                cipher[3][16] = _OPENED
        k = len(topic)
        size = k + len(payload) + 4
        if k > _MOST_TOPIC or size > self.c.limit:
            return
        if size + _SPARE > len(self.seldom[_DATA]):
            self._grow(size + 511 & -512)
        plans, found = r.plans, self.found
        if not plans or len(found) >= 2 * _PLANS:
            found.clear()
            plans.clear()
            plans.append(found.get)
        text = r._tails[topic][3]
        head = bytes(payload[:_HEAD3]) + b"\0" + k.to_bytes(4, "little")
        h = _hash(_hash(0, topic), payload[:_HEAD3]) | 0x20000000
        # Plans that differ in m1 only have one number.
        old = found.get(h)
        number = r._uses & 0x3FFFFFFF  # which no other has
        if old and old[0][: len(head)] == head and old[_TEXT] == text:
            number = unpack_from("<I", old[0], 4 * fast.NUMBER)[0]
        head1 = bytes(payload[M3_HEAD : M3_HEAD + _HEAD1])
        site = r.ident.site
        fixed = head + pack("<8x2I", h, number) + head1 + bytes(28)
        fixed += in_front(bytes(payload[:M3_HEAD]) + tail_m3(site, topic))
        fixed += in_front(bytes(payload[o : o + M1_HEAD]) + tail_m1(site, label, topic))
        words = bytearray(fixed)
        pack_into("<I", words, 4 * fast.TOPIC_END, len(words) + k + (k & 1))
        words += bytes(k & 1) + topic
        state, state1 = outer._s[3], inner._s[3]
        for i, at in (fast.STATE, state), (fast.STATE1, state1), (fast.WINDOW, window):
            point(words, i, at)
        plan = [
            words,
            outer._s[1],
            outer._s[0],
            inner._s[1],
            inner._s[0],
            None,
            text,
            label,
            sender,
        ]
        # What the words point to lives as long.
        plan.append((r._roots[(label, epoch)], r, (state, state1, window)))
        found[h] = found[_hash(h, head1) | 0x20000000] = plan
