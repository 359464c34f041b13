"""What the rig's boards did: behaviours by board and commit."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

VERDICT = "stage = 'verdict'"
OUTCOMES = {"passed": "pass", "failed": "fail", "skipped": "skip"}


def behaviours(hil: DataFrame) -> DataFrame:
    """hil -> commit, kind, board, behaviour, passed, failed, skipped (verdicts), ms (median).

    ms: of verdicts that passed; null where none did.
    """
    counted = (
        F.count_if(F.col("outcome") == outcome).alias(name) for name, outcome in OUTCOMES.items()
    )
    took = F.when(F.col("outcome") == "pass", F.col("ms"))
    return (
        hil.where(VERDICT)
        .groupBy("commit", "kind", "board", "behaviour")
        .agg(*counted, F.percentile(took, F.lit(0.5)).alias("ms"))
    )
