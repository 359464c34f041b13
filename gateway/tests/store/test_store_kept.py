"""What the store keeps of sessions that the broker keeps: their subscriptions, and no others'."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from sealmq.store import (
    Held,
    KeptGone,
    KeptLeft,
    KeptSession,
    KeptSub,
    KeptSubGone,
    KeptSubs,
    Store,
    StoreError,
    StoreRecord,
)
from sealmq.store.store import Reader

SESSION = KeptSession(7, "tablet", 3)
A = KeptSub(7, "tablet", "!AP/a/%23{billing}", 1, "a/#")
B = KeptSub(7, "tablet", "b", 2, "b")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "mediator.db"


@pytest.fixture
def store(path: Path) -> Iterator[Store]:
    made = Store.open(path, busy_s=0.05)
    yield made
    made.close()


def commit(store: Store, *records: StoreRecord) -> list[Held]:
    return asyncio.run(store.commit(records))


def subs(store: Store, client: int = 7, client_id: str = "tablet") -> tuple[KeptSub, ...]:
    [held] = commit(store, KeptSubs(client, client_id))
    assert isinstance(held.record, KeptSubs)
    assert not held.fresh
    return held.record.subs


def test_subscriptions_are_there_after_reopening(store: Store, path: Path) -> None:
    commit(store, SESSION, KeptSession(7, "phone", 3), A, B)
    commit(store, KeptSub(7, "phone", "b", 0, "b"))
    store.close()
    again = Store.open(path)
    assert subs(again) == (A, B)
    assert subs(again, client_id="phone") == (KeptSub(7, "phone", "b", 0, "b"),)
    assert subs(again, client=8) == ()
    again.close()


def test_a_filter_is_held_once_and_the_last_writer_wins(store: Store) -> None:
    paused = KeptSub(7, "tablet", B.filter, 0, "")
    commit(store, SESSION, A, B, paused)
    assert subs(store) == (A, paused)
    commit(store, KeptSubGone(7, "tablet", B.filter), KeptSubGone(7, "tablet", "never held"))
    assert subs(store) == (A,)


def test_they_go_with_their_session_and_with_no_other(store: Store) -> None:
    commit(store, SESSION, KeptSession(7, "phone", 3), A, KeptSub(7, "phone", "b", 0, "b"))
    commit(store, KeptGone(7, "tablet", 2))
    assert subs(store) == (A,), "another generation's end"
    commit(store, KeptSession(7, "tablet", 4))
    assert subs(store) == (A,), "proved anew"
    commit(store, KeptGone(7, "tablet", 4), KeptSession(7, "tablet", 4))
    assert subs(store) == ()
    assert len(subs(store, client_id="phone")) == 1


def test_none_is_kept_without_its_session(store: Store) -> None:
    """Else the next session of that identifier would find it."""
    with pytest.raises(StoreError):
        commit(store, A)
    commit(store, SESSION)
    assert subs(store) == ()


def test_when_a_session_ends_is_of_the_one_that_was_left_and_of_no_newer_one(
    store: Store, path: Path
) -> None:
    hour = KeptSession(7, "tablet", 3, 3600)
    commit(store, hour, A)
    commit(store, KeptLeft(7, "tablet", 2, 5_000), KeptLeft(7, "other", 3, 5_000))
    assert store.kept() == [hour]
    commit(store, KeptLeft(7, "tablet", 3, 5_000))
    store.close()
    again = Store.open(path)
    assert again.kept() == [KeptSession(7, "tablet", 3, 3600, 5_000)]
    assert subs(again) == (A,)
    commit(again, hour)
    assert again.kept() == [hour], "its client is back"
    again.close()


def test_a_store_of_before_has_sessions_that_no_clock_ends(store: Store, path: Path) -> None:
    commit(store, SESSION, A)
    store.close()
    with sqlite3.connect(path) as old:
        for table, column in (("kept", "expiry"), ("kept", "ends"), ("kept_subs", "identifier")):
            old.execute(f"ALTER TABLE {table} DROP COLUMN {column}")
    old.close()
    reader = Reader.open_readonly(path)
    assert reader.kept() == [SESSION]
    assert reader.kept_subs() == [A]
    reader.close()
    again = Store.open(path)
    assert again.kept() == [SESSION]
    commit(again, KeptSession(7, "tablet", 3, 9, 10), KeptSub(7, "tablet", "b", 2, "b", 4))
    assert again.kept() == [KeptSession(7, "tablet", 3, 9, 10)]
    assert subs(again) == (A, KeptSub(7, "tablet", "b", 2, "b", 4))
    again.close()


def test_a_store_of_before_opens_and_takes_them(store: Store, path: Path) -> None:
    commit(store, SESSION)
    store.close()
    with sqlite3.connect(path) as old:
        old.execute("DROP TABLE kept_subs")
    old.close()
    again = Store.open(path)
    assert again.kept() == [SESSION]
    assert subs(again) == ()
    commit(again, A)
    assert subs(again) == (A,)
    again.close()
