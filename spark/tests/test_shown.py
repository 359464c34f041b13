"""What the page is given: few rows, whatever the tables hold, and what is left out is counted."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from page_cases import case
from sealmq_spark import page
from sealmq_spark.measures.decisions import by_client, by_rule
from sealmq_spark.shown import BUCKETS, NAMES, Span, shown

HOUR = 3_600_000
NOON = 1_800_014_400_000
DECISIONS = (
    "site string, hour timestamp, question string, allowed boolean, rule string, label string,"
    " client string, count bigint"
)


def lists(
    spark: SparkSession, span: Span, sites: dict[str, str] | None = None, **tables: Any
) -> dict[str, list[dict[str, Any]]]:
    nothing = spark.createDataFrame([], "commit string, at_ms bigint")
    bad = spark.createDataFrame([], "file string, reason string, raw string, count bigint")
    if decided := tables.get("decisions"):
        tables |= {"by_rule": by_rule(decided), "by_client": by_client(decided)}
    rows = dict.fromkeys(tables, 1)
    return shown(tables, {"hil": nothing}, tables.pop("quarantine", bad), rows, span, sites or {})


def decisions(spark: SparkSession, hours: int, clients: int) -> Any:
    """Each client c publishes c + 1 messages in each hour."""
    every = spark.range(hours).crossJoin(spark.range(clients).withColumnRenamed("id", "c"))
    return every.select(
        F.lit("aa").alias("site"),
        F.timestamp_millis(F.lit(NOON) + F.col("id") * HOUR).alias("hour"),
        F.lit("publish").alias("question"),
        F.lit(True).alias("allowed"),
        F.lit("").alias("rule"),
        F.lit("low").alias("label"),
        F.format_string("c%03d", "c").alias("client"),
        (F.col("c") + 1).alias("count"),
    )


@pytest.mark.parametrize(
    ("hours", "length"),
    [(0, 1), (300, 1), (398, 1), (399, 2), (1000, 3), (9000, 24), (10**7, 8064)],
)
def test_a_bucket_is_the_shortest_that_leaves_few_of_them(hours: int, length: int) -> None:
    assert Span(NOON, NOON + hours * HOUR).hours == length


def test_many_hours_and_clients_become_few_rows_with_the_same_sums(spark: SparkSession) -> None:
    hours, clients = 900, 40
    found = lists(
        spark,
        Span(NOON, NOON + hours * HOUR),
        decisions=decisions(spark, hours, clients),
    )
    each_hour = clients * (clients + 1) // 2
    over_time = found["decisions_time"]
    assert len(over_time) <= BUCKETS
    assert sum(row["allowed"] for row in over_time) == hours * each_hour
    assert over_time[0] == {
        "hour": "2027-01-15T12:00:00Z", "hours": 3, "allowed": 3 * each_hour, "denied": 0,
    }  # fmt: skip
    by_client = found["decisions_client"]
    assert len(by_client) == 16
    assert by_client[0] == {"client": "c039", "allowed": hours * 40, "denied": 0}
    rest = hours * sum(range(1, 26))
    assert by_client[-1] == {"client": "", "allowed": rest, "denied": 0, "others": 25}
    assert set(found) == set(NAMES)
    assert found["nonces"] == []


def test_clocks_that_were_not_set_are_counted_but_not_plotted(spark: SparkSession) -> None:
    rows = [
        ("aa", "1970-01-01 00:00:00", "publish", True, "", "low", "c", 5),
        ("aa", "2027-01-15 12:00:00", "publish", True, "", "low", "c", 7),
        ("aa", "9999-12-31 23:00:00", "publish", False, "r", "", "c", 2**63 - 1),
    ]
    text = DECISIONS.replace("timestamp", "string")
    frame = spark.createDataFrame(rows, text).withColumn("hour", F.to_timestamp("hour"))
    found = lists(spark, Span(NOON + 60_000, NOON + 120_000), decisions=frame)
    hour = {"hour": "2027-01-15T12:00:00Z", "hours": 1}
    assert found["decisions_time"] == [{**hour, "allowed": 7, "denied": 0}]
    assert found["decisions_client"] == [{"client": "c", "allowed": 12, "denied": 2**63 - 1}]


def test_gaps_are_added_up_by_what_is_missing(spark: SparkSession) -> None:
    rows = [
        ("aa", "2027-01-15 12:00:00", "mediator", "log-lost", "records", 70),
        ("aa", "2027-01-15 12:00:07", "mediator", "log-lost", "records", 1),
        ("aa", "2027-01-15 11:00:00", "kg", "log-recovered", "bytes", 0),
        ("bb", "2027-01-15 13:00:00", "mediator", "log-lost", "records", 5),
    ]
    text = "site string, at string, role string, event string, what string, count bigint"
    frame = spark.createDataFrame(rows, text).withColumn("at", F.to_timestamp("at"))
    found = lists(spark, Span(None, None), {"aa": "aa", "bb": "bb"}, gaps=frame)["gaps"]
    assert [(row["role"], row["count"], row["times"]) for row in found] == [
        ("aa: mediator", 71, 2),
        ("bb: mediator", 5, 1),
        ("aa: kg", 0, 1),
    ]
    assert (found[0]["first"], found[0]["last"]) == ("2027-01-15T12:00:00Z", "2027-01-15T12:00:07Z")
    example = json.loads((Path(__file__).with_name("data") / "shown.json").read_bytes())
    assert list(found[0]) == list(example["gaps"][0])


def test_what_went_out_without_a_purpose_is_told_however_little_it_is(spark: SparkSession) -> None:
    rows = [
        ("aa", "t", "c", "", f"p{n:02}" if n else "", "", f"2027-01-15 12:{n:02}:00", 5 + n)
        for n in range(30)
    ]
    text = ", ".join(
        f"{name} string"
        for name in ("site", "topic", "client", "policy_id", "purpose", "under", "first")
    )
    frame = spark.createDataFrame(rows, f"{text}, count bigint")
    frame = frame.withColumns({end: F.to_timestamp("first") for end in ("first", "last")})
    found = lists(spark, Span(None, None), disclosures=frame)
    by = [(row["purpose"], row["count"]) for row in found["disclosures_by_purpose"]]
    others = sum(range(6, 26))
    assert by == [*((f"p{n}", 5 + n) for n in range(29, 20, -1)), ("", 5), ("", others)]
    assert found["disclosures_by_purpose"][-1]["others"] == 20
    assert [row["purpose"] for row in found["disclosures"]][:2] == ["p29", "p28"]


def test_the_rule_that_denied_most_is_that_one_however_much_others_allowed(
    spark: SparkSession,
) -> None:
    made = [(f"allows.{n:02}", True, 1000) for n in range(25)]
    made += [(f"allows.{n:02}", False, 1 + n) for n in range(25)] + [("denies", False, 500)]
    rows = [("aa", "publish", allowed, rule, "low", "c", n) for rule, allowed, n in made]
    frame = spark.createDataFrame(rows, DECISIONS.replace(" hour timestamp,", ""))
    frame = frame.withColumn("hour", F.timestamp_millis(F.lit(NOON)))
    found = lists(spark, Span(NOON, NOON), decisions=frame)
    html = re.sub("<[^>]*>", "", page.render(case("full")[0], found))
    assert "The rule that denied most is denies (" in html
    denied = found["decisions_denied"]
    assert denied[:2] == [{"rule": "denies", "denied": 500}, {"rule": "allows.24", "denied": 25}]
    assert denied[20:] == [{"rule": "", "denied": sum(range(1, 7)), "others": 6}]


def test_names_of_several_sites_are_told_apart(spark: SparkSession) -> None:
    one = decisions(spark, 1, 1)
    both = one.unionByName(one.withColumn("site", F.lit("bb")))
    span = Span(NOON, NOON)
    sites = {"aa": "factory", "bb": "bb"}
    found = lists(spark, span, sites, decisions=both)["decisions_client"]
    assert sorted(row["client"] for row in found) == ["bb: c000", "factory: c000"]
    (merged,) = lists(spark, span, {"aa": "factory"}, decisions=both)["decisions_client"]
    assert merged["client"] == "c000"


def test_a_reason_has_three_examples_at_most(spark: SparkSession, tmp_path: Path) -> None:
    bad = [(f"f{n}", "why", f"raw{n}", 1) for n in range(9)] + [("g", "other", "x", 20)]
    frame = spark.createDataFrame(bad, "file string, reason string, raw string, count bigint")
    found = lists(spark, Span(None, None), quarantine=frame)["quarantine"]
    assert [(row["reason"], row["count"], len(row["examples"])) for row in found] == [
        ("other", 20, 1),
        ("why", 9, 3),
    ]
    assert found[1]["examples"][0] == {"file": "f0", "raw": "raw0"}
