"""How topics came to their labels: first publishes and resets."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F


def labelling(audit: DataFrame) -> DataFrame:
    """audit -> at (timestamp, UTC), topic, event, client, label, rule; client, label, rule "" at a reset."""
    texts = (F.coalesce(name, F.lit("")).alias(name) for name in ("client", "label", "rule"))
    return audit.where("event in ('topic-labelled', 'topic-reset')").select(
        F.timestamp_millis("at_ms").alias("at"), "topic", "event", *texts
    )
