"""The control link: public records as retained messages, and whether the broker is there.

All clients depend on it, so nothing that a client has made goes over it. Whatever it published
retained is published again after a broker's loss (SPEC.md 8).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from sealmq.mqtt import Packet, PacketIds, Puback, Pubcomp, Pubrec, build

from .core.limits import OPENING_S
from .links.broker import BrokerAddress, BrokerAway, BrokerLink
from .links.reconnecting import ReconnectingLink

log = logging.getLogger("sealmq.mediator")


class ControlLink(ReconnectingLink):
    """`retained` gives (topic, payload) of all that has to stand on the broker; `sentinel` is the
    topic that ends snapshots. `seen` is called with None when the broker is there, and with the
    reason at once when it is lost. When it is there, `back` is awaited before the broker counts as
    such (`away` is None).
    """

    def __init__(
        self,
        address: BrokerAddress,
        client_id: str,
        sentinel: str,
        retained: Callable[[], Iterable[tuple[str, bytes]]],
        seen: Callable[[str | None], None],
        back: Callable[[], Awaitable[None]],
        changed: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__(address, client_id, changed)
        self._sentinel, self._retained = sentinel, retained
        self._seen, self._back = seen, back
        self._link: BrokerLink | None = None
        self._ids = PacketIds()
        self._acks: dict[int, asyncio.Future[None]] = {}
        self._stale = asyncio.Event()
        self._work: Callable[[], Awaitable[None]] | None = None
        self.ready = asyncio.Event()
        self.losses = 0
        # Whether the broker was there, all done, in the connection that there is.
        self._served = False

    @property
    def connected(self) -> bool:
        """Whether the broker is there. It may still lack what it lost."""
        return self._link is not None and self._link.up

    def republish(self) -> None:
        """What `retained` gives has changed."""
        self._stale.set()

    def first(self, work: Callable[[], Awaitable[None]]) -> None:
        """The broker does not count as there before this is done, as with `back`. Nothing happens
        where `back` has yet to begin.
        """
        if self.connected:
            self._work = work
            self.ready.clear()
            self._tell("what lay ahead of the clock is published")
            self._stale.set()

    async def life(self) -> int:
        """How often the broker was lost until now. It has to answer on this link first: another
        link may hear sooner that it was lost. Raises BrokerAway.
        """
        if self._link is None:
            raise BrokerAway(self.away or "the broker is away")
        await self._link.answers()
        return self.losses

    async def _hold(self) -> None:
        ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()

        def lost(reason: str) -> None:
            self._gone(reason)
            ended.set_result(reason)

        self._served = False
        link = BrokerLink(self._came, lost)
        await link.open(self._address, self._client_id)
        self._link, self._ids, self._acks = link, PacketIds(), {}
        work: asyncio.Future[None] = asyncio.create_task(self._serve(link), name="control")
        try:
            self._seen(None)
            waits: set[asyncio.Future[Any]] = {work, ended}
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            if not ended.done():
                try:
                    work.result()
                except BrokerAway as error:
                    # It counts as lost: nobody would hear of it if it were killed now.
                    link.give_up(str(error))
            reason = await ended
            if not self._served:
                raise BrokerAway(reason)
        finally:
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)
            link.close()
            self._link = None

    async def _serve(self, link: BrokerLink) -> None:
        self._tell("the broker is tried, and what it may have lost is published again")
        self._work = self._back
        while True:
            self._stale.clear()
            while self._work is not None:
                work, self._work = self._work, None
                await work()
            # A broker that retains nothing may hang up on RETAIN; clients ask for records by op 5.
            if self._address.retained:
                await self._publish(link, self._sentinel, b"end", self._address.qos)
                for topic, payload in list(self._retained()):
                    await self._publish(link, topic, payload, min(1, self._address.qos))
            if not self.ready.is_set():
                self.ready.set()
                self._served = True
                self._tell(None)
            await self._stale.wait()

    async def _publish(self, link: BrokerLink, topic: str, payload: bytes, qos: int) -> None:
        if not link.up:
            raise BrokerAway("the broker is away")
        if not qos:
            link.send(build.publish(topic, payload, 0, True))
            return
        packet_id = self._ids.take()
        ack = self._acks[packet_id] = asyncio.get_running_loop().create_future()
        link.send(build.publish(topic, payload, qos, True, packet_id=packet_id))
        try:
            async with asyncio.timeout(OPENING_S):
                await ack
        except TimeoutError:
            raise BrokerAway("the broker did not acknowledge") from None
        finally:
            self._acks.pop(packet_id, None)
            self._ids.release(packet_id)

    def _came(self, packet: Packet) -> None:
        if isinstance(packet, Pubrec):
            if self._link is not None:
                self._link.send(build.pubrel(packet.packet_id))
        elif isinstance(packet, Puback | Pubcomp):
            ack = self._acks.get(packet.packet_id)
            if ack is not None and not ack.done():
                ack.set_result(None)

    def _gone(self, reason: str) -> None:
        log.warning("broker lost: %s", reason)
        self.losses += 1
        self.ready.clear()
        for ack in self._acks.values():
            if not ack.done():
                ack.set_exception(BrokerAway("the broker was lost before it acknowledged"))
                ack.exception()
        self._tell(reason)
        self._seen(reason)
