"""Wills that fire (SPEC.md 4.1): judged again, and sealed then. They were judged with their
CONNECT, and on disk before CONNACK.
"""

from __future__ import annotations

from typing import NamedTuple

from sealmq.families.decision import Decision
from sealmq.families.engine import Conn
from sealmq.store import WillRecord
from sealmq_spec.const import M2_HEAD, TAG, WILL
from sealmq_spec.envelope import get_m1
from sealmq_spec.tlv import span, unpack
from sealmq_spec.window import check_fresh, life_s

from .core.denied import DeniedByRule
from .core.inbound import with_obligations
from .core.site import Site
from .core.wrap import Opened, fired, seal_m3


class Fired(NamedTuple):
    """A will on its way: `at_ms` is when it fired, `body` has that inside, `life` in seconds."""

    topic: str
    body: bytes
    at_ms: int
    life: int | None


def judge(site: Site, will: WillRecord, policy: Conn, now_ms: int) -> Fired:
    """The client is gone without DISCONNECT. Raises SealError when its will is not published."""
    check_client(site, will)
    opened = _opened(site, will)
    decision = ask(policy, will, opened, now_ms)
    if not decision.allow or decision.label is not None:
        raise DeniedByRule(f"will: {decision.reason}", decision.rule)
    body = with_obligations(opened, decision)
    first, start = span(body, 0, len(body))
    items = unpack(body, first, start, tuple(site.engine.tlvs))
    return Fired(decision.topic, fired(body, start, items, now_ms), now_ms, life_s(opened.life))


def check_client(site: Site, will: WillRecord) -> None:
    """Raises DeniedByRule for the will of a client that may not publish it any more."""
    if not site.ring.goes_on(will.client, will.gen, will.label):
        raise over()


def over() -> DeniedByRule:
    """The refusal of such a will."""
    reason = "the client was disabled, rotated or relabelled since its CONNECT"
    return DeniedByRule(reason, "mediator.will.disabled")


def ask(policy: Conn, will: WillRecord, opened: Opened, now_ms: int) -> Decision:
    """The policy's question `publish`, as with its CONNECT."""
    size = M2_HEAD + len(will.body) + TAG
    return policy.publish(
        will.topic, will.qos, will.retain, size, now_ms, opened.tlv, (will.boot, will.ctr)
    )


def taken(site: Site, will: WillRecord, policy: Conn, now_ms: int) -> None:
    """The broker has it: families that listen see it as any message that was accepted."""
    if site.engine.listens:
        policy.saw(
            "accepted",
            will.topic,
            now_ms,
            label=site.ring.labels[will.label].name,
            qos=will.qos,
            retain=will.retain,
            size=M2_HEAD + len(will.body) + TAG,
            tlv=_opened(site, will).tlv,
            message_id=(will.boot, will.ctr),
        )


def seal(site: Site, will: WillRecord, it: Fired, now_ms: int) -> bytes:
    """m3 for a will that fires or has fired. Raises SealError once its life is over."""
    check_fresh("will", (now_ms - it.at_ms) // 1000, it.life)
    label = site.ring.labels[will.label]
    return seal_m3(site.ring, label, site.order, WILL, it.topic.encode(), it.body, now_ms)


def _opened(site: Site, will: WillRecord) -> Opened:
    body = will.body
    first, start = span(body, 0, len(body))
    tlv = unpack(body, first, start, tuple(site.engine.tlvs))
    life = get_m1(body, start, len(body))[9]
    return Opened(will.ctr, 0, WILL, life, body, start, tlv)
