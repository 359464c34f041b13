"""What a bench measured last beside what it measured of the same thing before.

What is counted (instructions, bytes) comes out the same each time but for a percent; times by their
intervals (`noise`), and where a bench found none, only from ALONE on. What the benches measure
others for (umqtt, TLS, Mosquitto) is not ours to answer for: it tells how fast the machine was.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from .identity import SAME, told, turn
from .noise import longer

DEARER = {"instructions": 1.02, "bytes": 1.05}
"""Heap is looked for in steps of a KiB."""
ALONE = 1.5
LEAST = 6
"""Rounds that an interval needs to hold with 95 %."""
OTHERS = ("plain", "mosquitto", "micropython")


def of_bench(bench: DataFrame) -> DataFrame:
    """The benches' rows of `regressions`."""
    # Ratios are made of the others, and which way they are worse depends on these.
    alike = told(bench).where("unit <> 'times'")
    # A copy of a document is no measurement of its own, and would stand between the two.
    once = alike.groupBy(*SAME, "key", "at", "value", "low", "high", "n").agg(
        # A file that is written anew each night is another document each time.
        F.max(F.struct("file", "made")).alias("document")
    )
    each = once.withColumn("file", F.col("document.file")).withColumn("turn", turn())
    measured = F.struct("value", "low", "high", "n", "file", "document")
    both = (
        each.where("turn <= 2")
        .groupBy(*SAME, "key")
        .agg(*(F.max(F.when(F.col("turn") == t, measured)).alias(as_)
               for t, as_ in ((1, "now"), (2, "before"))))
        .where("before is not null")
    )  # fmt: skip
    return _judged(_paced(both))


def _paced(both: DataFrame) -> DataFrame:
    """pace: how many times slower the machine was for what is not ours, in the same documents."""
    whole = Window.partitionBy("now.document", "before.document")
    theirs = F.col("variant").isin(*OTHERS) | F.col("variant").startswith("tls")
    timed = theirs & ~F.col("unit").isin(*DEARER)
    pace = F.percentile(F.when(timed, _worse()), F.lit(0.5)).over(whole)
    paced = both.withColumn("pace", F.greatest(F.coalesce(pace, F.lit(1.0)), F.lit(1.0)))
    return paced.where(~theirs)


def _rate() -> Column:
    """More of it is better."""
    return F.col("unit").endswith("/s")


def _worse() -> Column:
    """How many times worse it is now; null from or to 0."""
    now, before = (F.nullif(F.col(f"{which}.value"), F.lit(0.0)) for which in ("now", "before"))
    return F.when(_rate(), before / now).otherwise(now / before)


def _judged(both: DataFrame) -> DataFrame:
    counted = F.col("unit").isin(*DEARER)
    ratio = F.when(counted, _worse()).otherwise(_worse() / F.col("pace"))
    limits = F.create_map(*(F.lit(part) for pair in DEARER.items() for part in pair))
    dearer = counted & (
        (ratio > limits[F.col("unit")]) | (F.expr("before.value = 0 and now.value > 0"))
    )
    spans = F.expr(
        f"now.low < now.high and before.low < before.high and now.n >= {LEAST}"
        f" and before.n >= {LEAST}"
    )
    slower = F.when(F.coalesce(spans, F.lit(False)), _longer()).otherwise(ratio > ALONE)
    what = F.when(counted, F.when(dearer, "dearer")).when(slower, "slower")
    part = F.concat_ws(
        ", ",
        "variant",
        F.when(F.col("size") > 0, F.concat(F.col("size"), F.lit(" B"))),
        F.nullif("key", F.lit("")),
    )
    return (
        both.withColumn("what", what)
        .where("what is not null")
        .select(
            F.lit("bench").alias("source"),
            F.col("measure").alias("subject"),
            part.alias("part"),
            "what",
            F.round("before.value", 4).alias("before"),
            F.round("now.value", 4).alias("now"),
            F.round(ratio, 4).alias("ratio"),
            F.col("now.file").alias("measured"),
            F.col("before.file").alias("against"),
        )
    )


def _longer() -> Column:
    """Of a time; of a rate the time that one takes."""

    def of(which: str, end: str, other: str) -> Column:
        its = F.nullif(F.col(f"{which}.{end}"), F.lit(0.0))
        return F.when(_rate(), 1 / F.nullif(F.col(f"{which}.{other}"), F.lit(0.0))).otherwise(its)

    pace = F.col("pace")
    return longer(
        of("now", "value", "value") / pace,
        of("now", "low", "high") / pace,
        of("before", "value", "value"),
        of("before", "high", "low"),
    )
