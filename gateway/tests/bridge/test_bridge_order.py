"""What waits to be judged or published again is not overtaken by what comes after it: a reader's
window refuses a message that comes more than 64 too late, though it was acknowledged."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

from bridge.crossing_world import LABEL, Site, World, m1, site_of
from sealmq.bridge.crossing import OK, Crossing
from sealmq.bridge.passing import which
from sealmq.bridge.serving import Publishing
from sealmq.bridge.traffic import Handed, Import
from sealmq.client.errors import refusal

ROW = [("b1", "b2"), ("b2", "b3")]
MANY = 120


class Mediator:
    """Of the importer. hears: whether it has heard of the label's keys. got: counters."""

    def __init__(self) -> None:
        self.hears, self.got = True, list[int]()

    def _once(self, raw: bytes) -> Exception | None:
        if not self.hears:
            why = "the keys of epoch 7 have not come"
            return refusal("publish", "@b1/x", 6, "mediator.publish.wrongepoch", why)
        self.got.append(which(raw)[1])
        return None

    def pass_on_nowait(self, topic: str, raw: bytes, retain: bool, over: Any) -> bool:
        asyncio.get_running_loop().call_soon(lambda: over(self._once(raw)))
        return True

    async def pass_on(self, topic: str, raw: bytes, qos: int, retain: bool, s: float) -> None:
        await asyncio.sleep(0)
        if (error := self._once(raw)) is not None:
            raise error


class Scene:
    """b3 delivers what comes over b2's line."""

    def __init__(self, folder: Path, begun: float = 0.0) -> None:
        self.world = World(folder, ROW, "b3")
        self.world.publish(900)  # so that its token is known
        self.b3: Site = self.world["b3"]
        self._token = self.world.token()
        self.mediator, self.said = Mediator(), list[tuple[int, str]]()
        self._all = asyncio.Event()
        self._handed, self._tasks = Handed(begun=begun), set[asyncio.Task[None]]()
        client: Any = self.mediator
        way = Publishing(client, self._later, 10.0)

        def deliver(where: Import, one: Crossing, over: Any) -> None:
            way.put(f"@{where.peer}/{one.topic}", one.m1, False, over)

        self.b3.traffic._deliver = deliver

    def _later(self, work: Coroutine[Any, Any, None]) -> None:
        self._tasks.add(asyncio.get_running_loop().create_task(work))

    def bring(self, ctr: int) -> None:
        one = Crossing(ctr, 2, 2, site_of("b1"), LABEL, self._token, "boiler/1", m1(ctr))
        self.b3.traffic.take("b2", self._handed, one, self._answered)

    def _answered(self, code: int, why: str) -> None:
        self.said.append((code, why))
        if len(self.said) == MANY:
            self._all.set()

    async def all_are_there(self) -> None:
        await self._all.wait()
        assert self.said == [(OK, "")] * MANY
        assert self.mediator.got == list(range(1, MANY + 1))


def test_keys_of_which_the_mediator_has_not_heard(tmp_path: Path) -> None:
    scene = Scene(tmp_path)

    async def story() -> None:
        scene.mediator.hears = False
        for ctr in (1, 2, 3):
            scene.bring(ctr)
        await asyncio.sleep(0.05)  # they were refused, and wait
        scene.mediator.hears = True
        for ctr in range(4, MANY + 1):
            scene.bring(ctr)
            await asyncio.sleep(0)
        await scene.all_are_there()

    asyncio.run(asyncio.wait_for(story(), 60))


def test_records_that_come_after_the_first_messages_of_a_line(tmp_path: Path) -> None:
    scene = Scene(tmp_path, time.monotonic())

    async def story() -> None:
        judge: Any = scene.b3.judge
        said = judge._x._board._said
        held = dict(said)
        said.clear()
        judge._x._forget()
        for ctr in (1, 2, 3):
            scene.bring(ctr)
        assert not scene.said
        said.update(held)
        judge._x._forget()
        for ctr in range(4, MANY + 1):
            scene.bring(ctr)
            await asyncio.sleep(0)
        await scene.all_are_there()

    asyncio.run(asyncio.wait_for(story(), 60))
