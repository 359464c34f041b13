"""One SparkSession for the whole suite."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from sealmq_spark.session import session

# Commands that tests start use one archive of Java's classes, and leave that of the user alone.
os.environ["XDG_CACHE_HOME"] = str(Path(__file__).resolve().parents[2] / "build" / "cache")


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    made = session(scratch=tmp_path_factory.mktemp("spark"), small=True)
    yield made
    made.stop()
