"""Facts from outside (time of day, location, trust), pushed with a validity; nobody waits for one.

A fact that is unknown or over is an error, and the engine makes a deny of it.
"""

from __future__ import annotations

from typing import Any


class UnknownFact(LookupError):
    """No such fact, or its validity is over."""

    def __init__(self, name: str, subject: str = "") -> None:
        super().__init__(f"{name} {subject}".strip())
        self.name = name
        self.subject = subject


class Facts:
    """(name, subject) → value with a validity in Unix ms. `subject` "" is the site itself."""

    def __init__(self) -> None:
        self._held: dict[tuple[str, str], tuple[Any, int]] = {}

    def push(self, name: str, value: Any, valid_until_ms: int, subject: str = "") -> None:
        self._held[name, subject] = (value, valid_until_ms)

    def read(self, name: str, subject: str, now_ms: int) -> tuple[Any, int]:
        """The value and its validity; UnknownFact when there is none now."""
        held = self._held.get((name, subject))
        if held is None or now_ms >= held[1]:
            raise UnknownFact(name, subject)
        return held
