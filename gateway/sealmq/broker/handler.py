"""One connection of a mediator, served packet by packet in the order in which they came.

amqtt takes in what comes in tasks of its own, acknowledges, and routes later; what it has not
routed when the connection ends is lost, acknowledged or not. Here a packet is dealt with before the
next one is looked at: an acknowledged message has been routed, and the end, whichever it is
(DISCONNECT, end of the stream, silence, take-over), comes after all that came before it. The same
holds back a client that sends faster than we route.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from amqtt.broker import BrokerContext
from amqtt.errors import ProtocolHandlerError
from amqtt.mqtt.protocol.broker_handler import BrokerProtocolHandler
from amqtt.mqtt.publish import PublishPacket
from amqtt.mqtt.pubrel import PubrelPacket
from amqtt.plugins.manager import PluginManager
from amqtt.session import ApplicationMessage, IncomingApplicationMessage, Session

from sealmq.mqtt import (
    Disconnect,
    Packet,
    Pingreq,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Subscribe,
    Unsubscribe,
    build,
)

from .outbox import Outbox
from .stream import GuardedReader, GuardedWriter

_OUTBOX = "sealmq.outbox"


def outbox_of(session: Session) -> Outbox:
    """The session's outbox; it lives as long as the session does."""
    box = session.attributes.get(_OUTBOX)
    if not isinstance(box, Outbox):
        box = session.attributes[_OUTBOX] = Outbox(session)
    return box


class Routes(Protocol):
    """What a connection asks of the broker. None of these waits for another client."""

    async def route(self, session: Session, message: ApplicationMessage) -> None:
        """Queue a message for each of its subscribers; keep it when it is to be retained."""

    async def subscribe(self, session: Session, filters: Sequence[tuple[str, int]]) -> list[int]:
        """The granted QoS of each filter, or 0x80."""

    async def send_retained(
        self, session: Session, filters: Sequence[tuple[str, int]], codes: Sequence[int]
    ) -> None:
        """Queue what is retained for the granted filters."""

    def unsubscribe(self, session: Session, filters: Sequence[str]) -> None:
        """Forget these filters."""


class MediatorHandler(BrokerProtocolHandler):
    """amqtt's handler, for its place in the routing table and its way of ending; reading is ours.

    Acknowledgements from the client go to its outbox.
    """

    def __init__(self, plugins: PluginManager[BrokerContext], routes: Routes) -> None:
        super().__init__(plugins)
        self._routes = routes

    async def start(self) -> None:
        """Nothing: `serve` reads, and no task beside it."""

    async def serve(self) -> bool:
        """Deal with all that the client sends, to the end; True when that is a DISCONNECT."""
        reader, writer, session = self.reader, self.writer, self.session
        if (
            not isinstance(reader, GuardedReader)
            or not isinstance(writer, GuardedWriter)
            or session is None
        ):
            raise ProtocolHandlerError("a connection that did not come through the door")
        while (packet := await reader.next()) is not None:
            if isinstance(packet, Disconnect):
                return True
            await self._handle(session, packet, writer)
            await writer.relieve()
        return False

    async def send(self, packet: PublishPacket | PubrelPacket) -> None:
        """Write a packet of the outbox; waits while the client does not read."""
        await self._send_packet(packet)

    async def _handle(self, session: Session, packet: Packet, writer: GuardedWriter) -> None:
        match packet:
            case Publish():
                await self._publish(session, packet, writer)
            case Pubrel(packet_id):
                # Twice, or over a later connection than PUBREC: PUBCOMP is owed in any case
                # [MQTT-4.3.3-2].
                message = session.inflight_in.pop(packet_id, None)
                if message is not None:
                    await self._routes.route(session, message)
                writer.write(build.pubcomp(packet_id))
            case Puback(packet_id) | Pubcomp(packet_id):
                outbox_of(session).acknowledged(packet_id)
            case Pubrec(packet_id):
                outbox_of(session).received(packet_id, PubrelPacket.build(packet_id))
                writer.write(build.pubrel(packet_id))
            case Pingreq():
                writer.write(build.pingresp())
            case Subscribe(packet_id, filters):
                codes = await self._routes.subscribe(session, filters)
                writer.write(build.suback(packet_id, codes))
                await self._routes.send_retained(session, filters, codes)
            case Unsubscribe(packet_id, names):
                self._routes.unsubscribe(session, names)
                writer.write(build.unsuback(packet_id))
            case _:  # the decoder lets nothing else through
                raise ProtocolHandlerError(f"{type(packet).__name__} from a client")

    async def _publish(self, session: Session, packet: Publish, writer: GuardedWriter) -> None:
        """MQTT 3.1.1 section 4.3; QoS 2 by its method A: routed when PUBREL comes."""
        message = IncomingApplicationMessage(
            packet.packet_id or None, packet.topic, packet.qos, packet.payload, packet.retain
        )
        if packet.qos == 2:
            session.inflight_in[packet.packet_id] = message
            writer.write(build.pubrec(packet.packet_id))
            return
        await self._routes.route(session, message)
        if packet.qos == 1:
            writer.write(build.puback(packet.packet_id))
