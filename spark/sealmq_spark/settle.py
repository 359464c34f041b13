"""What stands beside the lines that are kept: rows of benches, and what was left out, with the
reason."""

from __future__ import annotations

import hashlib
import shutil
from dataclasses import dataclass, replace
from functools import reduce
from pathlib import Path

from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from . import locks
from .batches import LONGEST
from .columns_of import stored
from .contracts import MARKS, columns
from .ingest import Place, say_read
from .reading import rows
from .state import AGAIN, BAD_LINES, LOST, NO_BENCH, SIZES, TABLES, Record, State

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
    quarantined: how many by reason; beyond REASONS reasons the rest is OTHERS. record: which days
    have changed, and when last.
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
    record: Record


def settle(spark: SparkSession, out: Path) -> Settled:
    """Brings OUT/bench and OUT/quarantine up to what `ingest` has read, and says which segments
    were read whole. The state changes at once (state.py), wherever it is killed."""
    place = Place(out)
    with locks.of_java(spark, place.out):
        return _Settling(spark, place).all()


class _Settling:
    def __init__(self, spark: SparkSession, place: Place) -> None:
        self._spark, self._place = spark, place
        self._work = place.out / "ingest" / "work"
        shutil.rmtree(self._work, ignore_errors=True)
        self._state = State(place.out)
        self._staged = self._state.begin()
        self._record = replace(self._state.now)
        self._replaced: set[str] = set()
        files = spark.read.schema(_FILES).json(str(place.files))
        self._files = files.groupBy("name").agg(
            F.min("file").alias("path"),
            F.max("bytes").alias("bytes"),
            F.max("made_ns").alias("made_ns"),
        )

    def all(self) -> Settled:
        self._documents()
        if self._record != self._state.now:
            self._state.commit(self._record, self._replaced)
        return self._settled()

    def _settled(self) -> Settled:
        out, record = self._place.out, self._state.now
        quarantined, again, short = self._quarantine()
        say_read(self._place, short)
        tables = {name: stored(self._spark, out / name, _table(name)) for name in MARKS}
        return Settled(
            **tables,
            bench=stored(self._spark, out / "bench", _bench()),
            quarantine=self._spark.read.schema(_QUARANTINE).json(str(out / "quarantine")),
            lines=record.lines,
            repeated=record.good - record.contents + again,
            quarantined=quarantined,
            record=record,
        )

    def _documents(self) -> None:
        """Rows of the benches: judged anew where there are others."""
        mark = self._documents_mark()
        if mark == self._record.documents:
            return
        self._replaced |= {"bench", NO_BENCH}
        self._record.documents, self._record.rows = mark, 0
        if not self._there():
            for name in ("bench", NO_BENCH):
                (self._staged / name).mkdir(parents=True)
            return
        read = self._spark.read.option("pathGlobFilter", "*.json")
        # As an argument: without it `text` sets the option of that name back to false.
        folders = [str(self._place.documents), str(self._place.others)]
        texts = read.text(folders, wholetext=True).select(
            F.col("value").alias("raw"),
            F.col("_metadata.file_name").alias("name"),
            F.col("_metadata.file_modification_time").alias("made"),
        )
        named = texts.join(F.broadcast(self._files), "name", "left")
        made = rows(named.select(F.coalesce("path", "name").alias("file"), "made", "raw"))
        judged = self._write(made, self._work / "documents")
        good = judged.where("reason is null").select("bench.*", "file", "made")
        self._record.rows = self._write(good, self._staged / "bench").count()
        bad = judged.where("reason is not null").select("file", "reason", "raw")
        self._write(bad, self._staged / NO_BENCH)

    def _there(self) -> list[Path]:
        """The documents."""
        folders = (self._place.documents, self._place.others)
        return [path for folder in folders for path in sorted(folder.glob("*.json"))]

    def _documents_mark(self) -> str:
        """Of their names, ages and paths."""
        mark = hashlib.sha256()
        for path in self._there():
            age = path.stat().st_mtime_ns if path.exists() else 0
            mark.update(f"{path.name} {age}\n".encode())
        with self._place.files.open("rb") as told:
            for line in sorted(line for line in told if b'.json"' in line):
                mark.update(line)
        return mark.hexdigest()[:32]

    def _quarantine(self) -> tuple[dict[str, int], int, set[str]]:
        """Of each reason how many; how often bad lines were read again; which files were not read
        to their end."""
        one = F.lit(1).cast("bigint").alias("count")
        refused = self._spark.read.schema("file string, reason string").json(
            str(self._place.refused)
        )
        nothing = F.lit("").alias("raw")
        lost = self._named(self._lost())
        told = [
            self._bad().select("file", "reason", "raw", "count", "read"),
            *(
                part.withColumn("read", F.lit(None).cast("bigint"))
                for part in (
                    self._stood(NO_BENCH).select("file", "reason", "raw", one),
                    self._short().select("file", F.lit(SHORT).alias("reason"), nothing, one),
                    refused.select("file", "reason", nothing, one),
                    lost.select("file", F.lit(TWICE).alias("reason"), "raw", one),
                )
            ),
        ]
        found = Observation()
        folder = str(self._place.out / "quarantine")
        again = F.sum(F.col("read") - F.col("count")).alias("again")
        is_short = F.col("reason") == SHORT
        seen = reduce(DataFrame.unionByName, told).observe(
            found, again, F.count_if(is_short).alias("short")
        )
        seen.drop("read").write.mode("overwrite").json(folder)
        bad = self._spark.read.schema(_QUARANTINE).json(folder)
        reasons = _reasons(bad.groupBy("reason").agg(F.sum("count").alias("count")))
        short = {row.file for row in bad.where(is_short).collect()} if found.get["short"] else set()
        return reasons, int(found.get["again"] or 0), short

    def _named(self, lines: DataFrame) -> DataFrame:
        """The names of links replaced by the paths of files."""
        found = lines.join(self._files.withColumnRenamed("name", "file"), "file", "left")
        return found.withColumn("file", F.coalesce("path", "file")).drop("path", "bytes", "made_ns")

    def _bad(self) -> DataFrame:
        """A bad line counts as often as it stands in its file, however often that was read."""
        return (
            self._named(self._stood(BAD_LINES))
            .groupBy("file", "digest")
            .agg(
                F.max("n").alias("count"),
                F.sum("n").alias("read"),
                F.min("reason").alias("reason"),
                F.min("raw").alias("raw"),
            )
        )

    def _lost(self) -> DataFrame:
        """file, raw: contents that do not count, each with the first of the files that have it."""
        lost, of = self._stood(LOST), ["key", "digest"]
        again = self._stood(AGAIN).join(F.broadcast(lost.select(of)), of, "left_semi")
        others = again.groupBy(of).agg(F.min("file").alias("other"))
        first = F.least("file", "other").alias("file")
        return lost.join(F.broadcast(others), of, "left").select(first, "raw")

    def _short(self) -> DataFrame:
        """Files of which less was read than is in them, when they were read last."""
        got = (
            self._stood(SIZES).groupBy(F.col("file").alias("name")).agg(F.sum("size").alias("size"))
        )
        segments = self._files.where(~F.col("name").endswith(".json"))
        both = segments.join(got, "name", "left")
        missing = F.col("bytes") - F.coalesce("size", F.lit(0))
        # A byte order mark is not among the lines' bytes.
        return (
            both.groupBy(F.col("path").alias("file"))
            .agg(F.max_by(missing, F.struct("made_ns", "name")).alias("missing"))
            .where("missing > 3")
        )

    def _stood(self, name: str) -> DataFrame:
        """Of the state, as the last change has left it."""
        return stored(self._spark, self._place.out / name, TABLES[name])

    def _write(self, frame: DataFrame, folder: Path) -> DataFrame:
        frame.write.mode("overwrite").parquet(str(folder))
        return stored(self._spark, folder, frame.schema)


def schemas() -> dict[str, T.StructType]:
    """The columns of each log of `Settled`. Needs no session."""
    return {**{name: _table(name) for name in MARKS}, "bench": _bench()}


def _table(name: str) -> T.StructType:
    return T.StructType([*columns(name), T.StructField("day", T.DateType())])


def _bench() -> T.StructType:
    more = [T.StructField("file", T.StringType()), T.StructField("made", T.TimestampType())]
    return T.StructType([*columns("bench"), *more])


def _reasons(counts: DataFrame) -> dict[str, int]:
    """The most frequent ones; lines have a say in what reasons there are, so they are bounded."""
    most = F.min_by(F.struct("reason", "count"), F.struct(-F.col("count"), "reason"), REASONS)
    (told,) = counts.agg(F.sum("count").alias("all"), most.alias("most")).collect()
    found = {row["reason"]: int(row["count"]) for row in told["most"] or ()}
    rest = int(told["all"] or 0) - sum(found.values())
    if rest:
        found[OTHERS] = rest
    return found
