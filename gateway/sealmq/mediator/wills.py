"""Wills (SPEC.md 4.1): judged with their CONNECT and on disk before CONNACK; judged again when they
fire, and sealed then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from sealmq.families.decision import Decision
from sealmq.families.engine import Conn
from sealmq.mqtt import Publish, Will
from sealmq.store import WillRecord
from sealmq_spec.const import M2_HEAD, TAG, WILL
from sealmq_spec.envelope import get_m1
from sealmq_spec.errors import Denied
from sealmq_spec.tlv import span, unpack
from sealmq_spec.window import check_fresh, life_s

from .core.ruled import Ruled
from .core.wrap import Opened, fired, seal_m3
from .publishing import with_duties

if TYPE_CHECKING:
    from .connection import Connection
    from .hub import Hub


async def accept_will(conn: Connection, will: Will) -> WillRecord:
    """Judges a will with its CONNECT; labels its topic; stores it. Raises SealError,
    StoreUnavailable.
    """
    hub = conn.hub
    now_ms = hub.now_ms()
    packet = Publish(will.topic, will.topic.encode(), will.payload, will.qos, will.retain)
    opened = conn.publishing.open_will(packet, now_ms)
    decision = conn.publishing.ask(packet, opened, now_ms)
    if decision.allow and decision.label is not None:
        await hub.label_topic(conn.policy, decision, now_ms)
        decision = conn.publishing.ask(packet, opened, now_ms)
    if not decision.allow or decision.label is not None:
        raise Denied(f"the will's topic: {decision.reason}")
    if will.retain:
        hub.retained_bytes.check(decision.topic, conn.client.number, len(will.payload))
    record = WillRecord(
        conn.client.number,
        conn.client_id,
        conn.link.gen,
        conn.link.boot,
        conn.conn_no,
        will.topic,
        will.qos,
        will.retain,
        conn.client.label,
        opened.ctr,
        opened.body,
    )
    await hub.store.commit([record])
    return record


class Fired(NamedTuple):
    """A will on its way: `at_ms` is when it fired, `body` has that inside, `life` in seconds."""

    topic: str
    body: bytes
    at_ms: int
    life: int | None


def judge(hub: Hub, will: WillRecord, policy: Conn, now_ms: int) -> Fired:
    """The client is gone without DISCONNECT. Raises SealError when its will is not published."""
    client = hub.ring.clients.get(will.client)
    over = client is not None and will.gen <= client.ended
    if client is None or client.disabled or over or client.label != will.label:
        reason = "the client was disabled, rotated or relabelled since its CONNECT"
        raise Ruled(reason, "mediator.will.disabled")
    opened = _opened(hub, will)
    decision = ask(policy, will, opened, now_ms)
    if not decision.allow or decision.label is not None:
        raise Ruled(f"will: {decision.reason}", decision.rule)
    body = with_duties(opened, decision)
    first, start = span(body, 0, len(body))
    items = unpack(body, first, start, hub.known_tlv)
    return Fired(decision.topic, fired(body, start, items, now_ms), now_ms, life_s(opened.life))


def ask(policy: Conn, will: WillRecord, opened: Opened, now_ms: int) -> Decision:
    """The policy's question `publish`, as with its CONNECT."""
    size = M2_HEAD + len(will.body) + TAG
    return policy.publish(
        will.topic, will.qos, will.retain, size, now_ms, opened.tlv, (will.boot, will.ctr)
    )


def seal(hub: Hub, will: WillRecord, it: Fired, now_ms: int) -> bytes:
    """m3 for a will that fires or has fired. Raises SealError once its life is over."""
    check_fresh("will", (now_ms - it.at_ms) // 1000, it.life)
    label = hub.ring.labels[will.label]
    return seal_m3(hub.ring, label, hub.order, WILL, it.topic.encode(), it.body, now_ms)


def _opened(hub: Hub, will: WillRecord) -> Opened:
    body = will.body
    first, start = span(body, 0, len(body))
    tlv = unpack(body, first, start, hub.known_tlv)
    life = get_m1(body, start, len(body))[9]
    return Opened(will.ctr, 0, WILL, life, body, start, tlv)
