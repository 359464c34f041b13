"""A scratch connection for messages on which the broker may hang up: what the journal publishes
again, and what was under way when the publish link fell.

One connection serves both: what was under way waits until the journal is done. Nothing that others
need goes over it, so that a message on which the broker hangs up ends this connection alone. Then
all that was under way on it goes out once more, one message at a time. One that ends its connection
twice in a row, while the broker lets us in before and after and has kept the control link, is to
blame and is not tried again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from sealmq.broker.promises import BrokerTakes
from sealmq.mqtt import Packet, PacketIds, Puback, Pubcomp, Pubrec, build

from .core.limits import LINGER_S, OPENING_S, PUBLISH_HEAD
from .links.broker import BrokerAddress, BrokerAway, BrokerLink
from .links.publish import OVER, NotTaken, Over

# Brokers have a limit of their own on what is under way: 20 is Mosquitto's.
_IN_FLIGHT = 16
_TRIES = 2


class _Ended(Exception):
    """The connection ended, or fell silent, before the broker had the message."""


class MessageConnection:
    """`takes` gives the broker's limits. `life` is ControlLink.life: a message is published only
    in the life of the broker for which it was meant, since in another one the journal's messages
    have to come first.
    """

    def __init__(
        self,
        address: BrokerAddress,
        client_id: str,
        takes: Callable[[], BrokerTakes],
        life: Callable[[], Awaitable[int]],
    ) -> None:
        self._address, self._client_id = address, client_id
        self._takes, self._life = takes, life
        self._wire: _Wire | None = None
        self._opening = asyncio.Lock()
        self._slots = asyncio.Semaphore(_IN_FLIGHT)
        # What was under way when the connection ended goes out one message at a time.
        self._alone = asyncio.Lock()
        self._suspects = 0
        self._calm = asyncio.Event()
        self._calm.set()
        self._users = 0
        self._idle: asyncio.TimerHandle | None = None

    async def publish(
        self,
        topic: bytes,
        payload: bytes,
        qos: int,
        retain: bool,
        may: Callable[[], bool] = lambda: True,
    ) -> None:
        """Returns when the broker has it. Raises BrokerAway, NotTaken; Over where its client does
        not `may` any more: that is asked each time that it goes out, since it may wait before.
        """
        size = PUBLISH_HEAD + len(topic) + len(payload)
        if not self._takes().takes(topic.decode(), size):
            raise NotTaken("the broker hangs up on such topics or sizes, as it did when tried")
        self._users += 1
        if self._idle is not None:
            self._idle.cancel()
            self._idle = None
        life = None
        try:
            async with self._slots:
                try:
                    wire = await self._common()
                    life = wire.life
                    await wire.publish(topic, payload, qos, retain, may)
                except _Ended:
                    await self._suspected(life, topic, payload, qos, retain, may)
        finally:
            self._users -= 1
            if not self._users:
                loop = asyncio.get_running_loop()
                self._idle = loop.call_later(LINGER_S, self.close)

    def close(self) -> None:
        """Ends the connection; what is under way raises BrokerAway, or goes over a new one."""
        if self._wire is not None:
            self._wire.close()
            self._wire = None

    async def _common(self) -> _Wire:
        while True:
            await self._calm.wait()
            async with self._opening:
                if not self._calm.is_set():
                    continue  # it fell while this waited for its turn
                if self._wire is None or not self._wire.up:
                    self._wire = await self._open(self._client_id)
                return self._wire

    # The life is asked for once the connection is there: so it is the life of this connection.
    async def _open(self, client_id: str, life: int | None = None) -> _Wire:
        wire = await _Wire.open(self._address, client_id, self._fell)
        try:
            wire.life = await self._life()
            if life is not None and wire.life != life:
                raise BrokerAway("the broker was lost meanwhile")
            await wire.ping()
        except _Ended as error:
            wire.close()
            raise BrokerAway(str(error)) from None
        except BaseException:
            wire.close()
            raise
        return wire

    # What was under way there wakes up first, and is tried alone before anything else goes out.
    def _fell(self) -> None:
        self._calm.clear()
        asyncio.get_running_loop().call_soon(self._calm_if_none)

    def _calm_if_none(self) -> None:
        if not self._suspects:
            self._calm.set()

    async def _suspected(
        self,
        life: int | None,
        topic: bytes,
        payload: bytes,
        qos: int,
        retain: bool,
        may: Callable[[], bool],
    ) -> None:
        self._suspects += 1
        self._calm.clear()
        try:
            async with self._alone:
                await self._try_alone(life, topic, payload, qos, retain, may)
        finally:
            self._suspects -= 1
            self._calm_if_none()

    async def _try_alone(
        self,
        life: int | None,
        topic: bytes,
        payload: bytes,
        qos: int,
        retain: bool,
        may: Callable[[], bool],
    ) -> None:
        reason = ""
        # Another identifier: the common connection, opened again meanwhile, must not end this one.
        name = self._client_id + "/alone"
        for _ in range(_TRIES):
            wire = await self._open(name, life)
            try:
                await wire.publish(topic, payload, qos, retain, may)
                return
            except _Ended as error:
                reason = str(error)
            finally:
                wire.close()
        # It must let us in and answer after that, too; else it was the broker that went away.
        (await self._open(name, life)).close()
        raise NotTaken(f"{reason}, {_TRIES} times in a row, and took others meanwhile")


class _Wire:
    """One connection, and what it has under way."""

    def __init__(self, fell: Callable[[], None]) -> None:
        self._fell = fell
        self._link = BrokerLink(self._packet, self._lost)
        self._ids = PacketIds()
        self._acks: dict[int, asyncio.Future[None]] = {}
        self.life = 0

    @classmethod
    async def open(cls, address: BrokerAddress, client_id: str, fell: Callable[[], None]) -> _Wire:
        """`fell` is called after those who wait for messages under way. Raises BrokerAway."""
        wire = cls(fell)
        await wire._link.open(address, client_id)
        return wire

    @property
    def up(self) -> bool:
        return self._link.up

    async def publish(
        self, topic: bytes, payload: bytes, qos: int, retain: bool, may: Callable[[], bool]
    ) -> None:
        """Waits for the end of the handshake; at QoS 0 for the answer to a ping. Raises _Ended."""
        if not may():
            raise Over(OVER)
        if not qos:
            self._link.send(build.publish(topic, payload, 0, retain))
            await self.ping()
            return
        packet_id = self._ids.take()
        ack = self._acks[packet_id] = asyncio.get_running_loop().create_future()
        self._link.send(build.publish(topic, payload, qos, retain, packet_id=packet_id))
        try:
            await self._awaited(ack)
        finally:
            self._acks.pop(packet_id, None)
            self._ids.release(packet_id)

    async def ping(self) -> None:
        """Whether the broker still answers. Raises _Ended."""
        try:
            await self._awaited(self._link.ping())
        except BrokerAway as error:
            raise _Ended(str(error)) from None

    async def _awaited(self, answer: asyncio.Future[None]) -> None:
        if not self.up:
            raise _Ended("the broker closed the connection")
        try:
            async with asyncio.timeout(OPENING_S):
                await answer
        except TimeoutError:
            # The other messages that are under way here would wait for nothing, too.
            self._lost(f"the broker did not answer for {OPENING_S} s")
            self.close()
            raise _Ended(f"the broker did not answer for {OPENING_S} s") from None

    def close(self) -> None:
        self._link.close()
        self._lost("the connection was closed")

    def _packet(self, packet: Packet) -> None:
        if isinstance(packet, Pubrec):
            self._link.send(build.pubrel(packet.packet_id))
        elif isinstance(packet, Puback | Pubcomp):
            ack = self._acks.get(packet.packet_id)
            if ack is not None and not ack.done():
                ack.set_result(None)

    def _lost(self, reason: str) -> None:
        for waiting in self._acks.values():
            if not waiting.done():
                waiting.set_exception(_Ended(reason))
                waiting.exception()
        self._fell()
