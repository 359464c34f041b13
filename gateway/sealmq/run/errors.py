"""What can go wrong while a site runs. Text: what arrived; `hint`: what to do. Never a secret."""

from __future__ import annotations


class RunError(Exception):
    """Base of this package's errors."""

    def __init__(self, what: str, hint: str | None = None) -> None:
        super().__init__(what)
        self.hint = hint


class AlreadyUp(RunError):
    """Another `sealmq up` holds this site."""


class NotReady(RunError):
    """A process did not become ready; `lines` are the last that it wrote."""

    def __init__(self, what: str, hint: str | None = None, lines: tuple[str, ...] = ()) -> None:
        super().__init__(what, hint)
        self.lines = lines


class BadHandOver(RunError):
    """A process was started without its secrets, or with something else in their place."""


class BadUsers(RunError):
    """The system's users are not as separate processes need them."""
