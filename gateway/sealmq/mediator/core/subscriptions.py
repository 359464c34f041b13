"""Placeholder: `coreout` writes this file (faces.md)."""

from __future__ import annotations

from typing import Any

from .effects import Yield
from .tasks import Task


class Subscriptions:
    """One session's. Made when it opens, after its Delivery."""

    def __init__(self, session: Any) -> None:
        self._s = session

    def subscribe(self, packet: Any) -> Task:
        """SUBSCRIBE."""
        yield Yield(0)

    def unsubscribe(self, packet: Any) -> Task:
        """UNSUBSCRIBE."""
        yield Yield(0)

    def restore(self, rows: tuple[Any, ...]) -> Task | None:
        """What the store has of a session that came back."""
        return None

    def due(self, filters: Any) -> None:
        """The policy may see these otherwise."""

    def close(self) -> None:
        """The session has closed."""
