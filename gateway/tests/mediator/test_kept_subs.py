"""Subscriptions of a kept session: on disk before their SUBACK, in order, bounded, there again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sealmq.mediator import keptsubs
from sealmq.mediator.core.limits import SUBSCRIPTIONS
from sealmq.mediator.keptsubs import KeptSubs
from sealmq.mediator.sessions import Sessions
from sealmq.site.config import Limits
from sealmq.store import (
    KeptGone,
    KeptSession,
    KeptSub,
    KeptSubGone,
    Store,
    StoreRecord,
    StoreUnavailable,
)
from sealmq_spec.errors import TooLarge

KEY = (5, "tablet")
A, B = KeptSub(*KEY, "!AP/a{x}", 1, "a"), KeptSub(*KEY, "b", 0, "b")


class Disk:
    """A store whose commits wait until `go`, and then fail if `full`."""

    def __init__(self) -> None:
        self.jobs: list[tuple[Sequence[StoreRecord], asyncio.Future[list[Any]]]] = []
        self.full = False

    async def commit(self, records: Sequence[StoreRecord]) -> list[Any]:
        future = asyncio.get_running_loop().create_future()
        self.jobs.append((records, future))
        return list(await future)

    async def go(self) -> list[list[StoreRecord]]:
        """Carries out what waits; gives it."""
        await _turn()
        jobs, self.jobs = self.jobs, []
        for _, future in jobs:
            if self.full:
                future.set_exception(StoreUnavailable("no space left"))
            else:
                future.set_result([])
        await _turn()
        return [list(records) for records, _ in jobs]


async def _turn() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


class Scene:
    """An open connection, as far as KeptSubs touches one."""

    def __init__(self) -> None:
        self.disk = Disk()
        self.said: list[str] = []
        self.tasks: list[asyncio.Task[None]] = []
        self.conn: Any = SimpleNamespace(
            client=SimpleNamespace(number=KEY[0], name="c"),
            client_id=KEY[1],
            state="open",
            hub=SimpleNamespace(
                store=self.disk,
                audit=SimpleNamespace(write=lambda event, **_: self.said.append(event)),
            ),
            spawn=self._spawn,
            stop=self._stop,
        )
        self.subs = KeptSubs(self.conn)  # type: ignore[arg-type]

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        self.tasks.append(asyncio.get_running_loop().create_task(work))

    def _stop(self, reason: str) -> None:
        if self.conn.state == "open":
            self.conn.state = "closed"
            self.said.append("stopped")

    def say(self, what: str) -> Callable[[], None]:
        return lambda: self.said.append(what)


def run(story: Callable[[Scene], Coroutine[Any, Any, None]]) -> None:
    async def whole() -> None:
        await story(Scene())

    asyncio.run(whole())


def test_a_clean_session_waits_for_nothing_and_writes_nothing() -> None:
    async def story(scene: Scene) -> None:
        scene.subs.granted([("a", 1, "a")], scene.say("suback"))
        scene.subs.paused("a", scene.say("pause"))
        scene.subs.ordered(scene.say("resume"))
        scene.subs.left(["a"], scene.say("unsuback"))
        assert scene.said == ["suback", "pause", "resume", "unsuback"]
        assert not scene.tasks
        assert scene.subs.rows == []

    run(story)


def test_nothing_is_answered_before_it_is_on_disk_and_nothing_overtakes() -> None:
    async def story(scene: Scene) -> None:
        scene.subs.begin([A])
        scene.subs.granted([("b", 0, "b")], scene.say("suback"))
        scene.subs.paused(A.filter, scene.say("pause"))
        scene.subs.ordered(scene.say("resume"))
        scene.subs.granted([(A.filter, 1, "a")], scene.say("resumed"))
        scene.subs.left(["b", "never held"], scene.say("unsuback"))
        await _turn()
        assert scene.said == []
        paused = KeptSub(*KEY, A.filter, 1, "")
        assert await scene.disk.go() == [[B], [paused], [], [A], [KeptSubGone(*KEY, "b")]]
        assert scene.said == ["suback", "pause", "resume", "resumed", "unsuback"]
        assert scene.subs.rows == [A]

    run(story)


def test_what_is_stored_already_costs_no_commit() -> None:
    async def story(scene: Scene) -> None:
        scene.subs.begin([A])
        scene.subs.granted([(A.filter, 1, "a")], scene.say("suback"))
        scene.subs.left(["never held"], scene.say("unsuback"))
        assert scene.said == ["suback", "unsuback"]

    run(story)


def test_a_client_is_not_told_what_is_not_stored() -> None:
    async def story(scene: Scene) -> None:
        scene.subs.begin([])
        scene.disk.full = True
        scene.subs.granted([("b", 0, "b")], scene.say("suback"))
        scene.subs.left(["b"], scene.say("unsuback"))
        await scene.disk.go()
        assert scene.said == ["store-unavailable", "stopped"]

    run(story)


def test_a_session_keeps_so_many_and_no_more() -> None:
    async def story(scene: Scene) -> None:
        scene.subs.check("one more")  # clean: what holds for a boot session holds (SPEC.md 9)
        scene.subs.begin(KeptSub(*KEY, f"t/{n}", 0, f"t/{n}") for n in range(SUBSCRIPTIONS))
        scene.subs.check("t/0")
        with pytest.raises(TooLarge):
            scene.subs.check("one more")
        scene.subs.left(["t/0"], scene.say("unsuback"))
        scene.subs.check("one more")
        await scene.disk.go()

    run(story)


def test_a_slow_disk_holds_the_client_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keptsubs, "_PENDING", 2)

    async def story(scene: Scene) -> None:
        scene.subs.begin([])
        handled: list[Any] = []

        def handle(packet: Any) -> None:
            handled.append(packet)
            scene.subs.granted([(packet, 0, packet)], scene.say(packet))

        assert scene.subs.paced(handle, "a") is None  # type: ignore[type-var]
        assert scene.subs.paced(handle, "b") is None  # type: ignore[type-var]
        work = scene.subs.paced(handle, "c")  # type: ignore[type-var]
        assert work is not None
        waiting = asyncio.ensure_future(work)
        await _turn()
        assert handled == ["a", "b"]
        await scene.disk.go()
        await waiting
        assert handled == ["a", "b", "c"]
        await scene.disk.go()
        assert scene.said == ["a", "b", "c"]

    run(story)


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    async def nothing(_: Sessions, key: tuple[int, str], gen: int) -> None:
        """What the broker may keep of before the store is ended there."""

    monkeypatch.setattr(Sessions, "_end_at_broker", nothing)
    store = Store.open(tmp_path / "mediator.db", busy_s=0.05)
    tasks: list[asyncio.Task[None]] = []

    def spawn(work: Coroutine[Any, Any, None], name: str) -> None:
        tasks.append(asyncio.get_running_loop().create_task(work))

    config = SimpleNamespace(limits=Limits())
    yield SimpleNamespace(store=store, spawn=spawn, tasks=tasks, config=config)
    store.close()


CLIENT: Any = SimpleNamespace(number=KEY[0], ended=0)


async def opened(sessions: Sessions, present: bool, gen: int = 1) -> list[KeptSub]:
    """A CONNECT without Clean Session, as far as sessions go."""
    known = await sessions.prepare(CLIENT, gen, KEY[1], clean=False)
    return await sessions.subscriptions(KEY, gen, known, present)


def test_a_session_that_comes_back_has_its_subscriptions(hub: Any) -> None:
    async def story() -> None:
        sessions = Sessions(hub)
        assert await opened(sessions, present=False) == []
        await hub.store.commit([A])
        assert await opened(sessions, present=True) == [A]
        assert await opened(Sessions(hub), present=True, gen=2) == [A], "behind a restart"

    asyncio.run(story())


def test_what_the_broker_has_forgotten_is_forgotten(hub: Any) -> None:
    async def story() -> None:
        sessions = Sessions(hub)
        await opened(sessions, present=False)
        await hub.store.commit([A])
        assert await opened(sessions, present=False) == []
        assert await opened(sessions, present=True) == []

    asyncio.run(story())


def test_a_clean_session_ends_the_kept_one_and_not_the_next(hub: Any) -> None:
    """Whatever order the two commits would have come in."""

    async def story() -> None:
        sessions = Sessions(hub)
        await opened(sessions, present=False)
        await hub.store.commit([A])
        # A clean one is opened, and one that is kept: the store hears of the second one first.
        again = asyncio.ensure_future(opened(sessions, present=False))
        sessions.cleaned(*KEY)
        await again
        await asyncio.gather(*hub.tasks)
        assert sessions.kept(*KEY)
        assert hub.store.kept() == [KeptSession(*KEY, 1)]
        assert await opened(sessions, present=True) == []
        await hub.store.commit([A])
        # And one that is kept is ended by a clean one while it opens: it is known all the same.
        known = await sessions.prepare(CLIENT, 1, KEY[1], clean=False)
        sessions.cleaned(*KEY)
        await asyncio.gather(*hub.tasks)
        assert await sessions.subscriptions(KEY, 1, known, present=False) == []
        await hub.store.commit([KeptGone(*KEY, 9), B])
        assert await opened(sessions, present=True) == [B]

    asyncio.run(story())
