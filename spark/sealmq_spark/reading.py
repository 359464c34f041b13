"""From files to tables: good lines by contract, each once; bad ones beside them with the reason.

Nothing is dropped without being counted, and nothing that a line holds can end a job.
"""

from __future__ import annotations

from typing import NamedTuple

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from .contracts import BAD, KEYS, TYPES, contract

LINES = ("audit", "hil")
_SHOWN = 500


class Logs(NamedTuple):
    """`audit`, `hil`, `bench`: the columns of their contracts, each line once, and `file`.

    quarantined: file, reason, raw (cut). repeated: file, count of lines that came again.
    """

    audit: DataFrame
    hil: DataFrame
    bench: DataFrame
    quarantined: DataFrame
    repeated: DataFrame


def lines(spark: SparkSession, paths: list[str]) -> DataFrame:
    """The lines of JSON-lines files: raw, file. Open segments are not among them."""
    read = spark.read.option("pathGlobFilter", "*.jsonl").option("recursiveFileLookup", "true")
    return read.text(paths).select(F.col("value").alias("raw"), F.input_file_name().alias("file"))


def documents(spark: SparkSession, paths: list[str]) -> DataFrame:
    """Whole JSON files, as the benches write them: raw, file."""
    read = spark.read.option("pathGlobFilter", "*.json").option("recursiveFileLookup", "true")
    return read.text(paths, wholetext=True).select(
        F.col("value").alias("raw"), F.input_file_name().alias("file")
    )


def judge(raw: DataFrame, name: str) -> DataFrame:
    """raw, file -> the columns of contract `name`, file, raw, reason (null: a good line)."""
    rules = contract(name)
    options = {"columnNameOfCorruptRecord": BAD}
    parsed = raw.select(
        "raw",
        "file",
        F.json_object_keys("raw").alias(KEYS),
        F.schema_of_variant(F.try_parse_json("raw")).alias(TYPES),
        F.from_json("raw", rules.columns, options).alias("line"),
    ).select("raw", "file", KEYS, TYPES, "line.*")
    return parsed.withColumn("why", rules.reason()).drop(BAD, KEYS, TYPES)


def kind(raw: Column) -> Column:
    """Which contract a line wants to fulfil, by a field that only that one has."""
    return (
        F.when(F.get_json_object(raw, "$.behaviour").isNotNull(), F.lit("hil"))
        .when(F.get_json_object(raw, "$.event").isNotNull(), F.lit("audit"))
        .otherwise(F.lit(None))
    )


def once(good: DataFrame) -> tuple[DataFrame, DataFrame, DataFrame]:
    """(each id once, what came again: file and count, ids with two contents: raw, file, reason).

    Of two contents the one that sorts first counts, so that the order of files has no say.
    """
    placed = good.repartition("id")
    each = placed.groupBy("id", "raw").agg(
        F.min("file").alias("file"), (F.count("*") - 1).alias("again")
    )
    first = each.groupBy("id").agg(F.min("raw").alias("raw"))
    others = each.join(first.withColumnRenamed("raw", "first"), "id").where(
        F.col("raw") != F.col("first")
    )
    kept = placed.dropDuplicates(["id", "raw"]).join(first, ["id", "raw"], "left_semi")
    again = each.where("again > 0").groupBy("file").agg(F.sum("again").alias("count"))
    twice = others.select("raw", "file", F.lit("another line has this id already").alias("reason"))
    return kept, again, twice


def read(raw: DataFrame, docs: DataFrame | None = None) -> Logs:
    """Sorts raw lines (raw, file) and documents into tables. Pure."""
    spark = raw.sparkSession
    named = raw.where(F.trim("raw") != "").withColumn("kind", kind(F.col("raw")))
    tables, bad, again = {}, [], []
    for name in LINES:
        judged = judge(named.where(F.col("kind") == name).select("raw", "file"), name)
        kept, repeated, twice = once(judged.where("why is null").drop("why"))
        tables[name] = kept.drop("raw")
        again.append(repeated)
        bad += [
            judged.where("why is not null").select("raw", "file", F.col("why").alias("reason")),
            twice,
        ]
    nameless = named.where("kind is null").select("raw", "file")
    why = F.when(F.json_object_keys("raw").isNull(), "no JSON object").otherwise(
        "neither an audit record nor a line of the rig"
    )
    bad.append(nameless.withColumn("reason", why))
    rows, broken = _rows(docs if docs is not None else raw.limit(0))
    bad.append(broken)
    return Logs(
        tables["audit"],
        tables["hil"],
        rows,
        _union(bad).select("file", "reason", F.substring("raw", 1, _SHOWN).alias("raw")),
        _union(again) if again else spark.createDataFrame([], "file string, count bigint"),
    )


def _rows(docs: DataFrame) -> tuple[DataFrame, DataFrame]:
    """A bench's rows, and documents or rows that are none."""
    listed = docs.select(
        "file", "raw", F.from_json("raw", "rows array<string>").alias("doc")
    ).select("file", "raw", F.col("doc.rows").alias("rows"))
    none = listed.where("rows is null or size(rows) = 0").select(
        "raw", "file", F.lit("no document of a bench").alias("reason")
    )
    each = listed.where("size(rows) > 0").select("file", F.explode("rows").alias("raw"))
    judged = judge(each, "bench")
    bad = judged.where("why is not null").select("raw", "file", F.col("why").alias("reason"))
    return judged.where("why is null").drop("why", "raw"), none.unionByName(bad)


def _union(frames: list[DataFrame]) -> DataFrame:
    found = frames[0]
    for frame in frames[1:]:
        found = found.unionByName(frame)
    return found
