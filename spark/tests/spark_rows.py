"""Lines of the rig and rows of benches as tables, as the reader makes them; for tests."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T

from sealmq_spark.contracts import columns

ROOT = Path(__file__).resolve().parents[2]
COMMIT, EARLIER = "b" * 40, "a" * 40
RUN, RUN_BEFORE = "b" * 16, "a" * 16
Row = dict[str, Any]


def line(**more: Any) -> Row:
    """A verdict that passed."""
    base: Row = {
        "v": 1, "run": RUN, "at_ms": 2_000, "seed": 1, "board": "one", "kind": "virtual",
        "chip": "esp32", "commit": COMMIT, "behaviour": "publish", "stage": "verdict",
        "outcome": "pass", "ms": 10,
    }  # fmt: skip
    return {**base, **more}


def hil(spark: SparkSession, lines: Iterable[Row]) -> DataFrame:
    """As `settle` gives them."""
    numbered = [{**each, "id": f"{each['run']}-{n}"} for n, each in enumerate(lines)]
    names = columns("hil").names
    rows = [tuple(each.get(name) for name in names) for each in numbered]
    return spark.createDataFrame(rows, columns("hil"))


def bench(spark: SparkSession, documents: Mapping[str, tuple[int, Iterable[Row]]]) -> DataFrame:
    """file -> (Unix seconds, rows)."""
    shape = T.StructType(
        [*columns("bench"), T.StructField("file", T.StringType()),
         T.StructField("made", T.TimestampType())]
    )  # fmt: skip
    rows = [
        (
            *(_value(each[name]) for name in columns("bench").names),
            file,
            datetime.fromtimestamp(made, UTC),
        )
        for file, (made, its) in documents.items()
        for each in its
    ]
    return spark.createDataFrame(rows, shape)


def document(path: str) -> list[Row]:
    """The rows of a document of this repository."""
    rows: list[Row] = json.loads((ROOT / path).read_text())["rows"]
    return [{**each, "value": float(each["value"])} for each in rows]


def figure(measure: str, variant: str, value: float, unit: str = "us of CPU", **more: Any) -> Row:
    """One row; low, high and n make an interval."""
    n, size = more.pop("n", 1), more.pop("size", 64)
    return {
        "measure": measure, "variant": variant, "size": size, "value": float(value), "unit": unit,
        "n": n, "params": more,
    }  # fmt: skip


def plain(frame: DataFrame, *order: str) -> list[tuple[Any, ...]]:
    """The whole frame as tuples, in the order of these columns."""
    return [tuple(row) for row in frame.orderBy(*(order or frame.columns)).collect()]


def _value(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _value_text(each) for name, each in value.items()}
    return value


def _value_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
