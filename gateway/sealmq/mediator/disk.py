"""A thread that does one thing after the other for the event loop, with as little between them as
can be: futures and executors cost as much as a write.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from queue import SimpleQueue
from threading import Thread
from typing import Any

Told = Callable[[Exception | None], None]


class Disk:
    """Of the running loop. The thread begins with the first thing to do."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._loop = asyncio.get_running_loop()
        self._jobs: SimpleQueue[tuple[Told | None, Callable[..., object], Any] | None]
        self._jobs = SimpleQueue()
        self._thread: Thread | None = None

    def do(self, call: Callable[..., object], *words: Any) -> None:
        """Nobody hears when it is done, or that it failed."""
        self._put(None, call, words)

    def ask(self, told: Told, call: Callable[..., object], *words: Any) -> None:
        """`told` hears in the loop by what it failed, or None."""
        self._put(told, call, words)

    def close(self) -> None:
        """Returns when all is done."""
        self._jobs.put(None)
        if self._thread is not None:
            self._thread.join()

    def _put(self, told: Told | None, call: Callable[..., object], words: Any) -> None:
        self._jobs.put((told, call, words))
        if self._thread is None:
            # A process that ends without closing does not wait for it.
            self._thread = Thread(target=self._run, name=self._name, daemon=True)
            self._thread.start()

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            told, call, words = job
            failed = None
            try:
                call(*words)
            except Exception as error:
                failed = error.with_traceback(None)
            if told is not None:
                # A loop that is closed has nobody left who waits.
                with contextlib.suppress(RuntimeError):
                    self._loop.call_soon_threadsafe(told, failed)
