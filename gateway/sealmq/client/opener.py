"""The portable reader on a host: what it has worked out for one message is kept for those that are
like it.

What verified once under the same keys, with the same header and topic, needs no look at roots,
epochs and suites again. What differs from message to message is judged by the portable reader's
own rules: both tags, times, counters. A plan ends (`plans.clear`) when a key, an epoch or a window
does.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

from cryptography.exceptions import InvalidTag

from sealmq_spec.const import (
    LIFE_FOREVER,
    LIVE,
    M1_HEAD,
    M1_MIN,
    M3_HEAD,
    M3_MIN,
    REF_LABEL,
    REF_LINK,
    TAG,
    WINDOW_S,
)
from sealmq_spec.envelope import CTR1, get_m1, get_m3
from sealmq_spec.errors import Unauthentic
from sealmq_spec.reader import Message
from sealmq_spec.reader import Reader as _Reader
from sealmq_spec.window import check_fresh, life_s

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sealmq.aead import Open
    from sealmq_spec.identity import Identity
    from sealmq_spec.records import Make

# Up to s2 a header says under which key m3 is; from inst on it is the nonce.
_KEY, _NONCE, _S2_END = 11, 8, 17
_TAIL = bytes(TAG)
# From here on a view costs less than a copy.
_LARGE = 8192
_COUNTED = struct.Struct(">BHIB").unpack_from
_KIND, _SALT = 1, 11
_new = tuple.__new__


class Plan:
    """For messages on one topic whose m3 is under one key. roots: m3's label's, None under a link's
    key. `inner`: by the header of m1 up to its counter."""

    __slots__ = ("decrypt", "how", "inner", "roots", "tail", "tails")

    def __init__(self, decrypt: Open, roots: Any, how: int, tails: Any, tail: bytes) -> None:
        self.decrypt, self.roots, self.how, self.tails, self.tail = decrypt, roots, how, tails, tail
        self.inner: dict[bytes, Any] = {}


class Opener(_Reader):
    """As the portable one, whose `open` it is. Ciphers are those of `sealmq.client.cipher`.

    m1: the header of the m1 that was opened last, where that is opened.
    """

    m1 = b""

    def __init__(
        self, ident: Identity, make: Make, limit: int = 64, known_tlv: Sequence[int] = ()
    ) -> None:
        super().__init__(ident, make, limit, known_tlv)
        self.plans: dict[bytes, Plan] = {}  # type: ignore[assignment]

    def open(self, topic: bytes, payload: bytes | bytearray, now_ms: int | None) -> Message:
        """As `Reader.open`, but the payload is not used up."""
        payload = bytes(payload)
        key = payload[:_KEY] + topic
        plan = self.plans.get(key)
        if plan is None or now_ms is None or len(payload) < M3_MIN:
            opened = super().open(topic, bytearray(payload), now_ms)
            self._plan(key, topic, payload)
            return opened
        head = payload[:M3_HEAD]
        sealed = payload[M3_HEAD:] if len(payload) < _LARGE else memoryview(payload)[M3_HEAD:]
        try:
            plain = plan.decrypt(head[_NONCE:], sealed, head + plan.tail)
        except InvalidTag:
            raise Unauthentic("m3: the tag does not verify") from None
        roots = plan.roots
        if roots is not None:
            self._uses = roots.used = self._uses + 1
        s2, now = int.from_bytes(head[_KEY:_S2_END], "big"), now_ms // 1000
        if not -WINDOW_S <= now - s2 // 1000 <= WINDOW_S:
            check_fresh("m3", now - s2 // 1000)
        return self._inside(plan, topic, head, plain, s2, now)

    def _plan(self, key: bytes, topic: bytes, payload: bytes) -> None:
        """A message has verified: what was found out about it."""
        _, ref, how, label, epoch, inst, _, _ = get_m3(payload)
        roots: Any = None
        tails: Any = None
        if ref == REF_LABEL:
            # While a hand-over lasts, the clock decides about the older epoch.
            if epoch != self._now[label][0]:
                return
            tails = self._tails_of(label, topic)
            roots, outer = self._roots[(label, epoch)], self._outer[(label, epoch, inst)]
            tail = tails[1]
        elif ref == REF_LINK and self.session is not None:
            s = self.session
            outer = self._outer[(s.ident.km, s.boot, s.salt)]
            tail = self._tail(label, topic)[1]
        else:
            # A grant ends by the clock.
            return
        if len(self.plans) >= self.limit:
            self.plans.clear()
        self.plans[key] = Plan(outer.decrypt, roots, how, tails, tail)

    def _inside(
        self, plan: Plan, topic: bytes, head: bytes, plain: bytes, s2: int, now: int
    ) -> Message:
        """What m3 held: a TLV block, and m1."""
        return self._opened(
            topic, bytearray(head + plain + _TAIL), now, plan.roots, plan.how, s2, plan.tails
        )


class Whole(Opener):
    """Opens m1 as well."""

    def _inside(
        self, plan: Plan, topic: bytes, head: bytes, plain: bytes, s2: int, now: int
    ) -> Message:
        known = plan.inner.get(plain[1 : 1 + CTR1]) if not plain[0] else None
        if known is None or len(plain) <= M1_MIN:
            opened = super()._inside(plan, topic, head, plain, s2, now)
            self._plan_inner(plan, plain)
            return opened
        decrypt, tail, salt, window, text, label, sender = known
        high, low, t_pub, life = _COUNTED(plain, 1 + CTR1)
        ctr = high << 16 | low
        if not ctr or not t_pub or 31 < life != LIFE_FOREVER:
            return super()._inside(plan, topic, head, plain, s2, now)
        age = now - t_pub
        if life or not -WINDOW_S <= age <= WINDOW_S:
            check_fresh("message", age, life_s(life))
        m1_head = plain[1 : 1 + M1_HEAD]
        try:
            payload = decrypt(salt + ctr.to_bytes(4, "big"), plain[1 + M1_HEAD :], m1_head + tail)
        except InvalidTag:
            raise Unauthentic("m1: the tag does not verify") from None
        self._check_window(window, LIVE, ctr, t_pub, s2)
        self.m1 = m1_head
        return _new(Message, (text, payload, label, sender, age, LIVE, {}))

    def _plan_inner(self, plan: Plan, plain: bytes) -> None:
        roots, tails = plan.roots, plan.tails
        if plan.how != LIVE or roots is None or plain[0] or len(plain) <= M1_MIN:
            return
        _, kind, untimed, epoch, sender, boot, salt, _, _, _ = get_m1(plain, 1, len(plain))
        inner = self._inner.get((roots.label, epoch, sender, boot, salt))
        if kind != LIVE or untimed or epoch != roots.epoch or inner is None:
            return
        if len(plan.inner) >= self.limit:
            plan.inner.clear()
        window = roots.label, sender, boot, salt, False
        plan.inner[plain[1 : 1 + CTR1]] = (
            inner.decrypt, tails[2], salt, window, tails[3], roots.label, sender
        )  # fmt: skip
