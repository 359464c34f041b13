"""A journal with its broker's file and a clock, and what lies in one."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from mediator_world import LOW, NOW_MS, SENSOR, World, sealed
from sealmq.mediator.core.wrap import for_broker, open_m2, verify_m2
from sealmq.mediator.journal import Journal
from sealmq.mediator.journal_file import Entry
from sealmq.order import Order
from sealmq_spec.const import LIVE

TOPIC = "t/x"


def message(world: World, lies_under: tuple[str, str] | None = None) -> bytes:
    """An m3 of the sensor's; under a grant with an item."""
    session, client = world.session(SENSOR), world.ring.clients[SENSOR]
    packet, link = sealed(session, TOPIC, b"payload"), world.link(session)
    verified = verify_m2(link, TOPIC.encode(), packet, 2)
    opened = open_m2(link, world.ring, client, verified, 2, NOW_MS // 1000)
    inner = world.ring.labels[LOW], opened.body, opened.start, lies_under
    items = {40: b"57"} if lies_under else {}
    return for_broker(world.ring, Order(9), *inner, items, LIVE, TOPIC.encode(), NOW_MS)


def entry(payload: bytes, qos: int = 1, retain: bool = False) -> Entry:
    return Entry(NOW_MS, TOPIC.encode(), payload, qos, retain, SENSOR, 1)


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


class Disk:
    """A journal, a broker's file, a clock; what it told."""

    def __init__(self, folder: Path, saved: bool = True) -> None:
        self.folder = folder / "journal"
        self.file = folder / "mosquitto.db"
        self.file.write_bytes(b"0")
        self.clock = Clock()
        self.told: list[str | None] = []
        self.dropped: list[tuple[int, str]] = []
        self._saved = saved
        self.journal = self.open()

    def open(self) -> Journal:
        return Journal(
            self.folder,
            self.file if self._saved else None,
            60.0,
            self.told.append,
            lambda size, reason: self.dropped.append((size, reason)),
            self.clock,
        )

    def tick(self, seconds: float) -> None:
        """Once a second, for so long."""
        for _ in range(int(seconds)):
            self.clock.now += 1
            self.journal.tick()

    def save(self) -> None:
        """The broker writes its file."""
        stamp = self.file.stat().st_mtime_ns + 10**9
        os.utime(self.file, ns=(stamp, stamp))

    def put(self, payload: bytes, qos: int = 1, client: int = 1) -> int:
        return self.journal.append(b"t", payload, qos, False, client)

    async def accepted(self, payload: bytes, client: int = 1) -> None:
        """One is on disk, and the broker has acknowledged it."""
        seq = self.put(payload, client=client)
        await self.journal.safe(seq)
        self.journal.acked(seq)

    def saves(self, count: int) -> None:
        """The broker saves that often, some seconds between."""
        for _ in range(count):
            self.save()
            self.tick(5)

    def held(self) -> list[bytes]:
        """Payloads of what is on disk and was not given up."""
        return [entry.payload for entry in self.journal.entries(self.journal.all())]

    async def goes_at_the_third_save(self) -> None:
        for _ in range(2):
            self.save()
            self.tick(2)
            assert self.held() == [b"one"]
        self.save()
        self.tick(1)
        await until(lambda: self.held() == [])


@asynccontextmanager
async def world(folder: Path, saved: bool = True) -> AsyncIterator[Disk]:
    made = Disk(folder, saved)
    try:
        yield made
    finally:
        await made.journal.close()


def run(story: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(30):
            await story()

    asyncio.run(bounded())


async def until(look: Callable[[], bool]) -> None:
    """Returns when it is so."""
    for _ in range(3000):
        if look():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("waited in vain")
