"""Pairs of key and nonce: what was sent again is no reuse, what is one is counted and shown."""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from pyspark.sql import DataFrame, SparkSession

from sealmq_spark.contracts import columns
from sealmq_spark.measures import nonces as measure
from sealmq_spark.measures.nonces import nonces, reused
from spark_rows import RUN, RUN_BEFORE, plain

SPEC = Path(__file__).resolve().parents[2] / "shared_spec"
NOON = datetime(2026, 11, 22, 12, tzinfo=UTC)
LINK = "l1 site=00c0ffee client=5 gen=1 use={} suite=1 mediator=2 boot=1 salt=73616c7473616c74"
PUBLISH, CONTROL, DOWN = (LINK.format(use) for use in (1, 2, 3))
INNER = "i1 site=00c0ffee suite=1 label=16 epoch=3 sender=5 boot=1 salt=73616c7473616c74"
OUTER = "o1 site=00c0ffee suite=1 label=16 epoch=3 inst=2"
RECORD, REQUEST = "r1 site=00c0ffee suite=1 label=16 epoch=3", "p1 site=00c0ffee client=5 dir=0"


def seen(
    key: str, nonce: int, content: str = "a", layer: str = "m2", board: str = "", **more: Any
) -> dict[str, Any]:
    """A line; `after`: so many seconds behind noon."""
    at = NOON + timedelta(seconds=more.pop("after", 0))
    made: dict[str, Any] = {
        "v": 1, "run": RUN, "at_ms": round(at.timestamp() * 1000), "layer": layer, "key": key,
        "nonce": f"{nonce:024x}", "digest": content * 32, **more,
    }  # fmt: skip
    return {**made, "board": board} if board else made


def table(spark: SparkSession, lines: Iterable[dict[str, Any]]) -> DataFrame:
    """As `settle` gives them; each is a line of the contract."""
    schema = json.loads((SPEC / "nonce.schema.json").read_bytes())
    names = columns("nonce").names
    made = []
    for number, line in enumerate(lines):
        whole = {**line, "id": f"{line['run']}-n{number}"}
        jsonschema.Draft202012Validator(schema).validate(whole)
        made.append(tuple(whole.get(name) for name in names))
    return spark.createDataFrame(made, columns("nonce"))


def test_pairs_by_key(spark: SparkSession) -> None:
    lines = [
        seen(PUBLISH, 1), seen(PUBLISH, 1), seen(PUBLISH, 2), seen(PUBLISH, 3),
        # One key for three things; the same nonce under another key is fine.
        seen(CONTROL, 1, layer="proof"), seen(CONTROL, 2, layer="token"),
        seen(CONTROL, 3, layer="up"),
        # A site that was kept, in an earlier run: sent again, used twice, and new.
        seen(PUBLISH, 1, run=RUN_BEFORE), seen(PUBLISH, 2, "b", run=RUN_BEFORE),
        seen(PUBLISH, 4, "b", run=RUN_BEFORE),
        # Another site has other keys.
        seen(PUBLISH.replace("00c0ffee", "00c0ffed"), 1, "b", run=RUN_BEFORE),
        seen(INNER, 1, layer="m1"), seen(INNER, 1, "b", layer="m1"), seen(INNER, 1, layer="m1"),
        seen(INNER, 2, "b", layer="m1"), seen(INNER, 2, "c", layer="m1"),
        seen(INNER, 2, "d", layer="m1"), seen(INNER, 7, "b", layer="m1"),
        seen(OUTER, 1, layer="m3"), seen(RECORD, 1, layer="record"),
        seen(f"{REQUEST} n_c=00", 0, layer="request"), seen(DOWN, 1, layer="down"),
    ]  # fmt: skip
    found = nonces(table(spark, lines))
    assert found.columns == ["key", "layer", "pairs", "distinct", "repeated", "again"]
    assert plain(found) == sorted(
        [
            (PUBLISH, "m2", 7, 4, 1, 2),
            (PUBLISH.replace("00c0ffee", "00c0ffed"), "m2", 1, 1, 0, 0),
            (CONTROL, "control", 3, 3, 0, 0),
            (INNER, "m1", 7, 3, 2, 1),
            (OUTER, "m3", 1, 1, 0, 0),
            (RECORD, "record", 1, 1, 0, 0),
            (f"{REQUEST} n_c=00", "request", 1, 1, 0, 0),
            (DOWN, "down", 1, 1, 0, 0),
        ]
    )


def test_what_was_used_twice_is_shown_and_bounded(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = table(
        spark,
        [
            seen(PUBLISH, 1, "a", board="one", after=5),
            seen(PUBLISH, 1, "b", board="one", after=9),
            seen(PUBLISH, 1, "b", board="one", after=3, run=RUN_BEFORE),
            seen(PUBLISH, 2, "a", board="one"),
            seen(PUBLISH, 2, "a", board="one"),
            seen(PUBLISH, 3, "a", board="one", after=20),
            seen(PUBLISH, 3, "b", board="one", after=20),
            seen(OUTER, 7, "a", "m3", after=1),
            seen(OUTER, 7, "b", "m3", after=1.5),
            seen(CONTROL, 1, "a", "up", "one"),
        ],
    )
    # As `nonces` finds them; its other columns do not count here.
    counted = [(PUBLISH, 2), (OUTER, 1), (CONTROL, 0)]
    bad = spark.createDataFrame(counted, "key string, repeated bigint")
    monkeypatch.setattr(measure, "MOST", 2)
    found = reused(bad, lines)
    first, second = NOON.replace(tzinfo=None), timedelta(seconds=1)
    both = f"{RUN_BEFORE} {RUN}"
    assert found.columns == [
        "key", "nonce", "layer", "board", "runs", "contents", "pairs", "first", "last"
    ]  # fmt: skip
    assert [tuple(row) for row in found.collect()] == [
        (OUTER, f"{7:024x}", "m3", "", RUN, 2, 2, first + second, first + 1.5 * second),
        (PUBLISH, f"{1:024x}", "m2", "one", both, 2, 3, first + 3 * second, first + 9 * second),
    ]


def test_one_shuffle_and_no_sort_whatever_there_is(spark: SparkSession) -> None:
    """What makes 10^8 pairs bearable; the plan itself says so."""
    plan = nonces(table(spark, [seen(PUBLISH, 1)]))._jdf.queryExecution().executedPlan().toString()
    assert plan.count("Exchange") == 1, plan
    assert "Sort" not in plan, plan
