"""amqtt's protocol handler, with what MQTT 3.1.1 section 4.3 and 4.4 ask of a server put right.

Acknowledgements go to the session's outbox. amqtt itself awaits each for five seconds in a task of
its own, misses one that comes while it still writes, and answers no PUBREL that it does not expect.
"""

from __future__ import annotations

import asyncio

from amqtt.mqtt.disconnect import DisconnectPacket
from amqtt.mqtt.protocol.broker_handler import BrokerProtocolHandler
from amqtt.mqtt.puback import PubackPacket
from amqtt.mqtt.pubcomp import PubcompPacket
from amqtt.mqtt.publish import PublishPacket
from amqtt.mqtt.pubrec import PubrecPacket
from amqtt.mqtt.pubrel import PubrelPacket
from amqtt.session import Session

from .outbox import Outbox

_OUTBOX = "sealmq.outbox"


def outbox_of(session: Session) -> Outbox:
    """The session's outbox; it lives as long as the session does."""
    box = session.attributes.get(_OUTBOX)
    if not isinstance(box, Outbox):
        box = session.attributes[_OUTBOX] = Outbox(session)
    return box


# Looks at a queue until it is believed to stay empty, how many at most, and the time between two.
_CALM = 3
_LOOKS = 5000
_LOOK_S = 0.001


class MediatorHandler(BrokerProtocolHandler):
    """One connection of a mediator."""

    async def send(self, packet: PublishPacket | PubrelPacket) -> None:
        """Write a packet of the outbox, in turn with what else this connection writes."""
        await self._send_packet(packet)

    async def handle_disconnect(self, disconnect: DisconnectPacket | None) -> None:
        """The connection ends, by DISCONNECT or without. amqtt drops what it has not routed yet.

        That may be acknowledged already: amqtt's PUBACK comes first. So the end waits its turn.
        """
        await self._routed()
        await super().handle_disconnect(disconnect)

    async def _routed(self) -> None:
        """Until nothing of this connection waits; amqtt tells nobody, so it is looked at."""
        if self.session is None:
            return
        queue, calm, looks = self.session.delivered_message_queue, 0, 0
        while calm < _CALM and looks < _LOOKS:
            looks += 1
            calm = calm + 1 if queue.empty() else 0
            await asyncio.sleep(_LOOK_S)

    async def _retry_deliveries(self) -> None:
        """Nothing: the outbox redelivers, and does not hold up the connection's start."""

    async def handle_puback(self, puback: PubackPacket) -> None:
        if self.session is not None:
            outbox_of(self.session).acknowledged(puback.packet_id)

    async def handle_pubrec(self, pubrec: PubrecPacket) -> None:
        pubrel = PubrelPacket.build(pubrec.packet_id)
        if self.session is not None:
            outbox_of(self.session).received(pubrec.packet_id, pubrel)
        await self._send_packet(pubrel)

    async def handle_pubcomp(self, pubcomp: PubcompPacket) -> None:
        if self.session is not None:
            outbox_of(self.session).acknowledged(pubcomp.packet_id)

    async def handle_pubrel(self, pubrel: PubrelPacket) -> None:
        waiter = self._pubrel_waiters.get(pubrel.packet_id)
        if waiter is not None and not waiter.done():
            await super().handle_pubrel(pubrel)
            return
        # The message came over an earlier connection, or has been delivered already: PUBCOMP is
        # owed in either case [MQTT-4.3.3-2].
        if self.session is not None:
            message = self.session.inflight_in.pop(pubrel.packet_id, None)
            if message is not None:
                await self.session.delivered_message_queue.put(message)
        await self._send_packet(PubcompPacket.build(pubrel.packet_id))
