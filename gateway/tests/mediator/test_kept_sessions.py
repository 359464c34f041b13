"""Sessions that the broker keeps: what the store knows of them, and what ends them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from links_scene import so
from mediator_world import PANEL
from reader_scene import Scene
from sealmq.mediator.core.effects import LOST, MAYBE, SURE
from sealmq.mediator.kept_sessions import KeptSessions
from sealmq.store import KeptGone, KeptSession, KeptSub, Store

KEY = (PANEL, "tablet")
A, B = KeptSub(*KEY, "!AP/a{x}", 1, "a"), KeptSub(*KEY, "b", 0, "b")


class Place:
    """A store, and a broker that forgets what it is told to."""

    def __init__(self, store: Store) -> None:
        self.scene = Scene()
        self.store = store
        self.forgotten: list[str] = []
        self.losses = 0
        self.sessions = self.restarted()

    def restarted(self) -> KeptSessions:
        """As a mediator that comes back has it."""
        audit: Any = None  # nothing here is told
        store: Any = self.store
        self.sessions = KeptSessions(
            self.scene.site, store, audit, self._forget, lambda: True, lambda: self.losses
        )
        return self.sessions

    async def _forget(self, broker_id: str) -> None:
        self.forgotten.append(broker_id)

    async def opened(self, present: bool, gen: int = 1) -> list[KeptSub]:
        """A CONNECT with Clean Session 0, as far as sessions go."""
        client = self.scene.site.ring.clients[PANEL]
        known = await self.sessions.prepare(client, gen, KEY[1], clean=False)
        return await self.sessions.subscriptions(KEY, gen, known, present)

    async def cleaned(self) -> None:
        """A CONNECT with Clean Session 1."""
        client = self.scene.site.ring.clients[PANEL]
        assert not await self.sessions.prepare(client, 1, KEY[1], clean=True)


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    store = Store.open(tmp_path / "mediator.db", busy_s=0.05)
    yield Place(store)
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
