"""A session's tasks: generators that yield questions and go on with their answers.

`held = yield Commit(0, rows)` reads as `await` does, needs no loop, and is driven in a test by
calling `reply`. An answer that is an exception is raised where the question was asked.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Generator
from functools import partial
from typing import Any

from .effects import Effect, Yield

Task = Generator[Any, Any, None]
"""Yields effects that are questions, with task 0, or a Turn."""


class Turn:
    """A task's place in a Queue: `yield turn` goes on when it is the first, and after a turn of
    others.
    """

    __slots__ = ("_queue", "_wake")

    def __init__(self, queue: Queue) -> None:
        self._queue = queue
        self._wake: Callable[[], None] | None = None

    def wait(self, wake: Callable[[], None]) -> None:
        """Calls `wake` once, when it is the first."""
        self._wake = wake
        self._queue.look()

    def first(self) -> None:
        """It is the first."""
        wake, self._wake = self._wake, None
        if wake is not None:
            wake()


class Queue:
    """Tasks of all sessions that go on one after the other."""

    def __init__(self) -> None:
        self._turns: OrderedDict[Turn, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._turns)

    def join(self) -> Turn:
        """The last place; whoever takes it leaves it, whatever happens."""
        turn = Turn(self)
        self._turns[turn] = None
        return turn

    def leave(self, turn: Turn) -> None:
        """It is over, or not wanted any more."""
        del self._turns[turn]
        self.look()

    def look(self) -> None:
        """The first one goes on, if it still waits."""
        if self._turns:
            next(iter(self._turns)).first()


class Tasks:
    """Of one session. `emit` takes each question, with its task's number."""

    def __init__(self, emit: Callable[[Effect], None]) -> None:
        self._emit = emit
        self._number = 0
        self._waiting: dict[int, tuple[Task, Callable[[], None] | None, bool]] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def run(self, task: Task, done: Callable[[], None] | None = None, ends: bool = False) -> bool:
        """Runs it to its first question, or to its end; `done` is called at its end. Whether it
        ended at once. `ends`: `close` ends it; else it gets its answers after that, too.
        """
        return self._step(task, done, ends, None)

    def reply(self, number: int, answer: object) -> None:
        """The answer to a question; one that nobody waits for any more is dropped."""
        waiting = self._waiting.pop(number, None)
        if waiting is not None:
            self._step(*waiting, answer)

    def close(self) -> None:
        """The session has closed: ends, where they stand, those that end with it."""
        for number, (task, _, ends) in list(self._waiting.items()):
            if ends:
                del self._waiting[number]
                task.close()

    def _step(
        self, task: Task, done: Callable[[], None] | None, ends: bool, answer: object
    ) -> bool:
        try:
            if isinstance(answer, BaseException):
                question = task.throw(answer)
            else:
                question = task.send(answer)
        except StopIteration:
            if done is not None:
                done()
            return True
        self._number += 1
        self._waiting[self._number] = task, done, ends
        if isinstance(question, Turn):
            # Not at once: what the one before did, and the first that this does, is enough at a go.
            question.wait(partial(self._emit, Yield(self._number)))
        else:
            self._emit(question._replace(task=self._number))
        return False
