"""`sealmq bench blinded`: what its bars and tables say of rows; the paper's runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from sealmq.families.blinded import kg_part, plain
from sealmq.families.blinded.bench import runs, whole
from sealmq.families.blinded.bench.table import PAPER

ROOT = Path(__file__).parents[4]


def row(measure: str, value: float, variant: str = "blinded", **params: Any) -> dict[str, Any]:
    return {"measure": measure, "variant": variant, "size": 256, "value": value, "unit": "x",
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
    assert whole.main(["--part", "matching"], run=lambda plan: found) == code
    told = capsys.readouterr()
    assert ("MISS" in told.out) == ("missed" in told.err) == (code == 3)
    assert whole.main(["--part", "matching", "--allow-misses"], run=lambda plan: found) == 0


def test_of_two_runs_the_one_counts_that_load_has_added_less_to() -> None:
    both = whole.beside(rows(rules_us=12.0), rows(rules_us=6.0))
    assert [one["value"] for one in both if one["params"].get("rules") == 64] == [6.0]
    assert len(whole.shown(both)) == len(rows())


def test_each_run_has_an_event_grant_of_its_own_and_the_last_of_its_rules_holds() -> None:
    read = plain.read(runs.kept(3))
    assert len(runs.kept(runs.RUNS).encode()) < 2 << 20
    assert len({event.id for event in read.events}) == len(runs.CASES) * (3 + runs._WARM)
    (reader,) = read.customers.values()
    for event in read.events:
        kind = read.kind(event)
        *others, last = read.policies[kind.policy]
        assert len(others) + 1 == int(kind.policy.rpartition("/")[2])
        assert plain.met((last,), reader.has)
        assert not others or not plain.met(tuple(others), reader.has)
        assert read.lets(kind, reader)
        assert read.wanted(kind, reader)
    kg_part._check_size(read)


def test_a_run_is_told_by_its_four_times(capsys: pytest.CaptureFixture[str]) -> None:
    case = runs.Case(runs.KB, 1)
    spans = [runs.Times(0, 1_000_000, 1_000_000 + n * 100_000, 6_000_000) for n in range(1, 11)]
    made = [one for of in ("plain", "labels", "blinded", "blinded-known")
            for one in runs._rows(of, case, spans, 0.5)]  # fmt: skip
    found = {one["measure"]: one for one in made if one["variant"] == "blinded"}
    spans_ms = {name: (one["value"], one["params"]["least"], one["params"]["most"])
                for name, one in found.items() if "least" in one["params"]}  # fmt: skip
    assert spans_ms == {"pub_to_sub": (6.0, 6.0, 6.0), "broker": (0.55, 0.1, 1.0)}
    assert (found["broker_p50"]["value"], found["broker_p99"]["value"]) == (0.6, 1.0)
    shares = [one["value"] for one in made
              if (one["measure"], one["variant"]) == ("broker_share", "plain")]  # fmt: skip
    assert shares == [0.4, 0.5, 0.1, 0, 0, 0, 0, 0, 0]
    schema = json.loads((ROOT / "shared_spec/bench.schema.json").read_text())
    Draft202012Validator(schema).validate({"rows": made})
    assert whole.main(["--part", "runs"], run=lambda plan: made) == 0
    told = capsys.readouterr().out
    assert all(words in told for words in PAPER.values())
    assert "| 1 KB | blinded-known |   10 |" in told
