"""What one session still has to get, in order, across its connections (MQTT 3.1.1 section 4.4).

amqtt forgets a message when the peer does not acknowledge it within five seconds or goes away, and
holds as many messages as come for a peer that does not read. Here they wait in a bounded queue. At
most WINDOW are in flight; those come again, with DUP and their own packet id, when the client
returns. What exceeds the bound is dropped and counted.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable

from amqtt.mqtt.publish import PublishPacket
from amqtt.mqtt.pubrel import PubrelPacket
from amqtt.session import OutgoingApplicationMessage, Session

log = logging.getLogger("sealmq.broker")

WINDOW = 64
MOST_MESSAGES = 100_000
MOST_BYTES = 32 * 1024 * 1024

Send = Callable[[PublishPacket | PubrelPacket], Awaitable[None]]


class Outbox:
    """The queue of one session. `online` sends; without it the queue waits for the client."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._waiting: deque[OutgoingApplicationMessage] = deque()
        self._bytes = 0
        self._more = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._dropped = 0

    @property
    def waiting(self) -> int:
        """Messages that have not been sent yet."""
        return len(self._waiting)

    def put(self, topic: str, data: bytes | bytearray, qos: int, retain: bool) -> bool:
        """Queue a message; False when there is no room."""
        message = OutgoingApplicationMessage(None, topic, qos, data, retain)
        if len(self._waiting) >= MOST_MESSAGES or self._bytes + _held(message) > MOST_BYTES:
            self._drop()
            return False
        self._waiting.append(message)
        self._bytes += _held(message)
        self._more.set()
        return True

    def online(self, send: Send) -> None:
        """The client is there: send what is in flight once more, then what waits."""
        self.offline()
        self._task = asyncio.create_task(self._run(send), name="broker outbox")
        self._task.add_done_callback(_told)

    def offline(self) -> None:
        """The client is gone; QoS 0 does not wait for it [MQTT-3.1.2-5]."""
        if self._task is not None:
            self._task.cancel()
            self._task = None
        self._waiting = deque(m for m in self._waiting if m.qos)
        self._bytes = sum(map(_held, self._waiting))

    def clear(self) -> None:
        """The session has ended."""
        self.offline()
        self._waiting.clear()
        self._bytes = 0

    def acknowledged(self, packet_id: int) -> None:
        """PUBACK or PUBCOMP. One for an unknown id says nothing that matters."""
        if self._session.inflight_out.pop(packet_id, None) is not None:
            self._more.set()

    def received(self, packet_id: int, pubrel: PubrelPacket) -> None:
        """PUBREC: from now on PUBREL, never the message, comes again [MQTT-4.3.3-1]."""
        message = self._session.inflight_out.get(packet_id)
        if message is not None:
            message.pubrel_packet = pubrel

    async def _run(self, send: Send) -> None:
        flying = self._session.inflight_out
        for message in list(flying.values()):
            if message.packet_id in flying:
                again = message.pubrel_packet or message.build_publish_packet(dup=True)
                await send(again)
        while True:
            while not self._waiting or (self._waiting[0].qos and len(flying) >= WINDOW):
                self._more.clear()
                await self._more.wait()
            message = self._waiting.popleft()
            self._bytes -= _held(message)
            if message.qos:
                message.packet_id = self._session.next_packet_id
                flying[message.packet_id] = message
            await send(message.build_publish_packet())

    def _drop(self) -> None:
        self._dropped += 1
        # 1, 2, 4, 8, ...: a flood of drops must not become a flood of lines.
        if self._dropped & (self._dropped - 1) == 0:
            log.warning(
                "%s does not read: %d messages dropped", self._session.client_id, self._dropped
            )


# What is retained the broker has in any case; with it counted, a large snapshot would be cut short.
def _held(message: OutgoingApplicationMessage) -> int:
    return 0 if message.retain else len(message.data)


def _told(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        log.debug("outbox ended: %s", type(error).__name__)
