"""What the logs say is missing from them."""

from __future__ import annotations

from datetime import timedelta

from pyspark.sql import SparkSession

from audit_table import NOON, SITE, record, rows, table
from sealmq_spark.measures.gaps import gaps


def test_what_is_missing(spark: SparkSession) -> None:
    later = NOON + timedelta(seconds=3)
    records = [
        record("log-lost", count=70),
        record("log-lost", later, count=1, role="kg"),
        record("log-recovered", segment="x.jsonl", lines=5, dropped_bytes=0),
        record("log-recovered", segment="y.jsonl", lines=5, dropped_bytes=33),
        record("log-fault", of="delivered", reason="it says so"),
        record("journal-dropped", count=4096),
        record("start"),
        record("stop"),
        record("folded", of="connect", count=9),
    ]
    found = gaps(table(spark, records))
    assert found.columns == ["site", "at", "role", "event", "what", "count"]
    assert rows(found) == sorted(
        [
            (SITE, NOON, "mediator", "log-lost", "records", 70),
            (SITE, later, "kg", "log-lost", "records", 1),
            (SITE, NOON, "mediator", "log-recovered", "bytes", 0),
            (SITE, NOON, "mediator", "log-recovered", "bytes", 33),
            (SITE, NOON, "mediator", "log-fault", "records", 1),
            (SITE, NOON, "mediator", "journal-dropped", "message bytes", 4096),
        ]
    )
