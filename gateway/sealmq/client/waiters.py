"""Operations that wait for an answer, by the ctr of what was sent."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Generic, TypeVar

from .bell import Bell

T = TypeVar("T")


class Waiters(Generic[T]):
    """Futures by ctr, each with the topic or filter that it is about."""

    def __init__(self, bell: Bell) -> None:
        self._bell = bell
        self._futures: dict[int, tuple[asyncio.Future[T], str]] = {}

    def __len__(self) -> int:
        return len(self._futures)

    def __iter__(self) -> Iterator[int]:
        return iter(list(self._futures))

    def expect(self, ctr: int, subject: str) -> asyncio.Future[T]:
        """A future for the answer to ctr; `forget` it in the end."""
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._futures[ctr] = (future, subject)
        self._bell.ring()
        return future

    def subject(self, ctr: int) -> str | None:
        """What ctr is about; None when nobody waits for it."""
        entry = self._futures.get(ctr)
        return None if entry is None else entry[1]

    def resolve(self, ctr: int, value: T) -> None:
        """The answer is there."""
        entry = self._futures.get(ctr)
        if entry is not None and not entry[0].done():
            entry[0].set_result(value)

    def reject(self, ctr: int, error: Exception) -> None:
        """The answer is an error."""
        entry = self._futures.get(ctr)
        if entry is not None and not entry[0].done():
            entry[0].set_exception(error)

    def fail(self, error: Exception) -> None:
        """No answer will come to any of them."""
        for ctr in self:
            self.reject(ctr, error)

    def forget(self, ctr: int) -> None:
        """Nobody waits for ctr any more."""
        entry = self._futures.pop(ctr, None)
        if entry is not None:
            entry[0].cancel()  # of a done future: asyncio does not call its error overlooked
        self._bell.ring()
