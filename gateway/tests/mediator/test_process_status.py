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
