"""Columns that several measures share; sums and instants that end no job."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F

MOST = (1 << 63) - 1
LAST_MS = 253_402_214_399_999
"""9999-12-30: what a wrong clock says beyond, no calendar can show in every zone."""


def instant(ms: str | Column) -> Column:
    """Unix ms -> timestamp. No record's clock may end a job."""
    return F.timestamp_millis(F.least(ms, F.lit(LAST_MS)))


def hour() -> Column:
    """The hour (timestamp, UTC) of a record: of its minute if it is a count, else of its making."""
    ms = F.coalesce(F.col("minute_ms"), F.col("at_ms"))
    return F.date_trunc("hour", instant(ms))


def text(name: str) -> Column:
    """A field of text; "" where the record has none."""
    return F.coalesce(F.col(name), F.lit("")).alias(name)


def summed(count: str | Column) -> Column:
    """A sum of counts; MOST where it is more, since no line may end a job."""
    return F.coalesce(F.try_sum(count), F.lit(MOST))


def total(count: str = "count") -> Column:
    """The sum of a column, under its name."""
    return summed(count).alias(count)
