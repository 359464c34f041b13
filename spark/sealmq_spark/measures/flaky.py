"""Behaviours that both passed and failed though the commit was the same."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from .behaviours import VERDICT

DIRTY = "-dirty"
UNKNOWN = "unknown"


def flaky(hil: DataFrame) -> DataFrame:
    """hil -> commit, behaviour, passed, failed, share (failures of both).

    Commits whose tree was changed or not known tell nothing: two of a name may differ, unless it
    was one run.
    """
    unsure = F.col("commit").endswith(DIRTY) | (F.col("commit") == UNKNOWN)
    each = (
        hil.where(VERDICT)
        .groupBy("commit", "behaviour", F.when(unsure, F.col("run")).alias("run"))
        .agg(
            F.count_if(F.col("outcome") == "pass").alias("passed"),
            F.count_if(F.col("outcome") == "fail").alias("failed"),
        )
        .where("passed > 0 and failed > 0")
    )
    both = each.groupBy("commit", "behaviour").agg(
        F.sum("passed").alias("passed"), F.sum("failed").alias("failed")
    )
    share = F.round(F.col("failed") / (F.col("passed") + F.col("failed")), 4)
    return both.select("commit", "behaviour", "passed", "failed", share.alias("share"))
