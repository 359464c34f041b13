"""What a line is: of which contract, and what is wrong with it. Pure; nothing is dropped here.

Nothing that a line holds can end a job.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from .contracts import KEYS, MARKS, TYPES, columns, contract

BAD, BLANK = "bad", "blank"
SHOWN = 500
"""Characters of a bad line that are kept."""
NAMELESS = "of no known contract"
LINES = ", ".join(
    (
        "file string, size bigint, id string, digest bigint, reason string, raw string",
        *(f"{name} {columns(name).simpleString()}" for name in sorted(MARKS)),
        "kind string",
    )
)
"""The columns that `judge` gives."""


def judge(raw: DataFrame) -> DataFrame:
    """raw, file -> LINES. kind: a contract, bad or blank. size: bytes of the line and its end.

    A good line has id, digest (of its text) and its contract's struct, a bad one reason, digest and
    raw (cut).
    """
    text = F.when(F.is_valid_utf8("raw"), F.btrim("raw", F.lit(" \t\r")))
    sized = raw.select("raw", "file", (F.octet_length("raw") + 1).cast("bigint").alias("size"))
    parts = sized.withColumn("text", text).select(
        "*",
        F.json_object_keys("text").alias(KEYS),
        F.schema_of_variant(F.try_parse_json("text")).alias(TYPES),
    )
    named = parts.withColumn("wants", _wants())
    parsed = named.select("*", *(_parsed(name) for name in MARKS))
    reasons = parsed.withColumn("reason", _reason())
    kind = (
        F.when(F.col("text") == "", F.lit(BLANK))
        .when(F.col("reason").isNotNull(), F.lit(BAD))
        .otherwise(F.col("wants"))
    )
    good = F.col("kind").isin(*MARKS)
    return reasons.withColumn("kind", kind).select(
        "file",
        "size",
        F.when(good, F.coalesce(*(F.col(f"{name}.id") for name in MARKS))).alias("id"),
        F.when(F.col("kind") != BLANK, F.xxhash64(F.coalesce("text", "raw"))).alias("digest"),
        F.when(F.col("kind") == BAD, F.col("reason")).alias("reason"),
        F.when(F.col("kind") == BAD, _shown(F.col("raw"))).alias("raw"),
        *(F.when(F.col("kind") == name, F.col(name)).alias(name) for name in sorted(MARKS)),
        "kind",
    )


def _wants() -> Column:
    """The contract that a line wants to fulfil, by a field that only that one has."""
    found = F.lit(None).cast("string")
    for name, mark in reversed(MARKS.items()):
        found = F.when(F.array_contains(KEYS, mark), F.lit(name)).otherwise(found)
    return found


def _parsed(name: str) -> Column:
    return contract(name).parsed(F.when(F.col("wants") == name, F.col("text"))).alias(name)


def _reason() -> Column:
    found = F.when(F.col("text").isNull(), F.lit("no UTF-8"))
    found = found.when(F.col(KEYS).isNull(), F.lit("no JSON object"))
    for name in MARKS:
        found = found.when(F.col("wants") == name, contract(name).reason())
    return found.otherwise(F.lit(NAMELESS))


def _shown(raw: Column) -> Column:
    return F.substring(F.make_valid_utf8(raw), 1, SHOWN)


def rows(documents: DataFrame) -> DataFrame:
    """raw, file, made of whole JSON files -> the rows of benches: bench (struct), file, made,
    reason, raw (cut); a document without rows is one row with its reason."""
    listed = documents.select(
        "file", "made", "raw", F.from_json("raw", "rows array<string>")["rows"].alias("rows")
    )
    each = listed.select("file", "made", "raw", F.explode_outer("rows").alias("text"))
    parts = each.select(
        "*",
        F.json_object_keys("text").alias(KEYS),
        F.schema_of_variant(F.try_parse_json("text")).alias(TYPES),
        contract("bench").parsed(F.col("text")),
    )
    reason = F.when(F.col("text").isNull(), F.lit("no document of a bench")).otherwise(
        contract("bench").reason()
    )
    shown = _shown(F.coalesce("text", "raw")).alias("raw")
    return parts.withColumn("reason", reason).select("bench", "file", "made", "reason", shown)
