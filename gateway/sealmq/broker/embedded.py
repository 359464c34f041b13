"""amqtt 0.12.1 as a broker for mediators: every decision that it leaves open is made here.

Each override says what amqtt does by itself. They reach into its private methods, so pyproject.toml
pins the exact version, and a test compares it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from amqtt.adapters import ReaderAdapter, WriterAdapter
from amqtt.broker import Broker, Server
from amqtt.contexts import Action, BrokerConfig, ListenerConfig, ListenerType
from amqtt.errors import BrokerError
from amqtt.mqtt.disconnect import DisconnectPacket
from amqtt.mqtt.protocol.broker_handler import BrokerProtocolHandler
from amqtt.session import ApplicationMessage, Session

from .credentials import Credentials
from .handler import MediatorHandler, outbox_of
from .plugins import MEDIATOR

REFUSED = 0x80
# A session that nobody came back for is forgotten after a week.
SESSION_S = 7 * 24 * 3600


def config(credentials: Credentials, address: str) -> BrokerConfig:
    """All of amqtt's configuration, nothing left to its defaults that decides anything.

    Only the two plugins are loaded: no anonymous access, no $SYS topics, no packet log. The
    listener is external: amqtt opens no socket; the door (gate.py) hands connections in.
    """
    return BrokerConfig(
        listeners={"default": ListenerConfig(type=ListenerType.EXTERNAL, bind=address)},
        timeout_disconnect_delay=0,
        session_expiry_interval=SESSION_S,
        plugins={
            "sealmq.broker.plugins.MediatorAuth": {"credentials": credentials},
            "sealmq.broker.plugins.MediatorTopics": {},
        },
    )


class MediatorBroker(Broker):
    """The broker. Its routing table and sessions are amqtt's; sending is the outboxes'."""

    async def _topic_filtering(self, session: Session, topic: str, action: Action) -> bool:
        """Deny unless every topic plugin says yes, and there is one (amqtt allows when none is).

        amqtt runs each plugin in a task of its own for every subscriber, and walks its table of
        subscriptions meanwhile, so that a SUBSCRIBE in between loses the message. This does not
        suspend.
        """
        plugins = self.plugins_manager._topic_plugins
        if not plugins:
            return False
        for plugin in plugins:
            if (
                await plugin.topic_filtering(session=session, topic=topic, action=action)
                is not True
            ):
                return False
        return True

    async def _initialize_client_session(
        self, reader: ReaderAdapter, writer: WriterAdapter, remote_address: str, remote_port: int
    ) -> tuple[BrokerProtocolHandler, Session]:
        _, session = await super()._initialize_client_session(
            reader, writer, remote_address, remote_port
        )
        return MediatorHandler(self.plugins_manager, self), session

    async def _handle_client_session(
        self,
        reader: ReaderAdapter,
        writer: WriterAdapter,
        client_session: Session,
        handler: BrokerProtocolHandler,
        server: Server,
        listener_name: str,
    ) -> None:
        """amqtt leaves ended clean sessions to a task that may hit their successor.

        And a session whose connection failed on the way stays "connected" there for ever.
        """
        try:
            await super()._handle_client_session(
                reader, writer, client_session, handler, server, listener_name
            )
        finally:
            outbox_of(client_session).offline()
            name = client_session.client_id or ""
            if self._sessions.get(name) == (client_session, handler):
                if client_session.transitions.state == "connected":
                    await self._stop_handler(handler)
                    client_session.transitions.disconnect()
                mediator = client_session.attributes.get(MEDIATOR) is True
                if client_session.clean_session or not mediator:
                    outbox_of(client_session).clear()
                    await self._cleanup_session(name)

    async def _publish_session_retained_messages(self, session: Session) -> None:
        """The connection has started. amqtt marks what waited as retained, which it is not."""
        handler = self._get_handler(session)
        if isinstance(handler, MediatorHandler):
            outbox_of(session).online(handler.send)

    async def _publish_retained_messages_for_subscription(
        self, subscription: tuple[str, int], session: Session
    ) -> None:
        """Nothing. amqtt calls this at each CONNECT for the filters of every client there is."""

    async def _client_message_loop(
        self, client_session: Session, handler: BrokerProtocolHandler
    ) -> None:
        """Serve the connection to its end, then end it: its will, where it left without a word."""
        if not isinstance(handler, MediatorHandler):
            raise BrokerError("a connection that did not come through the door")
        ended: asyncio.Future[DisconnectPacket | None] = asyncio.get_running_loop().create_future()
        ended.set_result(DisconnectPacket() if await handler.serve() else None)
        await self._handle_disconnect(client_session, handler, ended)

    async def subscribe(self, session: Session, filters: Sequence[tuple[str, int]]) -> list[int]:
        """The granted QoS of each filter, or 0x80."""
        return [await self.add_subscription(wanted, session) for wanted in filters]

    async def send_retained(
        self, session: Session, filters: Sequence[tuple[str, int]], codes: Sequence[int]
    ) -> None:
        """What is retained for the granted filters, repeated ones included [MQTT-3.8.4-3]."""
        for (topic_filter, _), code in zip(filters, codes, strict=True):
            if code != REFUSED:
                await self._send_retained(topic_filter, code, session)

    def unsubscribe(self, session: Session, filters: Sequence[str]) -> None:
        """Forget these filters. amqtt keeps, and walks for ever, one that nobody holds."""
        for topic_filter in filters:
            self._del_subscription(topic_filter, session)
            if self._subscriptions.get(topic_filter) == []:
                del self._subscriptions[topic_filter]

    async def add_subscription(self, subscription: tuple[str, int], session: Session) -> int:
        """amqtt keeps the old QoS when a filter is subscribed to again [MQTT-3.8.4-3]."""
        code = await super().add_subscription(subscription, session)
        if code != REFUSED:
            held = self._subscriptions[subscription[0]]
            for index, (holder, _) in enumerate(held):
                if holder.client_id == session.client_id:
                    held[index] = (session, code)
        return code

    async def _send_retained(self, topic_filter: str, granted: int, session: Session) -> None:
        box = outbox_of(session)
        for topic, kept in list(self._retained_messages.items()):
            if self._matches(topic, topic_filter) and await self._topic_filtering(
                session, topic, Action.RECEIVE
            ):
                box.put(topic, kept.data, min(granted, kept.qos or 0), retain=True)

    async def route(self, session: Session, message: ApplicationMessage) -> None:
        """Route a PUBLISH. amqtt forgets the QoS it came with."""
        if await self._topic_filtering(session, message.topic, Action.PUBLISH):
            await self._broadcast_message(session, message.topic, message.data, message.qos)
            if message.retain and message.data:
                await self.retain_message(None, message.topic, message.data, message.qos)
            elif message.retain:
                # amqtt keeps the topic, with an empty message for each new subscriber.
                self._retained_messages.pop(message.topic, None)

    async def _broadcast_message(
        self,
        session: Session | None,
        topic: str | None,
        data: bytes | bytearray | None,
        force_qos: int | None = None,
    ) -> None:
        """One copy to each subscriber, at the higher of its granted QoS, at most the publisher's.

        [MQTT-3.3.5-1, MQTT-3.8.4-6]. amqtt sends a copy a filter, in a task each.
        """
        if not topic or data is None:
            return
        targets: dict[str, tuple[Session, int]] = {}
        for topic_filter, holders in self._subscriptions.items():
            if self._matches(topic, topic_filter):
                for holder, granted in holders:
                    name = holder.client_id or ""
                    if name not in targets or targets[name][1] < granted:
                        targets[name] = (holder, granted)
        for target, granted in targets.values():
            qos = granted if force_qos is None else min(granted, force_qos)
            connected = target.transitions.state == "connected"
            if (connected or (qos and not target.clean_session)) and await self._topic_filtering(
                target, topic, Action.RECEIVE
            ):
                outbox_of(target).put(topic, data, qos, retain=False)
