"""Boards that wait for one another: what happens to the site happens once, to all of them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable

from .errors import Failed

_PATIENCE_S = 600.0


class Together:
    """`meet` returns when all who have not left are there and the action was done, by one."""

    def __init__(self, names: Iterable[str]) -> None:
        self._parties = set(names)
        self._arrived: set[str] = set()
        self._round = 0
        self._action: Callable[[], None] | None = None
        self._error: BaseException | None = None
        self._changed = threading.Condition()

    def meet(self, name: str, action: Callable[[], None] | None = None) -> None:
        """Failed: somebody did not come, or the action failed."""
        with self._changed:
            if name not in self._parties:
                raise Failed(f"{name} has left")
            self._arrived.add(name)
            self._action = action or self._action
            mine = self._round
            self._go()
            if not self._changed.wait_for(lambda: self._round != mine, _PATIENCE_S):
                self._parties.discard(name)
                self._arrived.discard(name)
                raise Failed(f"waited in vain for {', '.join(self._parties - self._arrived)}")
            if self._error is not None:
                raise Failed(str(self._error)) from self._error

    def leave(self, name: str) -> None:
        """Nobody waits for it from now on."""
        with self._changed:
            self._parties.discard(name)
            self._arrived.discard(name)
            self._go()

    def _go(self) -> None:
        if not self._parties or self._arrived < self._parties:
            return
        self._error = None
        if self._action is not None:
            try:
                self._action()
            except Exception as error:
                self._error = error
        self._action = None
        self._arrived = set()
        self._round += 1
        self._changed.notify_all()
