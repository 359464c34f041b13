"""From judged lines to tables: each id once, and what was left out, with the reason.

The result depends on what OUT/lines holds alone, not on the order of files, partitions or lines.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from . import locks
from .contracts import MARKS, columns
from .ingest import LONGEST, Place
from .measures.columns import instant
from .reading import BAD, BLANK, LINES, rows

TWICE = "another line has this id already"
SHORT = f"not read to its end, or a line is longer than {LONGEST} bytes"
OTHERS = "other reasons"
REASONS = 100
_QUARANTINE = "file string, reason string, raw string, count bigint"
_FILES = "name string, file string, bytes bigint, made_ns bigint"


@dataclass(frozen=True)
class Settled:
    """audit, hil, nonce, simulation: the columns of their contracts and `day`, each id once. bench:
    those of its rows, `file` and `made`.

    lines = rows of these four + repeated + what of quarantined are lines of segments.
    quarantined: how many by reason; beyond REASONS reasons the rest is OTHERS.
    """

    audit: DataFrame
    hil: DataFrame
    nonce: DataFrame
    simulation: DataFrame
    bench: DataFrame
    quarantine: DataFrame
    lines: int
    repeated: int
    quarantined: dict[str, int]


def settle(spark: SparkSession, out: Path) -> Settled:
    """Writes OUT/NAME of MARKS (by day), OUT/bench and OUT/quarantine anew."""
    place = Place(out)
    with locks.of_java(spark, place.out):
        return _Settling(spark, place).all()


class _Settling:
    def __init__(self, spark: SparkSession, place: Place) -> None:
        self._spark, self._place = spark, place
        self._work = place.out / "ingest" / "work"
        shutil.rmtree(self._work, ignore_errors=True)
        self._lines = self._read(place.lines, LINES)
        files = spark.read.schema(_FILES).json(str(place.files))
        self._files = files.groupBy("name").agg(
            F.min("file").alias("path"),
            F.max("bytes").alias("bytes"),
            F.max("made_ns").alias("made_ns"),
        )

    def all(self) -> Settled:
        suspects = self._written(
            self._good()
            .groupBy(F.xxhash64("kind", "id").alias("key"))
            .agg(F.count("*").alias("n"))
            .where("n > 1")
            .select("key"),
            "suspects",
        )
        twice = None if suspects.isEmpty() else self._written(self._twice(suspects), "twice")
        for name in MARKS:
            self._keep(name, suspects, twice)
        documents = self._documents()
        self._bench(documents)
        quarantined = self._quarantine(documents, twice)
        lines, repeated = self._counts(twice)
        tables = {name: self._read(self._place.out / name, _table(name)) for name in MARKS}
        bench = self._read(self._place.out / "bench", _bench())
        told = self._spark.read.schema(_QUARANTINE).json(str(self._place.out / "quarantine"))
        return Settled(
            **tables, bench=bench, quarantine=told, lines=lines, repeated=repeated,
            quarantined=quarantined,
        )  # fmt: skip

    def _good(self) -> DataFrame:
        return self._lines.where(F.col("kind").isin(*MARKS))

    def _twice(self, suspects: DataFrame) -> DataFrame:
        """Lines whose ids came more than once, each content once; kept: the one that counts."""
        found = self._good().join(suspects, F.xxhash64("kind", "id") == F.col("key"), "left_semi")
        each = found.groupBy("kind", "id", "digest").agg(
            F.count("*").alias("n"),
            F.min("file").alias("file"),
            *(F.first(name).alias(name) for name in MARKS),
        )
        least = each.groupBy("kind", "id").agg(F.min("digest").alias("least"))
        return each.join(least, ["kind", "id"]).withColumn(
            "kept", F.col("digest") == F.col("least")
        )

    def _keep(self, name: str, suspects: DataFrame, twice: DataFrame | None) -> None:
        of_kind = self._lines.where(F.col("kind") == name)
        if twice is None:
            kept = of_kind.select(f"{name}.*")
        else:
            key = F.xxhash64("kind", "id") == F.col("key")
            single = of_kind.join(suspects, key, "left_anti").select(f"{name}.*")
            again = twice.where((F.col("kind") == name) & F.col("kept")).select(f"{name}.*")
            kept = single.unionByName(again)
        dated = kept.withColumn("day", _day(name))
        # All days anew: one that has no line any more must not stay.
        writer = dated.write.mode("overwrite").option("partitionOverwriteMode", "static")
        writer.partitionBy("day").parquet(str(self._place.out / name))

    def _documents(self) -> DataFrame:
        read = self._spark.read.option("pathGlobFilter", "*.json")
        # As an argument: without it `text` sets the option of that name back to false.
        folders = [str(self._place.documents), str(self._place.others)]
        texts = read.text(folders, wholetext=True).select(
            F.col("value").alias("raw"),
            F.col("_metadata.file_name").alias("name"),
            F.col("_metadata.file_modification_time").alias("made"),
        )
        named = texts.join(F.broadcast(self._files), "name", "left")
        return rows(named.select(F.coalesce("path", "name").alias("file"), "made", "raw"))

    def _bench(self, documents: DataFrame) -> None:
        good = documents.where("reason is null").select("bench.*", "file", "made")
        good.write.mode("overwrite").parquet(str(self._place.out / "bench"))

    def _quarantine(self, documents: DataFrame, twice: DataFrame | None) -> dict[str, int]:
        one = F.lit(1).cast("bigint").alias("count")
        refused = self._spark.read.schema("file string, reason string").json(
            str(self._place.refused)
        )
        parts = [
            self._bad().select("file", "reason", "raw", "count"),
            documents.where("reason is not null").select("file", "reason", "raw", one),
            self._short().select("file", F.lit(SHORT).alias("reason"), F.lit("").alias("raw"), one),
            refused.select("file", "reason", F.lit("").alias("raw"), one),
        ]
        if twice is not None:
            raw = F.substring(F.coalesce(*(F.to_json(name) for name in MARKS)), 1, 500).alias("raw")
            others = self._named(twice.where("not kept").select("file", raw))
            parts.append(others.select("file", F.lit(TWICE).alias("reason"), "raw", one))
        told = parts[0]
        for part in parts[1:]:
            told = told.unionByName(part)
        folder = str(self._place.out / "quarantine")
        told.write.mode("overwrite").json(folder)
        counts = (
            self._spark.read.schema(_QUARANTINE)
            .json(folder)
            .groupBy("reason")
            .agg(F.sum("count").alias("count"))
        )
        return _reasons(counts)

    def _named(self, lines: DataFrame) -> DataFrame:
        """The names of links replaced by the paths of files."""
        found = lines.join(self._files.withColumnRenamed("name", "file"), "file", "left")
        return found.withColumn("file", F.coalesce("path", "file")).drop("path", "bytes", "made_ns")

    def _bad(self) -> DataFrame:
        """A bad line counts as often as it stands in its file, however often that was read."""
        bad = self._lines.where(F.col("kind") == BAD)
        each = bad.groupBy("file", "digest").agg(
            F.count("*").alias("n"), F.min("reason").alias("reason"), F.min("raw").alias("raw")
        )
        return (
            self._named(each)
            .groupBy("file", "digest")
            .agg(
                F.max("n").alias("count"),
                F.sum("n").alias("read"),
                F.min("reason").alias("reason"),
                F.min("raw").alias("raw"),
            )
        )

    def _short(self) -> DataFrame:
        """Files of which less was read than is in them, at each reading."""
        got = self._lines.groupBy("file").agg(F.sum("size").alias("size"))
        segments = self._files.where(~F.col("name").endswith(".json"))
        both = segments.join(got.withColumnRenamed("file", "name"), "name", "left")
        missing = F.col("bytes") - F.coalesce("size", F.lit(0))
        # A byte order mark is not among the lines' bytes.
        return (
            both.groupBy(F.col("path").alias("file"))
            .agg(F.min(missing).alias("missing"))
            .where("missing > 3")
        )

    def _counts(self, twice: DataFrame | None) -> tuple[int, int]:
        lines = self._lines.where(F.col("kind") != BLANK).count()
        again = self._bad().agg(F.sum(F.col("read") - F.col("count"))).first()
        repeated = int(again[0] or 0) if again else 0
        if twice is not None:
            more = twice.agg(F.sum(F.col("n") - 1)).first()
            repeated += int(more[0] or 0) if more else 0
        return lines, repeated

    def _written(self, frame: DataFrame, name: str) -> DataFrame:
        frame.write.mode("overwrite").parquet(str(self._work / name))
        return self._read(self._work / name, frame.schema)

    def _read(self, folder: Path, schema: str | T.StructType) -> DataFrame:
        if not folder.is_dir():
            # Not createDataFrame: workers of a cluster would need Python for it.
            none = self._spark.range(0).select(F.from_json(F.lit("{}"), schema).alias("none"))
            return none.select("none.*")
        return self._spark.read.schema(schema).parquet(str(folder))


def _day(name: str) -> Column:
    at = F.coalesce("minute_ms", "at_ms") if "minute_ms" in columns(name).names else F.col("at_ms")
    return F.to_date(instant(at))


def _table(name: str) -> T.StructType:
    return T.StructType([*columns(name), T.StructField("day", T.DateType())])


def _bench() -> T.StructType:
    more = [T.StructField("file", T.StringType()), T.StructField("made", T.TimestampType())]
    return T.StructType([*columns("bench"), *more])


def _reasons(counts: DataFrame) -> dict[str, int]:
    """The most frequent ones; lines have a say in what reasons there are, so they are bounded."""
    most = counts.orderBy(F.desc("count"), "reason").limit(REASONS).collect()
    found = {row["reason"]: int(row["count"]) for row in most}
    if len(most) == REASONS:
        total = counts.agg(F.sum("count")).first()
        rest = int(total[0] if total else 0) - sum(found.values())
        if rest:
            found[OTHERS] = rest
    return found
