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

from .behaviours import OUTCOMES, VERDICT
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
        F.size(F.collect_set("board")).alias("boards"),
    )


def pairs(hil: DataFrame) -> DataFrame:
    """hil -> now_run, before_run; no row for a set of boards that has nothing to compare."""
    each = F.sort_array(F.collect_list(F.struct("began", "run", "commit", "behaviours")), asc=False)
    sets = runs(hil).groupBy(*_BOARDS).agg(each.alias("each")).withColumn("now", F.col("each")[0])

    def alike(run: Column) -> Column:
        its = run["behaviours"]
        both = F.size(F.array_intersect(its, "now.behaviours"))
        unsure = run["commit"].endswith(DIRTY) | (run["commit"] == UNKNOWN)
        return (
            (run["run"] != F.col("now.run"))
            & ((run["commit"] != F.col("now.commit")) | unsure)
            & (2 * both >= F.size(its))
            & (2 * both >= F.size("now.behaviours"))
        )

    last = sets.select(
        F.col("now.run").alias("now_run"), F.get(F.filter("each", alike), F.lit(0)).alias("last")
    )
    return last.where("last is not null").select("now_run", F.col("last.run").alias("before_run"))


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
    return _judged(_beside(lines))


def _beside(lines: DataFrame) -> DataFrame:
    """A row for each behaviour and stage, and in it two structs: now, before (null: not there)."""
    by = [*_PAIR, "behaviour", "stage"]
    took = F.when((F.col("outcome") == "pass") & (F.col("ms") > 0), F.col("ms"))
    counted = [
        F.count_if(F.col("outcome") == outcome).alias(name) for name, outcome in OUTCOMES.items()
    ]
    shared = F.bool_and(F.col("kind") == "virtual").alias("shared")
    each = spread(lines.withColumn("took", took), [*by, "which"], "took", *counted, shared)
    its = F.struct("n", "median", "median_low", "median_high", *OUTCOMES)
    sides = (
        F.max(F.when(F.col("which") == which, its)).alias(which) for which in ("now", "before")
    )
    return each.groupBy(*by).agg(*sides, F.bool_and("shared").alias("shared"))


def _judged(both: DataFrame) -> DataFrame:
    """fails: more often than before, where nothing failed or everything does now. skipped, gone:
    passed before, and now nobody tried. slower: beyond chance and the pace of the whole run."""
    enough = F.expr(f"now.n >= {LEAST} and before.n >= {LEAST}")
    raw = F.when(enough, F.col("now.median") / F.col("before.median"))
    whole = Window.partitionBy(*_PAIR)
    pace = F.greatest(F.percentile(raw, F.lit(0.5)).over(whole), F.lit(1.0))
    told = F.col("shared") & (F.count(raw).over(whole) >= PACED)
    paced = both.withColumns({"pace": F.when(told, pace).otherwise(1.0), "enough": enough})
    slower = F.col("enough") & longer(
        F.col("now.median") / F.col("pace"),
        F.col("now.median_low") / F.col("pace"),
        F.col("before.median"),
        F.col("before.median_high"),
    )
    what = F.when(F.expr(VERDICT), _verdict()).when(slower, "slower")
    times = F.col("stage") != "verdict"
    now = F.when(times, F.col("now.median") / F.col("pace")).otherwise(_share("now"))
    before = F.when(times, F.col("before.median")).otherwise(_share("before"))
    return (
        paced.withColumn("what", what)
        .where("what is not null")
        .select(
            F.lit("rig").alias("source"),
            F.col("behaviour").alias("subject"),
            F.col("stage").alias("part"),
            "what",
            F.round(before, 4).alias("before"),
            F.round(now, 4).alias("now"),
            F.when(times, F.round(now / before, 4)).alias("ratio"),
            F.col("now_run").alias("measured"),
            F.col("before_run").alias("against"),
        )
    )


def _verdict() -> Column:
    now, before = _share("now"), _share("before")
    fails = (now > before) & ((before == 0) | (now == 1)) & (_tried("before") > 0)
    passed = (_count("before", "passed") > 0) & (_tried("now") == 0)
    return (
        F.when(fails, "fails")
        .when(passed & (_count("now", "skipped") > 0), "skipped")
        .when(passed, "gone")
    )


def _count(which: str, outcome: str) -> Column:
    return F.coalesce(F.col(f"{which}.{outcome}"), F.lit(0))


def _tried(which: str) -> Column:
    return _count(which, "passed") + _count(which, "failed")


def _share(which: str) -> Column:
    """Of the tries that failed; 0 of none."""
    share = _count(which, "failed") / F.nullif(_tried(which), F.lit(0))
    return F.coalesce(share, F.lit(0.0))
