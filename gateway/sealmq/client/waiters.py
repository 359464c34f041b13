"""Operations that wait for an answer, by the ctr of what was sent."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

from .bell import Bell

T = TypeVar("T")


class _Call:
    """What waits without a task: a function, told once. As a future where Waiters uses one."""

    __slots__ = ("_over",)

    def __init__(self, over: Callable[[Exception | None], None]) -> None:
        self._over: Callable[[Exception | None], None] | None = over

    def done(self) -> bool:
        return self._over is None

    def set_result(self, _: object) -> None:
        self._end(None)

    def set_exception(self, error: Exception) -> None:
        self._end(error)

    def cancel(self) -> None:
        self._over = None

    def _end(self, error: Exception | None) -> None:
        over, self._over = self._over, None
        if over is not None:
            over(error)


class Waiters(Generic[T]):
    """Futures by ctr, each with the topic or filter that it is about."""

    def __init__(self, bell: Bell) -> None:
        self._bell = bell
        self._futures: dict[int, tuple[asyncio.Future[T] | _Call, str]] = {}

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

    def call(self, ctr: int, subject: str, over: Callable[[Exception | None], None]) -> None:
        """Have the answer to ctr told, its error or None; it is forgotten by then."""

        def told(error: Exception | None) -> None:
            del self._futures[ctr]
            over(error)

        self._futures[ctr] = (_Call(told), subject)

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
