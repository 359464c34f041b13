"""PUBLISH from a client (SPEC.md 6.1, GATEWAY.md G1; Chen and Wilson, Algorithm 2).

Open, judge, label, seal again, forward. The hot path.

Decided before acknowledged: PUBACK and PUBREC are the broker's, but for packets that were refused
or came before.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, cast

from sealmq.broker.promises import check_publish
from sealmq.families.api import PutTlv
from sealmq.families.engine import Decision
from sealmq.mqtt import Publish, build
from sealmq.store import StoreUnavailable
from sealmq_spec.const import CLEAR, LIVE, M2_HEAD, M3_HEAD, MAX_TOPIC, QUEUED, U24
from sealmq_spec.errors import Denied, Malformed, SealError, Unavailable
from sealmq_spec.tlv import EMPTY, pack
from sealmq_spec.topics import check_topic

from .core.boots import Sent
from .core.limits import PUBLISH_HEAD
from .core.refusals import PUBLISH, Proof, Repeated, of, proof_of, rule_of
from .core.wrap import Opened, Verified, open_m2, seal_m3, tag_of, verify_m2
from .underway import Underway

if TYPE_CHECKING:
    from .connection import Connection

# What m3 is longer than m2, where no family adds to it.
_GROWS = M3_HEAD - M2_HEAD
# The TLV of the time at which a will fired.
_FIRED = 8


def check_name(topic: str, raw: bytes) -> None:
    """Refuses a topic on which no client may publish, whatever the policy says (SPEC.md 4.3, 9).

    Ask only behind a verified tag: so the refusal is the client's own, and can be named.
    """
    if topic[0] in "$!@":
        raise Denied(f"topics that begin with {topic[0]} are reserved")
    if len(raw) > MAX_TOPIC:
        check_topic(topic)


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
        flags = packet.qos << 1 | packet.retain
        ctr = 0
        try:
            if not payload:
                raise Malformed("an empty payload carries no envelope; a sealed `clear` deletes")
            verified = verify_m2(conn.link, packet.topic_raw, payload, flags)
            ctr = verified.ctr
            tag = tag_of(payload)
            sent = conn.link.again(ctr, tag)
            if sent is not None:
                self._again(packet, verified, sent, now_ms)
                return None
            conn.link.look(ctr, conn.low)
            check_name(packet.topic, packet.topic_raw)
            self._check_taken(packet, _GROWS)
            opened = self._open(verified, flags, now_ms)
        except SealError as error:
            self._refuse(packet, of(error, ctr))
            return None
        decision = self.ask(packet, opened, now_ms)
        if decision.allow and decision.label is not None:
            return self._label_first(packet, opened, tag, decision, now_ms)
        self._finish(packet, opened, tag, decision, now_ms)
        return None

    # What the broker does not take is refused before anything is labelled, stored or acknowledged.
    def _check_taken(self, packet: Publish, grows: int) -> None:
        takes, raw = self._conn.hub.broker_takes, packet.topic_raw
        takes.check_topic(packet.topic, len(raw))
        takes.check_size(PUBLISH_HEAD + len(raw) + len(packet.payload) + grows)

    def open_will(self, packet: Publish, now_ms: int) -> Opened:
        """What the m2 of a will says. Raises SealError."""
        flags = packet.qos << 1 | packet.retain
        verified = verify_m2(self._conn.link, packet.topic_raw, packet.payload, flags)
        check_topic(packet.topic)
        check_name(packet.topic, packet.topic_raw)
        self._check_taken(packet, _GROWS + _FIRED)
        return self._open(verified, flags | 0x80, now_ms)

    def _open(self, verified: Verified, flags: int, now_ms: int, again: bool = False) -> Opened:
        conn = self._conn
        now = now_ms // 1000
        known = conn.hub.known_tlv
        return open_m2(conn.link, conn.hub.ring, conn.client, verified, flags, now, known, again)

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
            self._refuse(packet, of(Unavailable(str(error)), opened.ctr), event=event)
            return
        if conn.state == "open":
            self._finish(packet, opened, tag, self.ask(packet, opened, now_ms), now_ms)

    def _finish(
        self, packet: Publish, opened: Opened, tag: bytes, decision: Decision, now_ms: int
    ) -> None:
        conn = self._conn
        if not decision.allow or decision.label is not None:
            reason = "the topic could not be labelled" if decision.allow else decision.reason
            self._refuse(packet, of(Denied(reason), opened.ctr), decision.rule)
            return
        full = conn.hub.journal.refuses(conn.client.number) if packet.qos else None
        if full is not None:
            self._refuse(packet, of(Unavailable(full), opened.ctr), "mediator.publish.journal")
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
            if decision.duties:
                self._check_taken(packet, len(payload) - len(packet.payload))
        except SealError as error:
            self._refuse(packet, of(error, opened.ctr))
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
    def _again(self, packet: Publish, verified: Verified, sent: Sent, now_ms: int) -> None:
        conn = self._conn
        packet_id = packet.packet_id
        if not packet.qos or sent.ctr < conn.low:
            text = f"counter {sent.ctr} came before, or is below {conn.low}, which this connection"
            raise Repeated(f"{text} announced")
        if sent.refused is not None:
            self._refuse(packet, *sent.refused)
            return
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
        opened = self._open(verified, packet.qos << 1 | packet.retain, now_ms, again=True)
        decision = self.ask(packet, opened, now_ms)
        if not decision.allow or decision.label is not None:
            raise Denied(decision.reason)
        full = conn.hub.journal.refuses(conn.client.number)
        if full is not None:
            raise Unavailable(full)
        if packet.retain:
            self._check_retained(opened, decision)
        raw, payload = self._sealed(packet, opened, decision, now_ms)
        self._forward(packet, sent, opened, decision, raw, payload)

    def _refuse(self, packet: Publish, error: SealError, rule: str = "", event: str = "") -> None:
        conn = self._conn
        rule = rule or rule_of("publish", error)
        event = event or _EVENT_OF_CODE.get(error.code, "publish-refused")
        first = proof_of(error) is Proof.FIRST
        hangs_up = first and conn.hub.config.mediator.on_denied == "disconnect"
        # What comes again to a site that hangs up would never be acknowledged: there it may go well
        # once the store is back.
        if first and not (hangs_up and isinstance(error, Unavailable)):
            self._ends(packet, error, rule)

        def acknowledge() -> None:
            if hangs_up:
                conn.close(f"refused: {rule}")
            elif packet.qos and self.underway.holds(packet.packet_id) is not None:
                # An answer to this packet would be taken for one to the message under way.
                conn.close(f"refused under a packet id that is in use: {rule}")
            else:
                self.underway.end_here(packet)

        topic = packet.topic[:200]
        conn.refuse(PUBLISH, error, rule, acknowledge, packet.qos, event, topic=topic)

    # The client is told so: if it comes again, from whomever, it stays refused.
    def _ends(self, packet: Publish, error: SealError, rule: str) -> None:
        link = self._conn.link
        tag = tag_of(packet.payload)
        sent = link.again(error.ctr, tag) or link.mark(error.ctr, tag)
        # Its frames would keep the packet.
        error.__traceback__ = error.__context__ = error.__cause__ = None
        sent.refused = error, rule


# Malformed, unauthentic, stale, replay: nothing that a policy has judged.
_EVENT_OF_CODE = dict.fromkeys((1, 2, 3, 4), "packet-refused")


def with_duties(opened: Opened, decision: Decision) -> bytes:
    """TLV and m1 as they go into m3: the items that families put, and none of the publisher's, as
    readers take an item for the mediator's word.
    """
    items = {duty.type: duty.value for duty in decision.duties if isinstance(duty, PutTlv)}
    if not items and opened.start == len(EMPTY):
        return opened.body
    return pack(sorted(items.items())) + opened.body[opened.start :]
