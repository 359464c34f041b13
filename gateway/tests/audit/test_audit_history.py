"""When reservations changed, and what readers got before and after, as the log tells it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from audit.audit_lines import Clock, read
from sealmq.audit import Audit
from sealmq.audit.counts import MINUTE_MS
from sealmq.audit.events import of_families
from sealmq.families.purposes.cli import changes as history
from sealmq.families.purposes.cli.changes import Change, Counted, History
from sealmq.families.purposes.cli.disclosure import TooMany

M = MINUTE_MS
T = "a/b"
FIELDS = of_families(["labels", "purposes"])


def counted(event: str, minute: int, count: int = 1, **fields: str) -> dict[str, Any]:
    record = {"event": event, "client": "c", "topic": T, "count": count, "minute_ms": minute * M}
    return {**record, "at_ms": (minute + 1) * M, "rule": "purposes.deliver.not-allowed", **fields}


def command(at_ms: int, detail: str, topic: str = T, **fields: Any) -> dict[str, Any]:
    record = {"event": "command", "family": "purposes", "at_ms": at_ms, "client": "owner"}
    return {**record, "topic": topic, "detail": detail, "rule": "r", **fields}


def fed(*records: dict[str, Any]) -> list[Change]:
    found = History()
    found.found([r for r in records if r["event"] == "command"], lambda filter: True)
    found.count(records, lambda topic: True)
    return found.changes


def test_what_stands_before_a_change_in_the_log_was_before_it_also_within_a_minute() -> None:
    made, gone = fed(
        counted("deliver-denied", 0, 7),
        command(M + 1, "reserve aip=p pip=", parted=True),
        counted("delivered", 1, 2, under=T),
        command(M + 9, "release", parted=True),
        counted("deliver-denied", 1, 3),
        counted("deliver-denied", 2, 4),
    )
    assert (made.before, made.since) == (Counted(0, 0, 7), Counted(2, 2, 0))
    assert (gone.before, gone.since) == (Counted(2, 2, 0), Counted(0, 0, 7))
    assert (made.at_ms, made.until_ms, gone.until_ms) == (M + 1, M + 9, None)
    assert (gone.by, gone.rule, gone.verb) == ("owner", "r", "release")
    assert made.unsure == gone.unsure == Counted()


def test_a_log_that_does_not_part_its_minutes_is_unsure_of_that_minute_alone() -> None:
    [gone] = fed(
        counted("delivered", 0, 5, under=T),
        command(M + 9, "release"),
        counted("delivered", 1, 2, under=T),
        counted("deliver-denied", 2, 3),
    )
    assert (gone.before, gone.unsure, gone.since) == (
        Counted(5, 5, 0),
        Counted(2, 2, 0),
        Counted(0, 0, 3),
    )


def test_what_another_reservation_allowed_or_another_family_denied_is_told_apart() -> None:
    [gone] = fed(
        command(9, "release", parted=True),
        counted("delivered", 0, 5, under="a/#"),
        counted("deliver-denied", 0, 3, rule="labels.deliver.above"),
        counted("delivered", 0, 5, topic="z"),
    )
    assert gone.since == Counted(5, 0, 0)


def test_each_filter_that_matches_a_topic_counts_its_messages() -> None:
    wide, narrow, other = fed(
        command(1, "reserve aip=p pip=", topic="a/#", parted=True),
        command(2, "reserve aip=p pip=", parted=True),
        command(3, "release", topic="z/#", parted=True),
        counted("delivered", 0, 5, under=T),
    )
    assert (wide.since, narrow.since, other.since) == (Counted(5), Counted(5, 5), Counted())


def test_refused_and_other_families_commands_are_no_changes() -> None:
    assert not fed(
        command(1, "release", reason="no"),
        command(2, "release", family="labels"),
        command(3, "presubscribe c p"),
    )


def test_too_many_changes_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "MOST_CHANGES", 1)
    with pytest.raises(TooMany):
        fed(command(1, "release"), command(2, "release"))


def test_counts_of_a_filter_s_topics_are_written_at_once_and_others_a_minute(
    tmp_path: Path,
) -> None:
    audit = Audit(tmp_path, "mediator", 1, "000000aa", now=Clock(), strict=True, more=FIELDS)
    for topic in ("a/b", "a/b", "z"):
        audit.count_delivered("c", topic, "l", (("purpose", "p"), ("under", "a/#")))
        audit.count_accepted("w", topic, "l")
    audit.part("a/#")
    audit.write("command", client="w", family="purposes", topic="a/#", parted=True)
    audit.count_delivered("c", "a/b", "l", (("purpose", "p"), ("under", "a/#")))
    audit.close()
    told = [(r["event"], r.get("topic"), r.get("count")) for r in read(tmp_path)]
    assert told[:2] == [("delivered", "a/b", 2), ("command", "a/#", None)]
    assert sorted(told[2:]) == [
        ("delivered", "a/b", 1),
        ("delivered", "z", 1),
        ("publish-accepted", "a/b", 2),
        ("publish-accepted", "z", 1),
    ]
