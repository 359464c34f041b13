"""How long the rig's stages took, what they moved and what heap they left, by kind of client."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from .spread import spread


def stages(hil: DataFrame) -> DataFrame:
    """hil -> kind, behaviour, stage, n, median, p95, p99 of ms with intervals, bytes, heap (medians).

    Only what passed: a stage that failed took as long as its patience. Virtual boards' times say
    nothing of silicon.
    """
    by = ["kind", "behaviour", "stage"]
    passed = hil.where("outcome = 'pass'")
    rest = passed.groupBy(*by).agg(
        F.percentile("bytes", F.lit(0.5)).alias("bytes"),
        F.percentile("heap", F.lit(0.5)).alias("heap"),
    )
    return spread(passed, by, "ms", "id").join(rest, by)
