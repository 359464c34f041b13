"""An event loop without sockets, threads and time. What is ready runs until nothing is; timers and
threads' work wait until the world has them happen.
"""

from __future__ import annotations

import asyncio
from asyncio import events
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple


class Timer(NamedTuple):
    """`task`: the name of the task that asked, "" for none."""

    delay: float
    task: str
    call: Callable[..., Any]
    handle: asyncio.TimerHandle


class Job(NamedTuple):
    """Something for a thread: the journal's own, which `writes`, or any."""

    writes: bool
    answer: asyncio.Future[Any]
    call: Callable[..., Any]
    words: tuple[Any, ...]


# As the base of a class that has only what is used here.
_Loop: Any = asyncio.AbstractEventLoop


class Turns(_Loop):  # type: ignore[misc]
    """`timers`, `jobs`: what waits. `gone`: the loop has ended."""

    def __init__(self) -> None:
        self._ready: deque[asyncio.Handle] = deque()
        self.timers: list[Timer] = []
        self.jobs: deque[Job] = deque()
        self.tasks: list[asyncio.Task[Any]] = []
        self.faults: list[str] = []
        self.gone = False

    def run(self, call: Callable[..., Any], *words: Any) -> Any:
        """Calls it, and runs what is ready after it."""
        before = events._get_running_loop()
        events._set_running_loop(self)
        try:
            result = call(*words)
            ready = self._ready
            while ready:
                handle = ready.popleft()
                if not handle.cancelled():
                    handle._run()
        finally:
            events._set_running_loop(before)
        return result

    def fire(self, timer: Timer) -> None:
        """Lets a timer fire. To be called by `run`, as `work` is."""
        self.timers.remove(timer)
        if not timer.handle.cancelled():
            timer.handle._run()

    def work(self, writes: bool, before: Callable[[], None]) -> None:
        """Does the oldest such job; `before` is called before anybody is told that it is done."""
        job = next(job for job in self.jobs if job.writes == writes)
        self.jobs.remove(job)
        _, answer, call, words = job
        try:
            result = call(*words)
        except OSError as error:
            if not answer.done():
                answer.set_exception(error)
        else:
            before()
            # Whoever asked may have been cancelled meanwhile.
            if not answer.done():
                answer.set_result(result)

    def die(self) -> None:
        """Its process is killed. What tasks do when they are cancelled has no effect."""
        self.gone = True
        self.timers.clear()
        self.jobs.clear()
        self._ready.clear()
        for _ in range(3):
            for task in self.tasks:
                task.cancel()
            self.run(lambda: None)

    # --- asyncio ---

    def call_soon(self, callback: Any, *args: Any, context: Any = None) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        self._ready.append(handle)
        return handle

    def call_at(
        self, when: float, callback: Any, *args: Any, context: Any = None
    ) -> asyncio.TimerHandle:
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        task = asyncio.current_task(self)
        if not self.gone:
            self.timers.append(
                Timer(when - self.time(), task.get_name() if task else "", callback, handle)
            )
        return handle

    def call_later(
        self, delay: float, callback: Any, *args: Any, context: Any = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def time(self) -> float:
        return 1.0

    def get_debug(self) -> bool:
        return False

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(self, coro: Any, **more: Any) -> asyncio.Task[Any]:
        task: asyncio.Task[Any] = asyncio.Task(coro, loop=self, **more)
        self.tasks.append(task)
        if len(self.tasks) > 16:
            self.tasks = [task for task in self.tasks if not task.done()]
        return task

    def run_in_executor(self, executor: Any, func: Any, *args: Any) -> asyncio.Future[Any]:
        answer = self.create_future()
        self.jobs.append(Job(executor is not None, answer, func, args))
        return answer

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        if not self.gone:
            self.faults.append(f"{context.get('message')}: {context.get('exception')!r}")

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        self.timers = [timer for timer in self.timers if timer.handle is not handle]
