"""The event loop of processes that carry messages: uvloop if it is installed, else asyncio's; and
what ended its tasks, and what a protocol wakes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any


def run(work: Coroutine[Any, Any, None]) -> None:
    """asyncio.run, with that loop."""
    with asyncio.Runner(loop_factory=_factory()) as runner:
        runner.run(work)


def _factory() -> Any:
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop


def first_error(errors: BaseExceptionGroup[BaseException]) -> BaseException:
    """The first error of a task group, however deep it lies."""
    error: BaseException = errors
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def wake(waits: asyncio.Future[None] | None) -> None:
    """Whoever waits for this goes on; nobody may, or it may have been told already."""
    if waits is not None and not waits.done():
        waits.set_result(None)
