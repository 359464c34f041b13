"""How far a report is: a step after the other, how long each took, and a bar on a terminal."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

STEPS = {
    "start": "starting Spark",
    "ingest": "reading",
    "settle": "each line once",
    "measures": "tables",
    "page": "page",
}
_EACH_S = 0.5


class Steps:
    """Measures the steps and shows nothing. `seconds`: of each, in their order."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    def __enter__(self) -> Steps:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        return None

    @contextmanager
    def step(self, name: str, text: str = "", total: int = 0) -> Iterator[None]:
        """One of STEPS; `total` of what `at` counts, 0 where nobody knows."""
        began = time.monotonic()
        self.shown(name, text, total)
        try:
            yield
        finally:
            self.seconds[name] = round(time.monotonic() - began, 2)

    def at(self, done: int, text: str = "") -> None:
        """How far the step is."""

    def shown(self, name: str, text: str, total: int) -> None:
        """A step begins."""

    @contextmanager
    def watching(self, look: Callable[[], str]) -> Iterator[None]:
        """Ask `look` now and then, in a thread, what there is to tell of this step."""
        yield


class Bars(Steps):
    """The same on a terminal, gone at the end."""

    def __init__(self, progress: Progress) -> None:
        super().__init__()
        self._progress = progress
        self._task: TaskID | None = None

    def __enter__(self) -> Bars:
        self._progress.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self._progress.stop()

    def shown(self, name: str, text: str, total: int) -> None:
        if self._task is not None:
            self._progress.remove_task(self._task)
        number = list(STEPS).index(name) + 1
        what = f"{number}/{len(STEPS)} {STEPS[name]}"
        self._task = self._progress.add_task(what, total=total or None, at=text)

    def at(self, done: int, text: str = "") -> None:
        if self._task is not None:
            self._progress.update(self._task, completed=done, at=text)

    @contextmanager
    def watching(self, look: Callable[[], str]) -> Iterator[None]:
        over = threading.Event()

        def watch() -> None:
            while not over.wait(_EACH_S):
                try:
                    text = look()
                except Exception:  # of what is only shown nothing may come
                    return
                if text and not over.is_set():
                    self.at(0, text)

        thread = threading.Thread(target=watch, daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join(_EACH_S)


def steps() -> Steps:
    """On stderr, where somebody looks at it."""
    if not sys.stderr.isatty():
        return Steps()
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    return Bars(
        Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.fields[at]}", markup=False),
            TimeElapsedColumn(),
            console=Console(stderr=True),
            transient=True,
        )
    )
