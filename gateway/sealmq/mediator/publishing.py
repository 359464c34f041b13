"""PUBLISH from a client (SPEC.md 6.1; Chen and Wilson, Algorithm 2): open, judge, label, seal
again, forward. The hot path.

Decided before acknowledged: PUBACK and PUBREC are the broker's, but for packets that were refused
or came before.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, cast

from sealmq.broker.promises import check_publish
from sealmq.families.api import CutTlv, PutTlv, SealTo
from sealmq.families.engine import Decision
from sealmq.mqtt import Publish, build
from sealmq.store import StoreUnavailable
from sealmq_spec.const import CLEAR, LIVE, MAX_TOPIC, QUEUED, U24
from sealmq_spec.errors import Denied, Malformed, Replay, SealError, Unavailable
from sealmq_spec.tlv import pack
from sealmq_spec.topics import check_topic

from .link import Sent
from .underway import Underway
from .wrap import Opened, open_m2, seal_m3, tag_of

if TYPE_CHECKING:
    from .connection import Connection

_PUBLISH = 1
_RULE = "mediator.publish."


class Publishing:
    """The publishing half of one connection."""

    def __init__(self, conn: Connection) -> None:
        self._conn = conn
        self.underway = Underway(conn)

    def publish(self, packet: Publish) -> Coroutine[Any, Any, None] | None:
        """Handles one PUBLISH; a coroutine when it has to wait for the store."""
        conn = self._conn
        now_ms = conn.hub.now_ms()
        payload = packet.payload
        try:
            if packet.topic[0] in "$!@":
                raise Denied(f"topics that begin with {packet.topic[0]} are reserved")
            if len(packet.topic_raw) > MAX_TOPIC:
                check_topic(packet.topic)
            if not payload:
                raise Malformed("an empty payload carries no envelope; a sealed `clear` deletes")
            tag = tag_of(payload)
            sent = conn.link.again(int.from_bytes(payload[2:5], "big"), tag)
            if sent is not None:
                self._again(packet, sent, now_ms)
                return None
            opened = self.open(packet, now_ms)
            try:
                conn.link.look(opened.ctr, conn.low)
            except SealError as error:
                error.ctr = opened.ctr
                raise
        except SealError as error:
            self._refuse(packet, error, _RULE + type(error).__name__.lower())
            return None
        decision = self.ask(packet, opened, now_ms)
        if decision.allow and decision.label is not None:
            return self._label_first(packet, opened, tag, decision, now_ms)
        self._finish(packet, opened, tag, decision, now_ms)
        return None

    def open(self, packet: Publish, now_ms: int, will_bit: int = 0, again: bool = False) -> Opened:
        """What m2 says; will_bit: 0x80 for a will; again: it came before. Raises SealError."""
        conn = self._conn
        return open_m2(
            conn.link,
            conn.hub.ring,
            conn.client,
            packet.topic_raw,
            packet.payload,
            packet.qos << 1 | packet.retain | will_bit,
            now_ms // 1000,
            conn.hub.known_tlv,
            again,
        )

    def ask(self, packet: Publish, opened: Opened, now_ms: int) -> Decision:
        """The policy's question `publish`."""
        conn = self._conn
        return conn.policy.publish(
            packet.topic,
            packet.qos,
            packet.retain,
            len(packet.payload),
            now_ms,
            opened.tlv,
            (conn.link.boot, opened.ctr),
        )

    # A new topic: durable first, then the question again, for another mediator may have been first.
    async def _label_first(
        self, packet: Publish, opened: Opened, tag: bytes, decision: Decision, now_ms: int
    ) -> None:
        conn = self._conn
        try:
            await conn.hub.label_topic(conn.policy, decision, now_ms)
        except (StoreUnavailable, Unavailable) as error:
            event = "store-unavailable" if isinstance(error, StoreUnavailable) else ""
            told = _of(opened, Unavailable(str(error)))
            self._refuse(packet, told, "mediator.publish.unavailable", event)
            return
        if conn.state == "open":
            self._finish(packet, opened, tag, self.ask(packet, opened, now_ms), now_ms)

    def _finish(
        self, packet: Publish, opened: Opened, tag: bytes, decision: Decision, now_ms: int
    ) -> None:
        conn = self._conn
        if not decision.allow or decision.label is not None:
            reason = "the topic could not be labelled" if decision.allow else decision.reason
            self._refuse(packet, _of(opened, Denied(reason)), decision.rule)
            return
        full = conn.hub.journal.refuses(conn.client.number) if packet.qos else None
        if full is not None:
            self._refuse(packet, _of(opened, Unavailable(full)), "mediator.publish.journal")
            return
        broker = conn.hub.broker
        try:
            if packet.qos > broker.qos or (packet.retain and not broker.retained):
                check_publish(broker.retained, broker.qos, packet.retain, packet.qos)
            if packet.retain:
                self._check_retained(opened, decision)
            raw, payload = self._sealed(packet, opened, decision, now_ms)
            if packet.retain:
                number = conn.client.number
                conn.hub.retained_bytes.check(decision.topic, number, len(payload))
        except SealError as error:
            rule = error.rule or _RULE + type(error).__name__.lower()
            self._refuse(packet, _of(opened, error), rule)
            return
        sent = conn.link.mark(opened.ctr, tag)
        self._forward(packet, sent, opened, decision, raw, payload)
        self._count(packet, opened, decision, now_ms)
        if conn.link.receipt_due():
            conn.down(conn.link.receipt())

    # A retained message must not be overtaken by an older one of its sender.
    def _check_retained(self, opened: Opened, decision: Decision) -> None:
        conn = self._conn
        place = self._place(opened)
        conn.hub.retained.check(decision.topic, conn.client.number, place, conn)

    def _place(self, opened: Opened) -> tuple[int, int, int]:
        return opened.s1, self._conn.link.boot, opened.ctr

    def _forward(
        self,
        packet: Publish,
        sent: Sent,
        opened: Opened,
        decision: Decision,
        raw: bytes,
        payload: bytes,
    ) -> None:
        conn = self._conn
        hub = conn.hub
        if packet.retain:
            place = self._place(opened)
            hub.retained.published(decision.topic, conn.client.number, place, sent)
            newest = (hub.order.ms, hub.order.seq) if payload else (hub.now_ms(), U24)
            hub.retained.passed(decision.topic, *newest)
            hub.retained_bytes.took(decision.topic, conn.client.number, len(payload))
        wire = build.publish(raw, payload, packet.qos, packet.retain, packet.dup, packet.packet_id)
        conn.upstream.send(wire)
        if not packet.qos:
            if packet.retain and hub.journal.refuses(conn.client.number) is None:
                hub.journal.append(raw, payload, 0, True, conn.client.number)
            sent.done = True
            conn.link.confirm(sent)
            return
        number = conn.client.number
        sent.seq = hub.journal.append(raw, payload, packet.qos, packet.retain, number)
        sent.where, sent.also = conn, []
        self.underway.begins(packet.packet_id, sent)

    def _sealed(
        self, packet: Publish, opened: Opened, decision: Decision, now_ms: int
    ) -> tuple[bytes, bytes]:
        hub = self._conn.hub
        raw = packet.topic_raw if decision.topic == packet.topic else decision.topic.encode()
        if opened.kind == CLEAR:
            return raw, b""
        label = hub.ring.labels[self._conn.client.label]
        body = with_duties(opened, decision)
        how = LIVE if opened.current else QUEUED
        return raw, seal_m3(hub.ring, label, hub.order, how, raw, body, now_ms)

    def _count(self, packet: Publish, opened: Opened, decision: Decision, now_ms: int) -> None:
        conn = self._conn
        audit = conn.hub.audit
        label = conn.hub.ring.labels[conn.client.label].name
        audit.count_accepted(conn.client.name, decision.topic, label)
        if decision.overridden:
            audit.count_unenforced(conn.client.name, decision.topic, decision.rule, "publish")
        conn.policy.saw(
            "accepted",
            decision.raw,
            now_ms,
            label=label,
            qos=packet.qos,
            retain=packet.retain,
            size=len(packet.payload),
            tlv=opened.tlv,
        )

    # The same packet again (SPEC.md 6.1, step 2): acknowledged, and forwarded only if the broker it
    # was on its way to cannot have it any more.
    def _again(self, packet: Publish, sent: Sent, now_ms: int) -> None:
        conn = self._conn
        packet_id = packet.packet_id
        if not packet.qos:
            raise _numbered(Replay(f"counter {sent.ctr} came before"), sent.ctr)
        if sent.ctr < conn.low:
            text = f"counter {sent.ctr} is below {conn.low}, which this connection announced"
            raise _numbered(Replay(text), sent.ctr)
        if sent.done:
            self.underway.end_here(packet)
            return
        if self.underway.holds(packet_id) is sent:
            if packet.qos == 2 and conn.link.has_confirmed(sent):
                conn.send(build.pubrec(packet_id))
            return
        if sent.where is conn:
            # Under way with another id: QoS 1 is answered together with it.
            if packet.qos == 1 and self.underway.holds(packet_id) is None:
                sent.also.append(packet_id)
            else:
                conn.close("one message under two packet ids")
            return
        where = cast("Connection | None", sent.where)
        if where is not None and where.state == "open":
            # Two connections of one boot session: the newer one counts, else whoever held on to
            # the older one could have a message move twice.
            if where.conn_no > conn.conn_no:
                conn.close("a message that is under way in a newer connection of this session")
                return
            where.close("the boot session goes on in a newer connection")
        opened = self.open(packet, now_ms, again=True)
        decision = self.ask(packet, opened, now_ms)
        if not decision.allow or decision.label is not None:
            raise _of(opened, Denied(decision.reason))
        full = conn.hub.journal.refuses(conn.client.number)
        if full is not None:
            raise _of(opened, Unavailable(full))
        try:
            if packet.retain:
                self._check_retained(opened, decision)
            raw, payload = self._sealed(packet, opened, decision, now_ms)
        except SealError as error:
            raise _of(opened, error) from None
        self._forward(packet, sent, opened, decision, raw, payload)

    def _refuse(self, packet: Publish, error: SealError, rule: str, event: str = "") -> None:
        conn = self._conn
        event = event or _EVENT_OF_CODE.get(error.code, "publish-refused")
        conn.refuse(_PUBLISH, error.ctr, error, rule, packet.topic[:200], event)
        if conn.hub.config.mediator.on_denied == "disconnect":
            conn.close(f"refused: {rule}")
            return
        if not error.ctr:
            # Nobody knows whose packet it was: an acknowledgement could meet another one.
            return
        if packet.qos and self.underway.holds(packet.packet_id) is not None:
            # An answer to this packet would be taken for one to the message under way.
            conn.close(f"refused under a packet id that is in use: {rule}")
        else:
            self.underway.end_here(packet)


# Malformed, unauthentic, stale, replay: nothing that a policy has judged.
_EVENT_OF_CODE = dict.fromkeys((1, 2, 3, 4), "packet-refused")


# A refusal of a packet whose own tag has verified: its notice may name the counter (SPEC.md 4.4).
def _of(opened: Opened, error: SealError) -> SealError:
    return _numbered(error, opened.ctr)


def _numbered(error: SealError, ctr: int) -> SealError:
    error.ctr = ctr
    return error


def with_duties(opened: Opened, decision: Decision) -> bytes:
    """TLV and m1 as they go into m3: the publisher's items, and what the families put or cut."""
    if not decision.duties:
        return opened.body
    items = dict(opened.tlv)
    for duty in decision.duties:
        if isinstance(duty, PutTlv):
            items[duty.type] = duty.value
        elif isinstance(duty, CutTlv):
            items.pop(duty.type, None)
        elif isinstance(duty, SealTo):
            raise Unavailable("sealing to a link or a grant is not offered by this mediator")
    return pack(sorted(items.items())) + opened.body[opened.start :]
