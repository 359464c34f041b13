"""The log read back: closed segments, whole lines of the open one, and what cannot be read told."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from audit.audit_lines import Clock
from sealmq.audit import Audit
from sealmq.audit.reading import LONGEST, Log, Tail

DELIVERED = frozenset({"delivered"})


def line(event: str = "delivered", at: int = 1, **fields: object) -> bytes:
    frame = {"v": 1, "id": "x", "at_ms": at, "site": "01020304", "role": "mediator", "inst": 1}
    record = {**frame, "event": event, **fields}
    return json.dumps(record, separators=(",", ":")).encode() + b"\n"


def delivered(topic: str, at: int = 1) -> bytes:
    return line(at=at, client="c", topic=topic, label="l", count=1, minute_ms=0)


def topics(folder: Path) -> tuple[list[str], Log]:
    log = Log(folder, "mediator")
    return [record["topic"] for record in log.records(DELIVERED)], log


def test_what_a_real_log_holds_open_and_closed(tmp_path: Path) -> None:
    clock = Clock()
    audit = Audit(tmp_path, "mediator", 7, "01020304", now=clock, strict=True)
    audit.count_delivered("c", "a", "l")
    audit.write("connect", client="c", peer="p")
    clock.now += 60_000
    audit.write("connect", client="c", peer="p")
    audit.close()
    audit = Audit(tmp_path, "mediator", 7, "01020304", now=clock, strict=True)
    audit.count_delivered("c", "b", "l")
    audit.close()
    # As if its process still had it.
    last = max(tmp_path.glob("*.jsonl"))
    last.rename(last.with_name(last.name + ".open"))
    found, log = topics(tmp_path)
    assert found == ["a", "b"]
    assert log.begins_ms == 1_800_000_000_000
    assert (log.told.lines, log.told.unreadable, log.told.files) == (4, 0, 2)
    assert log.told.done == log.told.size > 0


def test_segments_come_in_the_order_in_which_they_were_begun(tmp_path: Path) -> None:
    for name in ("00000009-0000000000300-000001", "00000001-0000000000200-000010"):
        (tmp_path / f"mediator-{name}.jsonl").write_bytes(delivered(name))
    (tmp_path / "mediator-00000001-0000000000200-000009.jsonl").write_bytes(delivered("first"))
    for other in ("kg-00000001-0000000000001-000001.jsonl", "mediator-x.jsonl", "notes.jsonl"):
        (tmp_path / other).write_bytes(delivered("another's"))
    assert topics(tmp_path)[0] == [
        "first",
        "00000001-0000000000200-000010",
        "00000009-0000000000300-000001",
    ]


def test_records_of_workers_that_run_at_once_come_in_the_order_of_the_clock(
    tmp_path: Path,
) -> None:
    for name, times in (
        ("00000001-0000000000100-000001.jsonl", (100, 130)),
        ("00000001-0000000000100-000002.jsonl.open", (160, 150)),  # the clock was set back
        ("00000002-0000000000110-000001.jsonl.open", (120, 140, 170)),
        ("00000003-0000000000400-000001.jsonl.open", (400,)),
    ):
        rows = b"".join(delivered(f"{name[7]}-{at}", at) for at in times)
        (tmp_path / f"mediator-{name}").write_bytes(rows)
    found = ["1-100", "2-120", "1-130", "2-140", "1-160", "1-150", "2-170", "3-400"]
    assert topics(tmp_path)[0] == found


def test_whoever_follows_the_log_sees_what_an_older_worker_writes(tmp_path: Path) -> None:
    old, new, last = (
        tmp_path / f"mediator-0000000{n}-0000000000{n}00-000001.jsonl.open" for n in (1, 2, 3)
    )
    old.write_bytes(delivered("old", 100))
    new.write_bytes(delivered("new", 200))
    last.write_bytes(delivered("last", 300))
    tail = Tail(tmp_path, "mediator", DELIVERED, 1)
    assert [row["topic"] for row in tail.more()] == ["last"]
    old.write_bytes(old.read_bytes() + delivered("older again", 400))
    assert [row["topic"] for row in tail.more()] == ["older again"]
    # A segment is renamed with its last lines in it.
    new.write_bytes(new.read_bytes() + delivered("its last", 500))
    new.rename(new.with_name(new.name.removesuffix(".open")))
    assert [row["topic"] for row in tail.more()] == ["its last"]
    assert tail.more() == []


@pytest.mark.parametrize(
    "bad",
    [
        b"{\n",
        b"\xff\xfe\n",
        b"[]\n",
        b'"delivered"\n',
        b"\n",
        b"[" * 100_000 + b"\n",
        b"x" * (3 * LONGEST) + b"\n",
        delivered("t").replace(b'"v":1', b'"v":2'),
        delivered("t").replace(b'"delivered"', b'"no-such-event"'),
        delivered("t").replace(b'"at_ms":1', b'"at_ms":"1"'),
        delivered("t").replace(b'"count":1,', b""),
        delivered("t").replace(b'"count":1,', b'"count":"1",'),
        delivered("t").replace(b'"count":1,', b'"count":true,'),
        delivered("t").replace(b'"topic":"t"', b'"topic":["t"]'),
        delivered("t").replace(b'"minute_ms":0', b'"minute_ms":-1'),
        delivered("t").replace(b'"minute_ms":0', b'"minute_ms":0,"under":5'),
        delivered("t")[:-9] + b"\n",
    ],
)
def test_a_line_that_cannot_be_read_is_counted_and_the_next_ones_are_read(
    tmp_path: Path, bad: bytes
) -> None:
    path = tmp_path / "mediator-00000001-0000000000001-000001.jsonl"
    path.write_bytes(delivered("a") + bad + delivered("b"))
    found, log = topics(tmp_path)
    assert found == ["a", "b"]
    assert (log.told.lines, log.told.unreadable) == (3, 1)
    assert log.told.done == path.stat().st_size


def test_a_last_line_without_its_end_is_being_written_or_damage(tmp_path: Path) -> None:
    path = tmp_path / "mediator-00000001-0000000000001-000001.jsonl"
    path.write_bytes(delivered("a") + delivered("b")[:-1])
    found, log = topics(tmp_path)
    assert (found, log.told.unreadable) == (["a"], 1)
    path = path.rename(path.with_name(path.name + ".open"))
    found, log = topics(tmp_path)
    assert (found, log.told.unreadable) == (["a"], 0)
    path.write_bytes(delivered("a") + b"x" * LONGEST + b"\n" + delivered("b"))
    found, log = topics(tmp_path)
    assert (found, log.told.unreadable) == (["a", "b"], 1)


def test_a_segment_that_is_closed_or_taken_away_meanwhile(tmp_path: Path) -> None:
    first = tmp_path / "mediator-00000001-0000000000001-000001.jsonl.open"
    second = tmp_path / "mediator-00000001-0000000000001-000002.jsonl"
    first.write_bytes(delivered("a"))
    second.write_bytes(delivered("b"))
    log = Log(tmp_path, "mediator")
    first.rename(first.with_name(first.name.removesuffix(".open")))
    second.unlink()
    assert [record["topic"] for record in log.records(DELIVERED)] == ["a"]
    assert (log.told.files, log.told.vanished) == (1, 1)


def test_no_log_yet(tmp_path: Path) -> None:
    found, log = topics(tmp_path / "audit")
    assert (found, log.told.files, log.begins_ms) == ([], 0, None)


def test_progress_is_told_while_nothing_is_found(tmp_path: Path) -> None:
    path = tmp_path / "mediator-00000001-0000000000001-000001.jsonl"
    path.write_bytes(line("connect", client="c", peer="p") * 9000)
    seen: list[int] = []
    log = Log(tmp_path, "mediator")
    assert list(log.records(DELIVERED, lambda told: seen.append(told.done))) == []
    assert len(seen) == 2
    assert seen[-1] < log.told.size == path.stat().st_size
