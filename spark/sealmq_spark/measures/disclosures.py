"""Who got whose data, for which purpose, under which reservation: the officer's report at scale."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F


def disclosures(audit: DataFrame) -> DataFrame:
    """audit -> topic, purpose, client, under, first, last (timestamps of minutes, UTC), count.

    purpose and under (a reservation's filter) are "" where the site asked for none.
    """
    minute = F.timestamp_millis("minute_ms")
    return (
        audit.where("event = 'delivered'")
        .groupBy(
            "topic",
            F.coalesce("purpose", F.lit("")).alias("purpose"),
            "client",
            F.coalesce("under", F.lit("")).alias("under"),
        )
        .agg(
            F.min(minute).alias("first"), F.max(minute).alias("last"), F.sum("count").alias("count")
        )
    )
