"""Who got whose data, and what the policy families say of it: the officer's report at scale.

What a data-protection officer asks (HivePBAC, section I, on Articles 5 and 15 of the GDPR), over
every log that there is.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ..contracts import of_families
from .columns import instant, text, total

BY = ("site", "topic", "client", *of_families())
"""The columns that tell rows of `disclosures` apart."""


def daily(audit: DataFrame) -> DataFrame:
    """audit -> the columns of `disclosures`, of each day (UTC) alone."""
    minute = instant("minute_ms")
    said = map(text, of_families())
    delivered = audit.where("event = 'delivered'").select(
        "site",
        "topic",
        "client",
        *said,
        minute.alias("first"),
        minute.alias("last"),
        "count",
    )
    return daily_in_all(delivered)


def daily_in_all(rows: DataFrame) -> DataFrame:
    """daily of some records and of others -> of all of them."""
    sums = (F.min("first").alias("first"), F.max("last").alias("last"), total())
    return rows.groupBy(*BY, F.to_date("first")).agg(*sums).select(*BY, "first", "last", "count")


def disclosures(daily: DataFrame) -> DataFrame:
    """daily -> site, topic, client, families' fields, first, last, count.

    Of families' fields (contracts.of_families: purpose, under, ...): "" where none says anything.
    first, last: timestamps (UTC) of the minutes in which the first and the last of `count` messages
    were delivered.
    """
    sums = (F.min("first").alias("first"), F.max("last").alias("last"), total())
    return daily.groupBy(*BY).agg(*sums).select(*BY, "first", "last", "count")
