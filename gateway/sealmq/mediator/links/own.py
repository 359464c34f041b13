"""A session's own link: all messages of a kept session and those of `$share` come over it, with the
broker's packet ids, which a kept session's client remembers.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Sequence

from sealmq.mqtt import Packet, Publish

from ..core.limits import HELD_BYTES, HELD_PACKETS
from .broker import BrokerAddress, BrokerAway, BrokerLink, OnUnfit, nobody_hears
from .subscribe_requests import Filters, SubscribeRequests


class OwnLink:
    """`packet` gets PUBLISH, PUBREL and whatever else the broker sends, but nothing before the
    first `pause(False)` or while paused. `lost` is called once, with the reason.

    While paused it reads on until HELD_PACKETS or HELD_BYTES wait, so that the answer to a
    SUBSCRIBE comes through.
    """

    def __init__(
        self,
        packet: Callable[[Packet], None],
        lost: Callable[[str], None],
        on_unfit: OnUnfit = nobody_hears,
    ) -> None:
        self._packet, self._lost = packet, lost
        self._link = BrokerLink(self._came, self._ended, overdue=self._overdue, on_unfit=on_unfit)
        self._asking = SubscribeRequests(self._link.send)
        self._paused = True
        self._held: deque[Packet] = deque()
        self._bytes = 0

    async def open(self, address: BrokerAddress, client_id: str, clean: bool) -> bool:
        """The broker's session-present flag. Raises BrokerAway."""
        return await self._link.open(address, client_id, clean)

    @property
    def up(self) -> bool:
        """Whether the broker is there."""
        return self._link.up

    async def subscribe(self, filters: Filters) -> Sequence[int]:
        """The broker's codes, one a filter. Raises BrokerAway."""
        if not self._link.up:
            raise BrokerAway("the session's link to the broker is lost")
        return list(await self._asking.subscribe(filters))

    async def unsubscribe(self, filters: Sequence[str]) -> None:
        """Returns when the broker has answered. Raises BrokerAway."""
        if not self._link.up:
            raise BrokerAway("the session's link to the broker is lost")
        await self._asking.unsubscribe(filters)

    def send(self, data: bytes) -> None:
        """An acknowledgement, encoded."""
        self._link.send(data)

    def pause(self, on: bool) -> None:
        """Stops handing packets on, or goes on."""
        self._paused = on
        while self._held and not self._paused:
            packet = self._held.popleft()
            self._bytes -= _size(packet)
            self._packet(packet)
        if not self._full():
            self._link.pause(False)

    def close(self) -> None:
        """`lost` is not called."""
        self._link.close()
        self._over("the session's link to the broker was closed")

    def _came(self, packet: Packet) -> None:
        if type(packet) is not Publish and self._asking.took(packet):
            return
        if not self._paused:
            self._packet(packet)
            return
        self._held.append(packet)
        self._bytes += _size(packet)
        if self._full():
            self._link.pause(True)

    def _full(self) -> bool:
        return len(self._held) >= HELD_PACKETS or self._bytes >= HELD_BYTES

    # While nothing is read, the broker's answer may wait unread.
    def _overdue(self) -> str | None:
        return None if self._full() else self._asking.overdue()

    def _ended(self, reason: str) -> None:
        self._over(reason)
        self._lost(reason)

    def _over(self, reason: str) -> None:
        self._held.clear()
        self._bytes = 0
        self._asking.lost(reason)


async def open_again(
    address: BrokerAddress,
    client_id: str,
    filters: Callable[[bool], Awaitable[Filters]],
) -> int:
    """Opens a session that the broker keeps, subscribes to what `filters` gives for whether the
    broker had it, and leaves it. How many it refused. Raises BrokerAway, and what `filters` does.

    What comes is not acknowledged, so it waits there for the client.
    """
    own = OwnLink(lambda packet: None, lambda reason: None)
    try:
        wanted = await filters(await own.open(address, client_id, clean=False))
        own.pause(False)
        refused = 0
        for at in range(0, len(wanted), address.filters):
            codes = await own.subscribe(wanted[at : at + address.filters])
            refused += sum(code > 2 for code in codes)
        return refused
    finally:
        own.close()


async def end_session(address: BrokerAddress, client_id: str) -> None:
    """Ends a session that the broker keeps, with its queue. Raises BrokerAway."""
    own = OwnLink(lambda packet: None, lambda reason: None)
    await own.open(address, client_id, clean=True)
    own.close()


def _size(packet: Packet) -> int:
    return len(packet.payload) if isinstance(packet, Publish) else 0
