"""How far each board is: one bar each on a terminal, else a line for each step. All on stderr."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn


class Shown:
    """One line of the display."""

    def __init__(self, progress: Progress | None, name: str) -> None:
        self._progress = progress
        self._name = name
        self._task: TaskID | None = None
        self._step = ""
        if progress is not None:
            self._task = progress.add_task(name, total=1.0, step="")

    def step(self, text: str) -> None:
        """What it does now."""
        if text == self._step:
            return
        self._step = text
        if self._progress is not None and self._task is not None:
            self._progress.update(self._task, step=text)
        else:
            print(f"{self._name}: {text}", file=sys.stderr, flush=True)

    def part(self, done: float) -> None:
        """How much is done, 0 to 1."""
        if self._progress is not None and self._task is not None:
            self._progress.update(self._task, completed=done)


class Showing:
    """The display, while it is entered."""

    def __init__(self) -> None:
        console = Console(stderr=True)
        self._progress: Progress | None = None
        self._fetch: Shown | None = None
        if console.is_terminal:
            self._progress = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                TextColumn("{task.percentage:>3.0f} %"),
                TimeElapsedColumn(),
                TextColumn("{task.fields[step]}"),
                console=console,
            )

    def __enter__(self) -> Showing:
        if self._progress is not None:
            self._progress.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        if self._progress is not None:
            self._progress.stop()

    def board(self, name: str) -> Shown:
        """A line for one board."""
        return Shown(self._progress, name)

    def fetched(self, done: int, whole: int) -> None:
        """How much of the firmware is here."""
        if self._fetch is None:
            self._fetch = Shown(self._progress, "firmware")
            self._fetch.step("fetching")
        if whole:
            self._fetch.part(done / whole)

    def ask(self, question: str) -> bool:
        """Yes or no, from who sits at the terminal; no if nobody does."""
        if not (sys.stdin.isatty() and sys.stderr.isatty()):
            return False
        if self._progress is not None:
            self._progress.stop()
        print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)
        answer = sys.stdin.readline().strip().lower()
        if self._progress is not None:
            self._progress.start()
        return answer in ("y", "yes")


_lock = threading.Lock()
_waiting: list[Showing] = []
_waiters = 0


@contextmanager
def waiting(name: str) -> Iterator[Shown]:
    """A bar for a board that is waited for; those of several threads share one display."""
    global _waiters
    with _lock:
        _waiters += 1
        if _waiters == 1:
            _waiting.append(Showing().__enter__())
        shown = _waiting[0].board(name)
    try:
        yield shown
    finally:
        with _lock:
            _waiters -= 1
            if not _waiters:
                _waiting.pop().__exit__(None, None, None)
