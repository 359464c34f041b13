"""Columns that several measures share; sums and instants that end no job.

As texts of SQL where that serves: each Column of theirs would be some calls into Java.
"""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F

from ..rules import Sql

MOST = (1 << 63) - 1
LAST_MS = 253_402_214_399_999
"""9999-12-30: what a wrong clock says beyond, no calendar can show in every zone."""


def instant(ms: Sql) -> Column:
    """Unix ms -> timestamp. No record's clock may end a job."""
    return F.expr(instant_of(ms))


def instant_of(ms: Sql) -> Sql:
    """The same as a text of SQL."""
    return f"timestamp_millis(least({ms}, {LAST_MS}))"


def hour() -> Column:
    """The hour (timestamp, UTC) of a record: of its minute if it is a count, else of its making."""
    return F.expr(f"date_trunc('hour', {instant_of('coalesce(minute_ms, at_ms)')})")


def text(name: str) -> Column:
    """A field of text; "" where the record has none."""
    return F.expr(f"coalesce(`{name}`, '') AS `{name}`")


def summed(count: Sql) -> Sql:
    """A sum of counts; MOST where it is more, since no line may end a job."""
    return f"coalesce(try_sum({count}), {MOST})"


def total(count: str = "count") -> Column:
    """The sum of a column, under its name."""
    return F.expr(f"{summed(count)} AS `{count}`")
