"""The newest run of each set of boards beside the last one that it can be compared with.

A set of boards: their kinds, chips and number. Comparable: it has at least half of the behaviours,
either way, so that a run of a few chosen ones is not one in which the others are gone; and another
commit, since what differs on one commit is flaky (`flaky`), not a regression. Times of virtual
boards are compared relative to each other: they share a machine with whatever else it does, and
what makes all of them slower together is no stage's doing.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from .behaviours import VERDICT
from .flaky import DIRTY, UNKNOWN
from .noise import longer
from .spread import spread

LEAST = 8
"""Times on each side that a comparison needs: with fewer, an interval is all there was."""
PACED = 5
"""Stages from which on the pace of a whole run can be told."""
_BOARDS = ["kinds", "chips", "boards"]
_PAIR = ["now_run", "before_run"]


def runs(hil: DataFrame) -> DataFrame:
    """hil -> run, commit, began (ms), kinds, chips, behaviours (sorted sets), boards (how many)."""
    behaviour = F.when(F.expr(VERDICT), F.col("behaviour"))
    return hil.groupBy("run").agg(
        F.min("commit").alias("commit"),
        F.min("at_ms").alias("began"),
        F.sort_array(F.collect_set("kind")).alias("kinds"),
        F.sort_array(F.collect_set("chip")).alias("chips"),
        F.sort_array(F.collect_set(behaviour)).alias("behaviours"),
        F.count_distinct("board").alias("boards"),
    )


def pairs(hil: DataFrame) -> DataFrame:
    """hil -> now_run, before_run; no row for a set of boards that has nothing to compare."""
    order = Window.partitionBy(*_BOARDS).orderBy(F.desc("began"), F.desc("run"))
    each = runs(hil).withColumn("turn", F.row_number().over(order))
    now = each.where("turn = 1").select(
        *_BOARDS,
        F.col("run").alias("now_run"),
        F.col("commit").alias("now_commit"),
        F.col("behaviours").alias("now_behaviours"),
    )
    both = F.size(F.array_intersect("behaviours", "now_behaviours"))
    unsure = F.col("commit").endswith(DIRTY) | (F.col("commit") == UNKNOWN)
    found = (
        each.where("turn > 1")
        .join(now, _BOARDS, "inner")
        .where(
            ((F.col("commit") != F.col("now_commit")) | unsure)
            & (2 * both >= F.size("behaviours"))
            & (2 * both >= F.size("now_behaviours"))
        )
    )
    last = found.groupBy("now_run").agg(F.min_by("run", "turn").alias("before_run"))
    return last.select(*_PAIR)


def of_rig(hil: DataFrame) -> DataFrame:
    """The rig's rows of `regressions`."""
    both = pairs(hil)
    which = F.explode(
        F.array(
            F.struct(F.lit("now").alias("which"), F.col("now_run").alias("run")),
            F.struct(F.lit("before").alias("which"), F.col("before_run").alias("run")),
        )
    )
    sides = both.select(*_PAIR, which.alias("s")).select(*_PAIR, "s.which", "s.run")
    lines = hil.join(F.broadcast(sides), "run", "inner")
    return _verdicts(lines).unionByName(_slower(lines))


def _verdicts(lines: DataFrame) -> DataFrame:
    """fails: more often than before, where nothing failed or everything does now. skipped, gone:
    passed before, and now nobody tried."""
    counts = {
        f"{which}_{outcome}": F.count_if((F.col("which") == which) & (F.col("outcome") == outcome))
        for which in ("now", "before")
        for outcome in ("pass", "fail", "skip")
    }
    each = (
        lines.where(VERDICT)
        .groupBy(*_PAIR, "behaviour")
        .agg(*(column.alias(name) for name, column in counts.items()))
    )
    tried = {which: F.col(f"{which}_pass") + F.col(f"{which}_fail") for which in ("now", "before")}
    shares = {
        which: F.coalesce(F.col(f"{which}_fail") / F.nullif(tried[which], F.lit(0)), F.lit(0.0))
        for which in ("now", "before")
    }
    now, before = shares["now"], shares["before"]
    fails = (now > before) & ((before == 0) | (now == 1)) & (tried["before"] > 0)
    passed = (F.col("before_pass") > 0) & (tried["now"] == 0)
    what = (
        F.when(fails, "fails")
        .when(passed & (F.col("now_skip") > 0), "skipped")
        .when(passed, "gone")
    )
    return _shown(
        each.withColumn("what", what).where("what is not null"),
        F.lit("verdict"),
        before,
        now,
        F.lit(None).cast("double"),
    )


def _slower(lines: DataFrame) -> DataFrame:
    """slower: beyond chance, and beyond the pace of the whole run."""
    by = [*_PAIR, "kind", "behaviour", "stage"]
    times = spread(lines.where("outcome = 'pass' and ms > 0"), [*by, "which"], "ms")
    each = F.struct("n", "median", "median_low", "median_high")
    sides = (
        F.max(F.when(F.col("which") == which, each)).alias(which) for which in ("now", "before")
    )
    both = (
        times.groupBy(*by)
        .agg(*sides)
        .where(f"now.n >= {LEAST} and before.n >= {LEAST}")
        .withColumn("raw", F.col("now.median") / F.col("before.median"))
    )
    whole = Window.partitionBy(*_PAIR)
    shared = (F.col("kind") == "virtual") & (F.count("raw").over(whole) >= PACED)
    pace = F.greatest(F.percentile("raw", F.lit(0.5)).over(whole), F.lit(1.0))
    paced = both.withColumn("pace", F.when(shared, pace).otherwise(1.0))
    now, before = F.col("now.median") / F.col("pace"), F.col("before.median")
    found = longer(
        now, F.col("now.median_low") / F.col("pace"), before, F.col("before.median_high")
    )
    return _shown(
        paced.where(found).withColumn("what", F.lit("slower")),
        F.col("stage"),
        before,
        now,
        now / before,
    )


def _shown(found: DataFrame, part: Column, before: Column, now: Column, ratio: Column) -> DataFrame:
    return found.select(
        F.lit("rig").alias("source"),
        F.col("behaviour").alias("subject"),
        part.alias("part"),
        "what",
        F.round(before, 4).alias("before"),
        F.round(now, 4).alias("now"),
        F.round(ratio, 4).alias("ratio"),
        F.col("now_run").alias("measured"),
        F.col("before_run").alias("against"),
    )
