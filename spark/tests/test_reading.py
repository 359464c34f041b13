"""What the reader calls good is what an independent validator calls good; nothing gets lost."""

from __future__ import annotations

import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from pyspark.sql import SparkSession

from sealmq_spark.reading import read

SPEC = Path(__file__).resolve().parents[2] / "shared_spec"
AUDIT: dict[str, Any] = {
    "v": 1,
    "id": "00000001-mediator-1-1800000000000-1",
    "at_ms": 1_800_000_000_000,
    "site": "00000001",
    "role": "mediator",
    "inst": 1,
    "event": "delivered",
    "client": "panel",
    "topic": "machine/1/température",
    "label": "low",
    "count": 3,
    "minute_ms": 1_800_000_000_000,
}
HIL: dict[str, Any] = {
    "v": 1,
    "id": "0123456789abcdef-1",
    "run": "0123456789abcdef",
    "at_ms": 5,
    "seed": 1,
    "board": "b1",
    "kind": "virtual",
    "chip": "esp32",
    "commit": "unknown",
    "behaviour": "connect",
    "stage": "verdict",
    "outcome": "pass",
    "ms": 12,
}
VALUES: list[Any] = [
    None, "", "x", "y" * 2000, -1, 0, 1, 7, 1.5, 1e30, 2**63, True, [], ["a"], {}, {"a": 1}, "pass",
    "fail", "start", "delivered", "connect", "virtual", "0123456789abcdef", 60_000, 1 << 24,
]  # fmt: skip


def changed(base: dict[str, Any], rng: random.Random, number: int) -> str:
    """A line that is mostly good, with up to three changes."""
    line = dict(base)
    line["id"] = line["id"].rpartition("-")[0] + f"-{number}"
    names = [*base, "rule", "reason", "cause", "cut_op", "cut_after", "extra", "enforce", "notes"]
    for _ in range(rng.choice((0, 1, 1, 2, 3))):
        name = rng.choice(names)
        if rng.random() < 0.4:
            line.pop(name, None)
        else:
            line[name] = rng.choice(VALUES)
    return json.dumps(line)


@pytest.mark.parametrize(("name", "base"), [("audit", AUDIT), ("hil", HIL)])
def test_good_is_what_a_validator_calls_good(
    spark: SparkSession, name: str, base: dict[str, Any]
) -> None:
    rng = random.Random(f"reading {name}")
    texts = [changed(base, rng, number) for number in range(1500)]
    schema = json.loads((SPEC / f"{name}.schema.json").read_bytes())
    validator = jsonschema.Draft202012Validator(schema)
    good = {text for text in texts if validator.is_valid(json.loads(text))}
    raw = spark.createDataFrame([(text, "f") for text in texts], "raw string, file string")
    logs = read(raw)
    table = logs.audit if name == "audit" else logs.hil
    kept = {row.id for row in table.select("id").collect()}
    refused = {row.raw: row.reason for row in logs.quarantined.collect()}
    assert kept == {json.loads(text)["id"] for text in good}
    wrong = {text[:500] for text in texts} - {text[:500] for text in good}
    assert set(refused) == wrong, "a line is neither kept nor in quarantine"
    assert 300 < len(good) < 1200, "the test makes too few of one sort"
    assert len(Counter(refused.values())) > 20, refused


def test_what_is_no_line_is_quarantined_with_its_reason(spark: SparkSession) -> None:
    texts = ["not json", "[1]", '"x"', "{}", '{"v":1}', '{"event":"delivered"', "\ufffd", "null"]
    raw = spark.createDataFrame([(text, "f") for text in texts], "raw string, file string")
    logs = read(raw)
    refused = {row.raw: row.reason for row in logs.quarantined.collect()}
    assert set(refused) == set(texts)
    assert refused["not json"] == "no JSON object"
    assert refused["{}"] == "neither an audit record nor a line of the rig"
    assert logs.audit.count() == logs.hil.count() == 0


def test_repeated_lines_count_once_and_two_contents_of_one_id_are_told(spark: SparkSession) -> None:
    one, two = json.dumps(AUDIT), json.dumps({**AUDIT, "count": 4})
    rows = [(one, "a"), (one, "b"), (one, "b"), (two, "c")]
    logs = read(spark.createDataFrame(rows, "raw string, file string"))
    assert [row["count"] for row in logs.audit.collect()] == [3]
    assert [(r.file, r["count"]) for r in logs.repeated.collect()] == [("a", 2)]
    told = [(r.file, r.reason) for r in logs.quarantined.collect()]
    assert told == [("c", "another line has this id already")]
