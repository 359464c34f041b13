"""The bench of bridges: what it needs no site for, its bars, and one small run beside Mosquitto."""

from __future__ import annotations

import json
from pathlib import Path

import bridge_bench
import jsonschema
import pytest
from bench_command import MISSED
from bench_print import row

ROOT = Path(__file__).parents[3]
SCHEMA = json.loads((ROOT / "shared_spec" / "bench.schema.json").read_text(encoding="utf-8"))


def test_decisions_memory_and_rounds_are_measured_without_a_site() -> None:
    rows = bridge_bench.measured(("decision", "memory", "rounds"), True, 3)
    jsonschema.validate({"rows": rows}, SCHEMA)
    found = {one["measure"]: one for one in rows}
    assert found["decision"]["value"] > 0
    assert found["memory"]["value"] > 10_000
    assert found["memory"]["params"]["gateways"] == 8
    assert found["rounds_beyond"]["value"] == 0, "the longest path's rounds do"
    assert found["rounds_later"]["value"] > 0, "the diameter's do not"


def test_a_bar_that_is_missed_is_named() -> None:
    good = [
        row("decision", "known-token", 900, "ns", 1, 0),
        row("crossing_ratio", "sealmq", 1.9, "times", 1, 64),
        row("rounds_beyond", "longest-path", 0, "rounds", 1, 0),
    ]
    assert bridge_bench.missed(good) == []
    bad = [row("decision", "known-token", 1100, "ns", 1, 0)]
    bad += [row("crossing_ratio", "sealmq", 23.5, "times", 1, 16)]
    assert bridge_bench.missed([*good, *bad]) == [
        "a known token's decision: 1.1e+03 ns, at most 1000",
        "a bridged message's CPU, times Mosquitto's bridge: 23.5 times at 16 B, at most 2",
    ]


@pytest.mark.full
def test_messages_cross_between_two_sites_and_two_mosquittos_and_a_border(tmp_path: Path) -> None:
    out = tmp_path / "rows.json"
    words = ["--quick", "--part", "crossing", "--part", "border", "--out", str(out)]
    assert bridge_bench.main(words) in (0, MISSED)
    rows = json.loads(out.read_text())["rows"]
    jsonschema.validate({"rows": rows}, SCHEMA)
    costs = {one["variant"]: one["value"] for one in rows if one["measure"] == "crossing"}
    assert set(costs) == {"sealmq", "mosquitto-tls"}
    assert all(cost > 1 for cost in costs.values())
    [border] = [one["value"] for one in rows if one["measure"] == "border"]
    assert border > 1
