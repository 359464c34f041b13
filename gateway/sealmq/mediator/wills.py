"""Wills that fire (SPEC.md 4.1): judged again, and sealed then. They were judged with their
CONNECT, and on disk before CONNACK.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from sealmq.families.decision import Decision
from sealmq.families.duties import items_put, lies_under
from sealmq.families.engine import Conn
from sealmq.store import WillRecord
from sealmq_spec.const import M2_HEAD, TAG, TLV_FIRED, WILL
from sealmq_spec.envelope import get_m1
from sealmq_spec.tlv import span, unpack
from sealmq_spec.window import check_fresh, life_s

from .core.denied import DeniedByRule
from .core.site import Site
from .core.wrap import Opened, for_broker


class Fired(NamedTuple):
    """A will on its way: `at_ms` is when it fired, `items` has that inside, `life` in seconds.
    `lies_under`: the grant that a family demands for the broker's copy.
    """

    topic: str
    items: Mapping[int, bytes]
    lies_under: tuple[str, str] | None
    at_ms: int
    life: int | None


def judge(site: Site, will: WillRecord, policy: Conn, now_ms: int) -> Decision:
    """The client is gone without DISCONNECT. `label` of the decision: the topic has none any more,
    and gets it first. Raises SealError when the will is not published.
    """
    check_client(site, will)
    decision = ask(policy, will, _opened(site, will), now_ms)
    if not decision.allow:
        raise DeniedByRule(f"will: {decision.reason}", decision.rule)
    return decision


def fire(site: Site, will: WillRecord, decision: Decision, now_ms: int) -> Fired:
    """It does, by this decision."""
    # The time of firing goes into the TLV block (SPEC.md 3.4).
    items = {**items_put(decision.duties, {}), TLV_FIRED: (now_ms // 1000).to_bytes(4, "big")}
    life = life_s(_opened(site, will).life)
    return Fired(decision.topic, items, lies_under(decision.duties), now_ms, life)


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
    label, body = site.ring.labels[will.label], will.body
    _, start = span(body, 0, len(body))
    inner = label, body, start, it.lies_under, it.items
    return for_broker(site.ring, site.order, *inner, WILL, it.topic.encode(), now_ms)


def _opened(site: Site, will: WillRecord) -> Opened:
    body = will.body
    first, start = span(body, 0, len(body))
    tlv = unpack(body, first, start, tuple(site.engine.tlvs))
    life = get_m1(body, start, len(body))[9]
    return Opened(will.ctr, 0, WILL, life, body, start, tlv)
