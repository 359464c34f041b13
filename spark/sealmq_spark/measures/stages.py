"""How long the rig's stages took, what they moved and what heap they left, by kind of client."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from .spread import spread

BY = ["kind", "behaviour", "stage"]


def stages(hil: DataFrame) -> DataFrame:
    """hil -> kind, behaviour, stage, n, median, p95, p99 (ms, each with _low, _high), bytes, heap.

    Only what passed: a stage that failed took as long as its patience. bytes, heap: medians, null
    where no line has any. Virtual boards' times say nothing of silicon.
    """
    rest = (F.percentile(name, F.lit(0.5)).alias(name) for name in ("bytes", "heap"))
    return spread(hil.where("outcome = 'pass'"), BY, "ms", *rest)
