"""PUBLISH from the broker (GATEWAY.md G2).

What no mediator sealed is dropped, what policy denies is withheld.

Whatever does not reach the client is acknowledged towards the broker here, else the broker's window
would stall.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sealmq.families.engine import Decision
from sealmq.mqtt import (
    Packet,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Suback,
    Unsuback,
    build,
)
from sealmq_spec.const import LIVE, QUEUED, RETAINED, WILL
from sealmq_spec.errors import Denied, Malformed, SealError
from sealmq_spec.topics import is_reserved

from .core.wrap import Delivered, Inside, is_fresh, look_m3, open_m3, rewrap
from .outgoing import Outgoing

if TYPE_CHECKING:
    from .connection import Connection


class Delivering:
    """The reading half of one connection."""

    def __init__(self, conn: Connection) -> None:
        self._conn = conn
        self._begun = False
        self._early: list[Packet] = []
        # QoS 2 ids from the broker whose message was withheld.
        self._ended_here: set[int] = set()
        self._outgoing = Outgoing(self._deliver, lambda full: conn.upstream.pause(full))

    def slow(self, full: bool) -> None:
        """The client does not read fast enough, or does again."""
        self._outgoing.slow(full)

    def hold(self, on: bool) -> None:
        """What waits for a slow client waits for its keys too (holding.py), or goes on."""
        self._outgoing.stopped = on
        if not on:
            self._outgoing.go_on()

    def begin(self) -> None:
        """The welcome is out: what the broker sent before comes now."""
        self._begun = True
        early, self._early = self._early, []
        for packet in early:
            self._conn.upstream.on_packet(packet)

    def packet(self, packet: Packet) -> None:
        """Anything from the broker."""
        if not self._begun:
            self._early.append(packet)
            return
        conn = self._conn
        if conn.state != "open":
            return
        if isinstance(packet, Publish):
            for gone in self._outgoing.put(packet):
                conn.hub.audit.count_denied(conn.client.name, gone.topic, "mediator.deliver.slow")
        elif isinstance(packet, Puback | Pubrec | Pubcomp):
            conn.publishing.underway.answered(packet)
        elif isinstance(packet, Pubrel):
            self._released(packet)
        elif isinstance(packet, Suback):
            conn.subscribing.granted(packet)
        elif isinstance(packet, Unsuback):
            conn.subscribing.left(packet)

    def acked(self, packet: Puback | Pubrec | Pubcomp) -> None:
        """The client's answer to something delivered."""
        maker: Any = {Puback: build.puback, Pubrec: build.pubrec, Pubcomp: build.pubcomp}
        self._conn.upstream.send(maker[type(packet)](packet.packet_id))

    def _released(self, packet: Pubrel) -> None:
        if packet.packet_id in self._ended_here:
            self._ended_here.discard(packet.packet_id)
            self._conn.upstream.send(build.pubcomp(packet.packet_id))
        else:
            self._conn.send(build.pubrel(packet.packet_id))

    def _deliver(self, packet: Publish) -> None:
        conn = self._conn
        if packet.topic.startswith("@sm1/"):
            if conn.subscribing.wants_public(packet.topic):
                self._pass(packet, packet.payload, packet.retain)
            else:
                self._withhold(packet)
            return
        try:
            if is_reserved(packet.topic):
                raise Denied(f"a reserved topic came from the broker: {packet.topic[:100]!r}")
            if not packet.payload:
                # A cleared retained message; it carries nothing that could be verified.
                self._withhold(packet)
                return
            self._judge(packet, look_m3(conn.hub.ring, packet.payload))
        except SealError as error:
            self._withhold(packet)
            rule = "mediator.deliver." + type(error).__name__.lower()
            conn.hub.audit.count_denied(conn.client.name, packet.topic, rule)

    def _judge(self, packet: Publish, seen: Delivered) -> None:
        conn = self._conn
        hub = conn.hub
        ring = hub.ring
        now_ms = hub.now_ms()
        if seen.how == RETAINED:
            # Those are made here, for one reader; none stands at a broker.
            raise Malformed("how retained from the broker, to which no mediator sends that")
        of = ring.labels[seen.label]
        label = of.name
        fresh = is_fresh(seen, now_ms)
        live = fresh and not packet.retain and seen.epoch == of.epoch
        how = seen.how if live or (fresh and seen.how == WILL) else QUEUED
        if packet.retain:
            how = RETAINED
        inside = None
        # Wills, and what the journal brought again, may have an m1 of any epoch.
        if not live or seen.how != LIVE or hub.engine_opens:
            inside = open_m3(ring, seen, packet.topic_raw, packet.payload, hub.known_tlv)
        decision = self._ask(packet, label, how, now_ms, inside)
        if not decision.allow:
            self._withhold(packet)
            hub.audit.count_denied(conn.client.name, packet.topic, decision.rule, label)
            return
        payload = packet.payload
        if inside is not None and not live:
            if packet.retain:
                hub.retained.came(packet.topic, seen.s2, seen.seq)
            payload = rewrap(ring, hub.order, seen, inside, how, packet.topic_raw, now_ms)
        conn.show_records(seen.label, 0 if inside is None else inside.epoch)
        self._pass(packet, payload, packet.retain)
        hub.audit.count_delivered(
            conn.client.name, packet.topic, label, decision.purpose, decision.under
        )
        if decision.overridden:
            hub.audit.count_unenforced(conn.client.name, packet.topic, decision.rule, "deliver")
        conn.policy.saw(
            "delivered",
            packet.topic,
            now_ms,
            label=label,
            qos=packet.qos,
            how=how,
            size=len(payload),
        )

    # What is inside is opened for policy only where a family looks at it.
    def _ask(
        self,
        packet: Publish,
        label: str,
        how: int,
        now_ms: int,
        inside: Inside | None,
    ) -> Decision:
        conn = self._conn
        if inside is None:
            return conn.policy.deliver(packet.topic, label, how, now_ms, len(packet.payload))
        return conn.policy.deliver(
            packet.topic,
            label,
            how,
            now_ms,
            len(packet.payload),
            inside.tlv,
            inside.sender,
            (inside.boot, inside.ctr),
            inside.age_s(now_ms) * 1000,
        )

    def _pass(self, packet: Publish, payload: bytes, retain: bool) -> None:
        self._conn.send(
            build.publish(
                packet.topic_raw, payload, packet.qos, retain, packet.dup, packet.packet_id
            )
        )

    def _withhold(self, packet: Publish) -> None:
        upstream = self._conn.upstream
        if packet.qos == 1:
            upstream.send(build.puback(packet.packet_id))
        elif packet.qos == 2:
            self._ended_here.add(packet.packet_id)
            upstream.send(build.pubrec(packet.packet_id))
