"""Table 5 of Chen and Wilson, and the same of what the device bench measured.

The paper: percent more CPU at each stage, containers with a JVM, one message of 1 MiB. Here:
instructions of the client (beside its Table 5 and Figures 4, 5), bytes that the client puts on the
wire (Figure 7), bytes of heap that will do (Figure 6).
"""

from __future__ import annotations

import operator
from collections.abc import Iterator
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

STAGES = ("connect", "subscribe", "receive", "publish")
OVERALL = "overall"
_SHOWN = (*STAGES, OVERALL)
COMPARED = {
    "TLS > plain": ("tls13-ecdsa", "plain"),
    "ours > plain": ("sealmq-ccm", "plain"),
    "TLS > ours": ("tls13-ecdsa", "sealmq-ccm"),
}
PAPER = {
    "TLS > plain": (68.0, -6.0, 66.0, 41.0, 54.0),
    "ours > plain": (22.0, -2.0, 86.0, 28.0, 29.0),
    "TLS > ours": (38.0, -4.0, -11.0, 10.0, 20.0),
}
_SIZED = ("receive", "publish", OVERALL)
# Of each kind of figure: which rows, where there are several. heap: the whole client's alone.
_KEYS = {"instructions": "", "wire": "direction=sent", "heap": "bits=64"}


def paper(cost: DataFrame) -> DataFrame:
    """cost -> what (instructions, wire, heap), comparison, size, stage, percent, paper.

    percent: more than the other, here. paper: the same there, where it says so. size: of the
    payload that is received and published; a connect and a subscription have none, and count the
    same for each. overall: all four stages once, where all were measured; of heap the whole client.
    """
    kind, stage, key = F.col("what"), F.col("stage"), F.regexp_replace("key", ", messages=.*", "")
    kept = F.lit(False)
    for each, its in _KEYS.items():
        stages = (OVERALL,) if each == "heap" else STAGES
        kept |= (kind == each) & (key == its) & stage.isin(*stages)
    size = F.when(stage.isin(*_SIZED), F.col("size"))
    # One figure a cell, whatever the documents hold: a map with a key twice would end the job.
    rows = cost.where(kept).groupBy(kind, stage, "variant", size.alias("size"))
    cell = F.struct(_cell(stage, F.col("variant"), F.col("size")), "value")
    values = (
        rows.agg(F.max("value").alias("value"))
        .groupBy("what")
        .agg(F.map_from_entries(F.collect_list(cell)).alias("of"), F.collect_set("size").alias("s"))
    )
    shown = (F.struct(F.lit(n).alias("n"), F.lit(s).alias("s")) for n, s in enumerate(_SHOWN))
    each_size = values.select("what", "of", F.explode("s").alias("size"))
    each_stage = each_size.select("*", F.explode(F.array(*shown)).alias("at"))
    each_pair = each_stage.select("*", F.explode(F.array(*_pairs())).alias("p"))
    percent = F.round(100 * (F.col("p.more") / F.nullif("p.less", F.lit(0.0)) - 1), 1)
    found = each_pair.select(
        "what", "p.comparison", "size", F.col("at.s").alias("stage"), percent.alias("percent"),
        F.when(kind == "instructions", F.element_at("p.paper", F.col("at.n") + 1)).alias("paper"),
    )  # fmt: skip
    return found.where("percent is not null")


def _cell(stage: Column, variant: Column, size: Column) -> Column:
    return F.concat_ws(" ", stage, variant, size)


def _pairs() -> Iterator[Column]:
    for name, (more, less) in COMPARED.items():
        yield F.struct(
            F.lit(name).alias("comparison"),
            _value(more).alias("more"),
            _value(less).alias("less"),
            F.array(*(F.lit(percent) for percent in PAPER[name])).alias("paper"),
        )


def _value(variant: str) -> Column:
    """What the stage costs this variant; null where something of it was not measured."""
    who = F.lit(variant)

    def of(stage: str) -> Column:
        sized = F.col("size") if stage in _SIZED else F.lit(None).cast("bigint")
        return F.col("of")[_cell(F.lit(stage), who, sized)]

    parts = [of(stage) for stage in STAGES]
    whole = F.coalesce(of(OVERALL), reduce(operator.add, parts))
    return F.element_at(F.array(*parts, whole), F.col("at.n") + 1)
