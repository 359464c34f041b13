"""What is retained for a reader's filters: each fetch serves all who asked before it began."""

from __future__ import annotations

from collections.abc import Generator
from types import SimpleNamespace
from typing import Any

from sealmq.mediator.core.effects import Snapshot, SnapshotMore, Some
from sealmq.mediator.core.fetches import Fetches


def test_who_asks_while_an_older_fetch_goes_on_is_served_by_one_more() -> None:
    """Also when the older one has come to its next chunk in between."""
    tasks: list[Generator[Any, Any, None]] = []
    session: Any = SimpleNamespace(site=SimpleNamespace(now_ms=1), beside=tasks.append)
    opened: list[bool] = []
    taker: Any = SimpleNamespace(
        takes_more=True, came=lambda fetch, copies, opens: opened.append(opens)
    )
    fetches = Fetches(session, taker)
    fetches.add("f/#", 1, True)
    [task] = tasks
    asked = [next(task)]
    fetches.add("f/#", 1, True)
    asked.append(task.send(Some((), 7)))
    fetches.add("f/#", 1, True)
    for _ in range(9):
        try:
            asked.append(task.send(Some((), None)))
        except StopIteration:
            break
    assert asked == [Snapshot(0, "f/#"), SnapshotMore(0, 7), Snapshot(0, "f/#")]
    assert opened == [False, False, True]
    assert fetches.idle
