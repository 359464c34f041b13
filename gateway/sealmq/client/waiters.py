"""Operations that wait for an answer, by the ctr of what was sent."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from typing import Generic, TypeVar

from .bell import Bell

T = TypeVar("T")


Over = Callable[[Exception | None], None]
"""What waits without a task: told once, the error or None."""


class Waiters(Generic[T]):
    """Who waits, by ctr, each with the topic or filter that it is about: a future, or a call."""

    def __init__(self, bell: Bell) -> None:
        self._bell = bell
        self._waiting: dict[int, tuple[asyncio.Future[T] | Over, str]] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def __iter__(self) -> Iterator[int]:
        return iter(list(self._waiting))

    def expect(self, ctr: int, subject: str) -> asyncio.Future[T]:
        """A future for the answer to ctr; `forget` it in the end."""
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._waiting[ctr] = (future, subject)
        self._bell.ring()
        return future

    def call(self, ctr: int, subject: str, over: Over) -> None:
        """Have the answer to ctr told; it is forgotten by then."""
        self._waiting[ctr] = (over, subject)

    def subject(self, ctr: int) -> str | None:
        """What ctr is about; None when nobody waits for it."""
        entry = self._waiting.get(ctr)
        return None if entry is None else entry[1]

    def resolve(self, ctrs: Sequence[int], value: T) -> None:
        """The answer is there, the same for all of them."""
        waiting = self._waiting
        for ctr in ctrs:
            if (entry := waiting.get(ctr)) is None:
                continue
            waits = entry[0]
            if not isinstance(waits, asyncio.Future):
                del waiting[ctr]
                waits(None)
            elif not waits.done():
                waits.set_result(value)

    def reject(self, ctr: int, error: Exception) -> None:
        """The answer is an error."""
        entry = self._waiting.get(ctr)
        if entry is None:
            return
        if not isinstance(entry[0], asyncio.Future):
            del self._waiting[ctr]
            entry[0](error)
        elif not entry[0].done():
            entry[0].set_exception(error)

    def fail(self, error: Exception) -> None:
        """No answer will come to any of them."""
        for ctr in self:
            self.reject(ctr, error)

    def forget(self, ctr: int) -> None:
        """Nobody waits for ctr any more."""
        entry = self._waiting.pop(ctr, None)
        if entry is not None and isinstance(entry[0], asyncio.Future):
            entry[0].cancel()  # of a done future: asyncio does not call its error overlooked
        self._bell.ring()
