"""What the rig's boards did: behaviours by board and commit, flaky ones, where the power was cut."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

_VERDICT = "stage = 'verdict'"


def behaviours(hil: DataFrame) -> DataFrame:
    """hil -> commit, kind, board, behaviour, passed, failed, skipped, ms (median of verdicts)."""
    counted = (
        F.count_if(F.col("outcome") == outcome).alias(name)
        for outcome, name in (("pass", "passed"), ("fail", "failed"), ("skip", "skipped"))
    )
    return (
        hil.where(_VERDICT)
        .groupBy("commit", "kind", "board", "behaviour")
        .agg(*counted, F.percentile("ms", F.lit(0.5)).alias("ms"))
    )


def flaky(hil: DataFrame) -> DataFrame:
    """hil -> commit, behaviour, passed, failed, share: what both passed and failed on one commit.

    share: of the failures. Worst first is for whoever shows it.
    """
    each = (
        hil.where(_VERDICT)
        .groupBy("commit", "behaviour")
        .agg(
            F.count_if(F.col("outcome") == "pass").alias("passed"),
            F.count_if(F.col("outcome") == "fail").alias("failed"),
        )
    )
    both = each.where("passed > 0 and failed > 0")
    return both.withColumn(
        "share", F.round(F.col("failed") / (F.col("passed") + F.col("failed")), 4)
    )


def cuts(hil: DataFrame) -> DataFrame:
    """hil -> cut_partition, cut_op, cuts, inside (in the middle of a change), places, failed."""
    return (
        hil.where("cut_after is not null")
        .groupBy(
            F.coalesce("cut_partition", F.lit("")).alias("cut_partition"),
            F.coalesce("cut_op", F.lit("")).alias("cut_op"),
        )
        .agg(
            F.count("*").alias("cuts"),
            F.count_if("cut_inside").alias("inside"),
            F.count_distinct("cut_address").alias("places"),
            F.count_if(F.col("outcome") == "fail").alias("failed"),
        )
    )
