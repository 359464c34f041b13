"""Who got what under whose reservation, as the log tells it; reservations that change meanwhile."""

from __future__ import annotations

from typing import Any

import pytest

from families.purposes.purposes_factory import SENSOR, TEMP, House
from sealmq.audit.counts import MINUTE_MS
from sealmq.families.api import Proposal
from sealmq.families.purposes.cli import disclosure
from sealmq.families.purposes.cli.disclosure import Disclosure, Key, Made, TooMany
from sealmq_spec import purposes as say

M = MINUTE_MS
FAR = 1 << 60
NOBODY = Made(None, None)


def delivered(
    minute: int, client: str = "c", topic: str = "a/b", count: int = 1, **fields: str
) -> dict[str, Any]:
    record = {"event": "delivered", "client": client, "topic": topic, "count": count}
    return {**record, "at_ms": (minute + 1) * M, "minute_ms": minute * M, "label": "l", **fields}


def command(at_ms: int, client: str, detail: str, topic: str = "a/#") -> dict[str, Any]:
    record = {"event": "command", "family": "purposes", "at_ms": at_ms}
    return {**record, "client": client, "topic": topic, "detail": detail, "rule": "r"}


def fed(*records: dict[str, Any], filter: str = "#", **more: Any) -> Disclosure:
    given = {"since_ms": 0, "until_ms": FAR, "holds": lambda filter, before: NOBODY, **more}
    found = Disclosure(filter, **given)
    found.feed(records)
    return found


def counts(found: Disclosure) -> dict[Key, int]:
    return {key: row.count for key, row in found.rows.items()}


def test_deliveries_are_added_up_by_client_purpose_and_reservation() -> None:
    found = fed(
        delivered(3, count=2, purpose="p", under="a/#"),
        delivered(1, count=5, purpose="p", under="a/#", topic="a/c"),
        delivered(2, purpose="q", under="a/#"),
        delivered(2, client="d", purpose="p", under="a/#"),
        delivered(2),
        delivered(2, topic="z"),
        filter="a/#",
    )
    assert counts(found) == {
        Key("c", "p", "a/#", NOBODY, ""): 7,
        Key("c", "q", "a/#", NOBODY, ""): 1,
        Key("d", "p", "a/#", NOBODY, ""): 1,
        Key("c", "", "", NOBODY, ""): 1,
    }
    row = found.rows[Key("c", "p", "a/#", NOBODY, "")]
    assert (row.first_ms, row.last_ms, row.topics) == (M, 3 * M, {"a/b", "a/c"})


def test_by_topic() -> None:
    found = fed(delivered(1), delivered(1, topic="z"), by_topic=True)
    assert sorted(key.topic for key in found.rows) == ["a/b", "z"]


def test_a_minute_counts_if_it_overlaps_the_time_asked_for() -> None:
    records = [delivered(minute) for minute in range(10)]
    for since, until, minutes in (
        (3 * M, 6 * M, 3),
        (3 * M + 1, 6 * M, 3),
        (3 * M - 1, 6 * M + 1, 5),
        (4 * M - 1, 4 * M, 1),
    ):
        [row] = fed(*records, since_ms=since, until_ms=until).rows.values()
        assert row.count == minutes, (since, until)


def test_each_version_of_a_reservation_is_told_with_who_made_it() -> None:
    found = fed(
        command(10, "ann", "reserve aip=p pip="),
        delivered(0, purpose="p", under="a/#"),
        command(2 * M, "bob", "reserve aip=p,q pip="),
        delivered(2, purpose="p", under="a/#"),
        delivered(3, purpose="p", under="a/#"),
    )
    made = {key.made: row.count for key, row in found.rows.items()}
    assert made == {Made("ann", 10): 1, Made("bob", 2 * M): 2}


def test_a_delivery_in_the_minute_of_a_withdrawal_names_what_was_withdrawn() -> None:
    found = fed(
        command(10, "ann", "reserve aip=p pip="),
        command(M + 30_000, "ann", "release"),
        delivered(1, purpose="p", under="a/#"),
    )
    assert list(found.rows) == [Key("c", "p", "a/#", Made("ann", 10), "")]


def test_what_the_family_writes_is_what_is_read() -> None:
    house, told = House(), []
    for at_ms, text in ((10, say.reserve(TEMP, ("p",), ())), (M, say.release(TEMP))):
        got = house.tell(SENSOR, text)
        assert isinstance(got, Proposal)
        told.append(command(at_ms, SENSOR, "") | dict(got.audit or {}))
    # As logs of older gateways have it.
    assert [row["detail"] for row in told] == ["reserve aip=p pip=", "release"]
    deliveries = [delivered(m, topic=TEMP, purpose="p", under=TEMP) for m in (0, 3)]
    found = fed(told[0], deliveries[0], told[1], deliveries[1])
    assert [key.made for key in found.rows] == [Made(SENSOR, 10), NOBODY]


def test_after_a_withdrawal_it_is_somebody_elses() -> None:
    """sealmq.toml may have the same filter: what ann took back is not what allowed it."""
    found = fed(
        command(10, "ann", "reserve aip=p pip="),
        command(M, "ann", "release"),
        delivered(3, purpose="p", under="a/#"),
        holds=lambda filter, before: Made("", None),
    )
    assert [key.made for key in found.rows] == [Made("", None)]


def test_what_the_log_does_not_hold_is_asked_elsewhere_with_the_time() -> None:
    asked: list[tuple[str, int]] = []

    def holds(filter: str, before_ms: int) -> Made:
        asked.append((filter, before_ms))
        return Made("store", 5)

    found = fed(delivered(7, purpose="p", under="a/#"), delivered(7, purpose="p"), holds=holds)
    assert asked == [("a/#", 8 * M)]
    assert {key.made for key in found.rows} == {Made("store", 5), NOBODY}


@pytest.mark.parametrize(
    "other",
    [
        command(10, "eve", "presubscribe c p"),
        command(10, "eve", "set mode fos"),
        command(10, "eve", "reserve aip=p pip=", topic="a/b"),
        command(10, "eve", "reserve aip=p pip=") | {"family": "toy"},
        command(10, "eve", "reserve aip=p pip=") | {"reason": "refused"},
        command(5 * M, "eve", "reserve aip=p pip="),
    ],
)
def test_other_commands_make_no_reservation(other: dict[str, Any]) -> None:
    found = fed(other, delivered(1, purpose="p", under="a/#"))
    assert [key.made for key in found.rows] == [NOBODY]


def test_what_was_lost_in_the_time_is_counted() -> None:
    lost = {"event": "log-lost", "count": 3}
    torn = {"event": "log-recovered", "segment": "s", "lines": 1, "dropped_bytes": 40}
    found = fed(
        lost | {"at_ms": 5}, torn | {"at_ms": 6}, lost | {"at_ms": 50}, since_ms=0, until_ms=10
    )
    assert (found.lost, found.torn_bytes) == (3, 40)


def test_a_run_that_was_killed_has_left_out_its_last_minute() -> None:
    ran = [{"event": event, "at_ms": at} for at, event in enumerate(("start", "stop", "start"))]
    assert fed(*ran).killed == 0
    again = [*ran, {"event": "start", "at_ms": 10}, {"event": "start", "at_ms": 20}]
    assert fed(*again).killed == 2
    assert fed(*again, since_ms=11).killed == 1
    assert fed(*again, until_ms=11).killed == 1


def test_what_was_denied_and_went_all_the_same_is_counted() -> None:
    off = delivered(1, count=4) | {"event": "unenforced", "rule": "r", "question": "deliver"}
    others = off | {"question": "publish"}, off | {"topic": "z"}, off | {"minute_ms": 5 * M}
    found = fed(delivered(1, count=4), off, *others, filter="a/#", until_ms=3 * M)
    assert found.unenforced == 4
    assert counts(found) == {Key("c", "", "", NOBODY, ""): 4}


def test_the_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disclosure, "MOST_ROWS", 3)
    monkeypatch.setattr(disclosure, "MOST_FILTERS", 2)
    with pytest.raises(TooMany):
        fed(*(delivered(1, client=str(i)) for i in range(4)))
    many = [command(i, "ann", "reserve aip=p pip=", topic=str(i)) for i in range(5)]
    assert fed(*many).forgotten == 3
    topics = [delivered(1, topic=str(i)) for i in range(100)]
    [row] = fed(*topics).rows.values()
    assert (row.count, len(row.topics)) == (100, disclosure.TOPICS + 1)
    changes = [command(i, str(i), "reserve aip=p pip=") for i in range(1000)]
    [key] = fed(*changes, delivered(1, purpose="p", under="a/#")).rows
    assert key.made == Made("999", 999)
