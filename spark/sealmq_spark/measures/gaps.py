"""What the logs themselves say is missing, and so is missing from the other tables, too."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from .columns import instant

LOST = {
    "log-lost": ("records", "count"),
    "log-recovered": ("bytes", "dropped_bytes"),
    "log-fault": ("records", None),
    "journal-dropped": ("message bytes", "count"),
}
"""event -> (what is missing, the field that says how much; None: one)."""


def gaps(audit: DataFrame) -> DataFrame:
    """audit -> site, at (timestamp, UTC), role, event, what, count.

    log-recovered: a process died (kill -9, power); besides the torn tail of `count` bytes, often
    none, what it had counted in its last minute is missing. journal-dropped: messages, no records.
    """
    what, count = F.lit(None).cast("string"), F.lit(None).cast("bigint")
    for event, (missing, field) in LOST.items():
        this = F.col("event") == event
        what = F.when(this, missing).otherwise(what)
        count = F.when(this, F.lit(1) if field is None else F.col(field)).otherwise(count)
    return audit.where(F.col("event").isin(list(LOST))).select(
        "site",
        instant("at_ms").alias("at"),
        "role",
        "event",
        what.alias("what"),
        count.cast("bigint").alias("count"),
    )
