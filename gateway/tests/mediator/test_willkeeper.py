"""When wills fire whose connections mediator or broker have ended."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from sealmq.mediator import willkeeper
from sealmq.mediator.willkeeper import GRACE_S, WillKeeper
from sealmq.store import WillRecord


def will(client: int, conn: int = 1) -> WillRecord:
    return WillRecord(client, "id", 1, 1, conn, "t", 1, False, 16, conn, b"")


class Keeper:
    """A WillKeeper whose time passes by `passes`; `fired`: clients and connections, in order."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.fired: list[tuple[int, int]] = []
        self.ready = asyncio.Event()
        self.ready.set()
        self._sleeping: list[tuple[float, asyncio.Future[None]]] = []
        engine = SimpleNamespace(who=lambda *_: None, connection=lambda who: None)
        site: Any = SimpleNamespace(engine=engine, ring=SimpleNamespace(clients={}))
        store: Any = SimpleNamespace(wills=list)
        control: Any = SimpleNamespace(ready=self.ready)
        nobody: Any = None
        self.it = WillKeeper(site, store, nobody, nobody, control, nobody, nobody)
        monkeypatch.setattr(self.it, "fire", self._fire)
        monkeypatch.setattr(self.it, "drop", lambda will: None)
        slept = {**vars(asyncio), "sleep": self._sleep}
        monkeypatch.setattr(willkeeper, "asyncio", SimpleNamespace(**slept))

    def _fire(self, will: WillRecord, policy: object) -> None:
        self.fired.append((will.client, will.conn))

    async def _sleep(self, seconds: float) -> None:
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._sleeping.append((seconds, done))
        await done

    async def passes(self) -> None:
        """The pause that it waits for is over."""
        await self.settled()
        ((seconds, done),) = self._sleeping
        assert seconds == GRACE_S
        self._sleeping.clear()
        done.set_result(None)
        await self.settled()

    async def settled(self) -> None:
        for _ in range(10):
            await asyncio.sleep(0)


def played(monkeypatch: pytest.MonkeyPatch, story: Callable[[Keeper], Any]) -> None:
    async def run() -> None:
        keeper = Keeper(monkeypatch)
        running = asyncio.create_task(keeper.it.run())
        await story(keeper)
        assert not running.done()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    asyncio.run(run())


def test_a_will_that_was_left_while_another_one_waits_has_a_grace_of_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It fired with the other one, though its client would have been back in time."""

    async def story(keeper: Keeper) -> None:
        keeper.it.leave(will(1))
        await keeper.settled()
        for client in (2, 3):
            keeper.it.leave(will(client))
        await keeper.passes()
        assert keeper.fired == [(1, 1)]
        keeper.it.returned(3, "id")
        await keeper.passes()
        assert keeper.fired == [(1, 1), (2, 1)]

    played(monkeypatch, story)


def test_a_client_that_returns_and_is_left_again_has_its_newest_will_fired_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def story(keeper: Keeper) -> None:
        keeper.it.leave(will(1))
        await keeper.settled()
        keeper.it.returned(1, "id")
        keeper.it.leave(will(1, conn=2))
        await keeper.passes()
        assert keeper.fired == []
        await keeper.passes()
        assert keeper.fired == [(1, 2)]

    played(monkeypatch, story)


def test_the_grace_begins_again_if_the_broker_was_lost_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def story(keeper: Keeper) -> None:
        keeper.ready.clear()
        keeper.it.leave(will(1))
        await keeper.settled()
        keeper.ready.set()
        await keeper.settled()
        keeper.ready.clear()
        await keeper.passes()
        assert keeper.fired == []
        keeper.ready.set()
        await keeper.passes()
        assert keeper.fired == [(1, 1)]

    played(monkeypatch, story)
