"""What things cost, by stage and kind of client, beside plain MQTT and TLS.

Chen and Wilson, Table 5 and Figures 4 to 7 (`paper` puts them side by side). Of each thing the
newest measurement counts: a median over documents would be one over commits.
"""

from __future__ import annotations

from functools import reduce

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from .identity import told, turn

BASES = {"to_plain": ("plain", "mosquitto"), "to_tls": ("tls13-ecdsa",)}
"""The variants that benches measure the others beside: umqtt.simple and an open Mosquitto; umqtt
over TLS 1.3 with a certificate as most have it."""
_SCENE = ["measure", "size", "unit", "place", "asked"]
_HEAP_STAGE = {"heap_per_message": "publish", "heap_peak": "overall"}


def cost(bench: DataFrame) -> DataFrame:
    """bench -> what, stage, measure, variant, size, unit, place, key, n, value, low, high,
    to_plain, to_tls.

    what: instructions, cpu, heap, memory, wire, latency, rate, times, other. key: params that tell
    rows apart ("burst=16, process=mediator"), "" for none. low, high: null where the bench found no
    interval. The ratios compare what was asked alike and measured on the same machine, and are null
    where the base was not measured; ratios themselves (`times`) get none.
    """
    scene = Window.partitionBy(*_SCENE)
    ratios = {}
    for name, variants in BASES.items():
        is_base = F.col("variant").isin(*variants) & (F.col("unit") != "times")
        # What a base was asked twice, in ways that others were not asked, is no base.
        base = F.when(
            F.count_if(is_base).over(scene) == 1,
            F.nullif(F.max(F.when(is_base, F.col("value"))).over(scene), F.lit(0.0)),
        )
        ratios[name] = F.round(F.col("value") / base, 4)
    found = newest(bench).withColumns(ratios)
    return found.select(
        what().alias("what"),
        stage().alias("stage"),
        "measure",
        "variant",
        "size",
        "unit",
        "place",
        "key",
        "n",
        "value",
        "low",
        "high",
        *BASES,
    )


def newest(bench: DataFrame) -> DataFrame:
    """Each thing once, as it was measured last: the columns of `told`."""
    return told(bench).withColumn("turn", turn()).where("turn = 1").drop("turn")


def what() -> Column:
    """What kind of figure a row is, of its unit and measure."""
    unit, measure = F.col("unit"), F.col("measure")
    return (
        F.when(measure.startswith("wire_"), "wire")
        .when(measure.startswith("heap_"), "heap")
        .when(unit == "instructions", "instructions")
        .when(unit.endswith(" of CPU"), "cpu")
        .when(unit == "MiB", "memory")
        .when(unit.endswith("/s"), "rate")
        .when(unit == "times", "times")
        .when(unit.isin("ms", "us", "s"), "latency")
        .otherwise("other")
    )


def stage() -> Column:
    """What was done: the measure without the word that says what was counted."""
    plain = F.regexp_replace("measure", "^(wire|cpu)_", "")
    return reduce(
        lambda rest, pair: F.when(F.col("measure") == pair[0], pair[1]).otherwise(rest),
        _HEAP_STAGE.items(),
        plain,
    )
