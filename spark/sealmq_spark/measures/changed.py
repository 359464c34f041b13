"""Clients that behave otherwise than they used to, each beside its own history only.

Hour by hour: the modified z-score of Iglewicz and Hoaglin (How to Detect and Handle Outliers,
1993), 0.6745 (x - median) / MAD, hours without a record being zeros; beside the same hour of other
days once there are DAYS of them, so that who sleeps at night is not found every morning. A steady
client (MAD near 0) is given the spread of a Poisson count of its median. Who is silent in most of
the hours that one would be compared with is, once it has talked in DAYS hours, found only by more
than it says in such.

Silence: a stretch without a record, longer than any that the client kept before, in which by its
rate until then so many messages were due that chance does not explain it: z = -sqrt(due).

Which hours count: whole ones, with records of the site's mediators in the hours before and after,
and no start of a mediator within. That leaves out the hour in which the log begins, the one in
which it ends (nobody has fallen silent because a log was copied at ten past), and the gateway's own
outages. A client's first hour does not count either. Where the whole site was silent, the log
cannot tell a silent client from a gateway that was off.

Zeros are counted, never made: the work grows with the records, not with clients x hours, and one
record of a wrong clock costs one row.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

HISTORY = 24
"""Whole hours since a client's first that it takes before it can be found changed."""
DAYS = 7
"""So many of its whole days, and an hour is compared with the same hour of the others."""
LIMIT = 3.5
MEASURES = ("published", "delivered", "refused")
SILENT = ("published", "delivered")
"""Those of which silence is a change: to be refused no more is none."""
_SCALE = 0.6745
_NAMES = ("site", "client", "measure")
_ALL = 24  # the slot of those who have no week yet


def hours(decided: DataFrame) -> DataFrame:
    """decisions -> site, client, hour, published, delivered, refused: messages, and refusals of any
    kind, of clients with a name."""
    which = {
        "published": "allowed AND question = 'publish'",
        "delivered": "allowed AND question = 'deliver'",
        "refused": "NOT allowed",
    }
    # As doubles: no sum of counts can end a job.
    sums = (
        F.expr(f"sum(IF({is_it}, CAST(count AS double), NULL)) AS {m}")
        for m, is_it in which.items()
    )
    return (
        decided.where("client <> ''")
        .groupBy("site", "client", "hour")
        .agg(*sums)
        .fillna(0.0, list(MEASURES))
    )


def calendar(hourly: DataFrame) -> DataFrame:
    """hourly -> of hours in which a mediator recorded anything: site, hour, whole, left, of, next.

    whole: see above. Behind this hour: left, how many whole ones there are; of, how many in each
    hour of the day (UTC), and in all; next, the first of them.
    """
    backwards = Window.partitionBy("site").orderBy(F.desc("hour"))
    behind = backwards.rowsBetween(Window.unboundedPreceding, -1)
    one = F.expr("interval 1 hour")
    whole = (
        ~F.col("started")
        & (F.lead("hour").over(backwards) == F.col("hour") - one)
        & (F.lag("hour").over(backwards) == F.col("hour") + one)
    )
    marked = hourly.where("recorded").withColumn("whole", F.coalesce(whole, F.lit(False)))
    these = (*(f"whole AND hour(hour) = {h}" for h in range(_ALL)), "whole")
    of = [F.coalesce(F.expr(f"count_if({each})").over(behind), F.lit(0)) for each in these]
    following = F.min(F.when(F.col("whole"), F.col("hour"))).over(behind)
    return marked.select(
        "site",
        "hour",
        "whole",
        of[_ALL].alias("left"),
        F.array(*of).alias("of"),
        following.alias("next"),
    )


def changed(hours: DataFrame, hourly: DataFrame) -> DataFrame:
    """hours, hourly -> site, client, measure, hour, hours, count, usual, z: beyond LIMIT.

    measure: of MEASURES. hour: timestamp, UTC; hours: 1, or how many whole hours the silence lasted
    that began then (count 0). usual: the median of the hours that it was compared with; of a
    silence the messages per hour until then. z: below 0 for less than usual.
    """
    series = _series(hours, calendar(hourly))
    judged = _beside_others(_silences(_talking(series)))
    burst = F.when(F.abs(F.col("z")) > LIMIT, _row("hour", F.lit(1), F.col("count"), "usual", "z"))
    silence = F.when(
        F.col("silence") < -LIMIT, _row("next", F.col("silent"), F.lit(0.0), "rate", "silence")
    )
    found = judged.select(*_NAMES, F.inline(F.array_compact(F.array(burst, silence))))
    return found.select(
        *_NAMES,
        "hour",
        "hours",
        F.col("count").cast("bigint").alias("count"),
        F.round("usual", 2).alias("usual"),
        F.round("z", 2).alias("z"),
    )


def _series(per_hour: DataFrame, known: DataFrame) -> DataFrame:
    """site, client, measure, hour, next, left, count, slot, of: whole hours with a count.

    slot: the hour of the day, or _ALL; of: how many hours of this slot there were since the
    client's first.
    """
    own = Window.partitionBy("site", "client")
    since = known.select("site", F.col("hour").alias("first"), "of")
    slot = F.when(F.col("of")[_ALL] >= DAYS * 24, F.hour("hour")).otherwise(_ALL)
    counts = ", ".join(f"struct('{m}' AS measure, {m} AS count)" for m in MEASURES)
    whole = (
        per_hour.withColumn("first", F.min("hour").over(own))
        .where("hour > first")
        .join(F.broadcast(known.where("whole").drop("whole", "of")), ["site", "hour"])
        .join(F.broadcast(since), ["site", "first"])
        .withColumn("slot", slot)
        .withColumn("of", F.get("of", F.col("slot")))
    )
    each = whole.selectExpr(
        "site", "client", "hour", "next", "`left`", "slot", "of", f"inline(array({counts}))"
    )
    return each.where("count > 0")


def _talking(series: DataFrame) -> DataFrame:
    """Adds talks, talk, talk_mad: number, median and MAD of the hours with a count."""
    own = Window.partitionBy(*_NAMES)
    middle = series.withColumn("talks", F.count("*").over(own)).withColumn(
        "talk", F.percentile("count", F.lit(0.5)).over(own)
    )
    away = middle.withColumn("talk_away", F.abs(F.col("count") - F.col("talk")))
    return away.withColumn("talk_mad", F.percentile("talk_away", F.lit(0.5)).over(own))


def _silences(series: DataFrame) -> DataFrame:
    """Adds silent (whole hours without a count behind this one), rate until then, silence (z)."""
    in_order = Window.partitionBy(*_NAMES).orderBy("hour")
    so_far = in_order.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    earlier = in_order.rowsBetween(Window.unboundedPreceding, -1)
    until = F.first("left").over(so_far) - F.col("left") + 1
    silent = F.col("left") - F.coalesce(F.lead("left").over(in_order) + 1, F.lit(0))
    gaps = (
        series.withColumn("silent", silent)
        .withColumn("until", until)
        .withColumn("rate", F.sum("count").over(so_far) / F.col("until"))
    )
    longest = F.coalesce(F.max("silent").over(earlier), F.lit(0))
    counts = F.col("measure").isin(*SILENT) & (F.col("until") >= HISTORY)
    z = F.when(counts & (F.col("silent") > longest), -F.sqrt(F.col("rate") * F.col("silent")))
    return gaps.withColumn("silence", z)


def _beside_others(series: DataFrame) -> DataFrame:
    """Adds usual, and z where there is enough of the slot.

    Beside a slot's first row comes one for all its zeros, which has neither z nor silence.
    """
    own = Window.partitionBy(*_NAMES, "slot")
    zeros = F.col("of") - F.count("*").over(own)
    is_first = F.row_number().over(own.orderBy("hour")) == 1
    one = _weighed(F.lit(1), F.col("count"), zeros=False)
    none = _weighed(zeros, F.lit(0.0), zeros=True)
    rows = F.when(is_first & (zeros > 0), F.array(one, none)).otherwise(F.array(one))
    weighed = series.select("*", rows.alias("rows")).drop("count").select("*", F.inline("rows"))
    middle = weighed.withColumn(
        "usual", F.percentile("count", F.lit(0.5), F.col("weight")).over(own)
    )
    away = middle.withColumn("away", F.abs(F.col("count") - F.col("usual")))
    mad = away.withColumn("mad", F.percentile("away", F.lit(0.5), F.col("weight")).over(own))
    # Who is silent in most such hours is compared with the hours in which it is not.
    seldom = (F.col("usual") == 0) & (F.col("talks") >= DAYS)
    usual = F.when(seldom, F.col("talk")).otherwise(F.col("usual"))
    apart = F.when(seldom, F.col("talk_mad")).otherwise(F.col("mad"))
    spread = F.greatest(apart / _SCALE, F.sqrt(F.greatest(usual, F.lit(1.0))))
    enough = F.col("of") >= F.when(F.col("slot") == _ALL, HISTORY).otherwise(DAYS)
    # What is less than it says then is no less than usual.
    more = ~seldom | (F.col("count") > usual)
    z = F.when(enough & more & ~F.col("zeros"), (F.col("count") - usual) / spread)
    return mad.select(
        *_NAMES,
        "hour",
        "next",
        "silent",
        "rate",
        "count",
        usual.alias("usual"),
        z.alias("z"),
        F.when(~F.col("zeros"), F.col("silence")).alias("silence"),
    )


def _weighed(weight: Column, count: Column, *, zeros: bool) -> Column:
    return F.struct(
        weight.cast("bigint").alias("weight"), count.alias("count"), F.lit(zeros).alias("zeros")
    )


def _row(hour: str, hours: Column, count: Column, usual: str, z: str) -> Column:
    return F.struct(
        F.col(hour).alias("hour"),
        hours.cast("bigint").alias("hours"),
        count.alias("count"),
        F.col(usual).alias("usual"),
        F.col(z).alias("z"),
    )
