"""A disk in trouble, a file damaged or locked: refused whole, and nothing else is harmed."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import event

from sealmq.families.records import FamilyRecord, TopicLabel
from sealmq.store import (
    Held,
    Reader,
    Store,
    StoreCorrupt,
    StoreRecord,
    StoreUnavailable,
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


def lock(path: Path) -> sqlite3.Connection:
    """What another process could hold."""
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    return other


def test_a_locked_file_is_unavailable_and_recovers_by_itself(store: Store, path: Path) -> None:
    commit(store, TopicLabel("before", "l", "c", 0))
    other = lock(path)
    with pytest.raises(StoreUnavailable, match="locked"):
        commit(store, TEMP)
    other.execute("ROLLBACK")
    other.close()
    assert commit(store, OTHER) == [Held(OTHER, True)]


def test_the_event_loop_runs_on_while_the_disk_does_not(path: Path) -> None:
    store = Store.open(path, busy_s=60)
    other = lock(path)

    async def main() -> int:
        work = asyncio.create_task(store.commit([TEMP]))
        turns = 0
        for _ in range(1000):
            await asyncio.sleep(0)
            turns += 1
        assert not work.done()
        other.execute("ROLLBACK")
        await work
        return turns

    assert asyncio.run(main()) == 1000
    other.close()
    store.close()


def test_the_queue_is_bounded(path: Path) -> None:
    store = Store.open(path, queue=3, busy_s=60)
    other = lock(path)

    async def main() -> tuple[int, int]:
        work = [asyncio.create_task(store.commit([TEMP])) for _ in range(10)]
        await asyncio.wait(work, return_when=asyncio.FIRST_COMPLETED)
        await asyncio.sleep(0)
        other.execute("ROLLBACK")
        got = await asyncio.gather(*work, return_exceptions=True)
        full = [g for g in got if isinstance(g, StoreUnavailable)]
        return len(full), len(got)

    refused, all_of_them = asyncio.run(main())
    assert all_of_them == 10
    assert 6 <= refused <= 7
    other.close()
    store.close()


def test_a_full_disk_is_unavailable_and_recovers_by_itself(store: Store, path: Path) -> None:
    commit(store, TEMP)
    pages = [20]

    @event.listens_for(store._engine, "connect")
    def few(connection: sqlite3.Connection, _record: object) -> None:
        connection.execute(f"PRAGMA max_page_count = {pages[0]}")

    store._writer._drop()
    big = FamilyRecord("toy", "big", bytes(1 << 20))
    with pytest.raises(StoreUnavailable, match="full"):
        commit(store, OTHER, FamilyRecord("toy", "small", b"1"), big)
    assert store.records() == [TEMP]
    pages[0] = 100_000
    assert commit(store, big) == [Held(big, True)]
    assert store.records() == [TEMP, big]


LIMITED = """
import asyncio, resource, sys
from pathlib import Path
from sealmq.families.records import FamilyRecord, TopicLabel
from sealmq.store import Store, StoreUnavailable

async def main(path):
    store = Store.open(path)
    first = TopicLabel("a", "l", "c", 1)
    await store.commit([first])
    hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    resource.setrlimit(resource.RLIMIT_FSIZE, (64 * 1024, hard))
    big = FamilyRecord("toy", "big", bytes(1 << 18))
    try:
        await store.commit([TopicLabel("b", "l", "c", 1), big])
    except StoreUnavailable as error:
        print("unavailable:", error, file=sys.stderr)
    else:
        sys.exit("the commit passed")
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    if store.records() != [first]:
        sys.exit(f"half done: {store.records()}")
    await store.commit([big])
    store.close()
    if Store.open(path).records() != [first, big]:
        sys.exit("not there")

asyncio.run(main(Path(sys.argv[1])))
"""


def test_writes_that_the_system_refuses_half_way_leave_nothing(path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, str(path)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "unavailable:" in done.stderr


def test_a_closed_store_refuses(path: Path) -> None:
    store = Store.open(path)
    store.close()
    with pytest.raises(StoreUnavailable, match="closed"):
        commit(store, TEMP)


def test_close_writes_what_is_queued(path: Path) -> None:
    store = Store.open(path)

    async def main() -> None:
        work = [
            asyncio.create_task(store.commit([TopicLabel(f"t/{i}", "l", "c", i)]))
            for i in range(20)
        ]
        await asyncio.sleep(0)
        store.close()
        await asyncio.gather(*work)

    asyncio.run(main())
    again = Store.open(path)
    assert len(again.topics()) == 20
    again.close()


def test_only_the_owner_may_read_the_files(store: Store, path: Path) -> None:
    commit(store, TEMP)
    for file in path.parent.iterdir():
        assert stat.S_IMODE(file.stat().st_mode) == 0o600, file


def test_readers_see_what_is_committed_while_the_mediator_runs_and_after(
    store: Store, path: Path
) -> None:
    commit(store, TEMP)
    reader = Reader.open_readonly(path)
    assert reader.topics() == [TEMP]
    reader.close()
    store.close()
    reader = Reader.open_readonly(path)
    assert reader.topics() == [TEMP]
    reader.close()
    left = sorted(file.name for file in path.parent.iterdir())
    assert [name for name in left if not name.startswith("reserve-")] == [path.name]


def test_a_file_that_is_no_store_is_called_damaged(path: Path) -> None:
    path.write_bytes(os.urandom(8192))
    with pytest.raises(StoreCorrupt) as caught:
        Store.open(path)
    assert caught.value.hint


def test_a_damaged_page_is_found_at_the_start(store: Store, path: Path) -> None:
    commit(store, *(TopicLabel(f"t/{i}" * 20, "l", "c", i) for i in range(500)))
    store.close()
    raw = bytearray(path.read_bytes())
    for at in range(3 * 4096, len(raw) - 4096, 4096):
        raw[at : at + 200] = bytes(200)
    path.write_bytes(raw)
    with pytest.raises(StoreCorrupt):
        Store.open(path)


def test_a_store_of_a_newer_version_is_refused(store: Store, path: Path) -> None:
    store.close()
    with sqlite3.connect(path) as other:
        other.execute("UPDATE meta SET value = '2'")
    other.close()
    with pytest.raises(StoreCorrupt, match="format 2"):
        Store.open(path)


def test_a_folder_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable):
        Store.open(tmp_path / "nowhere" / "x.db")
    with pytest.raises(StoreUnavailable):
        Reader.open_readonly(tmp_path / "x.db")
