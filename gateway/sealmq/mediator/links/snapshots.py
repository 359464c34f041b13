"""Retained messages of a filter, over scratch links.

MQTT 3.1.1 does not say where the retained messages end. Here a retained message of our own does,
the sentinel, whose filter is subscribed to after the other one; and after it a PINGRESP before
which nothing came, since a broker may hold messages back until others are acknowledged.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from sealmq.mqtt import Packet, Publish, Pubrel, QoS2Receiver, build

from ..core.limits import LINGER_S, OPENING_S
from .asking import Asking
from .broker import BrokerAddress, BrokerAway, BrokerLink

log = logging.getLogger("sealmq.mediator")

# Filters that are asked for at a time.
AT_ONCE = 4
# What one filter may bring.
MESSAGES, BYTES = 100_000, 256 * 1024 * 1024
# For a broker that never sends the sentinel: so long nothing may have come.
QUIET_S = 2.0
_PING_S = 0.05
_REFUSED = 0x80


class TooMuchRetained(Exception):
    """More than a snapshot may hold."""


class _Ended(Exception):
    """The scratch link fell."""


class Snapshots:
    """`sentinel`: the topic of a message that stands retained on the broker at its highest QoS."""

    def __init__(self, address: BrokerAddress, client_id: str, sentinel: str) -> None:
        self._address, self._client_id, self._sentinel = address, client_id, sentinel
        self._slots = asyncio.Semaphore(AT_ONCE)
        self._idle: list[_Scratch] = []
        self._opened = 0

    async def fetch(self, filt: str, messages: int = MESSAGES, size: int = BYTES) -> list[Publish]:
        """All that is retained for it, each with the QoS it was published with. Raises BrokerAway,
        TooMuchRetained. A filter that the broker refuses has none.
        """
        if not self._address.retained:
            return []
        async with self._slots:
            try:
                return await self._fetch(filt, messages, size)
            except _Ended:
                pass
            try:
                return await self._fetch(filt, messages, size)
            except _Ended as error:
                raise BrokerAway(f"the broker ended two snapshots in a row: {error}") from None

    def close(self) -> None:
        """Ends the links that nobody uses just now."""
        for scratch in self._idle:
            scratch.close()
        self._idle.clear()

    async def _fetch(self, filt: str, messages: int, size: int) -> list[Publish]:
        scratch = await self._scratch()
        try:
            found = await scratch.fetch(filt, messages, size)
        except BaseException:
            scratch.close()
            raise
        self._idle.append(scratch)
        scratch.idle(self._forget)
        return found

    async def _scratch(self) -> _Scratch:
        while self._idle:
            scratch = self._idle.pop()
            scratch.busy()
            if scratch.up:
                return scratch
        self._opened += 1
        scratch = _Scratch(self._address, self._sentinel)
        await scratch.open(f"{self._client_id}/{self._opened}")
        return scratch

    def _forget(self, scratch: _Scratch) -> None:
        if scratch in self._idle:
            self._idle.remove(scratch)
        scratch.close()


class _Scratch:
    """One link, one filter at a time."""

    def __init__(self, address: BrokerAddress, sentinel: str) -> None:
        self._address, self._sentinel = address, sentinel
        self._link = BrokerLink(self._came, self._lost)
        self._asking = Asking(self._link.send)
        self._twos = QoS2Receiver()
        self._timer: asyncio.TimerHandle | None = None
        self._found: dict[str, Publish] = {}
        self._size = 0
        self._most = (0, 0)
        self._sentinels = 0
        # Whether something came since the last ping.
        self._some = False
        self._fault: Exception | None = None

    @property
    def up(self) -> bool:
        return self._link.up

    async def open(self, client_id: str) -> None:
        await self._link.open(self._address, client_id)

    def busy(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def idle(self, over: Callable[[_Scratch], None]) -> None:
        """Calls `over` when nobody has needed it for a short while."""
        self._timer = asyncio.get_running_loop().call_later(LINGER_S, over, self)

    def close(self) -> None:
        self.busy()
        self._link.close()
        self._asking.lost("the scratch link was closed")

    async def fetch(self, filt: str, messages: int, size: int) -> list[Publish]:
        """Raises _Ended, TooMuchRetained."""
        self._found, self._size, self._most = {}, 0, (messages, size)
        self._sentinels, self._fault = 0, None
        qos = self._address.qos
        try:
            async with asyncio.timeout(OPENING_S):
                [code] = await self._asking.subscribe([(filt, qos)])
            if code == _REFUSED:
                return []
            sentinels = 1 + _matches(filt, self._sentinel)
            asked = self._asking.subscribe([(self._sentinel, qos)])
            await self._until_end(sentinels)
            async with asyncio.timeout(OPENING_S):
                await asked
                await self._asking.unsubscribe([filt, self._sentinel])
        except TimeoutError:
            raise _Ended("the broker does not answer") from None
        except BrokerAway as error:
            if self._fault is not None:
                raise self._fault from None
            raise _Ended(str(error)) from None
        found, self._found = self._found, {}
        return list(found.values())

    async def _until_end(self, sentinels: int) -> None:
        loop = asyncio.get_running_loop()
        quiet = loop.time()
        while True:
            self._some = False
            await self._link.answers()
            if self._some or len(self._twos):
                quiet = loop.time()
                continue
            if self._sentinels >= sentinels:
                return
            if loop.time() - quiet > QUIET_S:
                log.warning(
                    "the broker did not send the end of what is retained: some of it may be missing"
                )
                return
            await asyncio.sleep(_PING_S)

    def _came(self, packet: Packet) -> None:
        if isinstance(packet, Publish):
            if packet.qos == 2:
                if self._twos.accept(packet.packet_id):
                    self._take(packet)
                self._link.send(build.pubrec(packet.packet_id))
                return
            self._take(packet)
            if packet.qos:
                self._link.send(build.puback(packet.packet_id))
        elif isinstance(packet, Pubrel):
            self._some = True
            self._twos.release(packet.packet_id)
            self._link.send(build.pubcomp(packet.packet_id))
        else:
            self._asking.took(packet)

    def _take(self, packet: Publish) -> None:
        # What is published meanwhile comes over the live link.
        if not packet.retain or self._fault is not None:
            return
        self._some = True
        if packet.topic == self._sentinel:
            self._sentinels += 1
            return
        before = self._found.get(packet.topic)
        self._size += len(packet.payload) - (len(before.payload) if before is not None else 0)
        self._found[packet.topic] = packet
        messages, size = self._most
        if len(self._found) > messages or self._size > size:
            self._found.clear()
            self._fault = TooMuchRetained(
                f"more is retained for this filter than {messages} messages or {size} bytes"
            )
            self._link.give_up("too much is retained")

    def _lost(self, reason: str) -> None:
        self._asking.lost(reason)


def _matches(filt: str, topic: str) -> bool:
    """Whether a filter takes a topic of ours, which begins with `@`."""
    levels, parts = filt.split("/"), topic.split("/")
    for n, level in enumerate(levels):
        if level == "#":
            return True
        if n >= len(parts) or level not in ("+", parts[n]):
            return False
    return len(levels) == len(parts)
