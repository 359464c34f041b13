"""A session's tasks: generators that yield questions and go on with their answers.

`held = yield Commit(0, rows)` reads as `await` does, needs no loop, and is driven in a test by
calling `reply`. An answer that is an exception is raised where the question was asked.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

from .effects import Effect

Task = Generator[Any, Any, None]
"""Yields effects that are questions, with task 0."""


class Tasks:
    """Of one session. `emit` takes each question, with its task's number."""

    def __init__(self, emit: Callable[[Effect], None]) -> None:
        self._emit = emit
        self._number = 0
        self._waiting: dict[int, tuple[Task, Callable[[], None] | None]] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def run(self, task: Task, done: Callable[[], None] | None = None) -> bool:
        """Runs it to its first question, or to its end; `done` is called at its end. Whether it
        ended at once.
        """
        return self._step(task, done, None)

    def reply(self, number: int, answer: object) -> None:
        """The answer to a question; one that nobody waits for any more is dropped."""
        waiting = self._waiting.pop(number, None)
        if waiting is not None:
            self._step(*waiting, answer)

    def close(self) -> None:
        """Ends all of them where they stand."""
        waiting, self._waiting = self._waiting, {}
        for task, _ in waiting.values():
            task.close()

    def _step(self, task: Task, done: Callable[[], None] | None, answer: object) -> bool:
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
        self._waiting[self._number] = task, done
        self._emit(question._replace(task=self._number))
        return False
