"""`sealmq bench owners`: what its bars and tables say of rows."""

from __future__ import annotations

from typing import Any

import pytest

from sealmq.families.owners.bench import whole
from sealmq.families.owners.bench.table import bars as bars_of


def row(measure: str, value: float, **params: Any) -> dict[str, Any]:
    return {"measure": measure, "variant": "owners", "size": 64, "value": value, "unit": "x",
            "n": 40, "params": params}  # fmt: skip


def rows(to_labels: float, uncached: float) -> list[dict[str, Any]]:
    of = {"stage": "messages", "burst": 1, "process": "mediator", "low": 0.99, "high": 1.01}
    return [
        row("cpu_message_to_labels", to_labels, **of),
        row("decision_uncached", 8.0, assertions=1_000),
        row("decision_uncached", uncached, assertions=100_000),
        row("chain_of_five", 120.0, assertions=100_000),
        row("retracted_p99", 12.0),
    ]


@pytest.mark.parametrize(
    ("to_labels", "uncached", "code"),
    [(1.02, 9.9, 0), (1.021, 9.0, 3), (1.0, 10.1, 3), (1.0, 10.0, 0)],
)
def test_a_bar_that_is_missed_is_told_and_ends_with_3(
    to_labels: float, uncached: float, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    found = rows(to_labels, uncached)
    assert whole.main(["--variant", "owners"], run=lambda plan: found) == code
    assert ("MISS" in capsys.readouterr().out) == (code == 3)
    assert whole.main(["--variant", "owners", "--allow-misses"], run=lambda plan: found) == 0


def test_the_tables_take_the_run_with_more_rounds_for_the_bar() -> None:
    both = whole.beside(rows(1.05, 9.0), [dict(rows(1.01, 9.0)[0])])
    bars = [bar for bar in bars_of(both) if "CPU" in bar.what]
    assert [bar.holds for bar in bars] == [True]
    assert len(whole.shown(both)) == len(rows(1.0, 1.0)), "those that no table shows are left out"
