"""When the store is known to have every delivery that was counted, and when it is not."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from sealmq.families.ask import FOREVER
from sealmq.families.counts import FAMILY
from sealmq.families.records import FamilyRecord
from sealmq.families.told import FAMILY as TOLD
from sealmq.mediator.counted import Counted
from sealmq.site.model import Attribute
from sealmq.store import Store, StoreUnavailable
from sealmq.store.database import set_identity

COUNT = [Attribute("count", of="subscriber", window_ms=3_600_000)]
NOW, LATER = 1_800_000_000_000, 1_800_000_060_000


def run(path: Path, story: Callable[[Store], Coroutine[Any, Any, None]]) -> None:
    async def opened() -> None:
        store = Store.open(path / "mediator.db")
        try:
            await story(store)
        finally:
            store.close()

    asyncio.run(opened())


def at(store: Store, now_ms: int) -> Counted:
    return Counted(store, lambda: now_ms * 1_000_000)


async def begun(store: Store, now_ms: int, closed: bool = False) -> Counted:
    counted = at(store, now_ms)
    await counted.begin(COUNT, closed)
    return counted


def test_after_an_end_in_good_order_all_is_known_and_after_a_kill_nothing_before_the_start(
    tmp_path: Path,
) -> None:
    async def story(store: Store) -> None:
        first = await begun(store, NOW)
        assert first.blind_ms == 0, "nothing can have gone out before the first start"
        await first.end(whole=True)
        second = await begun(store, LATER)
        assert second.blind_ms == 0
        # Killed: no end.
        third = await begun(store, LATER)
        assert third.blind_ms == LATER
        await third.end(whole=True)
        fourth = await begun(store, LATER + 1)
        assert fourth.blind_ms == LATER, "it is still unknown what the killed one had counted"
        await fourth.end(whole=False)
        assert (await begun(store, LATER + 2)).blind_ms == LATER + 2

    run(tmp_path, story)


def test_a_store_that_was_lost_and_a_backup_that_was_put_back_know_nothing(tmp_path: Path) -> None:
    async def story(store: Store) -> None:
        assert (await begun(store, NOW, closed=True)).blind_ms == NOW
        told = FamilyRecord(TOLD, "contract\x1fbob", b"{}", "hr")
        await store.commit([told, FamilyRecord("purposes", "k", b"{}", "hr")])
        await (await begun(store, NOW)).end(whole=True)
        store.close()
        set_identity(tmp_path / "mediator.db", bytes(16), lambda held: [])
        again = Store.open(tmp_path / "mediator.db")
        assert (await begun(again, LATER)).blind_ms == LATER
        assert again.rows(TOLD) == [], "what was told then is not told by that"
        assert len(again.rows("purposes")) == 1
        again.close()

    run(tmp_path, story)


def test_rows_that_are_over_go_and_others_stay(tmp_path: Path) -> None:
    async def story(store: Store) -> None:
        old = FamilyRecord(FAMILY, "got\x1fbob", f"[[{NOW},1]]".encode())
        new = FamilyRecord(FAMILY, "got\x1feve", f"[[{NOW},1],[{LATER},2]]".encode())
        await store.commit([old, new])
        await begun(store, NOW + 3_600_000)
        assert store.rows(FAMILY) == [new]

    run(tmp_path, story)


def test_what_cannot_say_that_it_runs_counts_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(store: Store) -> None:
        async def full(*words: Any, **more: Any) -> Any:
            raise StoreUnavailable("the disk is full")

        with monkeypatch.context() as patched:
            patched.setattr(store, "commit", full)
            counted = await begun(store, NOW)
            assert counted.blind_ms == FOREVER
        await counted.end(whole=True)
        assert (await begun(store, LATER)).blind_ms == 0, "nothing went out by a count"

    run(tmp_path, story)
