"""What the gateway's log has of each hour of a site: how much, the name that its processes said,
and whether its mediators recorded anything or started."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from .columns import hour


def hourly(audit: DataFrame) -> DataFrame:
    """audit -> site, hour (timestamp, UTC), rows, began, ended (ms), name, named_ms, recorded,
    started.

    name: said last in this hour, and when; null where none was said. recorded, started: of the
    mediators.
    """
    at = F.coalesce("minute_ms", "at_ms")
    start = F.col("event") == "start"
    mediator = F.col("role") == "mediator"
    name = F.when(start, F.col("name"))
    return hourly_in_all(
        audit.select(
            "site",
            hour().alias("hour"),
            F.lit(1).cast("bigint").alias("rows"),
            at.alias("began"),
            at.alias("ended"),
            name.alias("name"),
            F.when(name.isNotNull(), F.col("at_ms")).alias("named_ms"),
            mediator.alias("recorded"),
            (mediator & start).alias("started"),
        )
    )


def hourly_in_all(rows: DataFrame) -> DataFrame:
    """hourly of some lines and of others -> of all of them."""
    return rows.groupBy("site", "hour").agg(
        F.sum("rows").alias("rows"),
        F.min("began").alias("began"),
        F.max("ended").alias("ended"),
        _newest(),
        F.max("named_ms").alias("named_ms"),
        F.bool_or("recorded").alias("recorded"),
        F.bool_or("started").alias("started"),
    )


# Of two at once always the same one, in whichever order they are read.
def _newest() -> Column:
    return F.max_by("name", F.struct("named_ms", "name")).alias("name")


def site_names(hourly: DataFrame, of_all_days: DataFrame) -> dict[str, str]:
    """Of each site of `hourly`, by its number: the name that its processes said last, whenever that
    was; the number too where sites have one name, and alone where none was said."""
    there = F.broadcast(hourly.select("site").distinct())
    named = of_all_days.join(there, "site", "left_semi")
    found = named.groupBy("site").agg(_newest()).orderBy("site").collect()
    names = [row["name"] for row in found]
    return {
        row["site"]: row["site"]
        if row["name"] is None
        else row["name"]
        if names.count(row["name"]) == 1
        else f"{row['name']} ({row['site']})"
        for row in found
    }
