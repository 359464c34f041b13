"""The session's ways into Java, which are shorter than py4j's own."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F


@pytest.mark.parametrize(
    "given",
    [[], ["a"], list(range(10)), list(range(11)), list(range(35)), (1, 2), [None], ["a", None]],
    ids=str,
)
def test_a_list_reaches_java_as_it_is(given: Sequence[object], spark: SparkSession) -> None:
    made = spark._jvm.java.util.ArrayList(given)  # type: ignore[union-attr]
    assert list(made) == list(given)


def test_lists_in_lists_do_too(spark: SparkSession) -> None:
    given = [list(range(12)), [1], []]
    made = spark._jvm.java.util.ArrayList(given)  # type: ignore[union-attr]
    assert [list(each) for each in made] == given


def test_a_select_of_many_columns_has_them_in_their_order(spark: SparkSession) -> None:
    """Each kind of list that a call may get: names, Columns, literals."""
    names = [f"c{n}" for n in range(33)]
    frame = spark.range(1).select(*(F.lit(n).alias(name) for n, name in enumerate(names)))
    assert frame.select(*reversed(names)).columns == names[::-1]
    [row] = frame.select(F.array(*names).alias("all"), F.col("c7").isin(*range(20))).collect()
    assert list(row) == [list(range(33)), True]
