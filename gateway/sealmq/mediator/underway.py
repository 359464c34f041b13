"""What one connection has under way to the broker, and the acknowledgements for it.

PUBACK, PUBREC and PUBCOMP are the broker's, and come when this mediator's journal has the message
too; but for packets that were refused or came before, which are answered here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sealmq.mqtt import Puback, Pubcomp, Publish, Pubrec, Pubrel, build

from .core.boots import Sent

if TYPE_CHECKING:
    from .connection import Connection


class Underway:
    """By packet id."""

    def __init__(self, conn: Connection) -> None:
        self._conn = conn
        # What is under way upstream: QoS 1 until PUBACK, QoS 2 until PUBCOMP.
        self._underway: dict[int, Sent] = {}
        # QoS 2 ids whose handshake ends here, because the message was refused or is done already.
        self._ended_here: set[int] = set()

    def begins(self, packet_id: int, sent: Sent) -> None:
        """It was forwarded."""
        self._underway[packet_id] = sent
        self._ended_here.discard(packet_id)

    def holds(self, packet_id: int) -> Sent | None:
        """What is under way with this id."""
        return self._underway.get(packet_id)

    def end_here(self, packet: Publish) -> None:
        """Answers instead of the broker: QoS 1 at once, QoS 2 to its end."""
        if packet.qos == 1:
            self._conn.send(build.puback(packet.packet_id))
        elif packet.qos == 2:
            self._ended_here.add(packet.packet_id)
            self._conn.send(build.pubrec(packet.packet_id))

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
        sent = self._underway.get(packet.packet_id)
        if sent is None or not sent.seq:
            self._tell(packet, sent)
            return
        # The answer goes on when our disk has the message too.
        journal = self._conn.hub.journal
        seq = sent.seq
        if not isinstance(packet, Pubrec):
            # Only PUBCOMP ends it: behind PUBREC the broker has given it to no reader yet.
            sent.seq = 0
            journal.acked(seq)
        if seq <= journal.durable:
            self._tell(packet, sent)
        else:
            journal.when(seq, self._told_late, packet, sent)

    # Not for a connection that has ended: the broker may have been lost with the message.
    def _told_late(self, packet: Puback | Pubrec | Pubcomp, sent: Sent) -> None:
        if self._conn.state == "open":
            self._tell(packet, sent)

    def _tell(self, packet: Puback | Pubrec | Pubcomp, sent: Sent | None) -> None:
        conn = self._conn
        packet_id = packet.packet_id
        if isinstance(packet, Pubrec):
            if sent is not None:
                conn.link.confirm(sent)
            conn.send(build.pubrec(packet_id))
            return
        if sent is not None:
            if self._underway.get(packet_id) is sent:
                del self._underway[packet_id]
            if sent.where is conn:
                sent.done, sent.where = True, None
            conn.link.confirm(sent)
        if isinstance(packet, Pubcomp):
            conn.send(build.pubcomp(packet_id))
            return
        for each in (packet_id, *(sent.also if sent is not None else ())):
            conn.send(build.puback(each))
        if conn.link.receipt_due():
            conn.down(conn.link.receipt())

    def ended(self) -> None:
        """The connection is over: what the broker has not answered, it never will.

        Behind PUBREC the client's next connection may release it, so the journal keeps that.
        """
        for sent in self._underway.values():
            seq, sent.seq = sent.seq, 0
            if not self._conn.link.has_confirmed(sent):
                self._conn.hub.journal.acked(seq)
