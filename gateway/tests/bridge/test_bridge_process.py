"""A bridge's process as it follows the key generator, which tells it when something has changed."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from bridge.crossing_world import m1
from bridge.test_bridge_parts import NORTH, OTHER, SOUTH
from free_ports import free_port
from sealmq.bridge import process, told
from sealmq.bridge.line import LineLost
from sealmq.bridge.line import call as call_peer
from sealmq.bridge.passing import Passing
from sealmq.bridge.process import Bridge
from sealmq.bridge.serving import Changed, Publishing, Since
from sealmq.bridge.traffic import Import
from sealmq.client import Options
from sealmq.client.errors import ServerUnavailable, connect_refused, refusal
from sealmq.kglink import Crossings, KgClient
from sealmq.run import ready
from sealmq.run.ready import Ready
from sealmq.site.check import parse
from sealmq.site.layout import Layout
from sealmq.site.model import Peer
from sealmq_spec.errors import Malformed

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
    at = free_port()

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


def test_an_operator_sees_who_called_in_vain_and_what_is_not_exported_there(
    layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = free_port()
    said = crossings(at, True).text + 'import = ["water", "oil"]\n'
    there = Crossings(parse(said).peers, [], {}, said, 1, "")

    def line() -> str:
        return str(told.line(layout, "south")["line"])

    class Keys(KeyGenerator):
        async def peer_take(self, name: str, der: bytes, packet: bytes) -> dict[str, int]:
            return {"water": 7}

    async def scene() -> None:
        bridge = Bridge(layout, there, NORTH[0], cast(KgClient, Keys(there)), cast(Any, Log()))
        client = cast(Any, SimpleNamespace(error=None))
        bridge._in = {Import("south", label): client for label in ("water", "oil")}
        neighbour, told_once, say = bridge._neighbours["south"], asyncio.Semaphore(0), bridge.say

        def says(name: str, text: str) -> None:
            say(name, text)
            told_once.release()

        monkeypatch.setattr(bridge, "say", says)
        work = asyncio.create_task(neighbour.run())
        async with asyncio.timeout(20):
            await told_once.acquire()  # that it waits
            with pytest.raises(LineLost):
                await call_peer(OTHER[0], Peer("north", NORTH[1].fingerprint, ("127.0.0.1", at)))
            await told_once.acquire()
        assert line() == "waiting for its call; a caller was sent away: another fingerprint"
        await bridge.keys_of("south", SOUTH[0].der, b"")
        bridge.say("south", "up")
        assert line() == "up; it does not export oil"
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)

    asyncio.run(scene())


@pytest.mark.parametrize("at_once", [True, False])
@pytest.mark.parametrize(
    ("code", "rule", "keys_s", "tries"),
    [
        (6, "mediator.publish.wrongepoch", 10.0, 3),
        (6, "mediator.publish.wrongepoch", 0.0, 1),
        (5, "mediator.publish.nokey", 10.0, 1),
        (5, "labels.publish", 10.0, 1),
    ],
)
def test_a_mediator_may_not_have_heard_yet_of_keys_that_have_come(
    at_once: bool, code: int, rule: str, keys_s: float, tries: int
) -> None:
    """A message that is the first under them is not given up for that."""
    said = refusal("publish", "@north/a", code, rule, "no")

    class Client:
        tried = 0

        def once(self) -> Exception | None:
            self.tried += 1
            return said if self.tried < 3 else None

        def pass_on_nowait(self, topic: str, raw: bytes, retain: bool, over: Any) -> bool:
            if at_once:
                over(self.once())
            return at_once

        async def pass_on(self, topic: str, raw: bytes, qos: int, retain: bool, s: float) -> None:
            if (error := self.once()) is not None:
                raise error

    async def scene() -> None:
        client: Any = Client()
        told: asyncio.Queue[Exception | None] = asyncio.Queue()
        async with asyncio.TaskGroup() as group:
            later: Any = group.create_task
            Publishing(client, later, keys_s).put("@north/a", m1(1), False, told.put_nowait)
            assert await told.get() is (None if tries == 3 else said)
        assert (client.tried, told.empty()) == (tries, True)

    asyncio.run(scene())


def test_what_can_not_be_sent_at_all_is_told_and_nothing_else_ends() -> None:
    said = Malformed("a topic has 1 to 1024 bytes, this one 1027")

    class Client:
        def pass_on_nowait(self, *_: Any) -> bool:
            raise said

    client: Any = Client()
    told: list[Exception | None] = []
    later: Any = None
    Publishing(client, later, 10.0).put("@north/a", m1(1), False, told.append)
    assert told == [said]


@pytest.mark.parametrize("code", [3, 5])
def test_a_broker_that_is_away_is_none_that_keeps_no_sessions(
    layout: Layout, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    """CONNACK 3: without its session the bridge would lose what comes while it is away. 5 is the
    answer of one that keeps none."""
    asked: list[bool] = []

    class Client:
        def __init__(self, options: Options) -> None:
            self.options = options

        async def connect(self) -> None:
            asked.append(self.options.clean)
            if not self.options.clean:
                raise connect_refused(code)

        async def subscribe(self, filt: str, qos: int) -> None: ...

        async def disconnect(self) -> None: ...

    def made(enrolment: Any, address: Any, options: Options, *_: Any) -> Client:
        return Client(options)

    monkeypatch.setattr(Passing, "of", made)
    row = {"peer": "south", "label": "heat", "disabled": False, "out": True, "number": 4}
    there = replace(crossings(free_port(), True), clients=[{**row, "enrolment": {}}])

    async def story() -> None:
        keys = KeyGenerator(there)
        bridge = Bridge(layout, there, NORTH[0], cast(KgClient, keys), cast(Any, Log()))
        try:
            if code == 3:
                with pytest.raises(ServerUnavailable):
                    await bridge._clients()
            else:
                await bridge._clients()
        finally:
            bridge.spool.close()

    asyncio.run(story())
    assert asked == ([False] if code == 3 else [False, True])


@pytest.mark.parametrize("there", [0, 7])
def test_what_comes_before_a_peers_first_keys_waits_for_them(layout: Layout, there: int) -> None:
    text = crossings(free_port(), True).text + 'import = ["water"]\n'
    row = {
        "peer": "south", "label": "water", "out": False, "number": 1, "enrolment": {},
        "disabled": False, "site": "02020202" if there else "", "there": there,
    }  # fmt: skip
    config = parse(text)

    class Keys(KeyGenerator):
        async def peer_take(self, name: str, der: bytes, packet: bytes) -> dict[str, int]:
            return {"water": 7}

    async def scene() -> None:
        found = Crossings(config.peers, [row], {}, text, 1, config.digest)
        bridge = Bridge(layout, found, NORTH[0], cast(KgClient, Keys(found)), cast(Any, Log()))
        bridge._begin()
        bridge._in = {Import("south", "water"): cast(Any, None)}
        awaited, were_there = bridge.traffic.awaited, list[Import]()
        assert awaited.lacks("south") == (not there)
        if not there:
            assert awaited.waits(
                "south", lambda: were_there.extend(bridge.traffic.imports.values())
            )
        await bridge.keys_of("south", SOUTH[0].der, b"")
        assert not awaited.lacks("south")
        assert were_there == [Import("south", "water")] * (not there)
        bridge.spool.close()

    asyncio.run(scene())


def test_since_when_a_line_is_up_or_down_stands_over_all_runs(
    layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    there, since, now = crossings(free_port(), True), Since(), 5_000
    monkeypatch.setattr("time.monotonic_ns", lambda: now * 1_000_000)
    monkeypatch.setattr("time.time", lambda: 1_800_000_000.0 + now / 1000)

    def bridge() -> Bridge:
        keys, log = cast(KgClient, KeyGenerator(there)), cast(Any, Log())
        return Bridge(layout, there, NORTH[0], keys, log, since)

    def seen() -> tuple[str, int | None]:
        row = told.line(layout, "south")
        return str(row["line"]), row["since"]

    async def scene() -> None:
        nonlocal now
        first = bridge()
        first.say("south", "waiting for its call")
        assert seen() == ("waiting for its call", 1_800_000_005)
        now = 9_000
        first.say("south", "Connection refused")
        assert seen() == ("Connection refused", 1_800_000_005)
        first.spool.close()
        second = bridge()
        second.say("south", "beginning")
        assert seen() == ("beginning", 1_800_000_005)
        second.say("south", "up")
        assert seen() == ("up", 1_800_000_009)
        now = 12_000
        second.lost("south", "it has gone")
        assert seen() == ("it has gone", 1_800_000_012)
        second.spool.close()

    asyncio.run(scene())


def test_what_cannot_be_told_on_a_full_disk_ends_no_line_and_is_told_later(layout: Layout) -> None:
    there, path = crossings(free_port(), True), layout.run_of("bridge") / "lines.json"
    path.mkdir()  # nothing can be put there

    async def scene() -> None:
        keys, log = cast(KgClient, KeyGenerator(there)), cast(Any, Log())
        bridge = Bridge(layout, there, NORTH[0], keys, log)
        bridge.say("south", "up")
        path.rmdir()
        bridge.say("south", "up")
        assert told.line(layout, "south")["line"] == "up"
        bridge.spool.close()

    asyncio.run(scene())
