"""Nonce uniqueness: every (key, nonce) that the rig collected, by key; claim 8 of THREATS.md.

A packet that was sent again has the digest that it had: that is no reuse. The same key and nonce
over other bytes is one, and ends all that the key is good for (SPEC.md, sections 3 and 5). The
site is part of a key's name, so a name is one key in every run: pairs are compared over all runs.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from .columns import instant

MOST = 1000
_LAYERS = {"i1": "m1", "o1": "m3", "r1": "record", "p1": "request"}
_USES = {"1": "m2", "2": "control", "3": "down"}
_RUNS = 8
_NONCE = ("key", "nonce")


def nonces(nonce: DataFrame) -> DataFrame:
    """nonce -> key, layer, pairs, distinct, repeated, again.

    key: as the lines name it. layer: what it seals; control: packets up, proofs and tokens, which
    share a key. pairs: seen; distinct: different nonces; repeated: those of them under which
    different things were sealed; again: pairs seen again with what they had.

    One shuffle, and no sort: all that is counted has a fixed size. A key has at most 2^24 nonces
    of a client, or those of one instance of a mediator.
    """
    content = (
        nonce.select("key", F.unhex("nonce").alias("nonce"), F.unhex("digest").alias("digest"))
        .repartition("key")
        .groupBy(*_NONCE, "digest")
        .agg(F.count("*").alias("seen"))
    )
    of_nonce = content.groupBy(*_NONCE).agg(
        F.sum("seen").alias("seen"), F.count("*").alias("contents")
    )
    return (
        of_nonce.groupBy("key")
        .agg(
            F.sum("seen").alias("pairs"),
            F.count("*").alias("distinct"),
            F.count_if(F.col("contents") > 1).alias("repeated"),
            F.sum(F.col("seen") - F.col("contents")).alias("again"),
        )
        .select("key", _layer().alias("layer"), "pairs", "distinct", "repeated", "again")
    )


def reused(nonces: DataFrame, nonce: DataFrame) -> DataFrame:
    """nonces, nonce -> key, nonce, layer, board, runs, contents, pairs, first, last; at most MOST.

    The (key, nonce) that `nonces` counts as repeated, the oldest first. layer: of the line. board:
    "" where it is no single one's. runs: in which it came, the first _RUNS of them. contents:
    different things sealed. first, last: timestamps, UTC.
    """
    bad = nonces.where("repeated > 0").select("key")
    at = instant("at_ms")
    return (
        nonce.join(F.broadcast(bad), "key", "left_semi")
        .groupBy(*_NONCE)
        .agg(
            F.min("layer").alias("layer"),
            F.coalesce(F.min("board"), F.lit("")).alias("board"),
            F.array_join(F.slice(F.sort_array(F.collect_set("run")), 1, _RUNS), " ").alias("runs"),
            F.count_distinct("digest").alias("contents"),
            F.count("*").alias("pairs"),
            F.min(at).alias("first"),
            F.max(at).alias("last"),
        )
        .where("contents > 1")
        .orderBy("first", *_NONCE)
        .limit(MOST)
        .select(*_NONCE, "layer", "board", "runs", "contents", "pairs", "first", "last")
    )


# By the tag of the key's derivation; of a link's key by its use.
def _layer() -> Column:
    tag = F.substring("key", 1, 2)
    use = F.regexp_extract("key", " use=([0-9]+)", 1)
    found = F.when(F.lit(False), "")
    for name, layer in _LAYERS.items():
        found = found.when(tag == name, layer)
    for number, layer in _USES.items():
        found = found.when((tag == "l1") & (use == number), layer)
    return found.otherwise("")
