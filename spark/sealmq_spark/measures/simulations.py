"""What comes of the rules among simulated sites (Chen, Vidalis and Yang, IV), over all runs: how
much of what is withheld is bad, how much of what is bad is withheld, and how much of what is good
arrives.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

BY = ["plan", "sites", "kind", "rule", "round"]
FIGURES = ("precision", "recall", "good")
QUANTILES = {"p10": 0.1, "median": 0.5, "p90": 0.9}


def simulations(simulation: DataFrame) -> DataFrame:
    """simulation -> plan, sites, kind, rule, round, runs, at (when the last of them was made), and
    of precision, recall and good (each a share, 0 to 1) mean, p10, median, p90.

    A run has a figure where it has something to divide by: none of recall where nothing was bad. A
    run that was made twice counts once.
    """
    run = ["simulated", "sites", "kind", "rule", "seed", "round"]
    counts = ("bad_withheld", "bad_delivered", "good_withheld", "good_delivered")
    once = simulation.groupBy(*run).agg(
        *(F.min(name).alias(name) for name in counts), F.max("at_ms").alias("at_ms")
    )
    each = once.select(
        F.col("simulated").alias("plan"), "sites", "kind", "rule", "round", "at_ms",
        _share("bad_withheld", "good_withheld").alias("precision"),
        _share("bad_withheld", "bad_delivered").alias("recall"),
        _share("good_delivered", "good_withheld").alias("good"),
    )  # fmt: skip
    figures = [column for name in FIGURES for column in _figures(name)]
    return each.groupBy(*BY).agg(
        F.count("*").alias("runs"), F.timestamp_millis(F.max("at_ms")).alias("at"), *figures
    )


def _share(some: str, others: str) -> Column:
    """Null of nothing."""
    return F.try_divide(F.col(some).cast("double"), F.col(some) + F.col(others))


def _figures(name: str) -> list[Column]:
    # The mean of whole steps of a millionth: whatever the order of the runs, the same to the bit.
    mean = F.avg(F.round(F.col(name) * 1_000_000).cast("bigint")) / 1_000_000
    return [
        mean.alias(f"{name}_mean"),
        *(F.percentile(name, F.lit(q)).alias(f"{name}_{of}") for of, q in QUANTILES.items()),
    ]
