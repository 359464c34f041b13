"""Medians and tails of repeated measurements, with a bootstrap interval that needs no randomness.

The Poisson bootstrap (Hanley and MacGibbon 2006): each value counts in each replicate as often as a
Poisson variable of mean 1 says. The variable comes from a hash of what the value is and of the
replicate's number, so that one input gives one output, on whatever machine.
"""

from __future__ import annotations

import math

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

REPLICATES = 200
QUANTILES = (0.5, 0.95, 0.99)
NAMES = ("median", "p95", "p99")
# P(X <= k) of a Poisson variable with mean 1.
_CDF = [sum(math.exp(-1) / math.factorial(j) for j in range(k + 1)) for k in range(8)]


def weight(identity: Column, replicate: Column) -> Column:
    """How often a value counts in a replicate: 0 to 8."""
    uniform = F.pmod(F.xxhash64(identity, replicate), F.lit(1 << 32)) / F.lit(float(1 << 32))
    found = F.lit(8)
    for k in reversed(range(8)):
        found = F.when(uniform < _CDF[k], k).otherwise(found)
    return found


def spread(values: DataFrame, by: list[str], value: str, identity: str) -> DataFrame:
    """rows -> by…, n, median, p95, p99, and each with _low and _high (95 % of the replicates).

    identity: a column that names the row uniquely within its group.
    """
    many = F.array(*(F.lit(q) for q in QUANTILES))
    point = values.groupBy(*by).agg(F.count(value).alias("n"), F.percentile(value, many).alias("q"))
    replicate = F.explode(F.sequence(F.lit(1), F.lit(REPLICATES))).alias("replicate")
    drawn = values.select(*by, value, identity, replicate)
    drawn = drawn.withColumn("w", weight(F.col(identity), F.col("replicate")))
    each = (
        drawn.where("w > 0")
        .groupBy(*by, "replicate")
        .agg(F.percentile(value, many, F.col("w")).alias("r"))
    )
    bounds = F.array(F.lit(0.025), F.lit(0.975))
    spans = each.groupBy(*by).agg(
        *(F.percentile(F.col("r")[i], bounds).alias(f"b{i}") for i in range(len(NAMES)))
    )
    shown = [
        column
        for i, name in enumerate(NAMES)
        for column in (
            F.col("q")[i].alias(name),
            F.col(f"b{i}")[0].alias(f"{name}_low"),
            F.col(f"b{i}")[1].alias(f"{name}_high"),
        )
    ]
    return point.join(spans, by, "left").select(*by, "n", *shown)
