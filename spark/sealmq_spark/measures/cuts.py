"""Where the rig cut the power, and how many of the places where it could have done so.

A start of a board changes the flash so many times (the stage `measure` counts them); a place is one
of these changes, and a cut falls inside of it or just before it (hil_tests, "Cuts"). Of silicon
nobody sees the flash: its cuts are times, and its `measure` counts milliseconds.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
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
            _distinct(F.expr(f"cut_address div {SECTOR}")).alias("sectors"),
            _distinct(F.col("cut_after")).alias("changes"),
            F.count_if(F.col("outcome") == "fail").alias("failed"),
        )
    )


def coverage(hil: DataFrame) -> DataFrame:
    """hil -> behaviour, first, last, possible, cut, inside, between, share.

    first, last: numbers of the changes that could be cut, of the longest start that was measured;
    possible: how many. cut, inside, between: distinct ones of them that were, over all boards and
    runs. Virtual boards only, and behaviours that counted changes.
    """
    own = Window.partitionBy("behaviour")
    number = F.col("cut_after")
    spans = hil.where(COUNTED).withColumn("last", _most(MEASURE).over(own)).where("last > 0")
    # A start that had nothing more to write was cut at its last change.
    plain = F.coalesce(_most(WITHOUT).over(own), F.lit(0)) + 1
    first = spans.withColumn("first", F.least(plain, "last"))
    within = F.when(number.between(F.col("first"), F.col("last")), number)
    inside = F.coalesce("cut_inside", F.lit(False))
    found = first.groupBy("behaviour", "first", "last").agg(
        _distinct(within).alias("cut"),
        _distinct(F.when(inside, within)).alias("inside"),
        _distinct(F.when(~inside, within)).alias("between"),
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
    counted = (F.col("stage") == stage) & (F.col("outcome") == "pass")
    return F.max(F.when(counted, F.col("count")))


def _distinct(value: Column) -> Column:
    """How many distinct ones: a board's flash has a thousand sectors."""
    return F.size(F.collect_set(value))
