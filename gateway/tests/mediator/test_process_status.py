"""What `sealmq status` reads of a mediator is written beside the event loop, and by nobody after
its end."""

from __future__ import annotations

import asyncio
import errno
import os
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sealmq.mediator import process
from sealmq.mediator.process import Process
from sealmq.run import ready, status
from sealmq.run.ready import Ready
from sealmq.site.layout import Layout


def _process(folder: Path) -> Any:
    news = {"away": None, "journal": {"bytes": 1, "segments": 1, "failing": None}}
    crew = SimpleNamespace(news=lambda: [news])
    owner = SimpleNamespace(sources=SimpleNamespace(failing={}))
    made: Any = Process(Layout(folder), owner, crew, SimpleNamespace())  # type: ignore[arg-type]
    made._serving = {"role": "mediator"}
    return made


def _run(story: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(30):
            await story()

    asyncio.run(bounded())


def test_the_event_loop_does_not_wait_for_the_disk_when_the_status_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrote: list[threading.Thread] = []
    done = threading.Event()

    def write(*words: object) -> None:
        wrote.append(threading.current_thread())
        done.set()

    monkeypatch.setattr(process, "write_atomically", write)

    async def story() -> None:
        made = _process(tmp_path)
        made._told.set()
        task = asyncio.create_task(made._tell_all())
        await asyncio.to_thread(done.wait, 20)
        task.cancel()
        assert wrote[0] is not threading.main_thread()

    _run(story)


def test_a_status_that_is_being_written_does_not_outlive_the_mediator(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, goes_on = threading.Event(), threading.Event()

    def write(path: Path, data: bytes, mode: int) -> None:
        begun.set()
        goes_on.wait(20)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)

    monkeypatch.setattr(process, "write_atomically", write)

    async def story() -> None:
        made = _process(tmp_path)
        made._told.set()
        task = asyncio.create_task(made._tell_all())
        await asyncio.to_thread(begun.wait, 20)
        ends = asyncio.create_task(made._forget())
        await asyncio.sleep(0.05)
        goes_on.set()
        await ends
        made._told.set()
        await asyncio.sleep(0.05)
        task.cancel()
        assert not Layout(tmp_path).ready("mediator").exists()

    _run(story)


def test_a_status_that_a_full_disk_refuses_is_said_once_and_written_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    tries, done = [0], threading.Event()

    def write(*words: object) -> None:
        tries[0] += 1
        if tries[0] < 4:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        done.set()

    monkeypatch.setattr(process, "write_atomically", write)
    monkeypatch.setattr(process, "AGAIN_S", 0.0)

    async def story() -> None:
        made = _process(tmp_path)
        made._told.set()
        task = asyncio.create_task(made._tell_all())
        assert await asyncio.to_thread(done.wait, 20)
        task.cancel()

    _run(story)
    assert caplog.text.count("ready.json cannot be written") == 1


def test_a_family_that_has_lost_its_state_is_why_nobody_can_connect() -> None:
    news = [{"away": None, "lost": ""}, {"away": None, "lost": "the policy family 'x' has failed"}]
    assert process._merged(news)["away"] == "the policy family 'x' has failed"
    assert process._merged(news[:1])["away"] is None


def test_thousands_of_labels_in_hand_over_leave_a_status_that_is_believed(tmp_path: Path) -> None:
    """Of a longer file than it takes nobody believes that a mediator serves."""
    labels = {f"{n:064}": 1_800_000_000 for n in range(2000)}
    layout = Layout(tmp_path)
    layout.ready("mediator").parent.mkdir(parents=True)
    told = process._merged([{"away": None, "handover": {"labels": labels, "held": 0}}] * 2)
    ready.write(layout, Ready("mediator", os.getpid(), "127.0.0.1:1", True), **told)
    found = ready.read_json(layout.ready("mediator"))
    assert found is not None
    assert (status._handover(found["handover"]) or "").endswith(" and 1995 more")


def test_a_disk_that_cannot_be_written_ends_it_with_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def serve(*_: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), "audit")

    layout = Layout(tmp_path)
    layout.config.touch()
    monkeypatch.setattr(process, "serve", serve)
    monkeypatch.setattr(process, "receive", dict)
    monkeypatch.setattr("sealmq.garbage.starting", lambda: None)
    assert process.main([str(tmp_path)]) == 1
    assert capsys.readouterr().err == "mediator: [Errno 30] Read-only file system: 'audit'\n"
