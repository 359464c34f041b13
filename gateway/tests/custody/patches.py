"""What stands in for sockets, threads and clocks while a world runs."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any
from unittest import mock

from mediator_world import NOW_MS
from sealmq.mediator import control_link, journal, mediator, messages
from sealmq.mediator.clock import Clock
from sealmq.mediator.core import delivery, fan_out
from sealmq.mediator.core.limits import Room
from sealmq.mediator.links import live, own, publish, snapshots

from .broker import Link
from .world import Bounds

_WITH_LINKS = (control_link, messages, live, own, publish, snapshots)


class Prompt:
    """The journal's thread: what nobody waits for is done at once, the rest when a world says."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.get_running_loop()

    def do(self, call: Callable[..., Any], *words: Any) -> None:
        call(*words)

    def ask(self, told: Callable[[Any], None], call: Callable[..., Any], *words: Any) -> None:
        done: Any = self._loop.run_in_executor(self, call, *words)  # type: ignore[arg-type]
        done.add_done_callback(lambda done: told(done.exception()))

    def close(self) -> None:
        """Nothing runs."""


def _stands() -> Clock:
    return Clock(wall=lambda: NOW_MS * 1_000_000, mono=lambda: 0)


@contextlib.contextmanager
def patched(bounds: Bounds) -> Iterator[None]:
    """Links without sockets, a clock that stands still, and small bounds."""
    with contextlib.ExitStack() as stack:

        def put(module: Any, name: str, value: Any) -> None:
            stack.enter_context(mock.patch.object(module, name, value))

        for module in _WITH_LINKS:
            put(module, "BrokerLink", Link)
        put(mediator, "Clock", _stands)
        put(journal, "Disk", Prompt)
        stopped = SimpleNamespace(time_ns=lambda: NOW_MS * 1_000_000, monotonic=time.monotonic)
        put(journal, "time", stopped)
        if bounds.company:
            put(journal.Journal, "_wait", lambda self: journal.APART_S)
        put(live, "_BEAT_S", 1e9)
        put(delivery, "WINDOW", bounds.window)
        put(fan_out, "Room", functools.partial(Room, sure=bounds.room))
        put(own, "HELD_PACKETS", bounds.held)
        yield
