"""Allowed and denied, by question, rule, label, client and hour, from the gateway's audit records."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

# event -> (question, allowed)
COUNTED = {
    "publish-accepted": ("publish", True),
    "delivered": ("deliver", True),
    "deliver-denied": ("deliver", False),
    "connect": ("connect", True),
    "connect-refused": ("connect", False),
    "publish-refused": ("publish", False),
    "subscribe-refused": ("subscribe", False),
    "packet-refused": ("packet", False),
}


def decisions(audit: DataFrame) -> DataFrame:
    """audit -> hour, question, allowed, rule, label, client, count.

    hour: timestamp, UTC. rule, label, client: "" where a record has none. Records that were folded
    into a count (`folded`) are counted with the rule that they name.
    """
    event = F.when(F.col("event") == "folded", F.col("of")).otherwise(F.col("event"))
    known = audit.withColumn("event", event).where(F.col("event").isin(list(COUNTED)))
    question, allowed = (_of(which) for which in (0, 1))
    return (
        known.select(
            hour().alias("hour"),
            question.alias("question"),
            allowed.cast("boolean").alias("allowed"),
            *(F.coalesce(F.col(name), F.lit("")).alias(name) for name in _TEXTS),
            F.coalesce(F.col("count"), F.lit(1)).alias("count"),
        )
        .groupBy("hour", "question", "allowed", *_TEXTS)
        .agg(F.sum("count").alias("count"))
    )


_TEXTS = ("rule", "label", "client")


def hour() -> Column:
    """The hour of a record: of its minute where it is a count, else of its making."""
    ms = F.coalesce(F.col("minute_ms"), F.col("at_ms"))
    return F.date_trunc("hour", F.timestamp_millis(ms))


def _of(which: int) -> Column:
    pairs = [F.lit(text) for event, both in COUNTED.items() for text in (event, str(both[which]))]
    return F.element_at(F.create_map(*pairs), F.col("event"))
