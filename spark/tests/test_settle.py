"""Each id once, whatever the order of files and lines; what contradicts itself is told."""

from __future__ import annotations

import datetime
import json
import random
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from lines_made import AUDIT, HIL, numbered
from sealmq_spark.ingest import ingest
from sealmq_spark.settle import TWICE, settle

DAY_MS = 86_400_000


def test_each_id_counts_once_in_any_order(spark: SparkSession, tmp_path: Path) -> None:
    base = AUDIT["minute_ms"]
    made = [{**numbered(AUDIT, n), "minute_ms": base + n % 3 * DAY_MS} for n in range(60)]
    texts = [json.dumps(line) for line in made] * 2 + [json.dumps(numbered(HIL, 1))]
    # Ids with two and three contents, one of those twice.
    others = [json.dumps({**made[0], "count": n}) for n in (7, 8, 8)]
    others += [json.dumps({**made[1], "count": 9})]
    texts += others
    found = []
    for arrangement in range(2):
        logs = tmp_path / f"logs{arrangement}"
        logs.mkdir()
        rng = random.Random(arrangement)
        rng.shuffle(texts)
        before = spark.conf.get("spark.sql.shuffle.partitions") or ""
        spark.conf.set("spark.sql.shuffle.partitions", str(1 + 2 * arrangement))
        files = 1 + 2 * arrangement
        for number in range(files):
            part = texts[number::files]
            (logs / f"s{number}.jsonl").write_text("\n".join(part) + "\n")
        out = tmp_path / f"out{arrangement}"
        ingest(spark, [str(logs)], out)
        settled = settle(spark, out)
        spark.conf.set("spark.sql.shuffle.partitions", before)
        rows = sorted(settled.audit.collect(), key=lambda row: row.id)
        hil = [row.asDict() for row in settled.hil.collect()]
        told = sorted((row.reason, row.raw, row["count"]) for row in settled.quarantine.collect())
        assert settled.lines == len(texts)
        assert settled.lines == len(rows) + len(hil) + settled.repeated + len(told)
        assert settled.quarantined == {TWICE: 3}
        found.append(
            (
                rows,
                hil,
                told,
                settled.repeated,
                sorted(p.name for p in (out / "audit").glob("day=*")),
            )
        )
    assert found[0] == found[1]
    rows, hil, told, repeated, days = found[0]
    contents = {line["id"]: {json.dumps(line)} for line in made}
    for text in others:
        contents[json.loads(text)["id"]].add(text)
    for row in rows:
        kept = {name: value for name, value in row.asDict().items() if value is not None}
        day = kept.pop("day")
        assert json.dumps({name: kept[name] for name in AUDIT}) in contents.pop(row.id)
        assert day == datetime.date(2027, 1, 15 + (row.minute_ms - base) // DAY_MS)
    assert contents == {}
    assert {name: value for name, value in hil[0].items() if value is not None} == {
        **numbered(HIL, 1), "day": datetime.date(1970, 1, 1)
    }  # fmt: skip
    assert repeated == 60 + 1
    assert days == ["day=2027-01-15", "day=2027-01-16", "day=2027-01-17"]


@pytest.mark.full
def test_a_day_whose_lines_lost_is_not_kept(spark: SparkSession, tmp_path: Path) -> None:
    texts = [
        json.dumps({**AUDIT, "minute_ms": AUDIT["minute_ms"] + n * DAY_MS}, separators=(",", ":"))
        for n in range(2)
    ]
    digests = spark.createDataFrame([(text,) for text in texts], "t string")
    order = [row.t for row in digests.selectExpr("t", "xxhash64(t) AS d").orderBy("d").collect()]
    logs, out = tmp_path / "logs", tmp_path / "out"
    logs.mkdir()
    for number, text in enumerate(reversed(order)):
        (logs / f"s{number}.jsonl").write_text(text + "\n")
        ingest(spark, [str(logs)], out)
        settled = settle(spark, out)
        kept = [row.minute_ms for row in settled.audit.collect()]
        assert kept == [json.loads(text)["minute_ms"]]


def test_of_nothing_but_documents(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There are no lines then; and workers of a cluster may have no Python."""
    monkeypatch.setattr(spark.sparkContext, "pythonExec", "/bin/false")
    row = {
        "measure": "a",
        "variant": "b",
        "size": 0,
        "value": 1,
        "unit": "ms",
        "n": 1,
        "params": {},
    }
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "bench.json").write_text(json.dumps({"rows": [row]}))
    logs = [str(tmp_path / "logs")]
    ingest(spark, logs, tmp_path / "out")
    settled = settle(spark, tmp_path / "out")
    assert (settled.lines, settled.repeated, settled.quarantined) == (0, 0, {})
    tables = (settled.audit, settled.hil, settled.nonce, settled.bench)
    assert [table.count() for table in tables] == [0, 0, 0, 1]
