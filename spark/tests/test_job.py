"""A whole report over logs that can be counted by hand (small_logs.py): everything it writes."""

from __future__ import annotations

import json
import os
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from pyspark.sql import SparkSession

import small_logs
from sealmq_spark import job, tables
from sealmq_spark.found import files
from sealmq_spark.ingest import PACKED, unread
from sealmq_spark.job import Outcome
from sealmq_spark.page import Live, render
from sealmq_spark.session import LOCAL, SMALL
from sealmq_spark.shown import NAMES
from sealmq_spark.tables import Days

HERE = Path(__file__).resolve().parent
SCHEMA: dict[str, Any] = json.loads(
    (HERE.parents[1] / "shared_spec" / "report.schema.json").read_bytes()
)
DAY = date(2025, 1, 15)
# Audit: 14 records, two of which come again. Rig: 2 runs of 5 lines. 5 nonces. 3 rows of a bench.
# 3 lines that are none. Of other days, which are not reported: three of the audit, one of each of
# the others.
LINES = 14 + 2 + 10 + 5 + 3 + 3 + 5
HEADLINE = {
    # connects 2, published 10 + 5, delivered 8 + 2, a topic reset is no decision
    "allowed": 27,
    # connect, publish and packet refused, 3 deliveries withheld
    "denied": 6,
    "disclosed": 10,
    "labelled": 1,
    "forged": 1,
    "old_keys": 0,
    "replayed": 1,
    "too_old": 0,
    "malformed": 0,
    "unenforced": 4,
    "changed": 0,
    # two boards in each run, and the newer one fails
    "passed": 2,
    "failed": 2,
    "skipped": 0,
    # passed and failed, but not on the same commit
    "flaky": 0,
    "cuts": 2,
    "nonces": 3,
    "nonces_repeated": 1,
}


Lists = dict[str, list[dict[str, Any]]]
_shown: Lists = {}


def _kept(summary: dict[str, Any], shown: Lists, live: Live | None) -> str:
    _shown.update(shown)
    return render(summary, shown, live)


@pytest.fixture(scope="module")
def made(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> tuple[Outcome, Path]:
    """One report for all tests here: it takes its time. It is of one day, of which all is that
    small_logs.py has. What the page got stands in _shown."""
    folder = tmp_path_factory.mktemp("job")
    logs = small_logs.write(folder / "logs", worse=True, twice=True)
    (logs / "audit" / "mediator-1-1800000000000-9.jsonl").write_text(
        small_logs.text(_of_other_days())
    )
    out = folder / "out"
    out.mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(job, "render", _kept)
        return job.run(spark, [str(logs)], out, days=Days(DAY, DAY)), out


def _of_other_days() -> list[dict[str, Any]]:
    """Reported, each would be seen: a refusal more, a board that fails, a nonce used twice. A start
    says the site's name, which it has on all days."""
    start = {**small_logs.audit()[0], "name": "factory"}
    refusal = next(line for line in small_logs.audit() if line["event"] == "publish-refused")
    verdict = small_logs.rig(worse=True)[-2]
    nonce = small_logs.nonces(twice=True)[-1]
    found = []
    for number, (line, days) in enumerate(
        ((start, -1), (refusal, -1), (refusal, 1), (verdict, 1), (nonce, -1)), 90
    ):
        at = line["at_ms"] + days * 24 * small_logs.HOUR
        found.append({**line, "id": line["id"].rpartition("-")[0] + f"-{number}", "at_ms": at})
    found[-1] |= {"id": small_logs.RUN_NEW + "-n90", "digest": "d9" * 16}
    return found


def test_the_summary_has_what_was_counted_by_hand(made: tuple[Outcome, Path]) -> None:
    outcome, out = made
    summary = json.loads((out / "summary.json").read_bytes())
    assert summary == outcome.summary
    jsonschema.Draft202012Validator(SCHEMA).validate(summary)
    assert summary["lines"] == LINES
    assert summary["kept"] == {"audit": 14, "hil": 10, "nonce": 5, "bench": 3}
    assert summary["sites"] == {small_logs.SITE: "factory"}
    assert summary["repeated"] == 2
    assert summary["quarantined"] == 3
    assert list(summary["reasons"].values()) == [2, 1]
    assert next(iter(summary["reasons"])) == "no JSON object"
    assert (summary["began"], summary["ended"]) == ("2025-01-15T12:00:00Z", "2025-01-15T13:00:00Z")
    regressions = summary["headline"].pop("regressions")
    assert summary["headline"] == HEADLINE
    assert regressions == summary["tables"]["regressions"] > 0


def test_a_regression_and_a_nonce_used_twice_are_exit_code_1(made: tuple[Outcome, Path]) -> None:
    outcome, _ = made
    assert outcome.exit_code == outcome.summary["exit"] == 1
    why = outcome.summary["why"]
    assert any(text.startswith("the rig: publish, verdict: fails") for text in why), why
    assert "nonces: 1 used twice under the key l1 client=1 gen=1" in why


def test_every_table_is_parquet_with_the_rows_that_the_summary_says(
    spark: SparkSession, made: tuple[Outcome, Path]
) -> None:
    outcome, out = made
    assert (out / "tables").is_symlink()
    assert [path.name for path in out.glob(".tables-*")] == [(out / "tables").resolve().name]
    assert set(outcome.summary["tables"]) == set(tables.TABLES)
    names = {path.name for path in (out / "tables").iterdir() if path.name[0] != "."}
    assert names == set(tables.TABLES)
    for name in ("decisions", "disclosures", "changed", "cost"):
        rows = spark.read.parquet(str(out / "tables" / name)).count()
        assert rows == outcome.summary["tables"][name], name
    days = {path.name for path in (out / "tables" / "decisions").glob("day=*")}
    assert days == {"day=2025-01-15"}


def test_the_page_holds_what_was_found(made: tuple[Outcome, Path]) -> None:
    _, out = made
    page = (out / "report.html").read_text().replace("<wbr>", "")
    for text in ("machine/1/temperature", "panel", "service", "labels.below", "no JSON object"):
        assert text in page, text


def test_the_pages_example_has_the_lists_and_columns_of_a_report(
    made: tuple[Outcome, Path],
) -> None:
    """With that example the page is tried, in browsers and without Spark."""
    example = json.loads((HERE / "data" / "shown.json").read_bytes())
    assert set(example) == set(_shown) == set(NAMES)
    for name, rows in _shown.items():
        if rows and example[name]:
            assert set(rows[0]) == set(example[name][0]), name
    with_rows = {name for name, rows in _shown.items() if rows}
    # Two hours are no history, two cuts no coverage, the bench measured nothing of the paper, and
    # no log has a gap (test_shown.py). Nothing was simulated (test_simulations.py).
    without = {"changed", "flaky", "paper", "coverage", "gaps", "simulations"}
    assert set(NAMES) - with_rows <= without


def test_the_page_gets_what_was_counted_by_hand(made: tuple[Outcome, Path]) -> None:
    hour = {"hours": 1}
    assert _shown["decisions_time"] == [
        {"hour": "2025-01-15T12:00:00Z", **hour, "allowed": 20, "denied": 6},
        {"hour": "2025-01-15T13:00:00Z", **hour, "allowed": 7, "denied": 0},
    ]
    eve = {"client": "eve", "allowed": 0, "denied": 4}
    assert eve in _shown["decisions_client"]
    assert _shown["disclosures_by_purpose"] == [
        {"purpose": "service", "count": 8},
        {"purpose": "", "count": 2},
    ]
    refused = {(row["client"], row["class"], row["count"]) for row in _shown["refusals"]}
    assert refused == {("m1-sensor", "replayed", 1), ("", "forged", 1)}
    to = {row["variant"]: (row["to_plain"], row["to_tls"]) for row in _shown["cost"]}
    assert to == {"plain": (1.0, 0.5), "tls13-ecdsa": (2.0, 1.0), "sealmq-ccm": (1.2, 0.6)}
    (bad,) = (row for row in _shown["quarantine"] if row["reason"] == "no JSON object")
    assert [each["raw"] for each in bad["examples"]] == ["nor this", "not json"]


def test_of_other_days_nothing_is_reported_and_all_is_kept(
    spark: SparkSession, made: tuple[Outcome, Path]
) -> None:
    """That none of it is in the report, the figures above say."""
    outcome, out = made
    assert (outcome.summary["since"], outcome.summary["until"]) == ("2025-01-15", "2025-01-15")
    audit = spark.read.parquet(str(out / "audit"))
    before, after = DAY - timedelta(days=1), DAY + timedelta(days=1)
    wanted = (
        (Days(), 17),
        (Days(since=DAY), 15),
        (Days(until=before), 2),
        (Days(before, after), 17),
    )
    assert [days.of(audit).count() for days, _ in wanted] == [count for _, count in wanted]
    for name, count in (("hil", 11), ("nonce", 6)):
        assert spark.read.parquet(str(out / name)).count() == count


@pytest.mark.full
def test_a_report_of_days_of_which_there_is_nothing(spark: SparkSession, tmp_path: Path) -> None:
    logs, out = small_logs.write(tmp_path / "logs"), tmp_path / "out"
    out.mkdir()
    after = job.run(spark, [str(logs)], out, days=Days(since=DAY + timedelta(days=1))).summary
    jsonschema.Draft202012Validator(SCHEMA).validate(after)
    assert (after["since"], after.get("until")) == ("2025-01-16", None)
    assert after["kept"] == {"audit": 0, "hil": 0, "nonce": 0, "bench": 3}
    assert (after["headline"]["allowed"], after["began"]) == (None, None)
    assert {name for name, rows in after["tables"].items() if rows} <= {"cost", "paper", "figures"}


def test_what_is_new_says_whether_a_report_is_small(tmp_path: Path) -> None:
    """However much was read before. Sparse files; nobody reads them here."""
    logs, out = tmp_path / "logs", tmp_path / "out"
    links, summary = out / "ingest" / "links", out / "summary.json"
    for folder in (logs, links, out / "days", out / "audit", out / "hil"):
        folder.mkdir(parents=True)

    def small(master: str | None = LOCAL) -> bool:
        return job.small([str(logs)], out, master)

    def sized(path: Path, size: int) -> None:
        path.touch()
        os.truncate(path, size)

    def read() -> None:
        """As a report leaves it."""
        for file in files([str(logs)], out):
            if not os.path.lexists(links / file.name):
                (links / file.name).symlink_to(file.path)

    def ended() -> None:
        summary.write_text("{}")
        (out / "days" / "code").write_text(tables._code())

    sized(logs / "old.jsonl", SMALL - 1)
    assert small()
    assert not small("spark://one:7077")
    assert not small(None)
    sized(logs / "old.jsonl", 10 * SMALL)
    assert not small()
    read()
    assert not small(), "one that was killed has not looked at it"
    ended()
    assert small()
    sized(logs / "new.jsonl", SMALL - 1000)
    sized(out / "audit" / "part.parquet", SMALL)
    assert small()
    sized(out / "days" / "part.parquet", SMALL // 4)
    assert not small(), "tables of all days are made of these"
    (out / "days" / "part.parquet").unlink()
    sized(logs / "new.jsonl.gz", 100)
    assert not small()
    read()
    assert not small(), "nor this one"
    ended()
    assert small()
    sized(out / "hil" / "part.parquet", SMALL // 4)
    assert not small(), "tables are of the whole log of the rig"
    sized(out / "hil" / "part.parquet", SMALL // 5)
    assert small()
    (out / "days" / "code").write_text("of another SealMQ")
    assert not small(), "it makes all tables anew"


@pytest.mark.full
def test_what_a_report_has_read_is_not_new(spark: SparkSession, tmp_path: Path) -> None:
    logs, out = small_logs.write(tmp_path / "logs"), tmp_path / "out"
    (logs / "other.json").write_text("{}")
    out.mkdir()
    there = list(files([str(logs)], out))
    packed = sum(file.bytes for file in there if file.name.endswith(".gz"))
    plain = sum(file.bytes for file in there) - packed
    assert unread([str(logs)], out) == plain + PACKED * packed > plain > 0
    job.run(spark, [str(logs)], out)
    assert unread([str(logs)], out) == 0
    (logs / "more.jsonl").write_text("no line\n")
    assert unread([str(logs)], out) == 8
