"""What keeps the doctor from trying: `hint` says what to do. What it finds is no error."""

from __future__ import annotations


class DoctorError(Exception):
    """Nothing could be said about the site."""

    def __init__(self, what: str, hint: str | None = None) -> None:
        super().__init__(what)
        self.hint = hint


class Broken(DoctorError):
    """The other end did what breaks off a try: no answer, no valid welcome, an end without one."""
