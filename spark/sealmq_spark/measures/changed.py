"""Clients that behave otherwise than they used to: a robust z-score against their own history.

Iglewicz and Hoaglin's modified z-score: 0.6745 (x - median) / MAD, hour by hour, each client beside
itself only. A quiet history (MAD 0) is given the spread of a Poisson count of its median.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

HISTORY = 24
"""Hours that a client must have been seen for before it can be found changed."""
LIMIT = 3.5
_SCALE = 0.6745


def hours(decided: DataFrame) -> DataFrame:
    """decisions -> client, hour, measure (published, delivered, refused), count; hours without any
    are not in it."""
    measure = (
        F.when(~F.col("allowed"), "refused")
        .when(F.col("question") == "publish", "published")
        .when(F.col("question") == "deliver", "delivered")
    )
    return (
        decided.where("client <> ''")
        .withColumn("measure", measure)
        .where("measure is not null")
        .groupBy("client", "hour", "measure")
        .agg(F.sum("count").alias("count"))
    )


def changed(decided: DataFrame) -> DataFrame:
    """decisions -> client, measure, hour, count, usual (median), z of hours beyond LIMIT.

    An hour without a record counts as 0, from a client's first hour to the last of all.
    """
    per_hour = hours(decided)
    last = per_hour.agg(F.max("hour").alias("last"))
    spans = per_hour.groupBy("client", "measure").agg(F.min("hour").alias("first")).crossJoin(last)
    every = spans.select(
        "client",
        "measure",
        F.explode(F.expr("sequence(first, last, interval 1 hour)")).alias("hour"),
    )
    filled = every.join(per_hour, ["client", "measure", "hour"], "left").fillna(0, ["count"])
    own = Window.partitionBy("client", "measure")
    middle = filled.withColumn("usual", F.percentile("count", F.lit(0.5)).over(own)).withColumn(
        "seen", F.count("*").over(own)
    )
    away = middle.withColumn("away", F.abs(F.col("count") - F.col("usual")))
    mad = away.withColumn("mad", F.percentile("away", F.lit(0.5)).over(own))
    spread = F.when(F.col("mad") > 0, F.col("mad")).otherwise(
        _SCALE * F.sqrt(F.greatest(F.col("usual"), F.lit(1.0)))
    )
    scored = mad.withColumn("z", _SCALE * (F.col("count") - F.col("usual")) / spread)
    found = scored.where((F.col("seen") >= HISTORY) & (F.abs("z") > LIMIT))
    return found.select("client", "measure", "hour", "count", "usual", F.round("z", 2).alias("z"))
