"""What the processes of a site have counted, as their files say (audit/totals.py)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sealmq.run import proc
from sealmq.site.layout import Layout
from sealmq.site.reading import read_small

_FILE = re.compile(r"totals-([a-z0-9]{1,8})\.json")
_MOST = 1 << 18


@dataclass(frozen=True, slots=True)
class Told:
    """One process. name: of a mediator its worker's number, or "owner"; of others "0". events: how
    often each happened, by event and rule.
    """

    role: str
    name: str
    at_ms: int
    events: dict[tuple[str, str], int]
    clients: int
    connections: int
    gauges: dict[str, float]
    error: str | None

    def silent_s(self, now_s: float) -> float:
        """How long ago it has said this."""
        return now_s - self.at_ms / 1000


def read(layout: Layout) -> Iterator[Told]:
    """Of all processes that live. What makes no sense is left out."""
    for role in layout.writers():
        for path in sorted(layout.run_of(role).glob("totals-*.json")):
            found = _FILE.fullmatch(path.name)
            told = _json(path)
            if found is not None and told is not None and _lives(told.get("pid")):
                one = _told(role, found[1], told)
                if one is not None:
                    yield one


def _json(path: Path) -> dict[str, Any] | None:
    try:
        told = json.loads(read_small(path, _MOST))
    except (OSError, ValueError, RecursionError):
        return None
    return told if isinstance(told, dict) else None


def _lives(pid: object) -> bool:
    return type(pid) is int and proc.start_of(pid) is not None


def _told(role: str, name: str, told: dict[str, Any]) -> Told | None:
    try:
        error = told["error"]
        return Told(
            role,
            name,
            int(told["at_ms"]),
            {(str(event), str(rule)): int(count) for event, rule, count in told["events"]},
            int(told["clients"]),
            int(told["connections"]),
            {str(key): float(value) for key, value in told["gauges"].items()},
            None if error is None else str(error),
        )
    except (KeyError, TypeError, ValueError, AttributeError):
        return None
