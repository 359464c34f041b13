"""What holds after a commit, and for whom."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from sealmq.families.records import FamilyRecord, ResetDone, TopicLabel, TopicReset
from sealmq.store import (
    CacheBlob,
    Held,
    SessionMark,
    Store,
    StoreError,
    StoreRecord,
)

TEMP = TopicLabel("machine/1/temperature", "m1-temp", "sensor", 1000)
OTHER = TopicLabel("machine/1/temperature", "m1-ctrl", "panel", 2000)


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


def test_the_first_writer_of_a_topic_wins(store: Store) -> None:
    assert commit(store, TEMP) == [Held(TEMP, True)]
    assert commit(store, OTHER) == [Held(TEMP, False)]
    assert store.topics() == [TEMP]


def test_of_a_race_one_wins_and_all_hear_the_same(store: Store) -> None:
    rows = [TopicLabel("t", f"label-{i}", "c", i) for i in range(50)]

    async def race() -> list[list[Held]]:
        return await asyncio.gather(*(store.commit([row]) for row in rows))

    held = [got for [got] in asyncio.run(race())]
    assert len({h.record for h in held}) == 1
    assert [h.fresh for h in held].count(True) == 1
    assert store.topics() == [held[0].record]


def test_everything_is_there_after_reopening(store: Store, path: Path) -> None:
    mark = SessionMark(7, 1, 2, b"8 bytes!", 3)
    commit(store, TEMP, TopicReset("old"), FamilyRecord("toy", "k", b"\x00v"), mark)
    commit(store, CacheBlob("keys", b"sealed"))
    store.close()
    again = Store.open(path)
    assert again.records() == [
        TEMP,
        TopicReset("old", done=True),
        FamilyRecord("toy", "k", b"\x00v"),
    ]
    assert again.sessions() == {7: mark}
    assert again.cache("keys") == b"sealed"
    assert again.cache("none") is None
    again.close()


SALT, OTHER_SALT = b"saltsalt", b"othersal"


@pytest.mark.parametrize(
    ("mark", "fresh"),
    [
        ((5, 10, SALT, 4), True),  # the next CONNECT
        ((5, 10, SALT, 3), False),  # a replay
        ((5, 10, SALT, 2), False),
        ((5, 10, OTHER_SALT, 4), False),  # the same boot with another salt
        ((5, 11, OTHER_SALT, 1), True),  # the next boot
        ((5, 9, OTHER_SALT, 9), False),
        ((6, 1, OTHER_SALT, 1), True),  # provisioned anew
        ((4, 99, OTHER_SALT, 99), False),  # an old generation
    ],
)
def test_a_session_mark_only_rises(
    store: Store, mark: tuple[int, int, bytes, int], fresh: bool
) -> None:
    first = SessionMark(1, 5, 10, SALT, 3)
    assert commit(store, first) == [Held(first, True)]
    new = SessionMark(1, *mark)
    assert commit(store, new) == [Held(new if fresh else first, fresh)]
    assert store.sessions() == {1: new if fresh else first}


def test_a_topic_is_reset_once_until_the_mark_goes(store: Store) -> None:
    commit(store, TEMP)
    assert commit(store, TopicReset(TEMP.topic)) == [Held(TopicReset(TEMP.topic), True)]
    assert commit(store, OTHER) == [Held(OTHER, True)]
    done = TopicReset(TEMP.topic, done=True)
    assert commit(store, TopicReset(TEMP.topic)) == [Held(done, False)]
    assert store.topics() == [OTHER]
    assert commit(store, ResetDone(TEMP.topic)) == [Held(ResetDone(TEMP.topic), True)]
    assert commit(store, ResetDone(TEMP.topic)) == [Held(ResetDone(TEMP.topic), False)]
    commit(store, TopicReset(TEMP.topic))
    assert store.topics() == []


def test_the_last_writer_wins_where_that_is_right(store: Store) -> None:
    commit(store, FamilyRecord("toy", "k", b"1"), CacheBlob("keys", b"1"))
    commit(store, FamilyRecord("toy", "k", b"2"), CacheBlob("keys", b"2"))
    assert store.records() == [FamilyRecord("toy", "k", b"2")]
    assert store.cache("keys") == b"2"
    commit(store, FamilyRecord("toy", "k", None), CacheBlob("keys", None))
    assert store.records() == []
    assert store.cache("keys") is None


def bad() -> TopicLabel:
    """A value that SQLite cannot take."""
    return TopicLabel("bad", "m1-temp", "sensor", 1 << 80)


def test_a_commit_is_all_or_nothing(store: Store) -> None:
    with pytest.raises(StoreError):
        commit(store, TEMP, bad())
    assert store.records() == []
    assert commit(store, OTHER) == [Held(OTHER, True)]


def test_a_bad_record_harms_its_own_submitter_only(store: Store) -> None:
    rows = [TopicLabel(f"t/{i}", "m1-temp", "sensor", i) for i in range(5)]

    async def together() -> list[list[Held] | BaseException]:
        work = [store.commit([row]) for row in (*rows[:3], bad(), *rows[3:])]
        return await asyncio.gather(*work, return_exceptions=True)

    got = asyncio.run(together())
    assert isinstance(got.pop(3), StoreError)
    assert got == [[Held(row, True)] for row in rows]
    assert store.topics() == rows


def test_errors_carry_no_values(store: Store) -> None:
    secret = "d41d8cd98f00b204"
    with pytest.raises(StoreError) as caught:
        commit(store, TopicLabel(secret, secret, secret, 1 << 80))
    assert secret not in str(caught.value)


def test_commits_complete_in_the_order_of_submission(store: Store) -> None:
    done: list[int] = []

    async def one(i: int) -> None:
        await store.commit([TopicLabel(f"t/{i}", "l", "c", i)])
        done.append(i)

    async def all_of_them() -> None:
        await asyncio.gather(*(one(i) for i in range(1500)))  # more than a group

    asyncio.run(all_of_them())
    assert done == list(range(1500))
