"""What an operator can do something about. Anything else that is raised is a defect of ours."""

from __future__ import annotations


class ReportError(Exception):
    """Says what is wrong; `hint` what can be done about it."""

    def __init__(self, text: str, hint: str = "") -> None:
        super().__init__(text)
        self.hint = hint
