"""The bench of agents: its bar, its table, and one small run beside Mosquitto."""

from __future__ import annotations

import json
from pathlib import Path

import agent_bench
import jsonschema
import pytest
from bench_command import MISSED
from bench_print import row

ROOT = Path(__file__).parents[3]
SCHEMA = json.loads((ROOT / "shared_spec" / "bench.schema.json").read_text(encoding="utf-8"))


def test_a_way_that_costs_too_much_is_named() -> None:
    good = [row("ratio_out", "sealmq", 1.9, "times", 1, 64)]
    assert agent_bench.missed(good) == []
    assert agent_bench.missed([*good, row("ratio_in", "sealmq", 6.25, "times", 1, 16)]) == [
        "a message come from afar, and given out: 6.25 times Mosquitto's CPU at 16 B, at most 2"
    ]


@pytest.mark.full
def test_messages_pass_two_agents_and_three_mosquittos(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "rows.json"
    assert agent_bench.main(["--quick", "--out", str(out)]) in (0, MISSED)
    rows = json.loads(out.read_text())["rows"]
    jsonschema.validate({"rows": rows}, SCHEMA)
    assert {(one["measure"], one["variant"]) for one in rows} == {
        *(("message_" + way, who) for way in ("out", "in") for who in ("sealmq", "mosquitto-tls")),
        ("ratio_out", "sealmq"),
        ("ratio_in", "sealmq"),
    }
    assert all(one["value"] > 1 for one in rows)
    assert "come from afar, and given out" in capsys.readouterr().out
