"""Who got what for which purpose: the sums, and that they are those of the officer's report."""

from __future__ import annotations

import shutil
from collections import defaultdict
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import officer_scene
from audit_table import LAST, LATEST_MS, NOON, OTHER_SITE, SITE, record, rows, table
from running_site import Site
from sealmq_spark.contracts import columns
from sealmq_spark.measures.columns import MOST
from sealmq_spark.measures.disclosures import daily, disclosures

NAMES = ["site", "topic", "client", "policy_id", "purpose", "under", "first", "last", "count"]


def test_who_got_what(spark: SparkSession) -> None:
    def minute(n: int) -> datetime:
        return NOON + timedelta(minutes=n)

    plain: dict[str, Any] = {"client": "panel", "topic": "a/b", "label": "low"}
    care = plain | {"purpose": "care", "under": "a/#"}
    bill = plain | {"purpose": "billing", "under": "a/b"}
    records = [
        # Out of order; a minute that was written in two parts; two mediators.
        record("delivered", minute(7), **care, count=2),
        record("delivered", minute(3), **care, count=1),
        record("delivered", minute(3), **care, count=10, inst=2),
        record("delivered", minute(5000), **care, count=4),
        # Another label of the same topic is the same disclosure; all else is not.
        record("delivered", minute(8), **care | {"label": "high"}, count=100),
        record("delivered", minute(1), **bill, count=1),
        record("delivered", minute(2), **care | {"under": "a/b"}, count=2),
        record("delivered", minute(3), **care | {"client": "pump"}, count=3),
        record("delivered", minute(4), **care | {"topic": "a/c"}, count=4),
        record("delivered", minute(5), **care, site=OTHER_SITE, count=5),
        # No purpose is asked for there.
        record("delivered", minute(6), **plain, count=6),
        record("delivered", minute(9), **plain, count=6),
        record("delivered", **plain | {"topic": "late"}, count=1)
        | {"minute_ms": LATEST_MS // 60_000 * 60_000},
        # Nobody got these, or not by this table.
        record("deliver-denied", **plain, rule="purposes.deliver.no-purpose", count=50),
        record("publish-accepted", **plain, count=50),
        record("unenforced", client="panel", topic="a/b", rule="r", question="deliver", count=50),
    ]
    beyond = [
        *(record("delivered", minute(n), **plain | {"client": "z"}, count=MOST) for n in (1, 2))
    ]
    found = disclosures(daily(table(spark, records, beyond)))
    assert found.columns == NAMES
    assert rows(found) == sorted(
        [
            (SITE, "a/b", "panel", "", "care", "a/#", minute(3), minute(5000), 117),
            (SITE, "a/b", "panel", "", "billing", "a/b", minute(1), minute(1), 1),
            (SITE, "a/b", "panel", "", "care", "a/b", minute(2), minute(2), 2),
            (SITE, "a/b", "pump", "", "care", "a/#", minute(3), minute(3), 3),
            (SITE, "a/c", "panel", "", "care", "a/#", minute(4), minute(4), 4),
            (OTHER_SITE, "a/b", "panel", "", "care", "a/#", minute(5), minute(5), 5),
            (SITE, "a/b", "panel", "", "", "", minute(6), minute(9), 12),
            (SITE, "a/b", "z", "", "", "", minute(1), minute(2), MOST),
            (SITE, "late", "panel", "", "", "", LAST, LAST, 1),
        ]
    )


Sums = dict[tuple[str, ...], tuple[datetime, datetime, int]]


def reported(path: Path, topic: str) -> Sums:
    """topic, client, purpose, under -> first, last, count, as `sealmq purposes report` has it.

    It also tells apart who had made the reservation, the table does not.
    """
    parts: dict[tuple[str, ...], list[dict[str, Any]]] = defaultdict(list)
    for row in officer_scene.report(path, topic):
        [of] = row["topics"]
        parts[of, row["client"], row["purpose"], row["under"]].append(row)
    return {
        key: (
            instant(min(row["first_ms"] for row in same)),
            instant(max(row["last_ms"] for row in same)),
            sum(row["count"] for row in same),
        )
        for key, same in parts.items()
    }


def instant(at_ms: int) -> datetime:
    return datetime.fromtimestamp(at_ms / 1000, UTC)


def of_the_log(spark: SparkSession, folder: Path, topic: str) -> Sums:
    audit = spark.read.schema(columns("audit")).json(str(folder))
    found = rows(disclosures(daily(audit)).where(f"topic like '{topic.replace('#', '%')}'"))
    assert len({row[0] for row in found}) == 1
    assert {row[3] for row in found} == {""}  # no such policy judges there
    return {row[1:3] + row[4:6]: row[6:] for row in found}


def test_a_recorded_log_says_what_the_officer_is_told(spark: SparkSession, tmp_path: Path) -> None:
    """Three minutes of a real gateway (see officer_scene), put under a new site."""
    site = Site(tmp_path, policy="purposes").path
    shutil.copytree(officer_scene.RECORDED, site / "audit/mediator", dirs_exist_ok=True)
    said = reported(site, "#")
    assert of_the_log(spark, site / "audit/mediator", "#") == said
    assert {(key[2], key[3]): row[2] for key, row in said.items() if key[0].count("1")} == {
        ("maintenance", "machine/#"): 9,
        ("energy", officer_scene.TEMPERATURE): 3,
    }
    assert any(first < last for first, last, _ in said.values())


@pytest.mark.full
def test_a_real_gateways_log_says_what_the_officer_is_told(
    spark: SparkSession, tmp_path: Path
) -> None:
    site = Site(tmp_path, policy="purposes")
    try:
        site.up()
        officer_scene.play(site, tmp_path)
    finally:
        site.down()
    for topic in ("#", "machine/1/#"):
        said = reported(site.path, topic)
        assert len(said) >= 2
        assert of_the_log(spark, site.path / "audit/mediator", topic) == said
