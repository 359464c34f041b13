"""PUBLISH from a client (SPEC.md 6.1; Chen and Wilson, Algorithm 2): open, judge, label, seal
again, forward. The hot path.

Decided before acknowledged: PUBACK and PUBREC are the broker's, but for packets that were refused
or came before.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, NamedTuple

from sealmq.families.api import CutTlv, PutTlv, SealTo
from sealmq.families.engine import Decision
from sealmq.mqtt import Puback, Pubcomp, Publish, Pubrec, Pubrel, Will, build
from sealmq.store import StoreUnavailable
from sealmq_spec.const import CLEAR, LIVE, WILL
from sealmq_spec.errors import Denied, Malformed, Replay, SealError, Unavailable
from sealmq_spec.tlv import pack
from sealmq_spec.topics import check_topic, is_reserved

from .link import Sent
from .upstream import BrokerAway
from .wrap import Opened, open_m2, seal_m3, tag_of

if TYPE_CHECKING:
    from .connection import Connection

_PUBLISH = 1
_WILL_BIT = 0x80


class StoredWill(NamedTuple):
    """A will that was judged with its CONNECT. `body` is TLV and m1, as they go into m3."""

    topic: str
    qos: int
    retain: bool
    label: int
    body: bytes


class Publishing:
    """The publishing half of one connection."""

    def __init__(self, conn: Connection) -> None:
        self._conn = conn
        # Packet id -> the window's entry of the message that the broker has not acknowledged yet.
        self._underway: dict[int, Sent] = {}
        # QoS 2 ids that end here, because the message was refused or came before.
        self._ended_here: set[int] = set()

    def publish(self, packet: Publish) -> Coroutine[Any, Any, None] | None:
        """Handles one PUBLISH; a coroutine when it has to wait for the store."""
        conn = self._conn
        hub = conn.hub
        now_ms = hub.now_ms()
        payload = packet.payload
        ctr = 0
        try:
            if packet.topic[0] in "$!@":
                raise Denied(f"topics that begin with {packet.topic[0]} are reserved")
            if len(packet.topic_raw) > 1024:
                check_topic(packet.topic)
            if not payload:
                raise Malformed("an empty payload carries no envelope; a sealed `clear` deletes")
            tag = tag_of(payload)
            ctr = int.from_bytes(payload[2:5], "big")
            entry = conn.link.look(ctr, conn.low, tag)
            if entry is not None:
                return self._again(packet, entry, ctr)
            opened = open_m2(
                conn.link,
                hub.ring,
                conn.client,
                packet.topic_raw,
                payload,
                packet.qos << 1 | packet.retain,
                now_ms // 1000,
                hub.known_tlv,
            )
        except SealError as error:
            self._refuse(packet, ctr, error, "mediator.publish." + type(error).__name__.lower())
            return None
        return self._judge(packet, opened, tag, now_ms)

    def _judge(
        self, packet: Publish, opened: Opened, tag: bytes, now_ms: int
    ) -> Coroutine[Any, Any, None] | None:
        decision = self._ask(packet, opened, now_ms)
        if not decision.allow:
            self._refuse(packet, opened.ctr, Denied(decision.reason), decision.rule)
        elif decision.label is not None:
            return self._label_first(packet, opened, tag, decision, now_ms)
        else:
            self._forward(packet, opened, tag, decision, now_ms)
        return None

    def _ask(self, packet: Publish, opened: Opened, now_ms: int) -> Decision:
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
            self._refuse(
                packet, opened.ctr, Unavailable(str(error)), "mediator.publish.unavailable", event
            )
            return
        if conn.state != "open":
            return
        decision = self._ask(packet, opened, now_ms)
        if decision.allow and decision.label is None:
            self._forward(packet, opened, tag, decision, now_ms)
        else:
            reason = decision.reason if not decision.allow else "the topic could not be labelled"
            self._refuse(packet, opened.ctr, Denied(reason), decision.rule)

    def _forward(
        self, packet: Publish, opened: Opened, tag: bytes, decision: Decision, now_ms: int
    ) -> None:
        conn = self._conn
        hub = conn.hub
        try:
            wire = self._wire(packet, opened, decision, now_ms)
        except SealError as error:
            self._refuse(packet, opened.ctr, error, "mediator.publish.duty")
            return
        entry = conn.link.mark(opened.ctr, tag)
        conn.upstream.send(wire)
        if packet.qos:
            self._underway[packet.packet_id] = entry
        else:
            entry.done = True
        label = hub.ring.labels[conn.client.label].name
        hub.audit.count_accepted(conn.client.name, decision.topic, label)
        if decision.overridden:
            hub.audit.count_unenforced(conn.client.name, decision.topic, decision.rule, "publish")
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
        if conn.link.receipt_due():
            conn.down(conn.link.receipt())

    def _wire(self, packet: Publish, opened: Opened, decision: Decision, now_ms: int) -> bytes:
        conn = self._conn
        raw = packet.topic_raw if decision.topic == packet.topic else decision.topic.encode()
        if opened.kind == CLEAR:
            payload = b""
        else:
            ring = conn.hub.ring
            label = ring.labels[conn.client.label]
            body = _with_duties(opened, decision)
            payload = seal_m3(ring, label, conn.hub.order, LIVE, raw, body, now_ms)
        return build.publish(raw, payload, packet.qos, packet.retain, packet.dup, packet.packet_id)

    # The same packet again (SPEC.md 6.1, step 2): acknowledged, not forwarded, unless the broker it
    # went to is gone.
    def _again(self, packet: Publish, entry: Sent, ctr: int) -> Coroutine[Any, Any, None] | None:
        conn = self._conn
        if not packet.qos:
            self._refuse(
                packet, ctr, Replay(f"counter {ctr} came before"), "mediator.publish.replay"
            )
            return None
        if self._underway.get(packet.packet_id) is entry:
            return None
        if entry.done:
            if packet.qos == 1:
                conn.send(build.puback(packet.packet_id))
            else:
                self._ended_here.add(packet.packet_id)
                conn.send(build.pubrec(packet.packet_id))
            return None
        try:
            now_ms = conn.hub.now_ms()
            opened = open_m2(
                conn.link,
                conn.hub.ring,
                conn.client,
                packet.topic_raw,
                packet.payload,
                packet.qos << 1 | packet.retain,
                now_ms // 1000,
                conn.hub.known_tlv,
            )
            decision = self._ask(packet, opened, now_ms)
            if not decision.allow or decision.label is not None:
                self._refuse(packet, ctr, Denied(decision.reason), decision.rule)
                return None
            wire = self._wire(packet, opened, decision, now_ms)
        except SealError as error:
            self._refuse(packet, ctr, error, "mediator.publish." + type(error).__name__.lower())
            return None
        conn.upstream.send(wire)
        self._underway[packet.packet_id] = entry
        return None

    def _refuse(
        self, packet: Publish, ctr: int, error: SealError, rule: str, event: str = ""
    ) -> None:
        conn = self._conn
        conn.refuse(_PUBLISH, ctr, error, rule, packet.topic[:200], event or _event_of(error))
        if conn.hub.config.mediator.on_denied == "disconnect":
            conn.close(f"refused: {rule}")
        elif packet.qos == 1:
            conn.send(build.puback(packet.packet_id))
        elif packet.qos == 2:
            self._ended_here.add(packet.packet_id)
            conn.send(build.pubrec(packet.packet_id))

    def released(self, packet: Pubrel) -> None:
        """PUBREL from the client."""
        conn = self._conn
        if packet.packet_id in self._ended_here:
            self._ended_here.discard(packet.packet_id)
            conn.send(build.pubcomp(packet.packet_id))
        else:
            conn.upstream.send(build.pubrel(packet.packet_id))

    def answered(self, packet: Puback | Pubrec | Pubcomp) -> None:
        """The broker's answer to something that this client published."""
        conn = self._conn
        if isinstance(packet, Pubcomp):
            conn.send(build.pubcomp(packet.packet_id))
            return
        entry = self._underway.pop(packet.packet_id, None)
        if entry is not None:
            entry.done = True
        conn.send((build.puback if isinstance(packet, Puback) else build.pubrec)(packet.packet_id))

    # --- wills ---

    async def accept_will(self, will: Will) -> StoredWill:
        """Judges a will with its CONNECT; labels its topic. Raises SealError, StoreUnavailable."""
        conn = self._conn
        hub = conn.hub
        now_ms = hub.now_ms()
        raw = check_topic(will.topic)
        if is_reserved(will.topic):
            raise Denied("a will on a reserved topic")
        packet = Publish(will.topic, raw, will.payload, will.qos, will.retain)
        ctr = int.from_bytes(will.payload[2:5], "big")
        tag = tag_of(will.payload)
        if conn.link.look(ctr, 0, tag) is not None:
            raise Replay(f"counter {ctr} of the will came before")
        opened = open_m2(
            conn.link,
            hub.ring,
            conn.client,
            raw,
            will.payload,
            will.qos << 1 | will.retain | _WILL_BIT,
            now_ms // 1000,
            hub.known_tlv,
        )
        decision = self._ask(packet, opened, now_ms)
        if decision.allow and decision.label is not None:
            await hub.label_topic(conn.policy, decision, now_ms)
            decision = self._ask(packet, opened, now_ms)
        if not decision.allow or decision.label is not None:
            raise Denied(f"the will's topic: {decision.reason}")
        conn.link.mark(ctr, tag)
        body = _with_duties(opened, decision)
        return StoredWill(decision.topic, will.qos, will.retain, conn.client.label, body)

    async def fire(self, will: StoredWill) -> None:
        """The client is gone without DISCONNECT: its will is sealed now and published."""
        hub = self._conn.hub
        raw = will.topic.encode()
        label = hub.ring.labels[will.label]
        payload = seal_m3(hub.ring, label, hub.order, WILL, raw, will.body, hub.now_ms())
        try:
            await hub.house.publish(raw, payload, min(will.qos, 1), will.retain)
        except BrokerAway as error:
            hub.audit.write("broker-away", client=self._conn.client.name, reason=f"will: {error}")
            return
        hub.audit.count_accepted(self._conn.client.name, will.topic, label.name)


_EVENT_OF_CODE = {
    1: "packet-refused",
    2: "packet-refused",
    3: "packet-refused",
    4: "packet-refused",
}


def _event_of(error: SealError) -> str:
    return _EVENT_OF_CODE.get(error.code, "publish-refused")


# TLV and m1 as they go into m3: the publisher's items, and what the families put or cut.
def _with_duties(opened: Opened, decision: Decision) -> bytes:
    if not decision.duties and not opened.tlv:
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
