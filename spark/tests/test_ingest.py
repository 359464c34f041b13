"""Every file there may be in a folder of logs: read once, or told with the reason."""

from __future__ import annotations

import gzip
import json
import os
from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from lines_made import AUDIT, HIL, NONCE, numbered
from sealmq_spark import batches
from sealmq_spark.batches import LONGEST
from sealmq_spark.errors import FRESH, ReportError
from sealmq_spark.found import files
from sealmq_spark.ingest import ingest
from sealmq_spark.measures.regressions_bench import of_bench
from sealmq_spark.outputs import SEGMENTS
from sealmq_spark.settle import SHORT, Settled, settle

GOOD = {"measure": "a", "variant": "b", "size": 0, "value": 1.5, "unit": "ms", "n": 1, "params": {}}


def lines(base: dict[str, object], numbers: range) -> bytes:
    return b"".join(json.dumps(numbered(base, n)).encode() + b"\n" for n in numbers)


def reported(spark: SparkSession, logs: Path, out: Path) -> Settled:
    ingest(spark, [str(logs)], out)
    return settle(spark, out)


def ids(settled: Settled) -> Counter[str]:
    tables = (settled.audit, settled.hil, settled.nonce)
    return Counter(row.id for table in tables for row in table.select("id").collect())


def named(*ranges: tuple[dict[str, object], range]) -> Counter[str]:
    return Counter(numbered(base, n)["id"] for base, numbers in ranges for n in numbers)


def told(settled: Settled) -> Counter[tuple[str, str]]:
    found: Counter[tuple[str, str]] = Counter()
    for row in settled.quarantine.collect():
        found[os.path.basename(row.file), row.reason] += row["count"]
    return found


def test_whatever_lies_in_a_folder(spark: SparkSession, tmp_path: Path) -> None:
    logs = tmp_path / "lo gs"
    odd = logs / "a [b]{c,d} *?%20 é:+#\\" / "…"
    odd.mkdir(parents=True)
    out = logs / "report %41 é"
    (odd / "m [1] {x} %25.jsonl").write_bytes(lines(AUDIT, range(10)))
    (odd / "n*.jsonl.gz").write_bytes(gzip.compress(lines(NONCE, range(10))) * 2)
    (logs / "crlf.jsonl").write_bytes(lines(HIL, range(5)).replace(b"\n", b"\r\n"))
    (logs / "bom.jsonl").write_bytes(b"\xef\xbb\xbf" + lines(HIL, range(5, 7)))
    (logs / "torn.jsonl").write_bytes(lines(HIL, range(7, 9))[:-1])
    (logs / "blank.jsonl").write_bytes(b"\n\n \n" + lines(HIL, range(9, 10)) + b"\n\n")
    (logs / "empty.jsonl").write_bytes(b"")
    (logs / "utf8.jsonl").write_bytes(b"\xff\xfe\n" + lines(HIL, range(10, 11)))
    (logs / "bad.jsonl").write_bytes(b"not json\n" * 3 + b"{}\n" + lines(HIL, range(11, 12)))
    long = b'{"event":"' + b"x" * (LONGEST + 1) + b'"}\n'
    (logs / "long.jsonl").write_bytes(lines(HIL, range(12, 13)) + long + lines(HIL, range(13, 14)))
    (logs / "written.jsonl.open").write_bytes(lines(AUDIT, range(100, 200)))
    (logs / "other.txt").write_bytes(b"x")
    packed = gzip.compress(lines(AUDIT, range(200, 900)))
    (logs / "cut.jsonl.gz").write_bytes(packed[:-20])
    (logs / "none.jsonl.gz").write_bytes(b"x" * 50)
    (logs / "gone.jsonl").symlink_to(logs / "nowhere")
    (logs / "linked.jsonl").symlink_to(logs / "crlf.jsonl")
    (logs / "loop.jsonl").symlink_to("loop.jsonl")
    (logs / "loop").symlink_to("loop")
    (odd / "up").symlink_to(logs)
    (logs / "last report").mkdir()
    for name in (".sealmq-report", "summary.json", "bad.jsonl"):
        (logs / "last report" / name).write_text("{}\n")
    os.mkfifo(logs / "pipe.jsonl")
    (logs / "bench [1].json").write_text(json.dumps({"rows": [GOOD, {**GOOD, "n": 0}]}, indent=1))
    (logs / "site.json").write_text('{"a": 1}')
    first = reported(spark, logs, out)
    kept = named((AUDIT, range(10)), (NONCE, range(10)), (HIL, range(14)))
    assert ids(first) == kept
    assert first.repeated == 10 + 5
    assert told(first) == {
        ("utf8.jsonl", "no UTF-8"): 1,
        ("bad.jsonl", "no JSON object"): 3,
        ("bad.jsonl", "of no known contract"): 1,
        ("long.jsonl", SHORT): 1,
        ("cut.jsonl.gz", "a compressed file that is cut"): 1,
        ("none.jsonl.gz", "a compressed file that is damaged"): 1,
        ("gone.jsonl", "cannot be read: No such file or directory"): 1,
        ("loop.jsonl", "cannot be read: Too many levels of symbolic links"): 1,
        ("pipe.jsonl", "no regular file"): 1,
        ("bench [1].json", "n must be a whole number from 1 to 9007199254740991"): 1,
        ("site.json", "no document of a bench"): 1,
    }
    assert first.quarantined == Counter(
        {reason: count for (_, reason), count in told(first).items()}
    ) | Counter({"no JSON object": 3})
    assert first.lines == sum(kept.values()) + first.repeated + 1 + 3 + 1
    assert [(row.measure, os.path.basename(row.file)) for row in first.bench.collect()] == [
        ("a", "bench [1].json")
    ]
    # What came since: a closed segment, the rest of a copy, an older file, lines behind a read one.
    (logs / "written.jsonl.open").rename(logs / "written.jsonl")
    (logs / "cut.jsonl.gz").write_bytes(packed)
    (logs / "old.jsonl").write_bytes(lines(NONCE, range(20, 30)))
    os.utime(logs / "old.jsonl", (1, 1))
    with (logs / "bad.jsonl").open("ab") as file:
        file.write(lines(HIL, range(14, 15)) + b"not json\n")
    (logs / "crlf.jsonl").unlink()
    with (out / "ingest" / "files.jsonl").open("a") as noted:
        noted.write('{"name": "')  # as a full disk leaves it
    links = set(os.listdir(out / "ingest" / "links"))
    second = reported(spark, logs, out)
    more = named((AUDIT, range(100, 900)), (NONCE, range(20, 30)), (HIL, range(14, 15)))
    assert ids(second) == kept + more
    assert len(set(os.listdir(out / "ingest" / "links")) - links) == 4, "a file was taken again"
    assert told(second)["bad.jsonl", "no JSON object"] == 4
    assert second.repeated == first.repeated + 5
    # Nothing new: nothing is read. What is settled of the same lines is the same (test_settle.py).
    batches = len(list((out / "state" / "files").iterdir()))
    ingest(spark, [str(logs)], out)
    assert len(list((out / "state" / "files").iterdir())) == batches == 2
    # What was read once is not read again, so nothing of it may be missing.
    for part in ("audit/day=2027-01-15", "hil", "state/files"):
        (out / part).rename(out / "away")
        with pytest.raises(ReportError, match="parts of the report") as caught:
            ingest(spark, [str(logs)], out)
        assert caught.value.hint == FRESH
        (out / "away").rename(out / part)
    (out / "state" / "settled.json").write_text("{")
    with pytest.raises(ReportError, match=r"is damaged: .*settled.json cannot be read") as caught:
        ingest(spark, [str(logs)], out)
    assert caught.value.hint == FRESH


def test_a_document_that_would_take_all_memory_is_left_out(tmp_path: Path) -> None:
    """Whoever writes into a folder of logs would end each report."""
    (tmp_path / "a.json").touch()
    os.truncate(tmp_path / "a.json", (8 << 20) + 1)
    (found,) = files([str(tmp_path)], tmp_path / "out")
    assert found.reason == "a document of more than 8 MiB"


def test_what_a_bench_measured_stays(spark: SparkSession, tmp_path: Path) -> None:
    """Benches overwrite their documents; and the next report may be given other logs."""
    logs, out = tmp_path / "bench", tmp_path / "out"
    logs.mkdir()

    def measured(value: float, at: int, folder: Path = logs) -> None:
        document = folder / "device.json"
        document.write_text(json.dumps({"rows": [{**GOOD, "value": value}]}))
        os.utime(document, (at, at))
        ingest(spark, [str(folder)], out)

    def kept(settled: Settled) -> list[tuple[float, int]]:
        rows = settled.bench.selectExpr("value", "unix_seconds(made) AS at", "file").collect()
        assert {os.path.basename(row.file) for row in rows} == {"device.json"}
        return sorted((row.value, row.at) for row in rows)

    measured(1.0, 100)
    measured(2.0, 200)
    # Of an older copy nothing changes; and what is no document of a bench is not kept.
    others = tmp_path / "others"
    others.mkdir()
    (others / "site.json").write_text("{}")
    measured(1.0, 50, others)
    assert len(os.listdir(out / "ingest" / "documents")) == 2
    before = (out / "ingest" / "files.jsonl").read_bytes()
    settled = reported(spark, others, out)
    assert (out / "ingest" / "files.jsonl").read_bytes() == before, "told each time"
    assert kept(settled) == [(1.0, 100), (2.0, 200)]
    assert settled.quarantined == {"no document of a bench": 1}
    worse = of_bench(settled.bench).select("before", "now", "what").collect()
    assert [tuple(row) for row in worse] == [(1.0, 2.0, "slower")]
    # Measured again, and as it was at first.
    measured(1.0, 300)
    settled = settle(spark, out)
    assert kept(settled) == [(1.0, 300), (2.0, 200)]
    assert settled.quarantined == {}


def test_what_an_operator_can_mend(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "x.jsonl.open").write_bytes(b"")
    (tmp_path / "x.txt").write_bytes(b"")
    (tmp_path / "logs").mkdir()
    (tmp_path / "file").write_bytes(b"")
    out = tmp_path / "out"
    for logs, said in (
        ([], "no logs were named"),
        ([str(tmp_path / "none")], "No such file or directory"),
        ([str(tmp_path / "x.jsonl.open")], "still being written"),
        ([str(tmp_path / "x.txt")], "is none of .jsonl"),
    ):
        with pytest.raises(ReportError, match=said) as caught:
            ingest(spark, logs, out)
        assert caught.value.hint
    with pytest.raises(ReportError, match="cannot write to a path"):
        ingest(spark, [str(tmp_path / "logs")], tmp_path / "o[u]t")
    with pytest.raises(ReportError, match="Not a directory"):
        ingest(spark, [str(tmp_path / "logs")], tmp_path / "file" / "out")
    out.rename(tmp_path / "moved")
    with pytest.raises(ReportError, match="was moved here") as caught:
        ingest(spark, [str(tmp_path / "logs")], tmp_path / "moved")
    assert "--fresh" in str(caught.value.hint)
    (tmp_path / "moved" / "ingest" / "state.json").write_text("")
    with pytest.raises(ReportError, match="another version") as caught:
        ingest(spark, [str(tmp_path / "logs")], tmp_path / "moved")
    assert "--fresh" in str(caught.value.hint)


def test_a_sealed_log_is_read_as_any_other_and_what_was_read_is_told(
    spark: SparkSession, tmp_path: Path
) -> None:
    """The gateway deletes by `read-segments.txt` what is old ([audit] after_report)."""
    logs, out = tmp_path / "logs", tmp_path / "out"
    logs.mkdir()
    sealed = [{**numbered(AUDIT, n), "line": n + 1, "mac": f"{n:032x}"} for n in range(4)]
    sealed[2]["mac"] = "no seal"
    segment = logs / "kg-00000001-1800000000000-000001.jsonl"
    segment.write_text("".join(json.dumps(line) + "\n" for line in sealed))
    (logs / "a b\nkg-00000001-1800000000000-000002.jsonl").write_bytes(lines(AUDIT, range(9, 10)))
    (logs / "kg-00000001-1800000000000-000003.jsonl.open").write_bytes(lines(AUDIT, range(8, 9)))
    settled = reported(spark, logs, out)
    assert ids(settled) == named((AUDIT, range(2)), (AUDIT, range(3, 4)), (AUDIT, range(9, 10)))
    assert [reason for _, reason in told(settled)] != []
    assert (out / "read-segments.txt").read_text() == f"{segment.name} {segment.stat().st_size}\n"


def test_a_segment_that_was_not_read_whole_is_not_said_to_be(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Told by a run that was killed, and gone since; with a line that nobody reads; grown, and the
    rest of it cannot be read."""
    logs, out = tmp_path / "logs", tmp_path / "out"
    logs.mkdir()
    names = [f"kg-00000001-1800000000000-{n:06d}.jsonl" for n in range(5)]
    gone, long, grown, *whole = (logs / name for name in names)
    gone.write_bytes(lines(AUDIT, range(2)))

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(batches, "read", killed)
        with pytest.raises(KeyboardInterrupt):
            ingest(spark, [str(logs)], out)
    gone.unlink()
    too_long = b'{"event":"' + b"x" * (LONGEST + 1) + b'"}\n'
    long.write_bytes(lines(AUDIT, range(2, 3)) + too_long)
    grown.write_bytes(lines(AUDIT, range(3, 4)))
    for number, path in enumerate(whole, 4):
        path.write_bytes(lines(AUDIT, range(number, number + 1)))
    reported(spark, logs, out)
    read = {line.split()[0] for line in (out / SEGMENTS).read_text().splitlines()}
    assert read == set(names[2:])
    with grown.open("ab") as file:
        file.write(too_long)
    settled = reported(spark, logs, out)
    read = {line.split()[0] for line in (out / SEGMENTS).read_text().splitlines()}
    assert read == set(names[3:])
    assert told(settled) == {(name, SHORT): 1 for name in names[:3]}
