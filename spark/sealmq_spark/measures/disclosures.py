"""Who got whose data, for which purpose, under which reservation: the officer's report at scale.

What a data-protection officer asks (HivePBAC, section I, on Articles 5 and 15 of the GDPR). The
same sums as those of `sealmq purposes report`, over every log that there is.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from .columns import instant, text, total

_BY = ("site", "topic", "purpose", "client", "under")


def disclosures(audit: DataFrame) -> DataFrame:
    """audit -> site, topic, purpose, client, under, first, last, count.

    purpose, under (a reservation's filter): "" where none was asked for. first, last: timestamps
    (UTC) of the minutes in which the first and the last of `count` messages were delivered.
    """
    minute = instant("minute_ms").alias("minute")
    purpose, under = text("purpose"), text("under")
    delivered = audit.where("event = 'delivered'").select(
        "site", "topic", purpose, "client", under, minute, "count"
    )
    sums = (F.min("minute").alias("first"), F.max("minute").alias("last"), total())
    return delivered.groupBy(*_BY).agg(*sums).select(*_BY, "first", "last", "count")
