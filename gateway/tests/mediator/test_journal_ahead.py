"""A wrong clock at a start: what was acknowledged before, and lies ahead of it, waits on disk until
the clock has come there, and is published once.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from journal_scene import Disk, entry, message, run, until
from links_scene import Scripted, played, running, so
from mediator_world import NOW_MS, World
from sealmq.mediator.control_link import ControlLink
from sealmq.mediator.core.retained import Retained
from sealmq.mediator.journal import REWRITE_S, Journal
from sealmq.mediator.journal_file import Ahead, Entry, Segment, pack, read
from sealmq.mediator.replay import Replay
from sealmq.order import Order
from sealmq_spec.const import WINDOW_S

YEAR_1970 = 60_000
NOW_S = NOW_MS // 1000
Row = tuple[bytes, int, bool]


async def replayed(world: World, journal: Journal, now_ms: int) -> list[Row]:
    """What is published again at this time: topic, QoS, RETAIN."""
    done: list[Row] = []

    async def publish(topic: bytes, payload: bytes, qos: int, retain: bool, may: Any) -> None:
        done.append((topic, qos, retain))

    site: Any = SimpleNamespace(
        ring=world.ring,
        order=Order(9),
        retained=Retained(),
        now_ms=now_ms,
        engine=SimpleNamespace(tlvs=(), passes=lambda family: frozenset()),
    )
    control: Any = SimpleNamespace(losses=0)
    aside: Any = SimpleNamespace(holds=lambda topic, payload: False)
    audit: Any = SimpleNamespace(write=lambda event, **told: None)
    await Replay(site, journal, control, aside, publish, audit).run()
    return done


def before(folder: Path, *rows: Entry, number: int = 1) -> Path:
    """A file that an earlier run has left."""
    path = folder / f"journal/{number:08d}.seg"
    path.parent.mkdir(exist_ok=True)
    segment = Segment(path, 1)
    segment.write(b"".join(pack(*row) for row in rows))
    segment.end(unlink=False)
    return path


@pytest.mark.parametrize("qos", [1, 2])
def test_what_lies_ahead_of_a_wrong_clock_stays_and_goes_out_once_when_it_is_set(
    tmp_path: Path, qos: int
) -> None:
    async def story() -> None:
        world = World()
        path = before(tmp_path, entry(message(world), qos))
        disk = Disk(tmp_path)
        for _ in range(2):  # the second start is as wrong as the first
            assert await replayed(world, disk.journal, YEAR_1970) == []
            disk.saves(10)
            assert path.exists()
            await disk.journal.close()
            disk.journal = disk.open()
        assert await replayed(world, disk.journal, YEAR_1970) == []
        assert not disk.journal.due(YEAR_1970 // 1000)
        assert not disk.journal.due(NOW_S - WINDOW_S - 1)
        assert disk.journal.due(NOW_S)
        assert not disk.journal.due(NOW_S), "it is under way"
        assert await replayed(world, disk.journal, NOW_MS) == [(b"t/x", qos, False)]
        assert not disk.journal.due(NOW_S)
        assert await replayed(world, disk.journal, NOW_MS) == []
        disk.saves(3)
        await _gone(path)
        await disk.journal.close()

    run(story)


def test_what_does_not_lie_ahead_is_not_held_up_and_what_was_put_out_stays_out(
    tmp_path: Path,
) -> None:
    async def story() -> None:
        world = World()
        path = before(tmp_path, entry(message(world), 1))
        disk = Disk(tmp_path)
        assert len(await replayed(world, disk.journal, NOW_MS - WINDOW_S * 1000)) == 1
        disk.saves(3)
        await _gone(path)
        await disk.journal.close()
        # It waits for the clock, and its life counts as ever.
        path = before(tmp_path, entry(message(world), 1))
        disk = Disk(tmp_path)
        assert await replayed(world, disk.journal, YEAR_1970) == []
        world.ring.clients = {}
        assert disk.journal.due(NOW_S)
        assert await replayed(world, disk.journal, NOW_MS) == []
        disk.saves(3)
        await _gone(path)
        await disk.journal.close()

    run(story)


@pytest.mark.parametrize("elsewhere", [False, True])
@pytest.mark.parametrize("killed", [False, True])
def test_a_retained_message_that_waited_does_not_replace_a_newer_one(
    tmp_path: Path, elsewhere: bool, killed: bool
) -> None:
    """Which was published under the wrong clock, by a client of this worker or of another one, and
    which the broker has saved, so that no journal has it any more.
    """

    async def story() -> None:
        world = World()
        waited = entry(message(world), 1, True)
        path = before(tmp_path, waited)
        disk = Disk(tmp_path)
        assert await replayed(world, disk.journal, YEAR_1970) == []
        if elsewhere:
            disk.journal.retained_since(waited.topic)
        else:
            seq = disk.journal.append(waited.topic, b"newer", 0, True, 1)
            await disk.journal.safe(seq)
        disk.tick(REWRITE_S + 1)
        await until(lambda: [e.retain for e in read(path)] == [False])

        def gone() -> bool:
            disk.saves(1)
            return [e.qos for e in disk.journal.entries(disk.journal.all())] == [1]

        await until(gone)
        if killed:
            await disk.journal.close()
            disk.journal = disk.open()
        else:
            assert disk.journal.due(NOW_S)
        assert await replayed(world, disk.journal, NOW_MS) == [(waited.topic, 1, False)]
        await disk.journal.close()

    run(story)


def test_what_replaced_it_stays_in_the_journal_until_that_is_written_down(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path, topics: object) -> None:
        raise OSError(28, "No space left on device")

    async def story() -> None:
        world = World()
        waited = entry(message(world), 1, True)
        before(tmp_path, waited)
        disk = Disk(tmp_path)
        assert await replayed(world, disk.journal, YEAR_1970) == []
        with monkeypatch.context() as there:
            there.setattr("sealmq.mediator.journal.without_retain", full)
            await disk.accepted(b"another")
            seq = disk.journal.append(waited.topic, b"newer", 1, True, 1)
            await disk.journal.safe(seq)
            disk.journal.acked(seq)
            for _ in range(6):
                disk.saves(3)
                await asyncio.sleep(0.01)
            assert b"newer" in disk.held()
        await disk.journal.close()

    run(story)


def test_the_newest_retained_message_that_waited_is_retained(tmp_path: Path) -> None:
    async def story() -> None:
        world = World()
        older, newer = entry(message(world), 1, True), entry(message(world), 1, True)
        before(tmp_path, older, newer._replace(ms=older.ms + 1))
        disk = Disk(tmp_path)
        assert await replayed(world, disk.journal, YEAR_1970) == []
        disk.journal.retained_since(b"another topic")
        disk.tick(REWRITE_S + 1)
        assert disk.journal.due(NOW_S)
        assert [retain for *_, retain in await replayed(world, disk.journal, NOW_MS)] == [
            False,
            True,
        ]
        await disk.journal.close()

    run(story)


def test_what_waits_has_half_of_the_journal_and_what_would_wait_longest_goes(
    tmp_path: Path,
) -> None:
    """A clock that had been years ahead must not fill the journal until then."""

    async def story() -> None:
        rows = [entry(bytes(1000)), entry(bytes(1000)), entry(bytes(1000))]
        paths = [before(tmp_path, row, number=n) for n, row in enumerate(rows, 1)]
        disk = Disk(tmp_path)
        disk.journal.most = 5000
        segments = disk.journal.lost()
        ends = (NOW_S, NOW_S + 10**8, NOW_S + 10)
        given = {s: Ahead(until, set()) for s, until in zip(segments, ends, strict=True)}
        disk.journal.broker_back(segments, given)
        assert [size for size, _ in disk.dropped] == [paths[1].stat().st_size]
        disk.saves(4)
        await _gone(paths[1])
        assert paths[0].exists()
        assert paths[2].exists()
        await disk.journal.close()

    run(story)


def test_nobody_is_let_in_before_what_waited_is_published(tmp_path: Path) -> None:
    async def story() -> None:
        done: list[str] = []
        hold = asyncio.Event()

        async def back() -> None:
            done.append("back")

        async def waited() -> None:
            await hold.wait()
            done.append("waited")

        async with Scripted(tmp_path) as broker:
            link = ControlLink(
                broker.address, "control", "@sealmq/end", lambda: [], lambda reason: None, back
            )
            link.first(waited)
            assert not link.connected, "what comes back first publishes all"
            async with running(link.run()):
                await link.ready.wait()
                assert done == ["back"]
                link.first(waited)
                assert link.away
                assert not link.ready.is_set()
                hold.set()
                await so(lambda: link.ready.is_set() and link.away is None)
                assert done == ["back", "waited"]
                assert link.losses == 0

    played(story())


async def _gone(path: Path) -> None:
    await until(lambda: not path.exists())
