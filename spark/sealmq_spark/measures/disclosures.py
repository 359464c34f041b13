"""Who got whose data, and what the policy families say of it: the officer's report at scale.

What a data-protection officer asks (HivePBAC, section I, on Articles 5 and 15 of the GDPR), over
every log that there is.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ..contracts import of_families
from .columns import instant, text, total


def disclosures(audit: DataFrame) -> DataFrame:
    """audit -> site, topic, client, families' fields, first, last, count.

    Of families' fields (contracts.of_families: purpose, under, ...): "" where none says anything.
    first, last: timestamps (UTC) of the minutes in which the first and the last of `count` messages
    were delivered.
    """
    minute = instant("minute_ms").alias("minute")
    by = ("site", "topic", "client", *of_families())
    said = map(text, of_families())
    delivered = audit.where("event = 'delivered'").select(
        "site", "topic", "client", *said, minute, "count"
    )
    sums = (F.min("minute").alias("first"), F.max("minute").alias("last"), total())
    return delivered.groupBy(*by).agg(*sums).select(*by, "first", "last", "count")
