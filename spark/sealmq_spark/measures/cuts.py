"""Where the rig cut the power, and how many of the places where it could have done so.

A start of a board changes the flash so many times (the stage `measure` counts them); a place is one
of these changes, and a cut falls inside of it or just before it (hil_tests, "Cuts"). Of silicon
nobody sees the flash: its cuts are times, and its `measure` counts milliseconds.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

SECTOR = 4096
COUNTED = "kind = 'virtual'"
MEASURE, WITHOUT = "measure", "measure-plain"
"""Stages that count the changes of a start; WITHOUT: of one that has nothing of its own to write,
and whose changes are not what the behaviour is about."""


def cuts(hil: DataFrame) -> DataFrame:
    """hil -> behaviour, cut_partition, cut_op, cuts, inside, between, sectors, changes, failed.

    inside, between: in the middle of a change, or before it. sectors, changes: distinct ones (of
    the flash, of the start). failed: the board did not come back, or not as it should.
    """
    return (
        hil.where("cut_after is not null")
        .groupBy(
            "behaviour",
            F.coalesce("cut_partition", F.lit("")).alias("cut_partition"),
            F.coalesce("cut_op", F.lit("")).alias("cut_op"),
        )
        .agg(
            F.count("*").alias("cuts"),
            F.count_if("cut_inside").alias("inside"),
            F.count_if(~F.coalesce("cut_inside", F.lit(False))).alias("between"),
            F.count_distinct(F.expr(f"cut_address div {SECTOR}")).alias("sectors"),
            F.count_distinct("cut_after").alias("changes"),
            F.count_if(F.col("outcome") == "fail").alias("failed"),
        )
    )


def coverage(hil: DataFrame) -> DataFrame:
    """hil -> behaviour, first, last, possible, cut, inside, between, share.

    first, last: numbers of the changes that could be cut, of the longest start that was measured;
    possible: how many. cut, inside, between: distinct ones of them that were, over all boards and
    runs. Virtual boards only, and behaviours that counted changes.
    """
    seen = hil.where(COUNTED)
    spans = (
        seen.where("outcome = 'pass' and count is not null")
        .groupBy("behaviour")
        .agg(
            (F.coalesce(_most(WITHOUT), F.lit(0)) + 1).alias("first"), _most(MEASURE).alias("last")
        )
        .where("last is not null")
        # A start that had nothing more to write was cut at its last change.
        .withColumn("first", F.least("first", "last"))
    )
    falls = seen.where("cut_after is not null").select(
        "behaviour", "cut_after", F.coalesce("cut_inside", F.lit(False)).alias("inside")
    )
    within = spans.join(falls, "behaviour", "left").withColumn(
        "cut_after",
        F.when(F.col("cut_after").between(F.col("first"), F.col("last")), F.col("cut_after")),
    )
    inside = F.when(F.col("inside"), F.col("cut_after"))
    between = F.when(~F.col("inside"), F.col("cut_after"))
    found = within.groupBy("behaviour", "first", "last").agg(
        F.count_distinct("cut_after").alias("cut"),
        F.count_distinct(inside).alias("inside"),
        F.count_distinct(between).alias("between"),
    )
    possible = F.col("last") - F.col("first") + 1
    return found.select(
        "behaviour",
        "first",
        "last",
        possible.alias("possible"),
        "cut",
        "inside",
        "between",
        F.round(F.col("cut") / possible, 4).alias("share"),
    )


def _most(stage: str) -> Column:
    return F.max(F.when(F.col("stage") == stage, F.col("count")))
