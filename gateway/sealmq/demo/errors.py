"""What keeps the demo from running. It is not a verdict: nothing was shown either way."""

from __future__ import annotations


class DemoError(Exception):
    """`hint` says what to do about it."""

    def __init__(self, text: str, hint: str = "") -> None:
        super().__init__(text)
        self.hint = hint
