"""What one peer does wrong, or says wrongly, ends nobody else's line: a real key generator at its
socket, a real bridge, real lines."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, cast

from bridge.test_bridge_parts import NORTH, OTHER, SOUTH
from free_ports import free_port
from sealmq import peerkeys
from sealmq.bridge import far
from sealmq.bridge.line import FAR, KEYS, TAKEN, Line, LineLost, Own
from sealmq.bridge.line import call as call_peer
from sealmq.bridge.neighbour import keys_budget
from sealmq.bridge.process import Bridge
from sealmq.bridge.traffic import Import
from sealmq.kg.core import Kg
from sealmq.kg.ops import Ops
from sealmq.kg.seal import Vault
from sealmq.kg.server import Server
from sealmq.kg.store import KgStore
from sealmq.kglink import KgClient
from sealmq.run import ready
from sealmq.run.ready import Ready
from sealmq.site.check import parse
from sealmq.site.layout import Layout
from sealmq.site.model import Peer

_NORTH_KG, _SOUTH_KG = (bytes((each,)) * 32 for each in (101, 102))


def _of(number: int, site: bytes, name: str) -> Own:
    key = bytes((number,)) * 32
    return Own(peerkeys.certificate(key, bytes((100 + number,)) * 32, site, name), key)


WEST = _of(7, NORTH[1].site, "west")
"""A far peer whose certificate says north's own id, which is in each message of north's."""
TWIN = _of(9, SOUTH[1].site, "twin")
"""A neighbour whose certificate says south's id."""


class Log:
    def write(self, event: str, **fields: Any) -> None: ...


class Joined:
    """North's bridge, with a line to each of its neighbours."""

    def __init__(self, bridge: Bridge, ports: dict[str, int]) -> None:
        self.bridge, self._ports = bridge, ports
        self.run = asyncio.create_task(bridge.run())

    async def line(self, own: Own, name: str) -> Line:
        at = Peer("north", NORTH[1].fingerprint, ("127.0.0.1", self._ports[name]))
        while True:
            try:
                return await call_peer(own, at)
            except LineLost:
                await asyncio.sleep(0.05)

    async def until(self, so: Callable[[], bool]) -> None:
        while not so():
            assert not self.run.done(), self.run.exception()
            await asyncio.sleep(0.02)

    async def lines(self) -> tuple[Line, Line]:
        good, bad = await self.line(OTHER[0], "other"), await self.line(SOUTH[0], "south")
        await self.until(lambda: self.bridge.traffic.up == {"south", "other"})
        return good, bad


@asynccontextmanager
async def _north(folder: Path) -> AsyncIterator[Callable[[], Awaitable[Joined]]]:
    """Begins a bridge; another one in the same folder when it is called again."""
    layout = Layout.of(folder)
    for role in ("bridge", "kg", "mediator"):
        for place in (layout.state_of(role), layout.run_of(role)):
            place.mkdir(parents=True)
    ready.write(layout, Ready("mediator", os.getpid(), "127.0.0.1:1", True), user="root")
    text = (
        '[site]\nname = "north"\nid = "01010101"\n[policy]\norder = ["labels", "trust"]\n'
        "[labels]\nheat = []\n[families.trust]\n"
    )
    neighbours = {"south": SOUTH[1].fingerprint, "other": OTHER[1].fingerprint}
    neighbours["twin"] = peerkeys.read(TWIN.der).fingerprint
    ports = {name: free_port() for name in neighbours}
    for name, fingerprint in neighbours.items():
        text += f'[peers.{name}]\nfingerprint = "{fingerprint}"\n'
        text += f'listen = "127.0.0.1:{ports[name]}"\ngive = ["a/#"]\n'
    west = peerkeys.read(WEST.der).fingerprint
    config = parse(f'{text}[peers.west]\nfingerprint = "{west}"\nfar = true\nexport = []\n')
    pool = ThreadPoolExecutor(1)

    def kg() -> Kg:
        vault = Vault(_NORTH_KG, config.site.id)
        store = KgStore.create(layout.state_of("kg") / "kg.db", vault, config.site.id)
        made = Kg(store, config, key=peerkeys.kg_key(_NORTH_KG))
        made.apply(config)
        return made

    made = await asyncio.get_running_loop().run_in_executor(pool, kg)
    server = Server(layout, Ops(made, folder / "sealmq.toml", lambda *_, **__: None), pool)
    await server.start()
    begun: list[Joined] = []
    try:
        async with await KgClient.connect(layout.kg_socket) as client:

            async def begin() -> Joined:
                there = await client.peer_enrol()
                joined = Joined(Bridge(layout, there, NORTH[0], client, cast(Any, Log())), ports)
                begun.append(joined)
                return joined

            yield begin
            for each in begun:
                each.run.cancel()
            await asyncio.gather(*(each.run for each in begun), return_exceptions=True)
    finally:
        await server.stop()
        pool.shutdown()


async def _ended(line: Line) -> None:
    with suppress(LineLost):
        while True:
            await line.receive()


def _keys(text: bytes) -> bytes:
    """What south's key generator tells north's."""
    between = peerkeys.Between(peerkeys.kg_key(_SOUTH_KG), SOUTH[1].site, NORTH[1])
    return between.seal(text)


def test_keys_that_are_deeply_nested_end_their_own_line(tmp_path: Path) -> None:
    async def story() -> None:
        async with _north(tmp_path) as begin:
            north = await begin()
            good, bad = await north.lines()
            bad.send(KEYS, _keys(b"[" * 200_000))
            await north.until(lambda: north.bridge.traffic.up == {"other"})
            # The other one's line goes on.
            await _ended(bad)
            assert not good._why

    asyncio.run(asyncio.wait_for(story(), 60))


def test_keys_are_taken_as_fast_as_a_key_generator_can_be_asked(tmp_path: Path) -> None:
    """Who sends more of them waits, and nobody else does."""
    budget, at = keys_budget(), time.monotonic() + 1
    assert [budget.take(0, at) for _ in range(18)] == [0.0] * 16 + [1.0] * 2
    assert budget.take(0, at + 1) == 0

    class Bounded:
        asked = 0

        def take(self, size: int, now: float) -> float:
            self.asked += 1
            return 0.0 if self.asked <= 3 else 3600.0

    async def story() -> None:
        async with _north(tmp_path) as begin:
            north = await begin()
            _, bad = await north.lines()
            taken: list[str] = []

            async def keys_of(name: str, *_: Any) -> None:
                taken.append(name)

            north.bridge.keys_of = keys_of  # type: ignore[method-assign, assignment]
            bounded: Any = Bounded()
            north.bridge._neighbours["south"]._keys = bounded
            for _ in range(9):
                bad.send(KEYS, b"x")
            await north.until(lambda: bounded.asked == 4)
            assert taken == ["south"] * 3

    asyncio.run(asyncio.wait_for(story(), 60))


def test_a_far_peer_that_says_this_sites_id_ends_nothing_and_is_told(tmp_path: Path) -> None:
    """It was kept, and ended the next bridge at its first look as well."""

    async def story() -> None:
        async with _north(tmp_path) as begin:
            north = await begin()
            good, _ = await north.lines()
            to = bytes.fromhex(NORTH[1].fingerprint)
            good.send(FAR, far.pack(WEST, to, 1, far.HELLO))
            west = north.bridge._far["west"]
            await north.until(lambda: "own id" in west.said)
            assert north.bridge.traffic.up == {"south", "other"}
            assert "west" not in north.bridge.spool.certificates()

    asyncio.run(asyncio.wait_for(story(), 60))


def test_a_key_generator_that_has_nothing_for_a_far_peer_ends_no_line(tmp_path: Path) -> None:
    """Such a certificate may be kept already."""

    async def story() -> None:
        async with _north(tmp_path) as begin:
            north = await begin()
            await north.lines()
            north.bridge.spool.put_certificate("west", WEST.der)
            west = north.bridge._far["west"]
            west.again()
            await north.until(lambda: "own id" in west.said)
            assert north.bridge.traffic.up == {"south", "other"}

    asyncio.run(asyncio.wait_for(story(), 60))


def test_a_neighbour_that_says_another_ones_id_is_none(tmp_path: Path) -> None:
    """Its labels would take the place of the other one's."""

    async def story() -> None:
        async with _north(tmp_path) as begin:
            north = await begin()
            await north.lines()
            bridge = north.bridge
            bridge.traffic.imports[SOUTH[1].site, 7] = Import("south", "water")
            twin = await north.line(TWIN, "twin")
            twin.send(TAKEN)
            await _ended(twin)
            await north.until(lambda: "south's site" in bridge._said["twin"])
            assert bridge.traffic.up == {"south", "other"}
            assert bridge.traffic.imports == {(SOUTH[1].site, 7): Import("south", "water")}

    asyncio.run(asyncio.wait_for(story(), 60))
