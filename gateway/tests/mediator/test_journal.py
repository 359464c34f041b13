"""The journal: on disk before it counts, kept until the broker has saved, and bounded."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from journal_scene import run, until, world
from sealmq.mediator import journal as journal_module
from sealmq.mediator import willkeeper
from sealmq.mediator.core.retained import Retained
from sealmq.mediator.journal import HURRIED_S, LONGEST_S, SEGMENT_S, Journal
from sealmq.mediator.journal_file import Entry, Segment, pack, read
from sealmq.mediator.replay import Replay
from sealmq.order import Order


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A file's size at each sync."""
    sizes: list[int] = []
    real = os.fdatasync

    def fdatasync(fd: int) -> None:
        real(fd)
        sizes.append(os.fstat(fd).st_size)

    monkeypatch.setattr(os, "fdatasync", fdatasync)
    return sizes


def test_an_entry_counts_when_it_is_synced(tmp_path: Path, synced: list[int]) -> None:
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


@pytest.fixture
def a_minute_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who has to wait for company waits longer than a test does."""
    monkeypatch.setattr(journal_module, "APART_S", 60.0)


@pytest.mark.usefixtures("a_minute_apart")
def test_clients_that_publish_in_turns_share_a_sync(tmp_path: Path, synced: list[int]) -> None:
    async def story() -> None:
        async with world(tmp_path) as w:
            await w.accepted(b"first", client=1)
            for client in range(2, 6):
                w.put(b"waits", client=client)
                await asyncio.sleep(0.01)
            assert len(synced) == 1
            await w.accepted(b"all who were served wait again", client=1)
            assert len(synced) == 2
            assert len(w.held()) == 6

    run(story)


@pytest.mark.usefixtures("a_minute_apart")
def test_when_enough_clients_wait_none_of_them_is_held_up(
    tmp_path: Path, synced: list[int]
) -> None:
    async def story() -> None:
        async with world(tmp_path) as w:
            await w.accepted(b"first", client=1)
            for client in range(2, 1 + journal_module.COMPANY):
                w.put(b"waits", client=client)
                await asyncio.sleep(0.01)
            assert len(synced) == 1
            await w.accepted(b"the last of them", client=100)
            assert len(synced) == 2

    run(story)


@pytest.mark.usefixtures("a_minute_apart")
def test_a_client_that_publishes_message_after_message_is_not_held_up(tmp_path: Path) -> None:
    async def story() -> None:
        async with world(tmp_path) as w:
            for n in range(20):
                await w.accepted(b"%d" % n)
            assert len(w.held()) == 20

    run(story)


@pytest.mark.usefixtures("a_minute_apart")
def test_a_client_that_publishes_after_a_quiet_time_is_not_held_up(tmp_path: Path) -> None:
    async def story() -> None:
        async with world(tmp_path) as w:
            await w.accepted(b"one", client=1)
            w.journal._began -= journal_module.APART_S
            await w.accepted(b"two", client=2)

    run(story)


def test_who_waits_for_company_that_does_not_come_is_served_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal_module, "APART_S", 0.2)

    async def story() -> None:
        async with world(tmp_path) as w:
            for client in range(1, 4):
                await w.accepted(b"one", client=client)
            w.put(b"last", client=4)
        assert [e.payload for e in read(next(iter(w.folder.glob("*.seg"))))][-1] == b"last"

    run(story)


def test_it_goes_at_the_third_save(tmp_path: Path) -> None:
    """The first may have begun before, the third is there should a power cut undo the second."""

    async def story() -> None:
        async with world(tmp_path) as w:
            w.journal.broker_back([])
            await w.accepted(b"one")
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
            await w.accepted(b"one")
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


@pytest.mark.parametrize("quiet_s", [0, LONGEST_S - 1, LONGEST_S + 100, 10 * LONGEST_S])
def test_a_burst_after_a_quiet_time_is_kept_until_the_broker_has_saved(
    tmp_path: Path, quiet_s: float
) -> None:
    async def story() -> None:
        async with world(tmp_path) as w:
            w.journal.broker_back([])
            w.tick(quiet_s)
            await w.accepted(b"one")
            w.tick(SEGMENT_S + 4)
            assert w.held() == [b"one"]
            await w.goes_at_the_third_save()
            assert w.dropped == []

    run(story)


def test_a_burst_of_several_seconds_is_one_segment_however_quiet_it_was_before(
    tmp_path: Path,
) -> None:
    async def story() -> None:
        async with world(tmp_path) as w:
            w.tick(LONGEST_S)
            for n in range(int(SEGMENT_S) - 1):
                await w.journal.safe(w.put(b"%d" % n))
                w.tick(1)
            assert len(list(w.folder.glob("*.seg"))) == 1

    run(story)


def test_a_broker_that_does_not_save_for_long_is_waited_for(tmp_path: Path) -> None:
    async def story() -> None:
        async with world(tmp_path) as w:
            w.journal.broker_back([])
            await w.accepted(b"one")
            w.tick(3 * LONGEST_S)
            assert w.held() == [b"one"]
            for _ in range(2):  # out of sight and back: no save either
                away = w.file.rename(tmp_path / "away")
                w.tick(10)
                away.rename(w.file)
                w.tick(10)
            assert w.held() == [b"one"]
            await w.goes_at_the_third_save()

    run(story)


def test_what_is_never_acknowledged_or_released_goes_after_five_minutes_with_a_save(
    tmp_path: Path,
) -> None:
    async def story() -> None:
        async with world(tmp_path) as w:
            w.journal.broker_back([])
            seq = w.put(b"never acknowledged", qos=2)
            await w.journal.safe(seq)
            w.saves(int(LONGEST_S / 5) - 1)
            assert w.held() != []
            w.saves(4)
            await until(lambda: w.held() == [])
            later = w.put(b"later")
            await w.journal.safe(later)
            w.journal.acked(seq)  # after all: of no segment any more
            w.tick(SEGMENT_S + 1)
            w.saves(4)
            assert w.held() == [b"later"]

    run(story)


def test_with_little_room_a_client_that_releases_nothing_holds_others_up_for_half_a_minute(
    tmp_path: Path,
) -> None:
    async def story() -> None:
        async with world(tmp_path) as w:
            w.journal.most = 3000
            w.journal.broker_back([])
            await w.journal.safe(w.put(b"never released", qos=2))
            await w.accepted(b"x" * 1600)
            w.saves(int(HURRIED_S / 5) - 1)
            assert w.held() != []
            w.saves(4)
            await until(lambda: w.held() == [])

    run(story)


def test_a_client_that_releases_nothing_does_not_use_up_the_part_of_another_one(
    tmp_path: Path,
) -> None:
    async def story() -> None:
        async with world(tmp_path) as w:
            w.journal.most = 8000
            w.journal.broker_back([])
            await w.journal.safe(w.put(b"never released", qos=2, client=7))
            await w.accepted(b"x" * 2100, client=8)
            assert refused(w, 8)[0] == "mediator.publish.journal-full"
            w.saves(int(HURRIED_S / 5) + 4)
            await until(lambda: w.held() == [])
            assert w.journal.refuses(8) is None

    run(story)


def test_what_cannot_be_written_yet_is_written_once_and_leaves_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.pwrite
    full = True

    def pwrite(fd: int, data: memoryview, at: int) -> int:
        if full:
            raise OSError(errno.ENOSPC, "full")
        return real(fd, data, at)

    monkeypatch.setattr(os, "pwrite", pwrite)

    async def story() -> None:
        nonlocal full
        async with world(tmp_path) as w:
            w.journal.broker_back([])
            seq = w.put(b"one", qos=0)
            await until(lambda: w.journal.refuses(0) is not None)
            w.saves(int(LONGEST_S / 5) + 4)
            full = False
            await w.journal.safe(seq)
            assert w.held() == [b"one"]
            w.saves(1)
            await until(lambda: list(w.folder.glob("*.seg")) == [])

    run(story)


def test_without_a_file_to_look_at_two_intervals_are_waited_for(tmp_path: Path) -> None:
    async def story() -> None:
        async with world(tmp_path, saved=False) as w:
            w.journal.broker_back([])
            await w.accepted(b"one")
            w.tick(100)
            assert w.held() == [b"one"]
            w.tick(30)
            await until(lambda: w.held() == [])

    run(story)


def test_when_it_is_full_more_is_refused_and_nothing_is_given_up(tmp_path: Path) -> None:
    async def story() -> None:
        async with world(tmp_path) as w:
            w.journal.most = 3000
            w.journal.broker_back([])
            for n in range(4):
                assert w.journal.refuses(n) is None
                await w.accepted(b"%d" % n * 700, client=n)
                w.tick(SEGMENT_S + 1)
            await w.accepted(b"4" * 700, client=4)
            assert refused(w, 5)[0] == "mediator.publish.journal"
            why = refused(w, 5)[1]
            assert w.told == [why]
            assert why.startswith("the journal is full: 0.00")
            assert "[limits] journal_mib = " in why
            w.tick(2 * LONGEST_S)
            assert [payload[:1] for payload in w.held()] == [b"0", b"1", b"2", b"3", b"4"]
            w.saves(4)
            await until(lambda: w.held() == [])
            assert w.journal.refuses(5) is None
            assert w.told[1:] == [None]
            assert w.dropped == []

    run(story)


def test_a_client_that_fills_its_share_is_refused_and_no_other(tmp_path: Path) -> None:
    async def story() -> None:
        async with world(tmp_path) as w:
            w.journal.most = 4000
            w.journal.broker_back([])
            await w.accepted(b"x" * 1000, client=7)
            assert refused(w, 7)[0] == "mediator.publish.journal-full"
            assert w.journal.refuses(8) is None
            assert w.told == []
            w.tick(SEGMENT_S + 1)
            w.saves(4)
            assert w.journal.refuses(7) is None

    run(story)


def test_who_waits_for_room_goes_on_when_its_own_part_has_some(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story() -> None:
        async with world(tmp_path) as w:
            w.journal.most = 4000
            w.journal.broker_back([])
            await w.accepted(b"x" * 1000, client=7)
            await w.accepted(b"x" * 1000, client=8)
            waiting = [asyncio.create_task(w.journal.room(client)) for client in (7, 7, 8)]
            await asyncio.sleep(0)
            gone = asyncio.create_task(w.journal.room(8))
            await asyncio.sleep(0)
            gone.cancel()
            w.tick(SEGMENT_S + 1)
            w.saves(2)
            await asyncio.sleep(0)
            assert not any(task.done() for task in waiting)
            w.saves(2)
            assert await asyncio.gather(*waiting) == [True] * 3
            # What an operator raises is in force at once.
            w.journal.most = 4
            raised = asyncio.create_task(w.journal.room(7))
            await w.accepted(b"x" * 1000, client=7)
            assert not raised.done()
            w.journal.most = 1 << 20
            await raised
            # And nobody waits for ever.
            w.journal.most = 4
            monkeypatch.setattr(journal_module, "ROOM_S", 0.01)
            assert not await w.journal.room(7)
            w.journal.most = 1 << 20
            assert await w.journal.room(7), "there is some already"
            assert not w.journal._wanted

    run(story)


def refused(w: Any, client: int) -> tuple[str, str]:
    found = w.journal.refuses(client)
    assert found is not None
    rule, reason = found
    return str(rule), str(reason)


@pytest.mark.parametrize(
    ("workers", "bound"),
    [
        (1, "[limits] journal_mib = 4;"),
        (4, "a worker's 4 MiB ([limits] journal_mib = 16 for 4 workers);"),
    ],
)
def test_a_refusal_says_which_bound_it_is_how_large_and_what_to_do(
    tmp_path: Path, workers: int, bound: str
) -> None:
    async def story() -> None:
        async with world(tmp_path) as w:
            w.journal.most, w.journal._workers = 4 << 20, workers
            w.journal.broker_back([])
            for _ in range(65):
                w.put(bytes(1 << 14), client=7)
            rule, why = refused(w, 7)
            assert rule == "mediator.publish.journal-full"
            assert "1.02 MiB wait" in why
            assert f"one client may have 1 MiB, a quarter of {bound}" in why
            assert "publish more slowly, or journal_mib has to be raised" in why
            for n in range(260):
                w.put(bytes(1 << 14), client=100 + n)
            # Now it is for all, and that is said first.
            rule, why = refused(w, 7)
            assert rule == "mediator.publish.journal"
            assert f"of all clients; the bound is {bound[:-1]}: see whether" in why
            assert len(why) < 300, "sealmq status shows no more"
            # What it says to do is in force at once.
            w.journal.most = 8 << 20
            assert w.journal.refuses(7) is None
            assert w.told[1:] == [None]

    run(story)


def test_a_disk_that_is_too_slow_is_told_from_a_journal_that_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal_module, "WAITING_BYTES", 1 << 20)

    async def story() -> None:
        async with world(tmp_path) as w:
            for n in range(70):
                w.put(bytes(1 << 14), client=n)
            rule, why = refused(w, 0)
            assert rule == "mediator.publish.journal"
            assert why.startswith("the disk is too slow for the journal: more than 1 MiB wait")

    run(story)


def test_a_file_that_cannot_be_read_is_told_once_with_its_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story() -> None:
        async with world(tmp_path) as w:
            await w.journal.safe(w.put(b"one"))
            later = w.open()

            def broken(path: Path) -> None:
                raise OSError(errno.EIO, os.strerror(errno.EIO))

            monkeypatch.setattr("sealmq.mediator.journal.read", broken)
            for _ in range(2):
                assert list(later.entries(later.lost())) == []
            [(size, reason)] = w.dropped
            assert size == len(pack(0, b"t", b"one", 1, False))
            assert os.strerror(errno.EIO) in reason
            await later.close()

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
            await until(lambda: w.journal.refuses(0) is not None)
            assert w.journal.durable == 0
            reason = f"{os.strerror(errno.ENOSPC)}; free the disk that the site's state lies on"
            assert w.told == [f"the journal cannot be written: {reason}"]
            assert w.held() == []
            full = False
            await w.journal.safe(seq)
            assert w.told[-1] is None
            assert w.journal.refuses(0) is None
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
    segment = Segment(file, 1)
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


# --- a clock that is set back ---


def wall(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Sets the clock on the wall, in ms; what only rises stays."""
    now = SimpleNamespace(ms=0)
    clock = SimpleNamespace(time_ns=lambda: now.ms * 1_000_000, monotonic=lambda: 0.0)
    monkeypatch.setattr(journal_module, "time", clock)
    return lambda ms: setattr(now, "ms", ms)


async def retained(journal: Journal, payload: bytes) -> None:
    await journal.safe(journal.append(b"t", payload, 1, True, 1))


async def kept(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """What is published again with RETAIN."""
    found: list[bytes] = []

    async def one(self: Replay, segment: Segment, entry: Entry, last: bool) -> None:
        if last:
            found.append(entry.payload)

    monkeypatch.setattr(Replay, "_one", one)
    site: Any = SimpleNamespace(engine=SimpleNamespace(tlvs=()), retained=Retained())
    control: Any = SimpleNamespace(losses=0)
    nobody: Any = None
    await Replay(site, journal, control, nobody, nobody, nobody).run()
    return found


@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("qos", [0, 1])
def test_a_birth_does_not_come_back_over_a_will_that_fired_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, qos: int, full: bool
) -> None:
    """Many devices retain both, with QoS 0; the mediator alone is started again. full: the journal
    takes nothing more of the client when the will fires."""
    monkeypatch.setattr(willkeeper, "check_client", lambda site, will: None)
    monkeypatch.setattr(willkeeper, "seal", lambda *_: b"offline")

    async def story() -> None:
        async with world(tmp_path) as w:
            await w.journal.safe(w.journal.append(b"t", b"online", qos, True, 1))
            if full:
                w.journal.most = 40_000
                await w.journal.safe(w.journal.append(b"x", bytes(16_384), 1, False, 1))
            assert (w.journal.refuses(1) is not None) is full
            bytes_of = SimpleNamespace(took=lambda *_: None)
            site: Any = SimpleNamespace(
                retained=Retained(), now_ms=1, order=Order(1), retained_bytes=bytes_of
            )
            store: Any = SimpleNamespace(wills=lambda: [])
            went: list[bytes] = []

            async def publish(topic: bytes, payload: bytes, *_: Any) -> None:
                went.append(payload)

            control: Any = SimpleNamespace(losses=0)
            nobody: Any = None
            keeper = willkeeper.WillKeeper(
                site, store, nobody, w.journal, control, publish, nobody, nobody
            )
            will: Any = SimpleNamespace(qos=qos, retain=True, client=1, gen=1, boot=1, ctr=2)
            fired: Any = SimpleNamespace(topic="t", at_ms=1)
            firing = asyncio.create_task(keeper._deliver(will, fired))
            if full:  # it waits for room, and does not take that of others
                await asyncio.sleep(0)
                assert not went
                w.journal.most = 1 << 20
            assert await firing
            assert went == [b"offline"]
            await w.journal.close()
            w.journal = w.open()
            assert await kept(w.journal, monkeypatch) == [b"offline"]

    run(story)


@pytest.mark.parametrize("restarted", [False, True])
def test_what_was_retained_after_the_clock_was_set_back_is_the_newest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, restarted: bool
) -> None:
    """Whether the mediator went on meanwhile, or began anew under the new time."""

    async def story() -> None:
        set_wall = wall(monkeypatch)
        set_wall(100_000)
        async with world(tmp_path) as w:
            await retained(w.journal, b"older")
            set_wall(92_000)
            if restarted:
                await w.journal.close()
                w.journal = w.open()
                assert await kept(w.journal, monkeypatch) == [b"older"]
            await retained(w.journal, b"newer")
            w.journal.broker_lost()
            assert await kept(w.journal, monkeypatch) == [b"newer"]

    run(story)


def test_what_one_worker_retains_after_a_start_is_newer_than_what_others_had_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story() -> None:
        set_wall = wall(monkeypatch)
        set_wall(92_000)
        (tmp_path / "journal-1").mkdir()
        other = Segment(tmp_path / "journal-1/00000001.seg", 1)
        other.write(pack(100_000, b"t", b"older", 1, True))
        other.end(unlink=False)
        async with world(tmp_path) as w:
            await w.accepted(b"something")
            w.journal.broker_lost()
            assert await kept(w.journal, monkeypatch) == []
            await retained(w.journal, b"newer")
            w.journal.broker_lost()
            assert await kept(w.journal, monkeypatch) == [b"newer"]

    run(story)
