"""The journal's thread: one thing after the other, and the loop hears how each went."""

from __future__ import annotations

import asyncio
import threading

from sealmq.mediator.disk import Disk


def test_each_is_done_in_its_order_and_who_asked_hears_it_in_the_loop() -> None:
    done: list[int] = []
    told: list[tuple[Exception | None, threading.Thread]] = []

    def fails() -> None:
        raise OSError(28, "full")

    async def story() -> None:
        disk, heard = Disk("test"), asyncio.Event()

        def hear(error: Exception | None) -> None:
            told.append((error, threading.current_thread()))
            if len(told) == 3:
                heard.set()

        disk.ask(hear, done.append, 1)
        disk.ask(hear, fails)
        disk.do(fails)
        disk.do(done.append, 2)
        disk.ask(hear, done.append, 3)
        async with asyncio.timeout(30):
            await heard.wait()
        disk.do(done.append, 4)
        disk.close()
        assert done == [1, 2, 3, 4]

    asyncio.run(story())
    assert [str(error) for error, _ in told] == ["None", "[Errno 28] full", "None"]
    assert {thread for _, thread in told} == {threading.main_thread()}


def test_a_loop_that_has_ended_is_told_nothing() -> None:
    goes_on, went = threading.Event(), threading.Event()
    told: list[Exception | None] = []

    async def story() -> Disk:
        disk = Disk("test")
        disk.ask(told.append, goes_on.wait, 20)
        return disk

    disk = asyncio.run(story())
    goes_on.set()
    disk.do(went.set)
    disk.close()
    assert went.is_set()
    assert told == []
