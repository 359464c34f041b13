"""Attributes from outside (XACML's word): the time of day, or what a file says of a client. Named
sources tell them with a validity; nobody waits for one.

One that is unknown or over is an error, and the engine makes a deny of it.
"""

from __future__ import annotations

from typing import Any, NamedTuple


class UnknownAttribute(LookupError):
    """No such attribute, or its validity is over."""

    def __init__(self, name: str, subject: str = "") -> None:
        super().__init__(f"{name} of {subject}" if subject else name)
        self.name = name
        self.subject = subject


class Attribute(NamedTuple):
    """A value that holds before `until` (Unix ms); 0: it holds no more. `subject`: the client that
    it is of, "" for the site itself.
    """

    name: str
    subject: str
    value: Any
    until: int


def same(one: Attribute | None, other: Attribute) -> bool:
    """Whether they are equal; True and 1 are not."""
    return one is not None and one == other and type(one.value) is type(other.value)


class Attributes:
    """What the sources have told last, by name and subject."""

    def __init__(self) -> None:
        self._held: dict[tuple[str, str], Attribute] = {}

    def take(self, row: Attribute) -> bool:
        """Whether it is another one than was held."""
        key = row.name, row.subject
        if row.until <= 0:
            return self._held.pop(key, None) is not None
        before, self._held[key] = self._held.get(key), row
        return not same(before, row)

    def held(self, name: str, subject: str) -> Attribute | None:
        """What was told last, though it may be over."""
        return self._held.get((name, subject))

    def read(self, name: str, subject: str, now_ms: int) -> Attribute:
        """UnknownAttribute when none holds now."""
        held = self._held.get((name, subject))
        if held is None or now_ms >= held.until:
            raise UnknownAttribute(name, subject)
        return held
