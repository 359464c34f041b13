"""From judged lines to tables: each id once, and what was left out, with the reason.

The result depends on what OUT/lines holds alone, not on the order of files, partitions or lines.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from functools import reduce
from pathlib import Path

from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from . import locks
from .columns_of import nothing
from .contracts import MARKS, columns
from .errors import ReportError
from .ingest import LONGEST, Place
from .measures.columns import instant
from .reading import BAD, BLANK, LINES, SHOWN, rows
from .state import FOLDER, Record, State, parts

TWICE = "another line has this id already"
SHORT = f"not read to its end, or a line is longer than {LONGEST} bytes"
OTHERS = "other reasons"
REASONS = 100
_BROADCAST = 2_000_000
_FILES_A_DAY = 32
"""A day with so many files is written anew as one."""
_QUARANTINE = "file string, reason string, raw string, count bigint"
_FILES = "name string, file string, bytes bigint, made_ns bigint"
_READ, _BAD, _KEYS, _LOST, _NONE = (
    f"{FOLDER}/{name}" for name in ("read", "bad", "keys", "lost", "documents")
)
_STATE = {
    _READ: "file string, kind string, lines bigint, size bigint",
    _BAD: "file string, digest bigint, n bigint, reason string, raw string",
    _KEYS: "key bigint, digest bigint, n bigint",
    _LOST: "kind string, id string, digest bigint, file string, raw string",
    _NONE: "file string, reason string, raw string",
}
"""read: what was read of each file. bad: its bad lines. keys: ids and contents of good ones, as
hashes. lost: contents that an id has besides the one that counts. documents: those of no bench."""


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
    """Brings OUT/NAME of MARKS (by day) and OUT/bench up to OUT/lines, and writes OUT/quarantine.

    Only lines that the stream has read since the last time are looked at, and of those before what
    has an id of theirs. The state changes at once (state.py), wherever it is killed.
    """
    place = Place(out)
    with locks.of_java(spark, place.out):
        return _Settling(spark, place).all()


class _Settling:
    def __init__(self, spark: SparkSession, place: Place) -> None:
        self._spark, self._place = spark, place
        self._work = place.out / "ingest" / "work"
        shutil.rmtree(self._work, ignore_errors=True)
        self._state = State(place.out)
        self._record = replace(self._state.now, days={**self._state.now.days})
        if not self._record.number:
            # Of a version that settled everything each time.
            for name in MARKS:
                shutil.rmtree(place.out / name, ignore_errors=True)
        self._replaced: set[str] = set()
        files = spark.read.schema(_FILES).json(str(place.files))
        self._files = files.groupBy("name").agg(
            F.min("file").alias("path"),
            F.max("bytes").alias("bytes"),
            F.max("made_ns").alias("made_ns"),
        )

    def all(self) -> Settled:
        there = parts(self._place.lines)
        settled = self._record.parts
        if self._record.last != (there[settled - 1] if 0 < settled <= len(there) else ""):
            raise ReportError(
                f"parts of the report in {self._place.out} are missing",
                hint="--fresh reads all logs again",
            )
        if len(there) > settled:
            self._grow(there[settled:])
            self._record.parts, self._record.last = len(there), there[-1]
        self._documents()
        if self._record != self._state.now:
            self._state.commit(self._record, self._replaced)
        return self._settled()

    def _settled(self) -> Settled:
        out, record = self._place.out, self._state.now
        quarantined, again = self._quarantine()
        tables = {name: self._read(out / name, _table(name)) for name in MARKS}
        return Settled(
            **tables,
            bench=self._read(out / "bench", _bench()),
            quarantine=self._spark.read.schema(_QUARANTINE).json(str(out / "quarantine")),
            lines=record.lines,
            repeated=record.good - record.contents + again,
            quarantined=quarantined,
            record=record,
        )

    def _grow(self, names: Sequence[str]) -> None:
        """Stage what these files of OUT/lines bring."""
        whole = not self._record.parts
        self._new = self._read(self._place.lines, LINES) if whole else self._lines(names)
        each = self._new.groupBy("file", "kind").agg(
            F.count("*").alias("lines"), F.sum("size").alias("size")
        )
        of_kind = {
            kind: F.sum(F.when(F.col("kind") == kind, F.col("lines")))
            for kind in (*MARKS, BAD, BLANK)
        }
        _, counts = self._observed(each, self._state.staged / _READ, of_kind)
        self._record.lines += sum(n for kind, n in counts.items() if kind != BLANK)
        if counts.get(BAD):
            bad = self._new.where(F.col("kind") == BAD).groupBy("file", "digest")
            self._staged(
                bad.agg(
                    F.count("*").alias("n"),
                    F.min("reason").alias("reason"),
                    F.min("raw").alias("raw"),
                ),
                _BAD,
            )
        good = sum(counts.get(name, 0) for name in MARKS)
        if good:
            self._record.good += good
            self._keep([name for name in MARKS if counts.get(name)], *self._met(good))

    def _met(self, good: int) -> tuple[DataFrame, DataFrame | None]:
        """suspects: keys of ids that have come more than once, with what is new; differ: with
        several contents; place: of a line that may stand for all of them, null where one was kept
        before. twice: all lines of these that have several contents, each content once; kept: the
        one that counts."""
        key = F.xxhash64("kind", "id").alias("key")
        n = F.count("*")
        place = F.when(n > 1, F.min(_place())).alias("place")
        pairs, told = self._observed(
            _good(self._new).groupBy(key, "digest").agg(n.alias("n"), place),
            self._state.staged / _KEYS,
            {"contents": F.count("*")},
        )
        said = pairs.select("key", "digest", "n", "place", F.lit(False).alias("known"))
        contents = told["contents"]
        if self._record.contents:
            mine = pairs.select("key").distinct()
            mine = _small(mine, good)
            before = self._stood(_KEYS).join(mine, "key", "left_semi").select("key", "digest")
            old = self._written(before.distinct(), "known")
            contents -= pairs.join(old, ["key", "digest"], "left_semi").count()
            one, nowhere = (F.lit(value).cast("bigint") for value in (1, None))
            known = F.lit(True).alias("known")
            said = said.unionByName(
                old.select("key", "digest", one.alias("n"), nowhere.alias("place"), known)
            )
        self._record.contents += contents
        suspects, found = self._observed(
            said.groupBy("key")
            .agg(
                F.sum("n").alias("n"),
                (F.min("digest") != F.max("digest")).alias("differ"),
                F.bool_or("known").alias("known"),
                F.min("place").alias("place"),
            )
            .where("n > 1")
            .select("key", "differ", F.when(~F.col("known"), F.col("place")).alias("place")),
            self._work / "suspects",
            {"differ": F.count_if("differ")},
        )
        differ = suspects.where("differ").select("key")
        ids = found["differ"]
        if not ids:
            return suspects, None
        digests = said.join(differ, "key", "left_semi").select("digest").distinct()
        return suspects, self._twice(differ, _small(digests, 2 * ids))

    def _twice(self, differ: DataFrame, digests: DataFrame) -> DataFrame:
        """Of all lines there are; read are files in which some of them stand. What is known of
        other ids stays as it is."""
        everything = self._read(self._place.lines, LINES)
        name = F.col("_metadata.file_name").alias("name")
        where = everything.select("kind", "digest", name).join(digests, "digest", "left_semi")
        named = where.where(F.col("kind").isin(*MARKS)).select("kind", "name").distinct().collect()
        lines = self._lines(sorted(f"kind={row['kind']}/{row['name']}" for row in named))
        found = _good(lines).join(differ, F.xxhash64("kind", "id") == F.col("key"), "left_semi")
        each = found.groupBy("kind", "id", "digest").agg(
            F.min("file").alias("file"), *(F.first(name).alias(name) for name in MARKS)
        )
        least = each.groupBy("kind", "id").agg(F.min("digest").alias("least"))
        days = F.coalesce(
            *(F.when(F.col("kind") == name, _day(name, f"{name}.")) for name in MARKS)
        )
        twice = self._written(
            each.join(least, ["kind", "id"])
            .withColumns({"kept": F.col("digest") == F.col("least"), "day": days})
            .drop("least"),
            "twice",
        )
        lost = twice.where("not kept").select("kind", "id", "digest", "file", _raw().alias("raw"))
        before = self._stood(_LOST).join(twice, ["kind", "id"], "left_anti")
        self._staged(before.unionByName(lost), _LOST)
        self._replaced.add(_LOST)
        return twice

    def _keep(self, names: Sequence[str], suspects: DataFrame, twice: DataFrame | None) -> None:
        changed = twice.select("kind", "day").distinct().collect() if twice is not None else []
        for name in names:
            again = {str(row["day"]) for row in changed if row["kind"] == name}
            self._keep_of(name, suspects, twice, again)

    def _keep_of(
        self, name: str, suspects: DataFrame, twice: DataFrame | None, again: set[str]
    ) -> None:
        """New lines beside those of their days; written anew are days with lines of `again`, which
        may have lost some, and those of too many files."""
        of_kind = self._new.where(F.col("kind") == name)
        # Of what has come more than once, the line in one place, if nothing of it was kept before.
        others = suspects.select("key", F.when(~F.col("differ"), F.col("place")).alias("place"))
        placed = of_kind.withColumns({"key": F.xxhash64("kind", "id"), "here": _place()})
        kept = (
            placed.join(others.withColumn("again", F.lit(True)), "key", "left")
            .where("again is null or here = place")
            .select(f"{name}.*")
            .withColumn("day", _day(name))
        )
        mine = None
        if twice is not None:
            mine = twice.where(F.col("kind") == name)
            kept = kept.unionByName(mine.where("kept").select(f"{name}.*", "day"))
        there = {path.name[4:]: path for path in (self._place.out / name).glob("day=*")}
        anew = {day for day, path in there.items() if day in again or _many(path)}
        if anew:
            old = self._read(self._place.out / name, _table(name))
            old = old.where(F.col("day").isin([date.fromisoformat(day) for day in anew]))
            if mine is not None:
                old = old.join(mine.select("id"), "id", "left_anti")
            columns = [field.name for field in _table(name)]
            kept = kept.select(columns).unionByName(old.select(columns)).hint("rebalance", "day")
        staged = self._state.staged / name
        kept.write.mode("overwrite").partitionBy("day").parquet(str(staged))
        written = {path.name[4:] for path in staged.glob("day=*")}
        for day in anew - written:
            (staged / f"day={day}").mkdir()
        self._replaced |= {f"{name}/day={day}" for day in anew}
        days = {**self._record.days.get(name, {})}
        number = self._state.now.number + 1
        for day in written:
            days[day] = (number, number if day in anew else days.get(day, (0, 0))[1])
        self._record.days[name] = {day: of for day, of in days.items() if day not in anew - written}

    def _documents(self) -> None:
        """Rows of the benches: judged anew where there are others."""
        mark = self._documents_mark()
        if mark == self._record.documents:
            return
        self._replaced |= {"bench", _NONE}
        self._record.documents, self._record.rows = mark, 0
        if not self._there():
            for name in ("bench", _NONE):
                (self._state.staged / name).mkdir(parents=True)
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
        judged = self._written(
            rows(named.select(F.coalesce("path", "name").alias("file"), "made", "raw")), "documents"
        )
        good = judged.where("reason is null").select("bench.*", "file", "made")
        self._record.rows = self._staged(good, "bench").count()
        bad = judged.where("reason is not null").select("file", "reason", "raw")
        self._staged(bad, _NONE)

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

    def _quarantine(self) -> tuple[dict[str, int], int]:
        """Of each reason how many; and how often bad lines were read again."""
        one = F.lit(1).cast("bigint").alias("count")
        refused = self._spark.read.schema("file string, reason string").json(
            str(self._place.refused)
        )
        nothing = F.lit("").alias("raw")
        lost = self._named(self._stood(_LOST).select("file", "raw"))
        told = [
            self._bad().select("file", "reason", "raw", "count", "read"),
            *(
                part.withColumn("read", F.lit(None).cast("bigint"))
                for part in (
                    self._stood(_NONE).select("file", "reason", "raw", one),
                    self._short().select("file", F.lit(SHORT).alias("reason"), nothing, one),
                    refused.select("file", "reason", nothing, one),
                    lost.select("file", F.lit(TWICE).alias("reason"), "raw", one),
                )
            ),
        ]
        again = Observation()
        folder = str(self._place.out / "quarantine")
        all_of_it = reduce(DataFrame.unionByName, told)
        seen = all_of_it.observe(again, F.sum(F.col("read") - F.col("count")).alias("again"))
        seen.drop("read").write.mode("overwrite").json(folder)
        bad = self._spark.read.schema(_QUARANTINE).json(folder)
        reasons = _reasons(bad.groupBy("reason").agg(F.sum("count").alias("count")))
        return reasons, int(again.get["again"] or 0)

    def _named(self, lines: DataFrame) -> DataFrame:
        """The names of links replaced by the paths of files."""
        found = lines.join(self._files.withColumnRenamed("name", "file"), "file", "left")
        return found.withColumn("file", F.coalesce("path", "file")).drop("path", "bytes", "made_ns")

    def _bad(self) -> DataFrame:
        """A bad line counts as often as it stands in its file, however often that was read."""
        return (
            self._named(self._stood(_BAD))
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
        got = (
            self._stood(_READ).groupBy(F.col("file").alias("name")).agg(F.sum("size").alias("size"))
        )
        segments = self._files.where(~F.col("name").endswith(".json"))
        both = segments.join(got, "name", "left")
        missing = F.col("bytes") - F.coalesce("size", F.lit(0))
        # A byte order mark is not among the lines' bytes.
        return (
            both.groupBy(F.col("path").alias("file"))
            .agg(F.min(missing).alias("missing"))
            .where("missing > 3")
        )

    def _lines(self, names: Sequence[str]) -> DataFrame:
        """Those of these files of OUT/lines."""
        paths = [str(self._place.lines / name) for name in names]
        base = str(self._place.lines)
        return self._spark.read.schema(LINES).option("basePath", base).parquet(*paths)

    def _stood(self, name: str) -> DataFrame:
        """Of the state, as the last change has left it."""
        return self._read(self._place.out / name, _STATE[name])

    def _staged(self, frame: DataFrame, name: str) -> DataFrame:
        return self._write(frame, self._state.staged / name)

    def _observed(
        self, frame: DataFrame, folder: Path, figures: Mapping[str, Column]
    ) -> tuple[DataFrame, dict[str, int]]:
        """`_write`, and figures of its rows, told on the way: another query would cost as much as a
        small write."""
        told = Observation()
        named = (figure.alias(name) for name, figure in figures.items())
        found = self._write(frame.observe(told, *named), folder)
        return found, {name: int(told.get[name] or 0) for name in figures}

    def _written(self, frame: DataFrame, name: str) -> DataFrame:
        return self._write(frame, self._work / name)

    def _write(self, frame: DataFrame, folder: Path) -> DataFrame:
        frame.write.mode("overwrite").parquet(str(folder))
        return self._read(folder, frame.schema)

    def _read(self, folder: Path, schema: str | T.StructType) -> DataFrame:
        if not folder.is_dir():
            return nothing(self._spark, schema)
        return self._spark.read.schema(schema).parquet(str(folder))


def _small(frame: DataFrame, rows: int) -> DataFrame:
    """With so many rows, about: where they are few, what they are joined with is not moved."""
    return F.broadcast(frame) if rows <= _BROADCAST else frame


def _place() -> Column:
    """Where a line stands in OUT/lines."""
    return F.xxhash64("_metadata.file_name", "_metadata.row_index")


def _good(lines: DataFrame) -> DataFrame:
    return lines.where(F.col("kind").isin(*MARKS))


def _raw() -> Column:
    return F.substring(F.coalesce(*(F.to_json(name) for name in MARKS)), 1, SHOWN)


def _many(day: Path) -> bool:
    return sum(path.name.endswith(".parquet") for path in day.iterdir()) >= _FILES_A_DAY


def _day(name: str, of: str = "") -> Column:
    at = F.col(f"{of}at_ms")
    if "minute_ms" in columns(name).names:
        at = F.coalesce(F.col(f"{of}minute_ms"), at)
    return F.to_date(instant(at))


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
