"""Waiting for a condition in one event loop: every change rings, every waiter looks again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class Bell:
    """`ring` never blocks; `until` returns as soon as its condition holds at a look."""

    def __init__(self) -> None:
        self._waiting: list[asyncio.Future[None]] = []

    def ring(self) -> None:
        """Something has changed."""
        waiting, self._waiting = self._waiting, []
        for future in waiting:
            if not future.done():
                future.set_result(None)

    async def until(self, condition: Callable[[], bool]) -> None:
        """Returns when `condition()` holds; without a pause when it holds already."""
        while not condition():
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(future)
            await future
