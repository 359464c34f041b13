"""Sites are shown by the names that their processes say at their start."""

from __future__ import annotations

from datetime import timedelta

from pyspark.sql import SparkSession

from audit_table import NOON, record, table
from sealmq_spark.measures.hourly import hourly, site_names


def test_a_site_has_its_newest_name_and_its_number_where_it_has_none_or_a_namesake(
    spark: SparkSession,
) -> None:
    later = NOON + timedelta(hours=1)
    records = [
        record("start", site="000000aa", name="old"),
        record("start", at=later, site="000000aa", name="factory"),
        record("start", at=later + timedelta(hours=1), site="000000aa"),
        record("start", site="000000bb"),
        record("start", site="000000cc", name="lab"),
        record("stop", site="000000dd"),
        record("start", site="000000dd", name="lab"),
    ]
    found = hourly(table(spark, records))
    assert site_names(found, found) == {
        "000000aa": "factory",
        "000000bb": "000000bb",
        "000000cc": "lab (000000cc)",
        "000000dd": "lab (000000dd)",
    }


def test_of_some_days_a_site_has_the_name_that_it_said_before_them(spark: SparkSession) -> None:
    """A process says it at its start alone, and may run for months."""
    before = [record("start", site="000000aa", name="factory"), record("start", site="000000bb")]
    after = [record("stop", at=NOON + timedelta(days=40), site="000000aa")]
    some, every = (hourly(table(spark, lines)) for lines in (after, before + after))
    assert site_names(some, every) == {"000000aa": "factory"}


def test_of_two_names_at_once_it_is_the_same_one_in_any_order(spark: SparkSession) -> None:
    both = [record("start", site="000000aa", name=name) for name in ("factory", "lab")]
    both.append(record("start", at=NOON + timedelta(hours=1), site="000000aa"))
    for lines in (both, both[::-1]):
        found = hourly(table(spark, lines))
        assert site_names(found, found) == {"000000aa": "lab"}
