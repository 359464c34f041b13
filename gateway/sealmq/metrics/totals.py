"""What the processes of a site have counted, as their files say (audit/totals.py)."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sealmq.plain import plain
from sealmq.run import proc
from sealmq.site.layout import Layout
from sealmq.site.reading import read_small

_FILE = re.compile(r"totals-([a-z0-9]{1,8})\.json")
_MOST = 1 << 18
_LONGEST = 200
_TICKS_A_S = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Told:
    """One process. name: of a mediator its worker's number, or "owner"; of others "0". events: how
    often each happened, by event and rule, since it began; began_s: seconds after the boot.
    alive_ms: when it said this, by the monotonic clock.
    """

    role: str
    name: str
    began_s: float
    alive_ms: int
    events: dict[tuple[str, str], int]
    clients: int
    connections: int
    gauges: dict[str, float]
    error: str | None

    def silent_s(self) -> float:
        """How long ago it has said this."""
        return time.monotonic() - self.alive_ms / 1000


def read(layout: Layout) -> Iterator[Told]:
    """Of all processes that live. What makes no sense is left out."""
    for role in layout.writers():
        for path in sorted(layout.run_of(role).glob("totals-*.json")):
            found = _FILE.fullmatch(path.name)
            told = _json(path)
            began = None if told is None else _began(told.get("pid"), told.get("start"))
            if found is not None and told is not None and began is not None:
                one = _told(role, found[1], told, began / _TICKS_A_S)
                if one is not None:
                    yield one


def _json(path: Path) -> dict[str, Any] | None:
    try:
        told = json.loads(read_small(path, _MOST))
    except (OSError, ValueError, RecursionError):
        return None
    return told if isinstance(told, dict) else None


# Of a process that lives: another one may have the pid by now, and would get its counts.
def _began(pid: object, start: object) -> int | None:
    began = proc.start_of(pid) if type(pid) is int else None
    return began if began == start else None


def _told(role: str, name: str, told: dict[str, Any], began_s: float) -> Told | None:
    try:
        error = told["error"]
        return Told(
            role,
            name,
            began_s,
            _number(told["alive_ms"]),
            {(_word(event), _word(rule)): _number(count) for event, rule, count in told["events"]},
            _number(told["clients"]),
            _number(told["connections"]),
            {str(key): float(value) for key, value in told["gauges"].items()},
            None if error is None else str(error),
        )
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
        return None


# What Prometheus can be told: it has doubles, and text that UTF-8 can write.
def _number(value: Any) -> int:
    return int(float(value))


def _word(text: object) -> str:
    return plain(str(text), _LONGEST)
