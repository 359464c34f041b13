"""Wills (SPEC.md 4.1): judged with their CONNECT, kept in memory, judged again when they fire."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple

from sealmq.mqtt import Publish, Will
from sealmq_spec.const import WILL
from sealmq_spec.errors import Denied
from sealmq_spec.tlv import span, unpack
from sealmq_spec.topics import check_topic, is_reserved

from .publishing import with_duties
from .upstream import BrokerAway
from .wrap import Opened, fired, seal_m3

if TYPE_CHECKING:
    from .connection import Connection

_WILL_BIT = 0x80
# About W in all: behind that a will's m3 is stale.
_WILL_PAUSES_S = (0.5, 1, 2, 4, 8, 15, 15)


class StoredWill(NamedTuple):
    """A will that was judged with its CONNECT, as it stood there."""

    packet: Publish
    opened: Opened


async def accept_will(conn: Connection, will: Will) -> StoredWill:
    """Judges a will with its CONNECT; labels its topic. Raises SealError, StoreUnavailable."""
    now_ms = conn.hub.now_ms()
    raw = check_topic(will.topic)
    if is_reserved(will.topic):
        raise Denied("a will on a reserved topic")
    packet = Publish(will.topic, raw, will.payload, will.qos, will.retain)
    opened = conn.publishing.open(packet, now_ms, _WILL_BIT)
    decision = conn.publishing.ask(packet, opened, now_ms)
    if decision.allow and decision.label is not None:
        await conn.hub.label_topic(conn.policy, decision, now_ms)
        decision = conn.publishing.ask(packet, opened, now_ms)
    if not decision.allow or decision.label is not None:
        raise Denied(f"the will's topic: {decision.reason}")
    return StoredWill(packet, opened)


async def fire(conn: Connection, will: StoredWill) -> None:
    """The client is gone without DISCONNECT: its will is judged again, sealed, published."""
    hub = conn.hub
    now_ms = hub.now_ms()
    decision = conn.publishing.ask(will.packet, will.opened, now_ms)
    conn.policy.close(now_ms)
    client = hub.ring.clients.get(conn.client.number)
    label = hub.ring.labels.get(client.label) if client else None
    if client is None or client.disabled or label is None or client.label != conn.client.label:
        reason = "the client was disabled or relabelled since its CONNECT"
        _refused(conn, will, "mediator.will.disabled", reason)
        return
    if not decision.allow or decision.label is not None:
        _refused(conn, will, decision.rule, f"will: {decision.reason}")
        return
    raw = decision.topic.encode()
    body = with_duties(will.opened, decision)
    first, start = span(body, 0, len(body))
    items = unpack(body, first, start, hub.known_tlv)
    body = fired(body, start, items, now_ms)
    payload = seal_m3(hub.ring, label, hub.order, WILL, raw, body, now_ms)
    if will.packet.retain:
        hub.keep_order(decision.topic, hub.order.ms, hub.order.seq)
    if await _deliver(conn, will, raw, payload):
        hub.audit.count_accepted(client.name, decision.topic, label.name)


def _refused(conn: Connection, will: StoredWill, rule: str, reason: str) -> None:
    topic = will.packet.topic[:200]
    conn.hub.audit.write(
        "publish-refused", client=conn.client.name, topic=topic, rule=rule, reason=reason
    )


# The broker may be away for a moment, and all clients with it.
async def _deliver(conn: Connection, will: StoredWill, raw: bytes, payload: bytes) -> bool:
    hub = conn.hub
    reason = ""
    for pause in _WILL_PAUSES_S:
        try:
            await hub.house.publish(raw, payload, min(will.packet.qos, 1), will.packet.retain)
        except BrokerAway as error:
            reason = f"will: {error}"
        else:
            return True
        await asyncio.sleep(pause)
    hub.audit.write("broker-away", client=conn.client.name, reason=reason[:500])
    return False
