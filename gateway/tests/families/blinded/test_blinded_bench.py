"""`sealmq bench blinded`: what its bars and tables say of rows."""

from __future__ import annotations

from typing import Any

import pytest

from sealmq.families.blinded.bench import whole


def row(measure: str, value: float, **params: Any) -> dict[str, Any]:
    return {"measure": measure, "variant": "blinded", "size": 256, "value": value, "unit": "x",
            "n": 15, "params": {"band": 0.1, **params}}  # fmt: skip


def rows(rules_us: float = 5.0, kb: float = 29.0, wrong: float = 6e-11) -> list[dict[str, Any]]:
    return [
        row("rules_uncached", 1.0, rules=16),
        row("rules_uncached", rules_us, rules=64),
        row("customer", kb),
        row("wrong_at_most", wrong),
        *(row("leak_link", 1.0 if encoding == "paper" else 0.5, encoding=encoding)
          for encoding in ("paper", "scoped")),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("found", "code"),
    [(rows(), 0), (rows(rules_us=10.1), 3), (rows(kb=301.0), 3), (rows(wrong=1.1e-10), 3)],
)
def test_a_bar_that_is_missed_is_told_and_ends_with_3(
    found: list[dict[str, Any]], code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert whole.main(["--quick"], run=lambda quick: found) == code
    told = capsys.readouterr()
    assert ("MISS" in told.out) == ("missed" in told.err) == (code == 3)
    assert whole.main(["--quick", "--allow-misses"], run=lambda quick: found) == 0


def test_of_two_runs_the_one_counts_that_load_has_added_less_to() -> None:
    both = whole.beside(rows(rules_us=12.0), rows(rules_us=6.0))
    assert [one["value"] for one in both if one["params"].get("rules") == 64] == [6.0]
    assert len(whole.shown(both)) == len(rows())
