"""A message from the broker as it goes out to readers (GATEWAY.md G2): looked at, opened and sealed
anew once for all of them.
"""

from __future__ import annotations

from sealmq.families.shared import PUBLIC
from sealmq.mqtt import Publish
from sealmq_spec.const import CLEAR, LIVE, M3_HEAD, M3_MIN, QUEUED, RETAINED, WILL, WINDOW_S
from sealmq_spec.errors import Denied, Malformed
from sealmq_spec.window import life_s

from .keyring import Grant, Keyring
from .site import Site
from .wire import Wire
from .wrap import Delivered, Inside, for_holders, is_over, look_m3, open_m3, rewrap, seal_m3

# What was sent to nobody yet is sealed anew so long before readers would refuse it.
_SLACK_MS = 5_000
_FRESH_MS = WINDOW_S * 1000
# The bytes of an m3 before its number; messages of one label, epoch and how share them.
_SAME = 8
_HEADS = 1024

_Form = tuple[int, bytes, Inside | None]
"""How a message goes out: `how` and m3, and what was inside where that was looked at."""


class Message:
    """One PUBLISH from the broker; what it says in clear is looked at once, what is inside is
    opened, and sealed anew, once for all readers. Raises SealError for what no mediator sealed.

    `record`: a public record, which carries no m3. `label`: its name. `grant`: family and name of
    the one that it lies under, None: it lies under its label. `s2`: when it was sealed.
    `form`: as it went out last, and goes out from `from_ms` to `until_ms` with the keys of `ring`.
    """

    __slots__ = (
        "_around",
        "_current",
        "_epoch",
        "_granted",
        "_how",
        "_inside",
        "_wire",
        "dup",
        "form",
        "from_ms",
        "grant",
        "label",
        "number",
        "packet",
        "payload",
        "qos",
        "record",
        "retain",
        "ring",
        "s2",
        "topic",
        "until_ms",
    )

    # Of what was opened; by grant, `how` and items, with the time of the seal.
    _granted: dict[tuple[int, int, tuple[tuple[int, bytes], ...]], tuple[bytes, int]]

    def __init__(self, site: Site, packet: Publish) -> None:
        self.packet = packet
        self.topic, _, payload, self.qos, self.retain, self.dup, _ = packet
        self.payload = payload
        self._inside: Inside | None = None
        self.form: _Form = 0, b"", None
        self.from_ms, self.until_ms = 1, 0
        self._wire: bytes | None = None
        self._around: tuple[bytes, int, bool, bytes, bytes] | None = None
        self.ring = ring = site.ring
        self.label, self.number, self.record = "", 0, False
        self.grant: tuple[str, str] | None = None
        if self.topic[0] in "$!@" and not ring.mounted(self.topic):
            if not self.topic.startswith(PUBLIC):
                raise Denied(f"a reserved topic came from the broker: {self.topic[:100]!r}")
            self.record = True
            return
        known = ring.heads.get(payload[:_SAME]) if len(payload) >= M3_MIN else None
        if known is None:
            known = self._look(site)
        self._how, self.number, self._epoch, self.label, self._current = known
        self.s2 = int.from_bytes(payload[11:17], "big")

    @property
    def key(self) -> tuple[str, bytes]:
        """Copies of one message have the same."""
        return self.topic, self.payload

    @property
    def place(self) -> tuple[int, bytes]:
        """In the order of sealing; of several mediators, as far as their clocks agree."""
        return self.s2, self.payload[_SAME:M3_HEAD]

    @property
    def seq(self) -> int:
        """Within the millisecond of s2."""
        return int.from_bytes(self.payload[17:M3_HEAD], "big")

    def formed(self, site: Site, waited: bool) -> _Form:
        """As it goes out now, where `form` does not say. Raises SealError if it cannot any more."""
        form: _Form
        now_ms = site.now_ms
        if site.ring is not self.ring:
            self._look_again(site)
        age = now_ms - self.s2
        fresh = -_FRESH_MS <= age <= (_FRESH_MS - _SLACK_MS if waited else _FRESH_MS)
        live = fresh and not self.retain and self._current
        if live and self.grant is not None:
            at = max(now_ms, site.order.ms) // 1000
            live = not is_over(site.ring.labels[self.number], self._epoch, at)
        how = self._how
        if self.retain:
            how = RETAINED
        elif not live and how != RETAINED and not (fresh and how == WILL):
            how = QUEUED
        if live and how == LIVE and self.grant is None and not site.engine.opens:
            form = self.form = how, self.payload, None
            # Of one that has not waited the limit is later: after this it is looked at again.
            self.from_ms, self.until_ms = now_ms, self.s2 + _FRESH_MS - _SLACK_MS
        else:
            form = self._opened(site, how, live)
            if live and self.grant is not None:
                # Sealed now, and once for all who get it while it is live.
                self.form, self.from_ms = form, now_ms
                self.until_ms = self.s2 + _FRESH_MS - _SLACK_MS
            elif not waited:
                self.form, self.from_ms = form, now_ms
                self.until_ms = min(now_ms, self.s2 + _FRESH_MS - _SLACK_MS) if live else now_ms
        return form

    def _look_again(self, site: Site) -> None:
        self._inside, self.until_ms = None, 0
        known = self._look(site)
        self._how, self.number, self._epoch, self.label, self._current = known
        self.ring = site.ring

    # What lies under a grant says inside of which label it is.
    def _look(self, site: Site) -> tuple[int, int, int, str, bool]:
        ring = site.ring
        seen = look_m3(ring, self.payload)
        if seen.how == RETAINED:
            # A mediator seals these for one reader, and publishes none but clears that cross.
            inside = self.inside(site)
            if self.retain or inside.kind != CLEAR:
                raise Malformed("how retained from the broker, to which no mediator sends that")
            if seen.grant is None:
                label = ring.labels[seen.label]
                return seen.how, label.number, seen.epoch, label.name, seen.epoch == label.epoch
        elif seen.grant is None:
            return _known(ring, seen, self.payload)
        self.grant = seen.grant.key
        inside = self.inside(site)
        return seen.how, inside.label, inside.epoch, ring.labels[inside.label].name, True

    # Wills, and what the journal brought again, may have an m1 of any epoch.
    def _opened(self, site: Site, how: int, live: bool) -> _Form:
        inside, raw = self.inside(site), self.packet.topic_raw
        if live:
            payload = self.payload
            if self.grant is not None:
                label, passed = site.ring.labels[inside.label], inside.passed
                payload = seal_m3(site.ring, label, site.order, how, raw, passed, site.now_ms)
            return how, payload, inside
        seen = look_m3(site.ring, self.payload)
        payload = rewrap(site.ring, site.order, seen, inside, how, raw, site.now_ms)
        return how, payload, inside

    def inside(self, site: Site) -> Inside:
        """What its m3 holds, with the keys of `ring`, which have to be the site's. Raises
        SealError.
        """
        inside = self._inside
        if inside is None:
            ring, engine, raw = site.ring, site.engine, self.packet.topic_raw
            seen, known = look_m3(ring, self.payload), tuple(engine.tlvs)
            inside = open_m3(ring, seen, raw, self.payload, known, engine.passes)
            self._inside, self._granted = inside, {}
        return inside

    def for_holders(
        self, site: Site, inside: Inside, items: dict[int, bytes], grant: Grant, how: int
    ) -> bytes:
        """m3 under a grant, with these items: one for all who hold it, as long as its s2 is fresh
        enough. `inside`: of this message, with the keys of `ring`.
        """
        which = grant.number, how, tuple(items.items())
        payload, made_ms = self._granted.get(which, (b"", 0))
        now_ms = site.now_ms
        if not 0 <= now_ms - made_ms <= _FRESH_MS - _SLACK_MS:
            label, topic = site.ring.labels[self.number], self.packet.topic_raw
            m1 = inside.body[inside.start :]
            given = site.ring, site.order, label, m1, items, grant, how, topic, now_ms
            payload = for_holders(*given)
            self._granted[which] = payload, now_ms
        return payload

    def left_s(self, now_ms: int) -> int | None:
        """Seconds for which it may still be read, 0: none; None: without end, or it was not opened
        yet. Its publisher has sealed how many (SPEC.md 3.1).
        """
        inside = self._inside
        most = None if inside is None else life_s(inside.life)
        if inside is None or most is None:
            return None
        return max(0, most - inside.age_s(now_ms))

    def loose(self, wire: Wire, payload: bytes) -> bytes:
        """The PUBLISH of QoS 0, encoded once for all its readers."""
        if payload is not self.payload:
            return wire.publish(self.packet.topic_raw, payload, 0, self.retain)
        data = self._wire
        if data is None:
            data = self._wire = wire.publish(self.packet.topic_raw, payload, 0, self.retain)
        return data

    def sure(self, wire: Wire, payload: bytes, qos: int, dup: bool, number: int) -> bytes:
        """The PUBLISH of QoS 1 or 2; what does not depend on its packet id is encoded once for all
        its readers.
        """
        around = self._around
        if around is None or around[0] is not payload or around[1] != qos or around[2] != dup:
            raw, retain = self.packet.topic_raw, self.retain
            around = payload, qos, dup, *wire.around_id(raw, payload, qos, retain, dup)
            if payload is self.payload or payload is self.form[1]:
                self._around = around  # else it is one reader's alone
        return b"".join((around[3], number.to_bytes(2, "big"), around[4]))


def _known(ring: Keyring, seen: Delivered, payload: bytes) -> tuple[int, int, int, str, bool]:
    label = ring.labels[seen.label]
    known = seen.how, label.number, seen.epoch, label.name, seen.epoch == label.epoch
    if len(ring.heads) >= _HEADS:
        ring.heads.clear()
    ring.heads[payload[:_SAME]] = known
    return known
