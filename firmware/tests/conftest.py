"""Tests here import the scripts of firmware/host, which are no package, by their plain names.

At the end of a run it says which published vectors ran, and how many did not and why.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from published import Source, Tally

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "host"))

_PROPERTY = "published vectors"


@pytest.fixture
def tally(record_property: Callable[[str, object], None]) -> Tally:
    """`tally(source, interpreter, *backends)` once the vectors of `source` were right there."""

    def note(source: Source[Any], interpreter: str, *backends: str) -> None:
        verdicts = Counter(getattr(vector, "verdict", "valid") for vector in source.vectors)
        where = f"{interpreter} ({', '.join(backends)})" if backends else interpreter
        # A worker hands it over with the test's report.
        record_property(_PROPERTY, [source.name, where, dict(verdicts), dict(source.excluded)])

    return note


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """One line a source: how many ran, how many did not and why, on what."""
    ran: dict[str, set[str]] = {}
    for report in terminalreporter.getreports("passed"):
        for name, value in report.user_properties:
            if name == _PROPERTY:
                source, where, verdicts, excluded = value
                ran.setdefault(f"{source}: {_numbers(verdicts, excluded)}", set()).add(where)
    if ran:
        terminalreporter.section("vectors from elsewhere", sep="-")
    for line, places in sorted(ran.items()):
        terminalreporter.write_line(f"{line}; on {', '.join(sorted(places))}")


def _numbers(verdicts: dict[str, int], excluded: dict[str, int]) -> str:
    kinds = ", ".join(f"{count} {kind}" for kind, count in verdicts.items())
    text = f"ran {sum(verdicts.values())} ({kinds}), excluded {sum(excluded.values())}"
    reasons = ", ".join(f"{count} with {reason}" for reason, count in excluded.items())
    return f"{text} ({reasons})" if reasons else text
