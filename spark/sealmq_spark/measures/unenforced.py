"""What policy denied and `enforce = false` let through: by rule, client, topic and hour."""

from __future__ import annotations

from pyspark.sql import DataFrame

from .columns import hour, total

_BY = ("site", "hour", "question", "rule", "client", "topic")


def unenforced(audit: DataFrame) -> DataFrame:
    """audit -> site, hour (timestamp, UTC), question, rule, client, topic, count.

    Empty where policy has always been enforced. `topic` of a subscription is its filter.
    """
    let_through = audit.where("event = 'unenforced'")
    named = let_through.select(
        "site", hour().alias("hour"), "question", "rule", "client", "topic", "count"
    )
    return unenforced_in_all(named)


def unenforced_in_all(rows: DataFrame) -> DataFrame:
    """unenforced of some records and of others -> of all of them."""
    return rows.groupBy(*_BY).agg(total()).select(*_BY, "count")
