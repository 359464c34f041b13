"""The broker's limits (levels, lengths, sizes), found out by trying them at the mediator's start.

Each attempt is made on a connection that nobody else uses, with topics below `@`, which no client
can name. A message counts as taken when the broker gives it back; hanging up, silence and dropping
it without a word count alike, but only while the broker takes and gives back a plain one.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable

from sealmq.broker.credentials import PROBE_PREFIX
from sealmq.broker.promises import BrokerTakes
from sealmq.mqtt import Packet, Publish, Suback, build
from sealmq_spec.const import MAX_TOPIC

from .core.limits import MAX_PACKET, PUBLISH_HEAD
from .links.broker import BrokerAddress, BrokerAway, BrokerLink

log = logging.getLogger("sealmq.mediator")

# How long an answer is waited for, and for how many bytes a second more.
ANSWER_S = 4.0
BYTES_A_S = 64 * 1024
# One of each kind of character that MQTT advises against.
_CHARACTERS = "\x01\x1f\x7f\x9f\ufdd0\ufdef\ufffe\uffff\U0001ffff\U0010ffff"
_MOST_PACKET = MAX_PACKET + 5
# Brokers have limits for the whole CONNECT, too.
_MOST_CLIENT_ID = 8192
# No topic has more levels.
_MOST_LEVELS = MAX_TOPIC + 1
_REFUSED = 0x80
_ROUNDS = 3


async def try_broker(address: BrokerAddress) -> BrokerTakes:
    """Its limits; of a broker that cannot be tried, what nearly all take. Raises BrokerAway."""
    for _ in range(_ROUNDS):
        trying = _Trying(address)
        try:
            if not await trying.plain():
                break
            found = await trying.all()
            if await trying.confirms(found):
                return found
        finally:
            trying.close()
    found = BrokerTakes()
    log.warning(
        "what the broker takes cannot be tried: it does not give back what is published to it; "
        "topics of at most %d levels and messages of at most %d bytes are taken",
        found.levels,
        found.packet,
    )
    return found


class _Trying:
    def __init__(self, address: BrokerAddress) -> None:
        self._address = address
        self._name = PROBE_PREFIX + os.urandom(8).hex()
        self._topic = "@" + self._name
        self._end = self._topic + "/end"
        self._link: BrokerLink | None = None
        self._came: list[str] = []
        self._codes: list[int] = []
        self._some = asyncio.Event()
        # The longest topic or filter that it takes, once that is known.
        self._length = MAX_TOPIC

    # --- what is tried ---

    async def plain(self) -> bool:
        """Whether it gives back a plain message. Tried twice: it may be busy just then."""
        return await self._topic_taken(self._topic) or await self._topic_taken(self._topic)

    async def all(self) -> BrokerTakes:
        """Each limit by itself."""
        shortest = len(self._topic) + 1
        self._length = await _most(self._long_topic, shortest, MAX_TOPIC)
        return BrokerTakes(
            levels=await self._levels(self._deep_topic),
            filter_levels=await self._levels(self._deep_filter),
            length=self._length,
            client_id=await _most(self._client_id, len(self._name) + 1, _MOST_CLIENT_ID),
            packet=await _most(self._packet, 1024, _MOST_PACKET),
            characters=await self._topic_taken(f"{self._topic}/{_CHARACTERS}"),
        )

    async def confirms(self, found: BrokerTakes) -> bool:
        """Whether the least that it did not take is refused once more: it may have been restarted
        just then.
        """
        attempts = [
            (found.levels, _MOST_LEVELS, self._deep_topic),
            (found.filter_levels, _MOST_LEVELS, self._deep_filter),
            (found.length, MAX_TOPIC, self._long_topic),
            (found.client_id, _MOST_CLIENT_ID, self._client_id),
            (found.packet, _MOST_PACKET, self._packet),
        ]
        for limit, most, attempt in attempts:
            if limit < most and await attempt(limit + 1):
                return False
        return True

    async def _levels(self, attempt: Callable[[int], Awaitable[bool]]) -> int:
        # Our own first levels leave room for so many.
        most = self._length - len(self._topic) + self._topic.count("/") + 1
        found = await _most(attempt, self._topic.count("/") + 1, most)
        return _MOST_LEVELS if found == most else found

    async def _long_topic(self, length: int) -> bool:
        return await self._topic_taken(f"{self._topic}/".ljust(length, "x"))

    def _deep(self, levels: int) -> str:
        return self._topic + "/" * (levels - self._topic.count("/") - 1)

    async def _deep_topic(self, levels: int) -> bool:
        return await self._topic_taken(self._deep(levels))

    async def _deep_filter(self, levels: int) -> bool:
        return await self._filter_taken(self._deep(levels))

    async def _packet(self, size: int) -> bool:
        return await self._topic_taken(self._topic, size - PUBLISH_HEAD - len(self._topic))

    async def _client_id(self, length: int) -> bool:
        self.close()
        try:
            await self._open(self._name.ljust(length, "x"))
        except BrokerAway:
            await self._open(self._name)  # the broker is there
            return False
        return True

    # --- how ---

    async def _topic_taken(self, topic: str, size: int = 1) -> bool:
        link = await self._there()
        if not await self._subscribed(link, f"{self._topic}/#"):
            return False
        self._came.clear()
        link.send(build.publish(topic.encode(), bytes(size)))
        link.send(build.publish(self._end.encode(), b"."))
        if not await self._until(lambda: self._end in self._came, size):
            self.close()
        return topic in self._came

    async def _filter_taken(self, filt: str) -> bool:
        return await self._subscribed(await self._there(), filt)

    async def _subscribed(self, link: BrokerLink, filt: str) -> bool:
        self._codes.clear()
        link.send(build.subscribe(1, [(filt, 0)]))
        if not await self._until(lambda: bool(self._codes)):
            self.close()
            return False
        return self._codes[0] != _REFUSED

    async def _until(self, true: Callable[[], bool], size: int = 0) -> bool:
        try:
            async with asyncio.timeout(ANSWER_S + size / BYTES_A_S):
                while not true():
                    if self._link is None or not self._link.up:
                        return False
                    self._some.clear()
                    await self._some.wait()
        except TimeoutError:
            return False
        return True

    async def _there(self) -> BrokerLink:
        if self._link is None or not self._link.up:
            await self._open(self._name)
        if self._link is None:
            raise BrokerAway("the broker went away")
        return self._link

    async def _open(self, client_id: str) -> None:
        link = BrokerLink(self._packet_came, lambda reason: self._some.set())
        await link.open(self._address, client_id, clean=True)
        self._link = link

    def _packet_came(self, packet: Packet) -> None:
        if isinstance(packet, Publish):
            self._came.append(packet.topic)
        elif isinstance(packet, Suback):
            self._codes.extend(packet.codes)
        self._some.set()

    def close(self) -> None:
        """Leaves nothing behind: its sessions are clean, and nothing is retained."""
        if self._link is not None:
            self._link.close()
            self._link = None


async def _most(taken: Callable[[int], Awaitable[bool]], least: int, most: int) -> int:
    """The highest between both that is taken; `least` is taken to be."""
    if await taken(most):
        return most
    while most - least > 1:
        middle = (least + most) // 2
        if await taken(middle):
            least = middle
        else:
            most = middle
    return least
