"""The journal: on disk before it counts, kept until the broker has saved, never kept for ever."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from sealmq.mediator.journal import LONGEST_S, SEGMENT_S, Journal
from sealmq.mediator.journal_file import Entry, Segment, pack, read


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


class World:
    """A journal, a broker's file, a clock; what it told."""

    def __init__(self, folder: Path, saved: bool = True) -> None:
        self.folder = folder / "journal"
        self.file = folder / "mosquitto.db"
        self.file.write_bytes(b"0")
        self.clock = Clock()
        self.told: list[str | None] = []
        self.dropped: list[int] = []
        self._saved = saved
        self.journal = self.open()

    def open(self) -> Journal:
        return Journal(
            self.folder,
            self.file if self._saved else None,
            60.0,
            self.told.append,
            self.dropped.append,
            self.clock,
        )

    def tick(self, seconds: float) -> None:
        """Once a second, for so long."""
        for _ in range(int(seconds)):
            self.clock.now += 1
            self.journal.tick()

    def save(self) -> None:
        """The broker writes its file."""
        stamp = self.file.stat().st_mtime_ns + 10**9
        os.utime(self.file, ns=(stamp, stamp))

    def put(self, payload: bytes, qos: int = 1) -> int:
        return self.journal.append(b"t", payload, qos, False)

    def held(self) -> list[bytes]:
        """Payloads of what is on disk and was not given up."""
        return [entry.payload for entry in self.journal.entries(self.journal.all())]

    async def goes_at_the_third_save(self) -> None:
        for _ in range(2):
            self.save()
            self.tick(2)
            assert self.held() == [b"one"]
        self.save()
        self.tick(1)
        await _until(lambda: self.held() == [])


@asynccontextmanager
async def world(folder: Path, saved: bool = True) -> AsyncIterator[World]:
    made = World(folder, saved)
    try:
        yield made
    finally:
        await made.journal.close()


def run(story: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(30):
            await story()

    asyncio.run(bounded())


def test_an_entry_counts_when_it_is_synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    real = os.fdatasync

    def fdatasync(fd: int) -> None:
        real(fd)
        synced.append(os.fstat(fd).st_size)

    monkeypatch.setattr(os, "fdatasync", fdatasync)

    async def story() -> None:
        async with world(tmp_path) as w:
            seq = w.put(b"one")
            seen: list[int] = []
            w.journal.when(seq, lambda: seen.append(len(synced)))
            assert seen == []
            assert w.journal.durable < seq
            await w.journal.safe(seq)
            assert seen == [1]
            assert w.held() == [b"one"]
            for n in range(100):
                w.put(b"%d" % n)
            await w.journal.safe(w.journal.seq)
            assert len(synced) <= 3, "a group shares one sync"

    run(story)


def test_it_goes_at_the_third_save(tmp_path: Path) -> None:
    """The first may have begun before, the third is there should a power cut undo the second."""

    async def story() -> None:
        async with world(tmp_path) as w:
            w.journal.broker_back([])
            seq = w.put(b"one")
            await w.journal.safe(seq)
            w.journal.acked(seq)
            w.tick(SEGMENT_S + 4)
            w.tick(60)
            assert w.held() == [b"one"]
            await w.goes_at_the_third_save()

    run(story)


def test_saves_count_from_the_broker_s_acknowledgement(tmp_path: Path) -> None:
    async def story() -> None:
        async with world(tmp_path) as w:
            w.journal.broker_back([])
            seq = w.put(b"one")
            await w.journal.safe(seq)
            w.tick(SEGMENT_S + 4)
            for _ in range(5):
                w.save()
                w.tick(2)
            w.journal.acked(seq)
            await w.goes_at_the_third_save()

    run(story)


def test_a_lost_broker_gets_all_of_it_again_and_its_saves_count_from_then(tmp_path: Path) -> None:
    async def story() -> None:
        async with world(tmp_path) as w:
            w.journal.broker_back([])
            seq = w.put(b"one")
            await w.journal.safe(seq)
            w.journal.acked(seq)
            w.journal.broker_lost()
            for _ in range(4):
                w.save()  # a broker that has forgotten it saves
                w.tick(10)
            lost = w.journal.lost()
            assert [e.payload for e in w.journal.entries(lost)] == [b"one"]
            assert w.held() == [b"one"]
            w.journal.broker_back(lost)
            assert w.journal.lost() == []
            await w.goes_at_the_third_save()

    run(story)


def test_a_mediator_that_comes_back_finds_what_it_left(tmp_path: Path) -> None:
    async def story() -> None:
        async with world(tmp_path) as w:
            for n in range(3):
                await w.journal.safe(w.put(b"%d" % n, qos=1 + n % 2))
            later = w.open()
            entries = list(later.entries(later.lost()))
            assert [(e.payload, e.qos) for e in entries] == [(b"0", 1), (b"1", 2), (b"2", 1)]
            await later.close()

    run(story)


def test_five_minutes_of_connection_end_every_entry(tmp_path: Path) -> None:
    async def story() -> None:
        async with world(tmp_path) as w:
            w.journal.broker_back([])
            await w.journal.safe(w.put(b"never acknowledged"))
            w.tick(LONGEST_S - 2)
            assert w.held() != []
            w.tick(4)
            await _until(lambda: w.held() == [])

    run(story)


def test_without_a_file_to_look_at_two_intervals_are_waited_for(tmp_path: Path) -> None:
    async def story() -> None:
        async with world(tmp_path, saved=False) as w:
            w.journal.broker_back([])
            seq = w.put(b"one")
            await w.journal.safe(seq)
            w.journal.acked(seq)
            w.tick(100)
            assert w.held() == [b"one"]
            w.tick(30)
            await _until(lambda: w.held() == [])

    run(story)


def test_beyond_its_bound_the_oldest_go_and_that_is_told(tmp_path: Path) -> None:
    async def story() -> None:
        async with world(tmp_path) as w:
            w.journal.most = 3000
            for n in range(4):
                await w.journal.safe(w.put(b"%d" % n * 1000))
                w.tick(SEGMENT_S + 1)
            await _until(lambda: len(w.held()) == 2)
            assert [payload[:1] for payload in w.held()] == [b"2", b"3"]
            assert len(w.dropped) == 2

    run(story)


def test_a_full_disk_is_told_nothing_is_lost_and_it_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.pwrite
    full = True

    def pwrite(fd: int, data: memoryview, at: int) -> int:
        if not full:
            return real(fd, data, at)
        if at:
            raise OSError(errno.ENOSPC, "full")
        return real(fd, data[:5], at)  # half of it fits

    monkeypatch.setattr(os, "pwrite", pwrite)

    async def story() -> None:
        nonlocal full
        async with world(tmp_path) as w:
            seq = w.put(b"one")
            await _until(lambda: w.journal.failing is not None)
            assert w.journal.durable == 0
            assert w.told == [f"the journal cannot be written: {os.strerror(errno.ENOSPC)}"]
            assert w.held() == []
            full = False
            await w.journal.safe(seq)
            assert w.told[-1] is None
            assert w.journal.failing is None
            assert w.held() == [b"one"]

    run(story)


def test_without_a_folder_everything_counts_at_once() -> None:
    async def story() -> None:
        journal = Journal(None)
        seq = journal.append(b"t", b"x", 1, False)
        assert seq <= journal.durable
        journal.acked(seq)
        journal.broker_lost()
        journal.tick()
        assert journal.lost() == []
        await journal.close()

    run(story)


@pytest.mark.parametrize("cut", [1, 3, 9, 20])
def test_a_torn_end_is_not_read(tmp_path: Path, cut: int) -> None:
    file = tmp_path / "1.seg"
    whole = pack(7, b"t", b"one", 1, False) + pack(8, b"t", b"two", 2, True)
    segment = Segment(file, 1, 0.0)
    segment.write(whole)
    segment.end(False)
    assert list(read(file)) == [
        Entry(7, b"t", b"one", 1, False),
        Entry(8, b"t", b"two", 2, True),
    ]
    file.write_bytes(whole[:-cut])
    assert [e.payload for e in read(file)] == [b"one"]
    bent = bytearray(whole)
    bent[-1] ^= 1
    file.write_bytes(bent)
    assert [e.payload for e in read(file)] == [b"one"]


async def _until(look: Callable[[], bool]) -> None:
    for _ in range(3000):
        if look():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("waited in vain")
