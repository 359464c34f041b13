"""Messages that are set aside: all workers share one folder, its bound and its report."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from sealmq.mediator import set_aside as module
from sealmq.mediator.set_aside import SetAside


class Heard:
    """An audit log in memory."""

    def __init__(self) -> None:
        self.events: list[tuple[str, dict[str, Any]]] = []

    def write(self, event: str, **fields: Any) -> None:
        self.events.append((event, fields))


def aside(folder: Path, audit: Heard | None = None) -> SetAside:
    """Of one worker."""
    return SetAside(folder, audit or Heard(), lambda number: f"client{number}")  # type: ignore[arg-type]


def put(one: SetAside, number: int, client: int = 1) -> Any:
    return one.put(b"t/%d" % number, b"sealed", 1, False, client, "the broker hung up")


def test_of_two_workers_at_once_no_more_is_set_aside_than_the_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST", 10)
    folder = tmp_path / "aside"
    one, two = aside(folder), aside(folder)

    async def story() -> None:
        await asyncio.gather(*(put((one, two)[n % 2], n) for n in range(60)))
        await put(two, 100)

    asyncio.run(story())
    assert len(list(folder.glob("*.json"))) == 10
    for worker in (one, two):
        state = worker.state()
        assert state is not None
        assert state["count"] == 10
        assert state["newest"] == {"client": "client1", "topic": "t/100"}
        assert worker.holds(b"t/100", b"sealed")


def test_their_bytes_are_bounded_and_the_oldest_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "aside"
    one, two = aside(folder), aside(folder)
    asyncio.run(put(one, 0))
    [first] = folder.glob("*.json")
    monkeypatch.setattr(module, "MOST_BYTES", 3 * first.stat().st_size)
    for n in range(1, 5):
        asyncio.run(put((one, two)[n % 2], n))
    left = [n for n in range(5) if one.holds(b"t/%d" % n, b"sealed")]
    assert left == [2, 3, 4]


def test_a_message_that_another_worker_set_aside_is_not_tried_again(tmp_path: Path) -> None:
    """It is tried again once the operator has removed its file."""
    folder, audit = tmp_path / "aside", Heard()
    one, two = aside(folder, audit), aside(folder)
    assert one.state() is None
    asyncio.run(put(one, 7))
    assert two.holds(b"t/7", b"sealed")
    [path] = folder.glob("*.json")
    path.unlink()
    assert not one.holds(b"t/7", b"sealed")
    assert one.state() is two.state() is None
    assert [event for event, _ in audit.events] == ["message-set-aside"]
