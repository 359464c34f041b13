"""A bridge's process as it follows the key generator, which tells it when something has changed."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import pytest

from bridge.test_bridge_parts import NORTH, SOUTH, port
from sealmq.bridge import process
from sealmq.bridge.process import Bridge
from sealmq.bridge.serving import Changed
from sealmq.kglink import Crossings, KgClient
from sealmq.run import ready
from sealmq.run.ready import Ready
from sealmq.site.check import parse
from sealmq.site.layout import Layout

SITE = '[site]\nname = "north"\nid = "01010101"\n[labels]\nheat = []\n'


def crossings(at: int, peers: bool, kseq: int = 1, more: str = "") -> Crossings:
    text = SITE + more
    if peers:
        text += (
            f'[peers.south]\nfingerprint = "{SOUTH[1].fingerprint}"\n'
            f'listen = "127.0.0.1:{at}"\nexport = ["heat"]\n'
        )
    config = parse(text)
    return Crossings(config.peers, [], {}, text, kseq, config.digest)


class KeyGenerator:
    """Says what it is told to. asked: the operations that were asked for, in their order."""

    def __init__(self, there: Crossings) -> None:
        self.there, self.asked = there, list[str]()
        self.news: asyncio.Queue[Crossings] = asyncio.Queue()
        self.enrolled = asyncio.Event()

    async def peer_watch(self) -> AsyncIterator[tuple[int, str]]:
        self.asked.append("watch")
        while True:
            yield self.there.kseq, self.there.policy
            self.there = await self.news.get()

    async def peer_enrol(self) -> Crossings:
        self.asked.append("enrol")
        self.enrolled.set()
        return self.there


class Log:
    def write(self, event: str, **fields: Any) -> None: ...


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    found = Layout.of(tmp_path)
    for folder in (found.state_of("bridge"), found.run_of("bridge"), found.run_of("mediator")):
        folder.mkdir(parents=True)
    ready.write(found, Ready("mediator", os.getpid(), "127.0.0.1:1", True), user="root")
    return found


def test_it_asks_once_and_what_the_operator_changes_counts_at_once(
    layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A removed peer's line ends with the news, not with the next tick."""
    monkeypatch.setattr(process, "_TICK_S", 0.001)
    at = port()

    async def scene() -> None:
        kg = KeyGenerator(crossings(at, True))
        bridge = Bridge(layout, kg.there, NORTH[0], cast(KgClient, kg), cast(Any, Log()))
        run = asyncio.ensure_future(bridge.run())
        ticks, tick = asyncio.Semaphore(0), bridge.judge.tick

        def counted(now: int) -> None:
            tick(now)
            ticks.release()

        monkeypatch.setattr(bridge.judge, "tick", counted)
        async with asyncio.timeout(20):
            for _ in range(50):
                await ticks.acquire()
            assert kg.asked == ["watch"]
            monkeypatch.setattr(process, "_TICK_S", 3600)
            await ticks.acquire()  # of what follows no tick is the cause
            kg.news.put_nowait(crossings(at, True, 2, "more = []\n"))
            await kg.enrolled.wait()
            assert not run.done(), "what crosses is the same"
            kg.news.put_nowait(crossings(at, False, 3))
            with pytest.raises(Changed):
                await run
            with pytest.raises(ConnectionError):
                await asyncio.open_connection("127.0.0.1", at)
        assert kg.asked == ["watch", "enrol", "enrol"]

    asyncio.run(scene())
