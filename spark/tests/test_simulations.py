"""Simulated runs: a whole frame counted by hand, and its page."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from lines_made import SIMULATION
from sealmq_spark.contracts import columns
from sealmq_spark.measures.simulations import simulations
from sealmq_spark.page.simulations import simulations as section
from spark_rows import plain

DATA = Path(__file__).parent / "data"
NAMES = ("bad_withheld", "bad_delivered", "good_withheld", "good_delivered")


def test_shares_of_runs_and_their_spread(spark: SparkSession) -> None:
    """Four seeds; one was simulated twice; one has nothing bad, and nothing withheld."""
    seeds = {1: (8, 2, 2, 88), 2: (5, 5, 5, 45), 3: (0, 0, 0, 100), 4: (1, 3, 3, 3)}
    lines: list[dict[str, Any]] = [
        {**SIMULATION, "seed": seed, "at_ms": 1_000 * seed, **dict(zip(NAMES, some, strict=True))}
        for seed, some in (*seeds.items(), (1, seeds[1]))
    ]
    lines.append({**SIMULATION, "rule": "spki", "round": 2, "at_ms": 0})
    names = columns("simulation").names
    rows = [tuple({**each, "id": str(n)}[name] for name in names) for n, each in enumerate(lines)]
    frame = simulations(spark.createDataFrame(rows, columns("simulation")))
    assert frame.columns[:7] == ["plan", "sites", "kind", "rule", "round", "runs", "at"]
    figures = ("precision", "recall", "good")
    assert frame.columns[7:] == [
        f"{name}_{of}" for name in figures for of in ("mean", "p10", "median", "p90")
    ]
    example = json.loads((DATA / "shown.json").read_bytes())["simulations"]
    assert list(example[0]) == frame.columns, "the page is tried with what the measure gives"
    one, other = plain(frame, "rule")
    plan = SIMULATION["simulated"]
    assert one[:6] == (plan, 64, "malicious", "average", 1, 4)
    assert one[6].replace(tzinfo=UTC) == datetime.fromtimestamp(4, UTC)
    # precision .8 .5 - .25, recall .8 .5 - .25, good 88/90 .9 1 .5
    assert [round(value, 6) for value in one[7:]] == [
        0.516667, 0.3, 0.5, 0.74, 0.516667, 0.3, 0.5, 0.74, 0.844445, 0.62, 0.938889, 0.993333,
    ]  # fmt: skip
    assert other[:6] == (plan, 64, "malicious", "spki", 2, 1)
    assert [round(value, 6) for value in other[7:]] == [0.0] * 8 + [0.967742] * 4


def test_the_page_has_a_row_of_plots_for_each_kind_of_the_newest_plan() -> None:
    rows = json.loads((DATA / "shown.json").read_bytes())["simulations"]
    old = [{**row, "plan": "0" * 16, "at": "2025-01-01T00:00:00Z", "kind": "mixed"} for row in rows]
    made = section({}, {"simulations": [*rows, *old]})
    assert made is not None
    assert made.count('class="plot sizes"') == 2 * 3
    assert "malicious: recall by round" in made
    assert "mixed: recall" not in made
    assert "1 other plans" in made
    for one in ("average", "spki"):
        assert f">{one}<" in made
    assert made.count("curve blue") == 6
    # One point alone is a mark without a line; where no run has a figure there is no plot.
    first = [row for row in rows if row["round"] == 1]
    alone = section({}, {"simulations": first})
    assert alone is not None
    assert "curve" not in alone
    none = [{**row, **{k: None for k in row if k.startswith("recall")}} for row in rows]
    fewer = section({}, {"simulations": none})
    assert fewer is not None
    assert "recall by round" not in fewer
    assert section({}, {"simulations": []}) is None
