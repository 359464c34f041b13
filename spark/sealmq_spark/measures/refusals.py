"""Replays and forgeries that were refused: what nobody's mistake explains."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

CLASSES = {
    "replay": "replayed",
    "behind": "replayed",
    "stale": "too old",
    "unauthentic": "forged",
    "malformed": "malformed",
}
"""Last word of a rule -> what it was (SPEC.md, section 11)."""


def refusals(decided: DataFrame) -> DataFrame:
    """decisions -> hour, client, class, rule, count: only what a rule of CLASSES refused."""
    pairs = [F.lit(text) for pair in CLASSES.items() for text in pair]
    word = F.substring_index("rule", ".", -1)
    return (
        decided.where(~F.col("allowed"))
        .withColumn("class", F.element_at(F.create_map(*pairs), word))
        .where("class is not null")
        .groupBy("hour", "client", "class", "rule")
        .agg(F.sum("count").alias("count"))
    )
