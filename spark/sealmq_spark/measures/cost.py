"""What things cost, by stage and kind of client, and beside plain MQTT and TLS (paper, Table 5)."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

BASES = {"to_plain": "plain", "to_tls": "tls13-ecdsa"}
_WHAT = ["measure", "size", "unit"]


def cost(bench: DataFrame) -> DataFrame:
    """bench -> measure, variant, size, unit, n, value, to_plain, to_tls.

    value: the median over documents of the same thing. The ratios are null where the base was not
    measured. Chen and Wilson, Table 5 and Figures 4 to 7.
    """
    each = bench.groupBy(*_WHAT, "variant").agg(
        F.percentile("value", F.lit(0.5)).alias("value"), F.sum("n").alias("n")
    )
    found = each
    for name, variant in BASES.items():
        base = each.where(F.col("variant") == variant).select(
            *_WHAT, F.nullif("value", F.lit(0.0)).alias("base")
        )
        found = (
            found.join(base, _WHAT, "left")
            .withColumn(name, F.round(F.col("value") / F.col("base"), 4))
            .drop("base")
        )
    return found.select("measure", "variant", "size", "unit", "n", "value", *BASES)
