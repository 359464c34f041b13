"""What a judge found."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass
class Finding:
    """About one attempt. `evidence`: audit ids, and what else shows it."""

    outcome: str
    evidence: dict[str, Any] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return not self.wrong

    def need(self, holds: bool, else_wrong: str) -> None:
        """Note what is wrong unless it holds."""
        if not holds:
            self.wrong.append(else_wrong)
