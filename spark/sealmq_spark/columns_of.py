"""The columns of each table, and what stands in its place while it has no rows.

Declared, and not asked of the frame: a table of which nothing is new, or of whose log there is
nothing, is never planned. That the frames have them, test_tables.py says.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from .contracts import ddl, of_families

_TYPES: Mapping[str, T.DataType] = {
    "string": T.StringType(),
    "bigint": T.LongType(),
    "int": T.IntegerType(),
    "double": T.DoubleType(),
    "boolean": T.BooleanType(),
    "timestamp": T.TimestampType(),
    "params": T.MapType(T.StringType(), T.StringType()),
}
_KEPT = "of timestamp, rows bigint, began bigint, ended bigint"
_DISCLOSED = (
    "site string, topic string, client string, families, first timestamp, last timestamp, "
    "count bigint"
)
_TAIL = "{0} double, {0}_low bigint, {0}_high bigint"
_SHARE = "{0}_mean double, {0}_p10 double, {0}_median double, {0}_p90 double"
_COLUMNS: Mapping[str, str] = {
    **{f"kept_{name}": _KEPT for name in ("hil", "nonce", "simulation")},
    "hourly": "site string, hour timestamp, rows bigint, began bigint, ended bigint, name string, "
    "named_ms bigint, recorded boolean, started boolean",
    "daily": _DISCLOSED,
    "decisions": "site string, hour timestamp, question string, allowed boolean, rule string, "
    "label string, client string, count bigint",
    "hours": "site string, client string, hour timestamp, published double, delivered double, "
    "refused double",
    "by_rule": "site string, hour timestamp, question string, allowed boolean, rule string, "
    "label string, count bigint",
    "by_client": "site string, of timestamp, client string, allowed boolean, count bigint",
    "disclosures": _DISCLOSED,
    "labelling": "site string, at timestamp, topic string, event string, client string, "
    "label string, rule string",
    "refusals": "site string, hour timestamp, client string, class string, rule string, "
    "count bigint",
    "unenforced": "site string, hour timestamp, question string, rule string, client string, "
    "topic string, count bigint",
    "changed": "site string, client string, measure string, hour timestamp, hours bigint, "
    "count bigint, usual double, z double",
    "gaps": "site string, at timestamp, role string, event string, what string, count bigint",
    "stages": "kind string, behaviour string, stage string, n bigint, "
    + ", ".join(map(_TAIL.format, ("median", "p95", "p99")))
    + ", bytes double, heap double",
    "behaviours": "commit string, kind string, board string, behaviour string, passed bigint, "
    "failed bigint, skipped bigint, ms double",
    "flaky": "commit string, behaviour string, passed bigint, failed bigint, share double",
    "cuts": "behaviour string, cut_partition string, cut_op string, cuts bigint, inside bigint, "
    "between bigint, sectors int, changes int, failed bigint",
    "coverage": "behaviour string, first bigint, last bigint, possible bigint, cut int, "
    "inside int, between int, share double",
    "nonces": "key string, layer string, pairs bigint, distinct bigint, repeated bigint, "
    "again bigint",
    "reused": "key string, nonce string, layer string, board string, runs string, "
    "contents bigint, pairs bigint, first timestamp, last timestamp",
    "cost": "what string, stage string, measure string, variant string, size bigint, unit string, "
    "place string, key string, n bigint, value double, low double, high double, to_plain double, "
    "to_tls double",
    "paper": "what string, comparison string, size bigint, stage string, percent double, "
    "paper double",
    "figures": "document string, measure string, variant string, size bigint, unit string, "
    "key string, n bigint, value double, params params",
    "regressions": "source string, subject string, part string, what string, before double, "
    "now double, ratio double, measured string, against string",
    "simulations": "plan string, sites bigint, kind string, rule string, round bigint, "
    "runs bigint, at timestamp, " + ", ".join(map(_SHARE.format, ("precision", "recall", "good"))),
}


@cache
def columns_of(table: str) -> T.StructType:
    """Those of a table of tables.py, or of what tables are made of. Needs no session."""
    found = T.StructType()
    for pair in _COLUMNS[table].split(", "):
        name, _, kind = pair.partition(" ")
        for each in of_families() if name == "families" else (name,):
            found = found.add(each, _TYPES[kind or "string"])
    return found


def nothing(spark: SparkSession, columns: str | T.StructType) -> DataFrame:
    """A frame without rows. Not createDataFrame: workers of a cluster would need Python for it."""
    none = spark.range(0).select(F.from_json(F.lit("{}"), columns).alias("none"))
    return none.select("none.*")


def stored(spark: SparkSession, folder: Path, columns: str | T.StructType) -> DataFrame:
    """The Parquet files of a folder; without rows while there is none."""
    if not folder.is_dir():
        return nothing(spark, columns)
    schema = columns if isinstance(columns, str) else ddl(columns)
    return spark.read.schema(schema).parquet(str(folder))


def write_nothing(spark: SparkSession, columns: T.StructType, folder: Path) -> None:
    """A Parquet file without a row, as Spark writes one: a job of its own for each would be a
    third of what a small report costs."""
    jvm: Any = spark._jvm
    sql = "org.apache.spark.sql"
    text = columns.json()
    schema = getattr(jvm, f"{sql}.types.DataType").fromJson(text)
    parquet = f"{sql}.execution.datasources.parquet.SparkToParquetSchemaConverter"
    settings = spark._jsparkSession.sessionState().conf()
    path = getattr(jvm, "org.apache.hadoop.fs.Path")(str(folder / "part-00000.parquet"))
    hadoop = spark.sparkContext._jsc.hadoopConfiguration()
    file = getattr(jvm, "org.apache.parquet.hadoop.ParquetFileWriter")(
        hadoop, getattr(jvm, parquet)(settings).convert(schema), path
    )
    said = getattr(jvm, "java.util.HashMap")()
    said.put(f"{sql}.parquet.row.metadata", text)
    said.put("org.apache.spark.version", spark.version)
    file.start()
    file.end(said)
