"""Tables have the columns that are declared, with rows and without."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from sealmq_spark import tables
from sealmq_spark.columns_of import columns_of, nothing, write_nothing
from sealmq_spark.settle import schemas


def test_frames_have_the_columns_that_are_declared(spark: SparkSession) -> None:
    frames = {name: nothing(spark, schema) for name, schema in schemas().items()}
    for name, table in tables._ALL.items():
        frames[name] = made = table.make(*(frames[source] for source in table.inputs))
        found = [(field.name, field.dataType) for field in made.schema]
        assert found == [(field.name, field.dataType) for field in columns_of(name)], name


@pytest.mark.parametrize("name", ["figures", "disclosures"])
def test_a_table_without_rows_can_be_read(name: str, spark: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / name
    folder.mkdir()
    write_nothing(spark, columns_of(name), folder)
    found = spark.read.parquet(str(folder))
    assert (found.schema, found.count()) == (columns_of(name), 0)
