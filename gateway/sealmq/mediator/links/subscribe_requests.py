"""SUBSCRIBE and UNSUBSCRIBE on one connection to the broker, and its answers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence

from sealmq.mqtt import Packet, PacketIds, Suback, Unsuback, build

from .broker import BrokerAway

Filters = Sequence[tuple[str, int]]


class SubscribeRequests:
    """Uses packet ids of its own, which are independent of those of the broker's PUBLISHes."""

    def __init__(self, send: Callable[[bytes], None]) -> None:
        self._send = send
        self._ids = PacketIds()
        self._waiting: dict[int, tuple[int, asyncio.Future[tuple[int, ...]]]] = {}
        self._before = 0

    def subscribe(self, filters: Filters) -> asyncio.Future[tuple[int, ...]]:
        """The broker's codes, one a filter; BrokerAway."""
        packet_id, answer = self._asks(len(filters))
        self._send(build.subscribe(packet_id, filters))
        return answer

    def unsubscribe(self, filters: Iterable[str]) -> asyncio.Future[tuple[int, ...]]:
        """Done when the broker has answered; BrokerAway."""
        packet_id, answer = self._asks(0)
        self._send(build.unsubscribe(packet_id, filters))
        return answer

    def took(self, packet: Packet) -> bool:
        """Whether the packet was an answer."""
        if isinstance(packet, Suback):
            codes = packet.codes
        elif isinstance(packet, Unsuback):
            codes = ()
        else:
            return False
        count, answer = self._waiting.pop(packet.packet_id, (0, None))
        if answer is not None:
            self._ids.release(packet.packet_id)
            if not answer.done():
                # If there are too few codes, the filters without one were not granted.
                answer.set_result((*codes, *(0x80,) * count)[:count])
        return True

    def overdue(self) -> str | None:
        """Asked at each ping. Why to give the broker up: it has left a packet unanswered since."""
        oldest = next(iter(self._waiting), 0)
        if oldest and oldest == self._before:
            return "the broker does not answer SUBSCRIBE or UNSUBSCRIBE"
        self._before = oldest
        return None

    def lost(self, reason: str) -> None:
        """The connection is over."""
        waiting, self._waiting = self._waiting, {}
        for _, answer in waiting.values():
            if not answer.done():
                answer.set_exception(BrokerAway(reason))
                answer.exception()

    def _asks(self, count: int) -> tuple[int, asyncio.Future[tuple[int, ...]]]:
        packet_id = self._ids.take()
        answer: asyncio.Future[tuple[int, ...]] = asyncio.get_running_loop().create_future()
        self._waiting[packet_id] = count, answer
        return packet_id, answer
