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
    """A task's place in a Queue: `yield turn` goes on when the task is the first, and others have
    had a turn.
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
    """Tasks of all sessions, of which one at a time goes on."""

    def __init__(self) -> None:
        self._turns: OrderedDict[Turn, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._turns)

    def join(self) -> Turn:
        """Takes the last place, which has to be given up with `leave`."""
        turn = Turn(self)
        self._turns[turn] = None
        return turn

    def leave(self, turn: Turn) -> None:
        """Gives the place up: its task is over, or no longer wanted."""
        del self._turns[turn]
        self.look()

    def look(self) -> None:
        """The first one goes on, if it still waits."""
        if self._turns:
            next(iter(self._turns)).first()


class Tasks:
    """The tasks of one session. `emit` takes each question, with its task's number."""

    def __init__(self, emit: Callable[[Effect], None]) -> None:
        self._emit = emit
        self._number = 0
        self._waiting: dict[int, tuple[Task, Callable[[], None] | None, bool]] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def run(self, task: Task, done: Callable[[], None] | None = None, ends: bool = False) -> bool:
        """Runs a task to its first question, or to its end, at which `done` is called. Whether it
        has ended already. `ends`: `close` ends it; else it is answered even after `close`.
        """
        return self._step(task, done, ends, None)

    def reply(self, number: int, answer: object) -> None:
        """The answer to a question; it is dropped if the task has ended."""
        waiting = self._waiting.pop(number, None)
        if waiting is not None:
            self._step(*waiting, answer)

    def close(self) -> None:
        """The session has closed: ends the tasks that end with it."""
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
            # Others have a turn first: the task before this one has just taken a slice.
            question.wait(partial(self._emit, Yield(self._number)))
        else:
            self._emit(question._replace(task=self._number))
        return False
