"""A site whose disk is full: no part ends, and the site does not, because a file cannot be written.

A folder in a file's place lets nothing be put there, as a full disk does.
"""

from __future__ import annotations

import asyncio
import errno
import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import cast

import pytest

from run.sites import Site, Up, until
from sealmq.broker.target import parse
from sealmq.run import brokers, ready, roles
from sealmq.run.child import Start
from sealmq.run.errors import NotReady
from sealmq.run.ready import Persistent
from sealmq.run.roles import Process
from sealmq.site.layout import Layout

FULL = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize(
    ("role", "file"), [("mediator", "up.json"), ("broker", "broker/ready.json")]
)
def test_a_part_that_ends_is_started_again_while_nothing_can_be_written(
    site: Site, role: str, file: str
) -> None:
    up = site.up().ready()
    pid, path = site.row(role)["pid"], site.root / "run" / file
    path.unlink()
    path.mkdir()
    os.kill(pid, signal.SIGKILL)
    until(lambda: f"{role} is ready again" in up.err.read_text() or _over(up), "the restart")
    assert up.process.poll() is None, up.err.read_text()
    assert up.err.read_text().count(f"run/{file} cannot be written") == 1
    path.rmdir()
    until(path.is_file, "the file to be written again")
    until(lambda: site.row(role)["ready"], "the new one to be known")
    assert up.end() == 0
    assert site.left() == []


def _over(up: Up) -> bool:
    return up.process.poll() is not None


class FakeChild:
    """A process that lives until it is ended."""

    def __init__(self, start: Start, say: Callable[[str], None]) -> None:
        self.exited: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self.pid, self.lines = 1, list[str]()
        self.signals = list[int]()

    @property
    def alive(self) -> bool:
        return not self.exited.done()

    def end_text(self) -> str:
        return "ended"

    def last_words(self) -> str:
        return "it said nothing"

    def signal(self, number: int) -> None:
        self.signals.append(number)

    async def stop(self, patience_s: float) -> bool:
        if self.alive:
            self.exited.set_result(0)
        return True


async def _turns(true: Callable[[], bool]) -> None:
    while not true():  # noqa: ASYNC110 - whatever is looked at
        await asyncio.sleep(0)


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Start:
    monkeypatch.setattr(roles, "Child", FakeChild)
    monkeypatch.setattr(roles, "BACKOFF_S", (0.0, 0.0))
    monkeypatch.setattr(roles, "_POLL_S", 0.0)
    return Start("kg", "none", tmp_path, {})


def test_what_fails_on_a_full_disk_while_a_part_is_started_again_is_tried_again(
    start: Start,
) -> None:
    said, fails = list[str](), [FULL, FULL]

    async def serves(pid: int) -> str | None:
        return "there"

    def starting() -> None:
        if part.child is not None and fails:
            raise fails.pop()

    part = Process(start, serves, lambda: None, said.append, starting=starting)

    async def run() -> None:
        await part.start()
        assert part.child is not None
        part.child.exited.set_result(1)
        tending = asyncio.create_task(part.tend())
        await _turns(lambda: "kg is ready again" in said or tending.done())
        tending.cancel()

    asyncio.run(run())
    assert [line for line in said if os.strerror(errno.ENOSPC) in line]
    assert said[-1] == "kg is ready again"


def test_one_that_cannot_say_that_it_is_ready_is_not_ended_while_the_disk_is_full(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What ends it drains the space that is kept back for revocation, at each start some more."""
    said, asked, full = list[str](), 0, True

    async def serves(pid: int) -> str | None:
        nonlocal asked
        asked += 1
        return "there" if asked in (1, 5) else None

    part = Process(start, serves, lambda: None, said.append, full=lambda: full)

    async def run() -> None:
        nonlocal full
        await part.start()
        monkeypatch.setattr(roles, "READY_S", -1.0)
        await part.start()
        assert part.serving
        full = False
        with pytest.raises(NotReady):
            await part.start()

    asyncio.run(run())
    assert said == ["kg cannot say whether it serves: the disk is full; it may"] * 3


def test_sighup_goes_to_one_that_serves_only_and_is_not_lost(start: Start) -> None:
    served = False

    async def serves(pid: int) -> str | None:
        return "there" if served else None

    part = Process(start, serves, lambda: None, lambda line: None)

    async def run() -> None:
        nonlocal served
        part.hang_up()  # before there is one: that one will read what there is
        starting = asyncio.create_task(part.start())
        await _turns(lambda: part.child is not None)
        child = cast(FakeChild, part.child)
        part.hang_up()
        part.hang_up()
        assert child.signals == []
        served = True
        await starting
        assert child.signals == [signal.SIGHUP]
        part.hang_up()
        assert child.signals == [signal.SIGHUP] * 2

    asyncio.run(run())


def test_a_file_is_tried_again_until_it_is_written_and_said_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ready, "AGAIN_S", 0.0)
    said, tries, fails = list[str](), list[str](), True

    def write(text: str) -> None:
        tries.append(text)
        if fails:
            raise FULL

    async def run() -> None:
        nonlocal fails
        file = Persistent("run/x.json", said.append)
        file.put(lambda: write("old"))
        await _turns(lambda: len(tries) == 3)
        file.put(lambda: write("new"))
        await _turns(lambda: tries.count("new") == 3)
        fails = False
        await _turns(lambda: tries.count("new") == 4)
        fails = True
        file.put(lambda: write("newer"))
        file.drop()
        for _ in range(10):
            await asyncio.sleep(0)

    asyncio.run(run())
    assert tries == ["old"] * 3 + ["new"] * 4 + ["newer"]
    assert said == [f"run/x.json cannot be written: {FULL.strerror}; trying it again"] * 2


def test_an_external_broker_is_watched_on_while_nothing_can_be_written(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    layout = Layout.open(site.root)
    path, said = layout.ready("broker"), list[str]()
    path.mkdir(parents=True)
    answers: list[OSError | None] = [None, FULL, None, None]

    async def admitted(target: object) -> None:
        if answers and (fault := answers.pop(0)) is not None:
            raise fault

    monkeypatch.setattr(brokers, "admitted", admitted)
    monkeypatch.setattr(brokers, "WATCH_S", 0.0)
    monkeypatch.setattr(ready, "AGAIN_S", 0.0)

    async def run() -> None:
        broker = brokers.ExternalBroker(
            parse("mqtt://127.0.0.1:1"), layout, said.append, lambda promises: None
        )
        tending = asyncio.create_task(broker.tend())
        await _turns(lambda: not answers or tending.done())
        assert not tending.done(), tending.exception()
        path.rmdir()
        await _turns(lambda: path.is_file() or tending.done())
        tending.cancel()

    asyncio.run(run())
    assert json.loads(path.read_text())["ready"] is True
    assert len([line for line in said if "cannot be written" in line]) == 1
