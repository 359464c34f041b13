"""This run of the rig beside the last comparable one: what fails now, and what became slower.

Comparable: the same kinds of boards and behaviours, on another commit, before it. Slower counts only
beyond the noise: the intervals of the two medians do not touch, and the ratio is above RATIO.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from .spread import spread

RATIO = 1.25


def runs(hil: DataFrame) -> DataFrame:
    """hil -> run, commit, kind, behaviours (sorted), began (ms)."""
    return hil.groupBy("run").agg(
        F.min("commit").alias("commit"),
        F.min("kind").alias("kind"),
        F.sort_array(F.collect_set("behaviour")).alias("behaviours"),
        F.min("at_ms").alias("began"),
    )


def pair(hil: DataFrame) -> DataFrame:
    """hil -> now, before: the newest run and the last comparable one; no row if there is none."""
    each = runs(hil)
    newest = each.orderBy(F.desc("began"), "run").limit(1)
    now = newest.select(*(F.col(name).alias(f"now_{name}") for name in each.columns))
    found = each.join(
        now,
        (F.col("kind") == F.col("now_kind"))
        & (F.col("behaviours") == F.col("now_behaviours"))
        & (F.col("commit") != F.col("now_commit"))
        & (F.col("began") < F.col("now_began")),
    )
    last = found.orderBy(F.desc("began"), "run").limit(1)
    return last.select(F.col("now_run").alias("now"), F.col("run").alias("before"))


def regressions(hil: DataFrame) -> DataFrame:
    """hil -> behaviour, stage, what (fails, slower), before, now, ratio. Empty: none, or no pair."""
    both = pair(hil)
    of_now = hil.join(both, hil["run"] == both["now"]).withColumn("which", F.lit("now"))
    of_before = hil.join(both, hil["run"] == both["before"]).withColumn("which", F.lit("before"))
    lines = of_now.unionByName(of_before)
    return _fails(lines).unionByName(_slower(lines))


def _fails(lines: DataFrame) -> DataFrame:
    shares = (
        lines.where("stage = 'verdict' and outcome <> 'skip'")
        .groupBy("behaviour")
        .pivot("which", ["before", "now"])
        .agg(F.avg((F.col("outcome") == "fail").cast("double")))
    )
    worse = shares.where("now > 0 and coalesce(before, 0) = 0")
    return worse.select(
        "behaviour",
        F.lit("verdict").alias("stage"),
        F.lit("fails").alias("what"),
        F.coalesce("before", F.lit(0.0)).alias("before"),
        "now",
        F.lit(None).cast("double").alias("ratio"),
    )


def _slower(lines: DataFrame) -> DataFrame:
    by = ["behaviour", "stage", "which"]
    times = spread(lines.where("outcome = 'pass'"), by, "ms", "id")
    now, before = (
        times.where(F.col("which") == which).select(
            "behaviour",
            "stage",
            F.col("median").alias(which),
            F.col("median_low").alias(f"{which}_low"),
            F.col("median_high").alias(f"{which}_high"),
        )
        for which in ("now", "before")
    )
    both = now.join(before, ["behaviour", "stage"]).withColumn(
        "ratio", F.round(F.col("now") / F.nullif("before", F.lit(0.0)), 4)
    )
    worse = both.where((F.col("ratio") > RATIO) & (F.col("now_low") > F.col("before_high")))
    return worse.select(
        "behaviour", "stage", F.lit("slower").alias("what"), "before", "now", "ratio"
    )
