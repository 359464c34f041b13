"""The least Spark job over the same lines, beside which a report's cost is told: the child of
scale.py. It keeps each audit line once, as Parquet, and makes two tables; it judges, quarantines
and explains nothing. --read: it only starts and reads them. Prints one object.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from scale_run import Java

from sealmq_spark.contracts import columns

HOUR_MS = 3_600_000
FIELDS = (
    "v", "id", "at_ms", "site", "role", "inst", "event", "client", "topic", "label", "purpose",
    "under", "rule", "reason", "count", "minute_ms",
)  # fmt: skip


def run(given: argparse.Namespace) -> dict[str, Any]:
    """How many lines there were, and the CPU of Java and Python from their start on, in seconds."""
    out: Path = given.out
    spark = _session(given)
    java = Java(spark)
    fields = ", ".join(
        f"{name} {columns('audit')[name].dataType.simpleString()}" for name in FIELDS
    )
    lines = spark.read.schema(fields).json(str(given.logs), recursiveFileLookup=True)
    if given.read:
        (counted,) = lines.agg(F.count("id")).collect()
        return {"lines": counted[0], "cpu": java.used().cpu}
    lines.dropDuplicates(["id"]).write.parquet(str(out / "audit"))
    audit = spark.read.parquet(str(out / "audit"))
    many = F.sum(F.coalesce("count", F.lit(1))).alias("count")
    hour = F.floor(F.col("at_ms") / HOUR_MS).alias("hour")
    decided = audit.groupBy(hour, "event", "rule", "label", "client").agg(many)
    decided.write.parquet(str(out / "decisions"))
    given_out = audit.where("event = 'delivered'").groupBy("topic", "purpose", "client", "under")
    ends = (F.min("at_ms").alias("first"), F.max("at_ms").alias("last"))
    given_out.agg(*ends, many).write.parquet(str(out / "disclosures"))
    found = {"cpu": java.used().cpu}
    return {"lines": audit.count(), **found}


def _session(given: argparse.Namespace) -> SparkSession:
    """As anybody begins one, without what a report's session knows to spare."""
    made = (
        SparkSession.builder.master(given.master)
        .appName("sealmq bench plain")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.memory", given.memory)
        .config("spark.local.dir", str(given.scratch))
        .config("spark.sql.shuffle.partitions", "4")
        .getOrCreate()
    )
    made.sparkContext.setLogLevel("ERROR")
    return made


def main() -> int:
    """Command line entry; nothing but scale.py calls it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    for name in ("logs", "out", "scratch"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    parser.add_argument("--master", required=True)
    parser.add_argument("--memory", required=True)
    parser.add_argument("--read", action="store_true")
    print(json.dumps(run(parser.parse_args())))
    return 0


if __name__ == "__main__":
    sys.exit(main())
