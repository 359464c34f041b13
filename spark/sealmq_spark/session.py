"""The SparkSession that the programs and the tests use: quiet, UTC, without a web server."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

LOCAL = "local[2]"


def session(master: str = LOCAL, name: str = "sealmq", scratch: Path | None = None) -> SparkSession:
    """A new session, or the one of this process. scratch: where Spark writes what it spills.

    Java 17 has to be there; with another `--master` the workers need this package as well.
    """
    builder = (
        SparkSession.builder.master(master)
        .appName(name)
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.sources.partitionOverwriteMode", "dynamic")
        # Small sites: hundreds of near-empty tasks would cost more than the work.
        .config("spark.sql.shuffle.partitions", "4")
    )
    if master.startswith("local"):
        builder = builder.config("spark.driver.bindAddress", "127.0.0.1").config(
            "spark.driver.host", "127.0.0.1"
        )
    if scratch is not None:
        builder = builder.config("spark.local.dir", str(scratch)).config(
            "spark.sql.warehouse.dir", str(scratch / "warehouse")
        )
    made = builder.getOrCreate()
    made.sparkContext.setLogLevel("ERROR")
    return made
