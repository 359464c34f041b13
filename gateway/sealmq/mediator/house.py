"""The mediator's own broker connection: public records as retained messages, and whether the broker
is there.

All clients depend on it, so nothing that a client has made goes over it (messages.py). It
reconnects for ever; whatever it published retained is published again after a broker's loss
(SPEC.md 8).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable

from sealmq.mqtt import Packet, PacketIds, Puback, build

from .core.limits import KEEPALIVE_UPSTREAM_S, OPENING_S
from .upstream import BrokerAddress, BrokerAway, Upstream

log = logging.getLogger("sealmq.mediator")


class HouseConnection:
    """`retained` gives (topic, payload) of all that has to stand on the broker.

    `seen` hears None when the broker is there, and the reason when it is lost. `back` is awaited
    behind the first, before the broker counts as there.
    """

    def __init__(
        self,
        address: BrokerAddress,
        client_id: str,
        retained: Callable[[], Iterable[tuple[str, bytes]]],
        seen: Callable[[str | None], None],
        back: Callable[[], Awaitable[None]],
    ) -> None:
        self._seen, self._back = seen, back
        self._address, self._client_id, self._retained = address, client_id, retained
        self._upstream: Upstream | None = None
        self._ids = PacketIds()
        self._acks: dict[int, asyncio.Future[None]] = {}
        self._lost = asyncio.Event()
        self._stale = asyncio.Event()
        self.ready = asyncio.Event()
        self.losses = 0
        # Why nobody can connect; None while `up`.
        self.away: str | None = "the broker has not answered yet"

    async def life(self) -> int:
        """Which life of the broker this is."""
        return self.losses

    @property
    def connected(self) -> bool:
        """Whether the broker is there, though it may not have back what it lost."""
        return self._upstream is not None and self._upstream.up

    @property
    def up(self) -> bool:
        """Whether the broker is there, as far as this connection knows, and has what it lost."""
        return self.connected and self.ready.is_set()

    def republish(self) -> None:
        """What `retained` gives has changed."""
        self._stale.set()

    async def run(self) -> None:
        """Holds the connection until cancelled."""
        wait = 0.1
        while True:
            try:
                await self._hold()
                wait = 0.1
            except BrokerAway as error:
                self.away = str(error)
                if wait == 0.1:
                    log.warning("%s; trying again", error)
            self.ready.clear()
            await asyncio.sleep(wait)
            wait = min(wait * 2, 5.0)

    async def _hold(self) -> None:
        self._lost.clear()
        upstream = Upstream(self._packet, self._gone)
        await upstream.open(self._address, self._client_id, clean=True)
        self._upstream, self._ids, self._acks = upstream, PacketIds(), {}
        try:
            self._seen(None)
            self.away = "the broker is tried, and what it may have lost is published again"
            await self._beating(upstream, self._back())
            self._stale.set()
            while upstream.up:
                await self._next(upstream)
        except BrokerAway as error:
            # Given up on while connected: whether it is killed next, nobody would hear.
            if upstream.up:
                self._gone(str(error))
            raise
        finally:
            upstream.close()
            self._upstream = None
            self._give_up()

    # What takes long must not end for want of a sign of life from us.
    async def _beating(self, upstream: Upstream, work: Awaitable[None]) -> None:
        async def beat() -> None:
            while upstream.up:
                await asyncio.sleep(KEEPALIVE_UPSTREAM_S)
                upstream.beat()

        beats = asyncio.create_task(beat(), name="house")
        try:
            await work
        finally:
            beats.cancel()

    # Publishes when something changed, beats when nothing did, returns at once when the broker is
    # lost.
    async def _next(self, upstream: Upstream) -> None:
        waits = [asyncio.create_task(e.wait(), name="house") for e in (self._stale, self._lost)]
        try:
            await asyncio.wait(
                waits, timeout=KEEPALIVE_UPSTREAM_S, return_when=asyncio.FIRST_COMPLETED
            )
        finally:
            for wait in waits:
                wait.cancel()
        if not upstream.up:
            return
        if not self._stale.is_set():
            upstream.beat()
            return
        self._stale.clear()
        # A broker that retains nothing may hang up on who tries; clients get records by op 5 too.
        for topic, payload in list(self._retained()) if self._address.retained else []:
            await self._publish(topic.encode(), payload, min(1, self._address.qos))
        self.ready.set()
        self.away = None

    async def _publish(self, topic: bytes, payload: bytes, qos: int) -> None:
        upstream = self._upstream
        if upstream is None or not upstream.up:
            raise BrokerAway("the broker is away")
        if qos == 0:
            upstream.send(build.publish(topic, payload, 0, True))
            return
        packet_id = self._ids.take()
        ack = self._acks[packet_id] = asyncio.get_running_loop().create_future()
        upstream.send(build.publish(topic, payload, qos, True, packet_id=packet_id))
        try:
            async with asyncio.timeout(OPENING_S):
                await ack
        except TimeoutError:
            raise BrokerAway("the broker did not acknowledge") from None
        finally:
            self._acks.pop(packet_id, None)
            self._ids.release(packet_id)

    def _packet(self, packet: Packet) -> None:
        if isinstance(packet, Puback):
            ack = self._acks.get(packet.packet_id)
            if ack is not None and not ack.done():
                ack.set_result(None)

    def _gone(self, reason: str) -> None:
        log.warning("broker lost: %s", reason)
        self.losses += 1
        self.away = reason
        self.ready.clear()
        self._seen(reason)
        self._lost.set()
        self._give_up()

    def _give_up(self) -> None:
        for waiting in self._acks.values():
            if not waiting.done():
                waiting.set_exception(BrokerAway("the broker was lost before it acknowledged"))
                waiting.exception()
