"""Sessions that the broker keeps: what the store knows of them, and what ends them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

from links_scene import so
from mediator_world import PANEL
from reader_scene import Scene
from sealmq.mediator.core.effects import LOST, MAYBE, SURE, BrokerAway
from sealmq.mediator.kept_sessions import KeptSessions
from sealmq.store import KeptGone, KeptSession, KeptSub, Store, StoreUnavailable
from sealmq.store.records import NEVER

KEY = (PANEL, "tablet")
A, B = KeptSub(*KEY, "!AP/a{x}", 1, "a"), KeptSub(*KEY, "b", 0, "b")


class Place:
    """A store, and a broker that forgets what it is told to."""

    def __init__(self, store: Store, reopening: Path) -> None:
        self.scene = Scene()
        self.store = store
        self.reopening = reopening
        self.forgotten: list[str] = []
        self.losses, self.now, self.wall = 0, 0.0, 1_800_000_000.0
        self.there = True
        # What the broker has: filters by session.
        self.broker: dict[str, dict[str, int]] = {}
        self.refuses: set[str] = set()
        self.asked: list[str] = []
        self.sessions = self.restarted()

    def restarted(self) -> KeptSessions:
        """As a mediator that comes back has it."""
        audit: Any = None  # nothing here is told
        store: Any = self.store
        self.sessions = KeptSessions(
            self.scene.site,
            store,
            audit,
            self._forget,
            lambda: self.there,
            lambda: self.losses,
            self._again,
            self._answers,
            self.reopening,
            lambda: self.now,
            lambda: self.wall + self.now,
        )
        return self.sessions

    async def _forget(self, broker_id: str) -> None:
        self.forgotten.append(broker_id)

    async def _again(self, broker_id: str, filters: Any) -> int:
        self.asked.append(broker_id)
        if broker_id in self.refuses:
            raise BrokerAway("no")
        wanted = await filters(broker_id in self.broker)
        self.broker.setdefault(broker_id, {}).update(wanted)
        return 0

    async def _answers(self) -> None:
        pass

    async def opened(self, present: bool, gen: int = 1, expiry: int = NEVER) -> list[KeptSub]:
        """A CONNECT with Clean Session 0, as far as sessions go."""
        client = self.scene.site.ring.clients[PANEL]
        known = await self.sessions.prepare(client, gen, KEY[1], False, expiry)
        return await self.sessions.subscriptions(KEY, gen, known, present)

    async def cleaned(self) -> None:
        """A CONNECT with Clean Session 1."""
        client = self.scene.site.ring.clients[PANEL]
        assert not await self.sessions.prepare(client, 1, KEY[1], clean=True)


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    store = Store.open(tmp_path / "mediator.db", busy_s=0.05)
    yield Place(store, tmp_path / "reopening")
    store.close()


def test_a_session_that_comes_back_has_its_subscriptions(place: Place) -> None:
    async def story() -> None:
        assert await place.opened(present=False) == []
        await place.store.commit([A])
        assert await place.opened(present=True) == [A]
        place.restarted()
        assert await place.opened(present=True, gen=2) == [A], "after a restart"

    asyncio.run(story())


def test_what_the_broker_has_forgotten_is_forgotten(place: Place) -> None:
    async def story() -> None:
        await place.opened(present=False)
        await place.store.commit([A])
        assert await place.opened(present=False) == []
        assert await place.opened(present=True) == []

    asyncio.run(story())


def test_one_that_the_broker_has_forgotten_keeps_its_interval(place: Place) -> None:
    async def story() -> None:
        for _ in range(2):
            await place.opened(present=False, expiry=3600)
            assert [row.expiry for row in place.store.kept()] == [3600]

    asyncio.run(story())


def test_a_clean_session_ends_the_kept_one_before_it_opens_and_not_the_next(place: Place) -> None:
    async def story() -> None:
        await place.opened(present=False)
        await place.store.commit([A])
        forgotten = len(place.forgotten)
        await place.cleaned()
        assert len(place.forgotten) == forgotten + 1
        assert place.store.kept() == []
        assert await place.opened(present=False) == []
        assert place.store.kept() == [KeptSession(*KEY, 1)]
        await place.store.commit([KeptGone(*KEY, 9), B])
        assert await place.opened(present=True) == [B]
        # One that nobody knows of costs the broker nothing.
        await place.cleaned()
        forgotten = len(place.forgotten)
        await place.cleaned()
        assert len(place.forgotten) == forgotten

    asyncio.run(story())


def test_packet_ids_are_doubted_of_a_session_whose_beginning_was_not_seen_or_whose_broker_was_lost(
    place: Place,
) -> None:
    async def story() -> None:
        await place.opened(present=False)
        assert place.sessions.doubtful(KEY, present=False) == SURE
        assert place.sessions.doubtful(KEY, present=True) == SURE
        place.losses = 1
        assert place.sessions.doubtful(KEY, present=True) == LOST
        assert place.sessions.doubtful(KEY, present=False) == SURE
        assert place.restarted().doubtful(KEY, present=True) == MAYBE

    asyncio.run(story())


def test_a_broker_that_was_lost_gets_back_young_sessions_and_filters_and_no_others(
    place: Place,
) -> None:
    async def story() -> None:
        name = place.scene.site.broker_id(*KEY)
        await place.sessions.reopen()
        await place.opened(present=False)
        await place.store.commit([A, B])
        place.sessions.changed(KEY, ["a", "b"])
        place.losses = 1
        await place.sessions.reopen()
        assert place.broker == {name: {"a": 1, "b": 0}}
        assert place.sessions.doubtful(KEY, present=True) == LOST
        # One that the broker still has gets only what is young, since all that is retained there
        # comes with a SUBSCRIBE.
        place.now = 10.0
        place.sessions.saved(9.0)
        place.sessions.changed(KEY, ["b"])
        place.broker[name] = {}
        await place.sessions.reopen()
        assert place.broker == {name: {"b": 0}}
        place.sessions.saved(11.0)
        asked = len(place.asked)
        await place.sessions.reopen()
        assert len(place.asked) == asked

    asyncio.run(story())


def test_after_a_restart_each_session_is_looked_for_until_that_went_well(place: Place) -> None:
    async def story() -> None:
        await place.opened(present=False)
        await place.store.commit([A, B])
        name = place.scene.site.broker_id(*KEY)
        away = place.restarted()

        async def gone() -> None:
            raise BrokerAway("gone")

        place.refuses.add(name)
        away._answers = gone
        with pytest.raises(BrokerAway, match="gone"):
            await away.reopen()
        place.refuses.clear()
        await away.reopen()
        assert place.broker == {name: {"a": 1, "b": 0}}
        # What the broker gets once more, it may lose once more.
        place.broker.clear()
        await away.reopen()
        assert place.broker == {name: {"a": 1, "b": 0}}
        assert away.doubtful(KEY, present=True) == LOST

    asyncio.run(story())


def test_what_the_broker_has_not_saved_is_given_back_even_if_the_mediator_was_restarted_meanwhile(
    place: Place,
) -> None:
    async def story() -> None:
        name = place.scene.site.broker_id(*KEY)
        await place.opened(present=False)
        await place.store.commit([A, B])
        place.broker[name] = {"a": 1, "b": 0}
        again = place.restarted()
        # It is there, so it is not subscribed once more: all that is retained would come.
        place.broker[name] = {}
        await again.reopen()
        assert place.broker == {name: {}}
        place.broker.clear()
        await again.reopen()
        assert place.broker == {name: {"a": 1, "b": 0}}
        # The broker had saved the session and not yet its filters.
        place.broker[name] = {}
        await again.reopen()
        assert place.broker == {name: {"a": 1, "b": 0}}
        again.saved(place.now + 1.0)
        asked = len(place.asked)
        await again.reopen()
        assert len(place.asked) == asked

    asyncio.run(story())


def test_one_session_that_the_broker_does_not_take_holds_up_no_other(place: Place) -> None:
    async def story() -> None:
        await place.opened(present=False)
        await place.store.commit([KeptSession(PANEL, "other", 1), A])
        place.restarted()
        first, other = (place.scene.site.broker_id(PANEL, name) for name in (KEY[1], "other"))
        place.refuses.add(first)
        await place.sessions.reopen()
        assert set(place.broker) == {other}
        # It is tried again, the next time.
        place.refuses.clear()
        await place.sessions.reopen()
        assert place.broker[first] == {"a": 1}

    asyncio.run(story())


def test_of_a_secret_that_is_over_nothing_is_opened_again(place: Place) -> None:
    async def story() -> None:
        await place.opened(present=False)
        del place.scene.site.ring.clients[PANEL]
        place.scene.site.kg_there = True
        place.restarted()
        await place.sessions.reopen()
        assert place.asked == []

    asyncio.run(story())


@pytest.mark.parametrize("how", ["clean", "removed"])
def test_nothing_is_remembered_of_a_session_that_the_broker_was_made_to_forget(
    how: str, place: Place
) -> None:
    async def story() -> None:
        await place.opened(present=False)
        assert place.sessions.doubtful(KEY, present=False) == SURE
        if how == "clean":
            await place.cleaned()
        else:
            del place.scene.site.ring.clients[PANEL]
            place.sessions.sweep()
            await so(lambda: not place.store.kept())
        assert place.sessions.doubtful(KEY, present=True) == MAYBE

    asyncio.run(story())


# --- what a clock ends ---


def played(story: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """What never becomes so fails."""
    asyncio.run(asyncio.wait_for(story(), 30))


async def ticks(place: Place) -> None:
    place.sessions.tick()
    await so(lambda: not place.sessions._untold)
    await asyncio.sleep(0.01)


def test_a_session_ends_so_long_after_its_connection_as_its_connect_has_said(place: Place) -> None:
    async def story() -> None:
        await place.opened(present=False, expiry=3600)
        await place.store.commit([A])
        place.now = 10_000.0
        await ticks(place)
        assert place.store.kept() == [KeptSession(*KEY, 1, 3600)], "while it is connected"
        place.sessions.left(KEY)
        place.now += 3599
        await ticks(place)
        assert await place.opened(present=True, expiry=3600) == [A], "back in time"
        place.now += 10_000
        await ticks(place)
        assert place.store.kept() == [KeptSession(*KEY, 1, 3600)]
        forgotten = len(place.forgotten)
        place.sessions.left(KEY)
        place.now += 3600
        await ticks(place)
        await so(lambda: not place.store.kept())
        assert len(place.forgotten) == forgotten + 1
        assert await place.opened(present=False, expiry=3600) == []

    played(story)


def test_a_client_that_comes_back_too_late_finds_nothing_though_the_clock_was_not_looked_at(
    place: Place,
) -> None:
    async def story() -> None:
        await place.opened(present=False, expiry=60)
        await place.store.commit([A])
        place.sessions.left(KEY)
        place.now = 60.0
        forgotten = len(place.forgotten)
        # The broker is made to forget it before it is asked for it.
        client = place.scene.site.ring.clients[PANEL]
        assert not await place.sessions.prepare(client, 1, KEY[1], False, 60)
        assert len(place.forgotten) == forgotten + 1

    played(story)


@pytest.mark.parametrize("told", [True, False])
def test_a_restart_of_the_mediator_gives_a_session_no_more_than_its_interval(
    told: bool, place: Place
) -> None:
    async def story() -> None:
        await place.opened(present=False, expiry=3600)
        place.sessions.left(KEY)
        if told:
            await ticks(place)
        place.now = 3000.0
        place.restarted()
        await ticks(place)
        # Of one that was killed before it wrote when, the interval begins anew, once.
        left = 600 if told else 3600
        for _ in range(2):
            place.restarted()
        place.now += left - 1
        await ticks(place)
        assert place.store.kept()
        place.now += 1
        await ticks(place)
        await so(lambda: not place.store.kept())

    played(story)


def test_a_clock_that_was_set_while_the_mediator_was_away_ends_none_later_than_its_interval(
    place: Place,
) -> None:
    async def story() -> None:
        await place.opened(present=False, expiry=60)
        place.sessions.left(KEY)
        await ticks(place)
        place.wall -= 10**6
        place.restarted()
        place.now += 60
        await ticks(place)
        await so(lambda: not place.store.kept())

    played(story)


def test_what_is_over_while_the_broker_is_away_ends_when_it_is_back(place: Place) -> None:
    async def story() -> None:
        await place.opened(present=False, expiry=60)
        place.sessions.left(KEY)
        place.there, place.now = False, 60.0
        await ticks(place)
        assert place.store.kept()
        place.there = True
        await place.sessions.reopen()
        assert place.asked == [], "nothing is opened again that is over"
        await ticks(place)
        await so(lambda: not place.store.kept())

    played(story)


def test_a_full_disk_leaves_the_session_as_it_was(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story() -> None:
        await place.opened(present=False, expiry=60)
        place.sessions.left(KEY)
        commit = place.store.commit

        async def full(*words: Any) -> Any:
            raise StoreUnavailable("no space left")

        monkeypatch.setattr(place.store, "commit", full)
        await place.sessions.tell()
        with pytest.raises(StoreUnavailable):
            await place.opened(present=True, expiry=3600)
        monkeypatch.setattr(place.store, "commit", commit)
        await ticks(place)
        assert place.store.kept()[0].ends == 1_800_000_060
        place.now = 60.0
        await ticks(place)
        await so(lambda: not place.store.kept())

    played(story)


class Slow:
    """The store, whose commits of kept sessions end when they are let go, or fail."""

    def __init__(self, place: Place) -> None:
        self.store, self.waiting = place.store, list[asyncio.Future[None]]()
        place.store = self  # type: ignore[assignment]
        place.restarted()
        place.store = self.store

    def __getattr__(self, name: str) -> Any:
        return getattr(self.store, name)

    async def commit(self, records: Any, urgent: bool = False) -> Any:
        if any(isinstance(record, KeptSession) for record in records):
            self.waiting.append(asyncio.get_running_loop().create_future())
            await self.waiting[-1]
        return await self.store.commit(records, urgent)


@pytest.mark.parametrize("first_gone", [False, True])
def test_nobody_goes_by_a_session_that_is_not_on_disk(place: Place, first_gone: bool) -> None:
    """A disk that is slow, and then fails: what the store does not know nothing would end."""

    async def story() -> None:
        disk = Slow(place)
        first = asyncio.create_task(place.opened(present=False))
        await so(lambda: bool(disk.waiting))
        second = asyncio.create_task(place.opened(present=False))
        if first_gone:
            first.cancel()
        for _ in range(20):
            await asyncio.sleep(0)
        assert not second.done(), "told before the disk has it"
        disk.waiting[0].set_exception(StoreUnavailable("the disk is full"))
        await so(lambda: len(disk.waiting) == 2)
        assert isinstance(
            (await asyncio.gather(first, return_exceptions=True))[0],
            asyncio.CancelledError if first_gone else StoreUnavailable,
        )
        disk.waiting[1].set_result(None)
        await second
        assert [row.gen for row in disk.store.kept()] == [1]
        assert not place.sessions._writing

    asyncio.run(story())


def test_a_session_that_the_broker_has_lost_and_the_disk_cannot_forget_is_not_found_there(
    place: Place,
) -> None:
    async def story() -> None:
        await place.opened(present=False)
        await place.store.commit([A])
        commit, forgotten = place.store.commit, len(place.forgotten)

        async def full(records: Any, urgent: bool = False) -> Any:
            raise StoreUnavailable("the disk is full")

        place.store.commit = full  # type: ignore[method-assign]
        with pytest.raises(StoreUnavailable):
            await place.opened(present=False)
        # Present without its subscriptions: its client would wait for them for ever.
        assert place.forgotten[forgotten:] == [place.scene.site.broker_id(*KEY)]
        place.store.commit = commit  # type: ignore[method-assign]
        assert await place.opened(present=False) == []

    asyncio.run(story())
