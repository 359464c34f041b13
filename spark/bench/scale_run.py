"""One report in a process of its own, and what it cost: the child of scale.py. Prints one object.

Java's start stands apart. Times are of the wall and of the processor: Java's threads and ours. In
`local[N]` Java is driver and executor at once; with another master it is the driver alone.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from sealmq_spark import java as java_program
from sealmq_spark import job, progress
from sealmq_spark.classes import Archive
from sealmq_spark.measures.decisions import decisions
from sealmq_spark.measures.disclosures import daily, disclosures
from sealmq_spark.session import end, session

MEASURES: dict[str, Callable[[DataFrame], DataFrame]] = {
    "decisions": decisions,
    "disclosures": lambda audit: disclosures(daily(audit)),
}
LOGS = ("audit", "hil", "nonce", "bench")
FORMATS = ("parquet", "json")
TURNS = 4
"""Of which the first warms up."""
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Used:
    """What a process has used until now. read, written: bytes, through system calls."""

    wall: float
    cpu: float
    read: int
    written: int

    def since(self, before: Used) -> dict[str, float]:
        """What was used between the two."""
        return {
            "seconds": self.wall - before.wall,
            "cpu": self.cpu - before.cpu,
            "read": self.read - before.read,
            "written": self.written - before.written,
        }


class Java:
    """The process in which Spark runs."""

    def __init__(self, spark: SparkSession) -> None:
        self.pid = int(spark._jvm.java.lang.ProcessHandle.current().pid())  # type: ignore[union-attr]

    def used(self) -> Used:
        """Until now; the processor time is Java's and this process's."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        io = _fields(f"/proc/{self.pid}/io")
        cpu = (int(fields[11]) + int(fields[12])) / _TICKS + time.process_time()
        return Used(time.monotonic(), cpu, io["rchar"], io["wchar"])

    def peak(self) -> int:
        """Bytes of memory that it had at most."""
        return _peak(self.pid)


def _fields(path: str) -> dict[str, int]:
    pairs = (line.split(":") for line in Path(path).read_text().splitlines())
    return {name: int(value.split()[0]) for name, value in pairs if value.split()[0].isdigit()}


def _peak(pid: int | str) -> int:
    status = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in status if line.startswith("VmHWM:"))


def checksum(frame: DataFrame) -> dict[str, Any]:
    """Rows, and the sum of their hashes over all columns but those that are the report's own: the
    order of rows has no say."""
    fields = [field for field in frame.schema if field.name[0] != "_"]
    hashed = frame.select(F.xxhash64(*map(_plain, fields)).cast("decimal(20,0)").alias("h"))
    found = hashed.agg(F.count("*").alias("rows"), F.sum("h").alias("sum")).first()
    return {"rows": int(found["rows"]), "sum": str(found["sum"] or 0)} if found else {}


def _plain(field: T.StructField) -> Column:
    column = F.col(field.name)
    if isinstance(field.dataType, T.MapType):
        return F.to_json(F.sort_array(F.map_entries(column)))
    return column


def counted(spark: SparkSession, out: Path) -> dict[str, Any]:
    """What a report says that the generator knows as well: by event, by rule, by topic."""
    audit = spark.read.parquet(str(out / "audit"))
    events = audit.groupBy("event").count().collect()
    topics = audit.where("event = 'delivered'").select("topic").distinct().count()
    summed = spark.read.parquet(str(out / "tables" / "decisions"))
    by_rule = summed.groupBy("question", "allowed", "rule").agg(F.sum("count").alias("count"))
    let_through = spark.read.parquet(str(out / "tables" / "unenforced"))
    return {
        "events": {row["event"]: row["count"] for row in events},
        "topics": topics,
        "decisions": [
            [row["question"], row["allowed"], row["rule"], row["count"]]
            for row in by_rule.collect()
        ],
        "unenforced": int((let_through.agg(F.sum("count")).first() or [0])[0] or 0),
    }


def formats(spark: SparkSession, java: Java, out: Path, copy: Path) -> list[dict[str, Any]]:
    """Each measure over the same records as Parquet and as JSON lines: turn about."""
    audit = spark.read.parquet(str(out / "audit"))
    audit.write.mode("overwrite").option("compression", "none").json(str(copy))
    read: dict[str, DataFrame] = {
        "parquet": spark.read.schema(audit.schema).parquet(str(out / "audit")),
        "json": spark.read.schema(audit.schema).json(str(copy)),
    }
    found: list[dict[str, Any]] = []
    for turn in range(TURNS):
        for measure, make in MEASURES.items():
            for name in FORMATS[:: 1 if turn % 2 else -1]:
                before = java.used()
                told = checksum(make(read[name]))
                used = java.used().since(before)
                if turn:
                    found.append({"measure": measure, "format": name, "told": told, **used})
    sizes = {"parquet": _bytes(out / "audit"), "json": _bytes(copy)}
    return [{**each, "bytes": sizes[each["format"]]} for each in found]


def _bytes(folder: Path) -> int:
    # The report's links to the logs do not count, and a file with two names counts once.
    held = (path.lstat() for path in folder.rglob("*") if path.is_file())
    return sum({each.st_ino: each.st_size for each in held}.values())


def run(given: argparse.Namespace) -> dict[str, Any]:
    """The report, and what was asked for beside."""
    out: Path = given.out
    out.mkdir(parents=True, exist_ok=True)
    classes = Archive(java_program.found())
    began = time.monotonic()
    spark = session(
        given.master,
        "sealmq bench",
        given.scratch,
        memory=given.memory,
        small=job.small(given.logs, out, given.master),
        log=given.scratch / "spark.log",
        classes=classes.option(),
    )
    started = time.monotonic() - began
    java = Java(spark)
    before = java.used()
    steps = progress.Steps()
    outcome = job.run(spark, given.logs, out, steps)
    found: dict[str, Any] = {
        "start": started,
        **java.used().since(before),
        "whole": java.used().cpu,
        "steps": steps.seconds,
        "java": java.peak(),
        "python": _peak("self"),
        "summary": outcome.summary,
        "kept": {name: _bytes(out / name) for name in (*LOGS, "tables/")},
        "out": _bytes(out),
    }
    if given.counts:
        found["counted"] = counted(spark, out)
    if given.checksums:
        there = (out / "tables").iterdir()
        tables = {path.name: path for path in there if path.is_dir()}
        tables |= {name: out / name for name in LOGS}
        found["checksums"] = {
            name: checksum(spark.read.parquet(str(path))) for name, path in sorted(tables.items())
        }
    if given.formats:
        found["formats"] = formats(spark, java, out, given.scratch / "copy")
    classes.keep(end(spark))
    return found


def main() -> int:
    """Command line entry; nothing but scale.py calls it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--logs", nargs="+", required=True)
    for name in ("out", "scratch"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    parser.add_argument("--master", required=True)
    parser.add_argument("--memory", required=True)
    for name in ("counts", "checksums", "formats"):
        parser.add_argument(f"--{name}", action="store_true")
    print(json.dumps(run(parser.parse_args())))
    return 0


if __name__ == "__main__":
    sys.exit(main())
