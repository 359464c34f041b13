"""One SparkSession for the whole suite."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from sealmq_spark.session import session


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    made = session(scratch=tmp_path_factory.mktemp("spark"), small=True)
    yield made
    made.stop()
