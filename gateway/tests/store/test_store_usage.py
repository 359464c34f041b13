"""How much policy families may keep: of one client's making, and in one family."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from sealmq.families.records import FamilyRecord, TopicLabel
from sealmq.store import Reader, Store, StoreError, StoreFull

MIB = 1 << 20
KIB = 1024


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "mediator.db"


@pytest.fixture
def store(path: Path) -> Iterator[Store]:
    made = Store.open(path, busy_s=0.05)
    made.bound(3, MIB)
    yield made
    made.close()


def row(key: str, client: str = "loud", size: int = 1, family: str = "toy") -> FamilyRecord:
    """One of `size` bytes."""
    return FamilyRecord(family, key, b"x" * (size - len(key)), client)


def gone(key: str, client: str = "loud", family: str = "toy") -> FamilyRecord:
    return FamilyRecord(family, key, None, client)


def fits(store: Store, *records: FamilyRecord, urgent: bool = False) -> bool:
    before = store.records()
    try:
        asyncio.run(store.commit(records, urgent))
        said = "[limits]"
    except StoreFull as error:
        said = str(error)
        assert store.records() == before, "nothing of it is kept"
    assert len(said.encode()) <= 200, "a notice holds it"
    assert "[limits]" in said
    return said == "[limits]"


def test_one_client_makes_so_many_rows_and_no_more_whatever_the_family(store: Store) -> None:
    assert fits(store, row("a"), row("b", family="other"))
    assert not fits(store, row("c"), row("d")), "all or nothing"
    assert fits(store, row("c"))
    assert not fits(store, row("d", family="third"))
    assert fits(store, row("d", "quiet")), "another client has its own"
    assert fits(store, row("e", "")), "what counts on nobody"


def test_what_is_there_may_be_replaced_and_taken_away_to_make_room(store: Store) -> None:
    assert fits(store, row("a"), row("b"), row("c"))
    assert fits(store, row("a", size=900))
    assert not fits(store, row("a", size=KIB + 1)), "one that is long counts twice"
    assert fits(store, gone("a"), gone("b"))
    assert fits(store, row("a", size=KIB + 1))
    assert not fits(store, row("b"))
    assert fits(store, gone("a"), row("b"), row("c")), "in one go"
    assert fits(store, gone("never was"))


def test_a_row_that_another_client_replaces_counts_on_that_one(store: Store) -> None:
    assert fits(store, row("a"), row("b"), row("c"))
    assert fits(store, row("a", "quiet"), row("b", ""))
    assert fits(store, row("d"), row("e"))
    assert fits(store, row("f", "quiet"), row("g", "quiet"))
    assert not fits(store, row("c", "quiet"))


def test_what_takes_something_away_may_make_rows_longer_but_no_new_ones(store: Store) -> None:
    assert fits(store, row("a"), row("b"), row("c"))
    assert fits(store, row("a", size=5 * KIB), urgent=True)
    assert not fits(store, row("d"), urgent=True)
    assert fits(store, gone("a"), gone("b"), urgent=True)
    assert fits(store, row("d"))


def test_all_clients_together_fill_a_family_so_far_and_no_other(store: Store) -> None:
    store.bound(10_000, MIB)
    for n in range(4):
        assert fits(store, row(f"{n}", f"client-{n}", MIB // 4))
    assert not fits(store, row("x", "late", 2))
    assert fits(store, row("x", "", 100)), "but the operator's own"
    assert not fits(store, row("0", "client-0", MIB // 4 + 1))
    assert fits(store, row("0", "client-0", MIB // 4 + 1), urgent=True)
    assert fits(store, row("x", "late", 2, family="other"))
    assert fits(store, gone("1"), gone("x"))
    assert fits(store, row("y", "late", MIB // 4 - 10))


def test_a_lower_bound_takes_nothing_away_and_lets_nothing_more_in(store: Store) -> None:
    assert fits(store, row("a"), row("b"), row("c"))
    store.bound(1, MIB)
    assert len(store.records()) == 3
    assert fits(store, row("a", size=2))
    assert not fits(store, row("d"))
    assert fits(store, gone("a"))
    assert not fits(store, row("d"))


def test_of_many_at_once_as_many_pass_as_there_is_room_for(store: Store) -> None:
    async def flood() -> list[object]:
        jobs = (store.commit([row(f"{n}")]) for n in range(50))
        return await asyncio.gather(*jobs, return_exceptions=True)

    refused = [got for got in asyncio.run(flood()) if isinstance(got, StoreFull)]
    assert len(refused) == 47
    assert len(store.records()) == 3


def test_what_a_failed_transaction_would_have_written_does_not_count(store: Store) -> None:
    async def both() -> tuple[object, object]:
        bad = TopicLabel("bad", "m1-temp", "sensor", 1 << 80)
        jobs = store.commit([row("a"), row("b"), bad]), store.commit([row("c"), row("d")])
        return await asyncio.gather(*jobs, return_exceptions=True)

    failed, passed = asyncio.run(both())
    assert isinstance(failed, StoreError)
    assert isinstance(passed, list), "it was refused only as long as the other one counted"
    assert fits(store, row("e"))
    assert not fits(store, row("f"))


def test_what_is_there_counts_after_a_restart(store: Store, path: Path) -> None:
    assert fits(store, row("a", size=KIB + 1), row("b"))
    store.close()
    again = Store.open(path)
    again.bound(3, MIB)
    try:
        assert not fits(again, row("c"))
        assert fits(again, gone("b"), row("c"))
        again.bound(1000, KIB + 1)
        assert not fits(again, row("d", "quiet"))
    finally:
        again.close()


def test_a_store_of_an_older_version_opens_and_its_rows_count_on_who_made_them(
    path: Path,
) -> None:
    Store.open(path).close()
    reservation = b'{"aip":["a"],"pip":[],"by":"loud","label":"","at":1}'
    old = [
        ("purposes", "r/a", reservation),
        ("purposes", "r/b", reservation),
        ("purposes", "p/loud/c", b'{"ap":"a","by":"quiet","at":1}'),
        ("purposes", "b/loud", b'{"since":1}'),
        ("other", "k", b"\x00no JSON\xff"),
        ("other", "list", b"[1]"),
    ]
    with closing(sqlite3.connect(path)) as raw, raw:
        raw.execute("ALTER TABLE families DROP COLUMN client")
        raw.executemany("INSERT INTO families VALUES (?, ?, ?)", old)
    reader = Reader.open_readonly(path)
    assert {FamilyRecord(*one) for one in old} == set(reader.records()), "before it is migrated"
    reader.close()
    store = Store.open(path)
    store.bound(3, MIB)
    try:
        found = {r.key: r.client for r in store.records() if isinstance(r, FamilyRecord)}
        assert found == {
            "r/a": "loud", "r/b": "loud", "p/loud/c": "quiet", "b/loud": "", "k": "", "list": "",
        }  # fmt: skip
        assert fits(store, row("x"))
        assert not fits(store, row("y"))
        assert fits(store, row("y", "quiet"), row("z", "quiet"))
        assert not fits(store, row("more", "quiet"))
    finally:
        store.close()
