"""Retained messages of a filter, over scratch links, as fast as they are taken.

MQTT 3.1.1 does not mark their end. A retained message of our own does, the sentinel: filter and
sentinel are subscribed to in one SUBSCRIBE, in this order and at the highest QoS. A broker that
drops messages for want of room drops the sentinel as well: then the snapshot raises SnapshotCut.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable
from itertools import islice

from sealmq.mqtt import Packet, Publish, Pubrel, QoS2Receiver, build

from ..core.limits import LINGER_S, OPENING_S
from .broker import BrokerAddress, BrokerAway, BrokerLink, OnUnfit, nobody_hears
from .subscribe_requests import SubscribeRequests

# Snapshots that have a link at a time, and how long one keeps it if nobody takes its messages.
PLACES = 16
STALL_S = 10.0
# Messages handed out at a time; and how much may wait on a link before it stops reading.
CHUNK = 64
WAITING, WAITING_BYTES = 256, 1024 * 1024
# Of one filter in all.
MESSAGES, BYTES = 1_000_000, 1 << 30
# A broker that answers pings and sends nothing new for twice as long has nothing more to send.
QUIET_S = 2.0
_REFUSED = 0x80


class SnapshotCut(Exception):
    """What came before is not all that is retained for this filter."""


class SnapshotEnded(BrokerAway):
    """The broker accepted the link and then ended it, twice in a row."""


class _Ended(Exception):
    """The scratch link fell."""


class Snapshots:
    """`sentinel`: the topic of a message that stands retained on the broker at its highest QoS.
    `on_unfit`: as BrokerLink has it.

    One client has one place at a time; clients get places in turn.
    """

    def __init__(
        self,
        address: BrokerAddress,
        client_id: str,
        sentinel: str,
        on_unfit: OnUnfit = nobody_hears,
    ) -> None:
        self.address, self.sentinel = address, sentinel
        self._on_unfit = on_unfit
        self._client_id = client_id
        self._places = asyncio.Semaphore(PLACES)
        self._turns: dict[Hashable, tuple[asyncio.Lock, int]] = {}
        self._idle: list[_Scratch] = []
        self._opened = 0

    def of(self, client: Hashable, filt: str) -> Snapshot:
        """A snapshot for this client. Nothing happens before its first `more`."""
        return Snapshot(self, client, filt)

    def close(self) -> None:
        """Closes the links that nobody uses just now."""
        for scratch in self._idle:
            scratch.close()
        self._idle.clear()

    # --- for Snapshot ---

    async def place(self, client: Hashable) -> _Scratch:
        """A link, when it is this client's turn. Raises BrokerAway, _Ended."""
        lock, users = self._turns.get(client, (asyncio.Lock(), 0))
        self._turns[client] = lock, users + 1
        try:
            await lock.acquire()
            try:
                await self._places.acquire()
                try:
                    return await self._scratch()
                except BaseException:
                    self._places.release()
                    raise
            except BaseException:
                lock.release()
                raise
        except BaseException:
            self._leave(client)
            raise

    def free(self, client: Hashable, scratch: _Scratch, clean: bool) -> None:
        """The place is free. `clean`: the link can be used again."""
        if clean and scratch.up:
            scratch.idle(self._forget)
            self._idle.append(scratch)
        else:
            scratch.close()
        self._places.release()
        self._turns[client][0].release()
        self._leave(client)

    def _leave(self, client: Hashable) -> None:
        lock, users = self._turns.pop(client)
        if users > 1:
            self._turns[client] = lock, users - 1

    async def _scratch(self) -> _Scratch:
        while self._idle:
            scratch = self._idle.pop()
            scratch.busy()
            if scratch.up:
                return scratch
        self._opened += 1
        scratch = _Scratch(self._on_unfit)
        await scratch.open(self.address, f"{self._client_id}/{self._opened}")
        return scratch

    def _forget(self, scratch: _Scratch) -> None:
        if scratch in self._idle:
            self._idle.remove(scratch)
        scratch.close()


class Snapshot:
    """One filter's retained messages. A link that falls is opened again once, and what has been
    handed out already is not handed out again.
    """

    def __init__(self, snapshots: Snapshots, client: Hashable, filt: str) -> None:
        self._snapshots, self._client, self._filter = snapshots, client, filt
        self._scratch: _Scratch | None = None
        self._seen: set[str] = set()
        self._bytes = 0
        self._falls = 0
        self._timer: asyncio.TimerHandle | None = None
        self._over = False

    async def more(self) -> tuple[list[Publish], bool]:
        """At most CHUNK messages, each with the QoS it was published with, and whether there may be
        more. Raises BrokerAway, SnapshotEnded, and SnapshotCut when the broker has not sent all;
        then it is over.
        """
        if self._over or not self._snapshots.address.retained:
            return [], False
        self._stop_timer()
        try:
            some, more = await self._next()
            for packet in some:
                self._seen.add(packet.topic)
                self._bytes += len(packet.payload)
            if len(self._seen) > MESSAGES or self._bytes > BYTES:
                raise SnapshotCut(
                    f"more is retained for this filter than {MESSAGES} messages or {BYTES} bytes"
                )
        except BaseException:
            self.close()
            raise
        if more:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(STALL_S, self._detach, False)
        else:
            self._over = True
            self._detach(True)
        return some, more

    def close(self) -> None:
        """The rest is not wanted."""
        self._over = True
        self._detach(False)

    async def _next(self) -> tuple[list[Publish], bool]:
        while True:
            try:
                if self._scratch is None:
                    scratch = await self._snapshots.place(self._client)
                    if self._over:
                        self._snapshots.free(self._client, scratch, True)
                        return [], False
                    self._scratch = scratch
                    snapshots = self._snapshots
                    qos = snapshots.address.qos
                    if not await scratch.begin(self._filter, snapshots.sentinel, qos, self._seen):
                        return [], False
                return await self._scratch.chunk()
            except _Ended as error:
                self._detach(False)
                self._falls += 1
                if self._over or self._falls > 1:
                    raise SnapshotEnded(f"the broker ended a snapshot twice: {error}") from None

    # Gives its place to others. If more is wanted later, it begins again, without what was taken.
    def _detach(self, clean: bool) -> None:
        self._stop_timer()
        if self._scratch is not None:
            scratch, self._scratch = self._scratch, None
            self._snapshots.free(self._client, scratch, clean)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class _Scratch:
    """One link, which asks for one filter at a time."""

    def __init__(self, on_unfit: OnUnfit) -> None:
        self._link = BrokerLink(self._came, self._lost, on_unfit=on_unfit)
        self._asking = SubscribeRequests(self._link.send)
        self._twos = QoS2Receiver()
        self._timer: asyncio.TimerHandle | None = None
        self._asked: tuple[str, str] = ("", "")
        self._seen: set[str] = set()
        # Copies of the sentinel that are still to come, and of what was handed out before.
        self._sentinels = self._repeats = 0
        # By topic, in the order in which they came.
        self._waiting: dict[str, Publish] = {}
        self._bytes = 0
        self._arrivals = 0
        self._news = asyncio.Event()
        self._reason = ""

    @property
    def up(self) -> bool:
        return self._link.up

    async def open(self, address: BrokerAddress, client_id: str) -> None:
        await self._link.open(address, client_id)

    async def begin(self, filt: str, sentinel: str, qos: int, seen: set[str]) -> bool:
        """Whether the broker takes this filter. Raises _Ended, SnapshotCut."""
        self._asked, self._seen = (filt, sentinel), seen
        # A copy comes for each filter that the sentinel matches.
        self._sentinels = 1 + _matches(filt, sentinel)
        self._repeats = len(seen)
        self._waiting.clear()
        self._bytes = 0
        try:
            async with asyncio.timeout(OPENING_S):
                codes = await self._asking.subscribe([(filt, qos), (sentinel, qos)])
        except TimeoutError:
            raise _Ended("the broker does not answer") from None
        except BrokerAway as error:
            raise _Ended(str(error)) from None
        if codes[0] != _REFUSED and codes[1] != qos:
            raise SnapshotCut("the broker does not grant the end mark of what is retained")
        return codes[0] != _REFUSED

    async def chunk(self) -> tuple[list[Publish], bool]:
        """At least one message, but at the end. Raises _Ended, SnapshotCut."""
        quiet = 0
        while not self._waiting and self._sentinels > 0:
            if not self.up:
                raise _Ended(self._reason)
            arrivals = self._arrivals
            self._news.clear()
            try:
                async with asyncio.timeout(QUIET_S):
                    await self._news.wait()
                quiet = 0
                continue
            except TimeoutError:
                pass
            try:
                await self._link.answers()
            except BrokerAway as error:
                raise _Ended(str(error)) from None
            quiet = quiet + 1 if self._arrivals == arrivals else 0
            if quiet > 1:
                raise SnapshotCut("the broker did not send all that is retained for this filter")
        some = [self._waiting.pop(topic) for topic in list(islice(self._waiting, CHUNK))]
        self._bytes -= sum(len(packet.payload) for packet in some)
        if not self._full():
            self._link.pause(False)
        return some, bool(self._waiting) or self._sentinels > 0

    def idle(self, over: Callable[[_Scratch], None]) -> None:
        """Calls `over` when nobody has needed it for a short while."""
        self._asking.unsubscribe(self._asked)
        self._timer = asyncio.get_running_loop().call_later(LINGER_S, over, self)

    def busy(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def close(self) -> None:
        self.busy()
        self._link.close()
        self._lost("the scratch link was closed")

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
            self._twos.release(packet.packet_id)
            self._link.send(build.pubcomp(packet.packet_id))
        else:
            self._asking.took(packet)

    def _take(self, packet: Publish) -> None:
        # What is published meanwhile comes over the live link.
        if not packet.retain:
            return
        topic = packet.topic
        if topic == self._asked[1]:
            self._sentinels -= 1
        elif topic in self._seen:
            self._repeats -= 1
            if self._repeats < 0:
                return  # repeats beyond those that are expected are no progress
        elif topic in self._waiting:
            return
        else:
            self._waiting[topic] = packet
            self._bytes += len(packet.payload)
            if self._full():
                self._link.pause(True)
        self._arrivals += 1
        self._news.set()

    def _full(self) -> bool:
        return len(self._waiting) >= WAITING or self._bytes >= WAITING_BYTES

    def _lost(self, reason: str) -> None:
        self._reason = reason
        self._asking.lost(reason)
        self._news.set()


def _matches(filt: str, topic: str) -> bool:
    """Whether a filter takes a topic of ours, which begins with `@`."""
    levels, parts = filt.split("/"), topic.split("/")
    for n, level in enumerate(levels):
        if level == "#":
            return True
        if n >= len(parts) or level not in ("+", parts[n]):
            return False
    return len(levels) == len(parts)
