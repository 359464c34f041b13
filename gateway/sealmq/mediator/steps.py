"""Work that is done in steps, so that others are served between."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable

from .core.limits import TURN_S


class Steps:
    """Steps of all sessions, in the order in which they were added. Each turn of the loop takes as
    many as fit into TURN_S, and at least one.
    """

    def __init__(self) -> None:
        self._waiting: deque[Callable[[], None]] = deque()

    def add(self, step: Callable[[], None]) -> None:
        """Runs `step` later, never at once."""
        if not self._waiting:
            asyncio.get_running_loop().call_soon(self._run)
        self._waiting.append(step)

    def _run(self) -> None:
        until = time.monotonic() + TURN_S
        waiting = self._waiting
        while True:
            # A step stays in the queue while it runs: what it adds runs after it.
            waiting[0]()
            waiting.popleft()
            if not waiting:
                return
            if time.monotonic() >= until:
                asyncio.get_running_loop().call_soon(self._run)
                return
