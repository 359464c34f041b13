"""New lines into OUT/NAME of each contract, each id once: a batch of files after the other.

A batch is looked at twice. First its ids alone: which come more than once, in it or beside what was
read before. Then all of it: a line as our writers write it goes to the table of its day at once,
all others are judged in detail, and those with an id that comes more than once wait until all of
them are there. What a batch changes is committed as one (state.py): whatever kills it, it was read
or it was not.

Of an id with several contents the one with the least hash counts, whatever the order of files,
lines and batches; the others are in OUT/state/lost.
"""

from __future__ import annotations

import gzip
import os
import shutil
import zlib
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import date
from functools import reduce
from pathlib import Path
from typing import NamedTuple

from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from .columns_of import stored
from .contracts import MARKS, columns, ddl
from .measures.columns import instant_of
from .reading import BAD, BLANK, LINES, SHOWN, as_written, judge
from .rules import Sql
from .session import SCANS, WHOLE, settings
from .state import AGAIN, BAD_LINES, FILES, LOST, SIZES, TABLES, State

LONGEST = 1 << 20
"""Bytes of a line. Longer ones are not read; settle.py finds that they are missing."""
EACH = 4 << 30
"""Bytes of logs in a batch. After a run that was killed at most so many are read again."""
HIDDEN = "_file string, _size bigint, _key bigint, _digest bigint, _raw string"
"""What OUT/NAME has of a line beside its contract's columns: the link that it was read by, its
bytes, hashes of its id and of its text. _raw is empty there."""
_LINK, _KEY, _DIGEST = "_file AS file", "_key AS key", "_digest AS digest"
_KEPT, _HELD, _REPEATED, _REST = "kept", "held", "again", "rest"
_UNLIKE = ("id", "_key", "_digest", "key", "digest")
_BROADCAST = 2_000_000
# What has so many files of fewer bytes, a day or a part of the state, is written anew.
_FILES, _SMALL = 32, 1 << 20
_HEAD = 1 << 13
# Bytes beyond which each kind has batches of its own.
_APART = 64 << 20
_ONE = "struct<digest: bigint, kind: string, day: date>"
# A hash of a line's id. Only a line that our writers did not write has to be parsed for it.
_KEY_OF = (
    r"""xxhash64(coalesce(nullif(regexp_extract(raw, '^\\{"v":1,"id":"([^"\\\\]++)"', 1), ''), """
    "from_json(raw, 'id string').id)) AS key"
)


class Link(NamedTuple):
    """A file to read, by the name of its link, and its bytes."""

    name: str
    bytes: int


def read(spark: SparkSession, out: Path, folder: Path, links: Sequence[Link]) -> None:
    """Bring OUT/NAME up to these links in `folder`, in this order. Those that were read before are
    left out, and those whose files are away."""
    state = State(out)
    done = state.files()
    new = [link for link in links if link.name not in done and os.path.exists(folder / link.name)]
    kinds = {link.name: _kind(folder / link.name) for link in new}
    if sum(link.bytes for link in new) > _APART:
        new.sort(key=lambda link: kinds[link.name])
    for batch in _batches(new):
        largest = max(batch, key=lambda link: link.bytes)
        raw = _raw(spark, [folder / link.name for link in batch])
        with settings(spark, {WHOLE: "false"}):
            _Batch(spark, out, state).settle(raw, kinds[largest.name], batch)


def _raw(spark: SparkSession, paths: Sequence[Path]) -> DataFrame:
    # Carriage returns stay: then what was read adds up to the file's bytes. What cannot be read to
    # its end is missing in the sum, which settle.py tells.
    read = spark.read.options(lineSep="\n", ignoreCorruptFiles="true", ignoreMissingFiles="true")
    longest = read.option("mapreduce.input.linerecordreader.line.maxlength", str(LONGEST))
    lines = longest.text([str(path) for path in paths])
    return lines.select(F.col("value").alias("raw"), F.col("_metadata.file_name").alias("file"))


def _batches(links: Sequence[Link]) -> Iterator[list[Link]]:
    batch: list[Link] = []
    size = 0
    for link in links:
        if batch and size + link.bytes > EACH:
            yield batch
            batch, size = [], 0
        batch.append(link)
        size += link.bytes
    if batch:
        yield batch


def _kind(path: Path) -> str:
    """Of which contract most lines at the beginning of a file seem to be."""
    try:
        with gzip.open(path) if path.name.endswith(".gz") else path.open("rb") as file:
            head = file.read(_HEAD)
    except (OSError, EOFError, zlib.error):
        head = b""
    return max(sorted(MARKS), key=lambda name: head.count(f'"{MARKS[name]}":'.encode()))


class _Batch:
    def __init__(self, spark: SparkSession, out: Path, state: State) -> None:
        self._spark, self._out, self._state = spark, out, state
        self._staged = state.begin()
        self._record = replace(state.now, days={**state.now.days})
        self._replaced: set[str] = set()
        self._work = out / "ingest" / "work"
        shutil.rmtree(self._work, ignore_errors=True)

    def settle(self, raw: DataFrame, main: str, links: Sequence[Link]) -> None:
        """Read all of these files, whose lines are `raw`, and commit it. main: the kind that most
        of them may be of."""
        self._grow(raw, main)
        names = {link.name for link in links}
        if len(list((self._out / FILES).glob("*"))) >= _FILES:
            names |= self._state.files()
            self._replaced.add(FILES)
        (self._staged / FILES).mkdir(parents=True)
        (self._staged / FILES / "names.txt").write_text("".join(f"{name}\n" for name in names))
        self._state.commit(self._record, self._replaced)

    def _grow(self, raw: DataFrame, main: str) -> None:
        """Stage what these lines bring."""
        tasks = str(self._spark.sparkContext.defaultParallelism)
        with settings(self._spark, {SCANS: tasks}):
            suspects, many = self._suspects(raw)
            self._as_written(raw, main, suspects, many)
        met = self._count_first()
        late = self._in_detail(suspects, many) if met[_REST] else Counter[str]()
        met += late
        if met[_REPEATED]:
            self._note_again()
        twice: DataFrame | None = None
        kinds: Counter[str] = Counter()
        if met[_HELD]:
            twice, kinds = self._resolved(main, suspects, met[_HELD])
        for name in MARKS:
            self._keep(name, main, late[name], twice if kinds[name] else None)
        for name in (SIZES, BAD_LINES, LOST, AGAIN):
            if _many(self._out / name):
                self._write_anew(name)

    def _write_anew(self, name: str) -> None:
        """Stage all of it: each change adds some small files, and all are read each time."""
        staged, whole = self._staged / name, self._work / "whole"
        rows = self._stood(name)
        if staged.is_dir():
            rows = rows.unionAll(self._stored(staged, TABLES[name]))
        self._write(rows.coalesce(1), whole)
        shutil.rmtree(staged, ignore_errors=True)
        whole.rename(staged)
        self._replaced.add(name)

    def _suspects(self, raw: DataFrame) -> tuple[DataFrame, int]:
        """key, was: ids, as hashes, that come more than once, in this batch or beside what was read
        before, and with which contents those were. May have ids of bad lines. And how many."""
        keys = raw.selectExpr(_KEY_OF).groupBy("key")
        new = keys.agg(F.count("*").alias("n"))
        if self._record.contents:
            new, told = self._observed(new, self._work / "keys", keys=F.count("*"))
            mine = _small(new.select("key"), told["keys"])
            known = self._known().join(mine, "key", "left_semi")
            none, nobody = F.expr(f"CAST(NULL AS {_ONE})"), F.lit(0).cast("bigint")
            one = F.struct("digest", "kind", "day").cast(_ONE)
            both = new.select("key", "n", none.alias("was")).unionAll(
                known.select("key", nobody.alias("n"), one.alias("was"))
            )
            was = F.collect_list("was").alias("was")
            found = both.groupBy("key").agg(F.sum("n").alias("n"), was)
            found = found.where("n > 1 OR size(was) > 0").drop("n")
        else:
            was = F.expr(f"CAST(array() AS array<{_ONE}>)").alias("was")
            found = new.where("n > 1").select("key", was)
        found, told = self._observed(found, self._work / "suspects", keys=F.count("*"))
        return found, told["keys"]

    def _known(self) -> DataFrame:
        """key, digest, kind, day of the contents that were read before; those that do not count
        have no day."""
        lost = self._stood(LOST).selectExpr("key", "digest", "kind", "CAST(NULL AS date) AS day")
        kept = (
            self._stored(self._out / name, f"{HIDDEN}, day date").selectExpr(
                _KEY, _DIGEST, f"'{name}' AS kind", "day"
            )
            for name in self._record.days
        )
        return reduce(DataFrame.unionAll, kept, lost)

    def _marked(self, raw: DataFrame, suspects: DataFrame, many: int) -> DataFrame:
        """raw, file -> with key, and was: null where the id comes once."""
        lines = raw.selectExpr("raw", "file", _KEY_OF)
        if not many:
            return lines.withColumn("was", F.expr(f"CAST(NULL AS array<{_ONE}>)"))
        # Here, where a line is short: what is joined is copied.
        return lines.join(_small(suspects, many), "key", "left")

    def _as_written(self, raw: DataFrame, main: str, suspects: DataFrame, many: int) -> None:
        """Write all lines to work/first: those of kind `main` that are as our writers write them
        into columns, the others as they are, to its part `rest`."""
        lines, good = as_written(self._marked(raw, suspects, many), main)
        parted = lines.selectExpr(
            "raw",
            "file",
            "key",
            main,
            "xxhash64(raw) AS digest",
            _part(good, _REST, "xxhash64(raw)"),
        )
        found = parted.select(
            f"{main}.*",
            F.col("file").alias("_file"),
            F.expr("CAST(octet_length(raw) + 1 AS bigint) AS _size"),
            F.col("key").alias("_key"),
            F.col("digest").alias("_digest"),
            F.expr(f"CASE WHEN _part = '{_REST}' THEN raw END AS _raw"),
            F.when(F.col("_part") == _KEPT, _day(main, f"{main}.")).alias("day"),
            "_part",
        )
        self._write(found, self._work / "first", "_part", "day")

    def _count_first(self) -> Counter[str]:
        """Count the lines of each part of work/first, and put into the state what was read of each
        file."""
        lines = self._stored(self._work / "first", f"{HIDDEN}, _part string")
        each = lines.groupBy(F.col("_file").alias("file"), "_part").agg(
            F.sum("_size").alias("size"), F.count("*").alias("n")
        )
        parts = (_KEPT, _HELD, _REPEATED, _REST)
        n = {part: F.sum(F.when(F.col("_part") == part, F.col("n"))) for part in parts}
        _, told = self._observed(each, self._staged / SIZES, **n)
        return self._counted(told)

    def _counted(self, told: Mapping[str, int]) -> Counter[str]:
        met = Counter(told)
        good = met[_KEPT] + met[_HELD] + met[_REPEATED]
        self._record.lines += good + met[BAD]
        self._record.good += good
        self._record.contents += met[_KEPT]
        return met

    def _in_detail(self, suspects: DataFrame, many: int) -> Counter[str]:
        """Judge the other lines in detail: write them to work/rest, and what is bad to the state.
        Returns how many there are of each part, and how many of each kind are kept."""
        raw = self._first(_REST).selectExpr("_raw AS raw", _LINK)
        lines = judge(self._marked(raw, suspects, many)).where(f"kind <> '{BLANK}'")
        parted = lines.selectExpr("*", _part(f"kind <> '{BAD}'", BAD, "digest")).drop("was")
        part, kind = F.col("_part"), F.col("kind")
        parts = (_KEPT, _HELD, _REPEATED, BAD)
        n = {each: F.count_if(part == each) for each in parts}
        n |= {name: F.count_if((part == _KEPT) & (kind == name)) for name in MARKS}
        _, told = self._observed(parted, self._work / "rest", "_part", "kind", **n)
        met = self._counted(told)
        if met[BAD]:
            texts = (F.min(name).alias(name) for name in ("reason", "raw"))
            bad = self._rest(BAD).groupBy("file", "digest")
            self._stage(bad.agg(F.count("*").alias("n"), *texts), BAD_LINES)
        return met

    def _note_again(self) -> None:
        """Note which files have contents that were read before: quarantine names the first file of
        a content."""
        first = self._first(_REPEATED).selectExpr(_KEY, _DIGEST, _LINK)
        rest = self._rest(_REPEATED).select("key", "digest", "file")
        self._stage(first.unionAll(rest), AGAIN)

    def _resolved(
        self, main: str, suspects: DataFrame, lines: int
    ) -> tuple[DataFrame, Counter[str]]:
        """Contents of ids that come more than once: new ones, and what was kept of these ids before
        (`old`). `kept`: it is the one that counts. And how many there are of each kind. lines: how
        many are held."""
        first = self._nested(self._first(_HELD, main), main, self._place("first"))
        rest = self._rest(_HELD).selectExpr("*", self._place("rest"))
        held = first.unionAll(rest.select(first.columns))
        # One line of each content, without a look at what else is in the lines.
        of = ("kind", "id", "digest")
        each = held.groupBy(*of).agg(F.min("file").alias("file"), F.min("place").alias("place"))
        one = _small(each.select("place", "file"), lines)
        days = (F.when(F.col("kind") == name, _day(name, f"{name}.")) for name in MARKS)
        new = held.drop("file").join(one, "place").drop("place")
        found = new.withColumns({"day": F.coalesce(*days), "old": F.lit(False)})
        for name, dates in self._met(suspects, held).items() if self._state.now.contents else ():
            ids = held.where(F.col("kind") == name).select("id").distinct()
            kept = self._of_days(name, dates).join(F.broadcast(ids), "id", "left_semi")
            old = self._nested(kept, name, "day", "true AS old")
            found = found.unionAll(old.select(found.columns))
        least = found.groupBy("kind", "id").agg(F.min("digest").alias("least"))
        marked = found.join(least, ["kind", "id"]).withColumn("kept", F.expr("digest = least"))
        figures = {"new": F.count_if(~F.col("old")), "lost": F.count_if(~F.col("kept"))}
        figures |= {name: F.count_if(F.col("kind") == name) for name in MARKS}
        twice, told = self._observed(marked.drop("least"), self._work / "twice", **figures)
        self._record.contents += told["new"]
        if told["lost"]:
            raw = F.substring(F.coalesce(*map(F.to_json, MARKS)), 1, SHOWN).alias("raw")
            lost = twice.where("NOT kept")
            self._stage(lost.select("kind", "id", "key", "digest", "file", raw), LOST)
        return twice, Counter(told)

    def _place(self, name: str) -> Sql:
        """Where a line that is held stands."""
        there = (self._work / name / f"_part={_HELD}").is_dir()
        where = "xxhash64(_metadata.file_path, _metadata.row_index)"
        return f"{where if there else 'CAST(NULL AS bigint)'} AS place"

    def _met(self, suspects: DataFrame, held: DataFrame) -> Mapping[str, set[str]]:
        """Of what kinds and days lines were kept before that may have an id of these."""
        mine = suspects.join(held.select("key").distinct(), "key", "left_semi")
        was = mine.select(F.inline("was")).where("day IS NOT NULL").select("kind", "day").distinct()
        found: dict[str, set[str]] = {}
        for row in was.collect():
            found.setdefault(row["kind"], set()).add(str(row["day"]))
        return found

    def _keep(self, name: str, main: str, late: int, twice: DataFrame | None) -> None:
        """New lines beside those of their days. Written anew are days that lose one, and those of
        too many small files."""
        staged, first = self._staged / name, self._work / "first" / f"_part={_KEPT}"
        if name == main and first.is_dir():
            first.rename(staged)
        anew = {path.name[4:] for path in (self._out / name).glob("day=*") if _many(path)}
        more, lost = [], None
        if late:
            more.append(self._flat(self._rest(_KEPT).where(F.col("kind") == name), name))
        if twice is not None:
            mine = twice.where(F.col("kind") == name)
            more.append(self._flat(mine.where("kept AND NOT old"), name))
            if self._state.now.contents:
                lost = mine.where("old AND NOT kept").select("id", "day")
                anew |= {str(row["day"]) for row in lost.select("day").distinct().collect()}
        if anew:
            old = self._of_days(name, anew)
            if lost is not None:
                old = old.join(F.broadcast(lost.select("id")), "id", "left_anti")
            more.append(old)
        if more:
            rows = reduce(DataFrame.unionByName, more).hint("rebalance", F.col("day"))
            rows.write.mode("append").partitionBy("day").parquet(str(staged))
        written = {path.name[4:] for path in staged.glob("day=*")}
        for day in anew - written:
            (staged / f"day={day}").mkdir(parents=True)
        self._replaced |= {f"{name}/day={day}" for day in anew}
        number, days = self._state.now.number + 1, {**self._record.days.get(name, {})}
        for day in written:
            days[day] = (number, number if day in anew else days.get(day, (0, 0))[1])
        days = {day: of for day, of in days.items() if day not in anew - written}
        if days:
            self._record.days[name] = days

    def _first(self, part: str, kind: str = "") -> DataFrame:
        """What `_as_written` has put into this part."""
        more = f", {ddl(columns(kind))}" if kind else ""
        return self._stored(self._work / "first" / f"_part={part}", HIDDEN + more)

    def _rest(self, part: str) -> DataFrame:
        """What `_in_detail` has put there."""
        return self._stored(self._work / "rest" / f"_part={part}", f"{LINES}, key bigint")

    def _nested(self, lines: DataFrame, name: str, *more: str) -> DataFrame:
        """Rows of OUT/NAME -> kind, id, digest, key, file, and for each contract a struct, which is
        null but for `name`."""
        fields = ", ".join(f"`{each}`" for each in columns(name).names)
        structs = (
            f"struct({fields}) AS {name}"
            if each == name
            else f"CAST(NULL AS {columns(each).simpleString()}) AS {each}"
            for each in MARKS
        )
        return lines.selectExpr(f"'{name}' AS kind", "id", _DIGEST, _KEY, _LINK, *structs, *more)

    def _flat(self, lines: DataFrame, name: str) -> DataFrame:
        """Structs of contract `name` -> rows of OUT/NAME, with their day."""
        hidden = (
            "file AS _file", "CAST(NULL AS bigint) AS _size", "key AS _key", "digest AS _digest",
            "CAST(NULL AS string) AS _raw",
        )  # fmt: skip
        day = _day(name, f"{name}.").alias("day")
        return lines.select(f"{name}.*", *map(F.expr, hidden), day)

    def _of_days(self, name: str, days: Collection[str]) -> DataFrame:
        """Lines of these days that were kept before."""
        lines = self._stored(self._out / name, _all(name))
        return lines.where(F.col("day").isin([date.fromisoformat(day) for day in sorted(days)]))

    def _stood(self, name: str) -> DataFrame:
        """Of the state, as the last change has left it."""
        return self._stored(self._out / name, TABLES[name])

    def _stage(self, frame: DataFrame, name: str) -> None:
        self._write(frame, self._staged / name)

    def _observed(
        self, frame: DataFrame, folder: Path, *by: str, **figures: Column
    ) -> tuple[DataFrame, dict[str, int]]:
        """Write it, and figures of its rows, told on the way: another query would cost as much as a
        small write."""
        told = Observation()
        self._write(
            frame.observe(told, *(one.alias(name) for name, one in figures.items())), folder, *by
        )
        found = {name: int(told.get[name] or 0) for name in figures}
        return self._stored(folder, frame.schema), found

    def _write(self, frame: DataFrame, folder: Path, *by: str) -> None:
        writer = frame.write.mode("overwrite").partitionBy(*by)
        # Of what differs in each row Parquet would make a dictionary, and throw it away.
        writer = writer.options(
            **{f"parquet.enable.dictionary#{each}": "false" for each in _UNLIKE}
        )
        writer.parquet(str(folder))

    def _stored(self, folder: Path, schema: str | T.StructType) -> DataFrame:
        return stored(self._spark, folder, schema)


def _part(good: Sql, otherwise: str, text: Sql) -> Sql:
    """Of a marked line: to keep, to hold until all of its id are there, or one that was read
    before; `otherwise` if it is not good."""
    return (
        f"CASE WHEN NOT ({good}) THEN '{otherwise}' WHEN was IS NULL THEN '{_KEPT}' "
        f"WHEN exists(was, one -> one.digest = {text}) THEN '{_REPEATED}' ELSE '{_HELD}' END "
        "AS _part"
    )


def _small(frame: DataFrame, rows: int) -> DataFrame:
    """With so many rows, about: where they are few, what they are joined with is not moved."""
    return F.broadcast(frame) if rows <= _BROADCAST else frame


def _many(folder: Path) -> bool:
    files = [path for path in folder.glob("*.parquet") if path.name[0] not in "._"]
    return len(files) >= _FILES and sum(path.stat().st_size < _SMALL for path in files) >= _FILES


def _day(name: str, of: str = "") -> Column:
    at = f"{of}at_ms"
    if "minute_ms" in columns(name).names:
        at = f"coalesce({of}minute_ms, {at})"
    return F.expr(f"to_date({instant_of(at)})")


def _all(name: str) -> str:
    """All that OUT/NAME has."""
    return f"{ddl(columns(name))}, {HIDDEN}, day date"
