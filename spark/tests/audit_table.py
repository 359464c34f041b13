"""Audit records as a table, for the tests of the measures; each is one of the contract."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from contract import Contract
from sealmq_spark.contracts import columns

_CONTRACT = Contract("audit")
SCHEMA = _CONTRACT.schema
SITE, OTHER_SITE = "000000aa", "000000bb"
# A minute that begins no hour: nothing may depend on that.
NOON = datetime(2027, 3, 1, 12, 17, tzinfo=UTC)
# The latest that the contract allows, and what the tables show of that.
LATEST_MS: int = SCHEMA["properties"]["at_ms"]["maximum"]
LAST = datetime(9999, 12, 30, 23, 59, 59, 999_000, UTC)
PEER = "192.0.2.7:50123"

_numbers = count(1)


def ms(at: datetime) -> int:
    """Unix ms."""
    return (at - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)


def record(event: str, at: datetime = NOON, **fields: Any) -> dict[str, Any]:
    """One record, made at `at`; what counts a minute is written at its end."""
    line = {
        "v": 1,
        "at_ms": ms(at),
        "site": SITE,
        "role": "mediator",
        "inst": 1,
        "event": event,
    }
    line["id"] = f"{fields.get('site', SITE)}-mediator-1-1800000000000-{next(_numbers)}"
    if "count" in fields and event not in ("log-lost", "journal-dropped"):
        line |= {"minute_ms": ms(at), "at_ms": ms(at + timedelta(minutes=1))}
    return line | fields


def table(
    spark: SparkSession,
    records: Iterable[Mapping[str, Any]],
    beyond: Iterable[Mapping[str, Any]] = (),
) -> DataFrame:
    """The table `audit` of these. beyond: others, which need not be of the contract."""
    shape = columns("audit")
    lines = list(records)
    for line in lines[:200]:
        _CONTRACT.validate(line)
    whole = [tuple(line.get(name) for name in shape.names) for line in (*lines, *beyond)]
    return spark.createDataFrame(whole, shape)


def rows(frame: DataFrame) -> list[tuple[Any, ...]]:
    """All of it, sorted. Timestamps as aware datetimes."""
    return sorted(tuple(map(_aware, row)) for row in frame.collect())


# Spark's are naive and, in collect, of the machine's own zone.
def _aware(value: Any) -> Any:
    return value.astimezone(UTC) if isinstance(value, datetime) else value
