"""How topics came to their labels."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from pyspark.sql import SparkSession

from audit_table import LAST, LATEST_MS, NOON, OTHER_SITE, SITE, record, rows, table
from sealmq_spark.measures.labelling import labelling


def test_labels_given_and_lost(spark: SparkSession) -> None:
    later = NOON + timedelta(milliseconds=1234)
    first: dict[str, Any] = {"client": "pump", "topic": "machine/1", "label": "low"}
    records = [
        record("topic-labelled", **first, rule="labels.publish.first"),
        record("topic-labelled", **first | {"topic": "machine/2"}),
        record("topic-reset", later, topic="machine/1"),
        record("topic-labelled", later + timedelta(days=1), **first | {"label": "high"}),
        record("topic-labelled", **first, site=OTHER_SITE),
        record("topic-reset", topic="late") | {"at_ms": LATEST_MS},
        record("publish-accepted", **first, count=3),
        record("command", client="pump", family="labels", topic="machine/1", label="low"),
    ]
    found = labelling(table(spark, records))
    assert found.columns == ["site", "at", "topic", "event", "client", "label", "rule"]
    given, lost = "topic-labelled", "topic-reset"
    assert rows(found) == sorted(
        [
            (SITE, NOON, "machine/1", given, "pump", "low", "labels.publish.first"),
            (SITE, NOON, "machine/2", given, "pump", "low", ""),
            (SITE, later, "machine/1", lost, "", "", ""),
            (SITE, later + timedelta(days=1), "machine/1", given, "pump", "high", ""),
            (OTHER_SITE, NOON, "machine/1", given, "pump", "low", ""),
            (SITE, LAST, "late", lost, "", "", ""),
        ]
    )
