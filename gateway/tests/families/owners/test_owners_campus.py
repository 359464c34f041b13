"""The paper's figures 7 to 9 as a site: what issue 18 asks of them, through the simulation."""

from __future__ import annotations

import itertools
import json
from datetime import datetime
from typing import Any

import pytest

from families.owners.owners_site import FOREVER, TEMPLATES, People, campus
from sealmq.families.attributes import Attribute
from sealmq.families.owners.simulate import BadLine, Simulation, at_ms

EVENTS = (TEMPLATES / "campus" / "events.jsonl").read_text(encoding="utf-8").splitlines()
FIGURE_9 = [
    ("loc/Eve/EECS/1005", ["Eve"]),
    ("loc/Eve/EECS/1003", ["Eve"]),
    ("loc/Tom/GGBR/1020", []),
    ("loc/Alice/ATL/133", []),
    ("loc/Sam/EECS/3227", []),
]


class Campus(Simulation):
    def __init__(self, time: str = "WORK_DAY") -> None:
        self.site = People(campus())
        super().__init__(self.site.engine, self.site.owners.state, self.site.now)
        self.site.told("extTime", time)
        self.lines(*[line for line in EVENTS if '"publish"' not in line])

    def lines(self, *lines: str) -> list[Any]:
        return [found for line in lines if (found := self.line(line)) is not None]

    def publish(self, client: str, topic: str, attributes: Any) -> dict[str, Any]:
        found = super().publish(client, topic, attributes)
        if "refused" not in found:
            self.site.conns[client] = self.conn(client)
            self.site.accepted(topic, client)
        return found

    def got(self, topic: str) -> list[str]:
        line = json.dumps({"publish": topic, "client": "location_publisher"})
        found = self.line(line)
        assert found is not None
        assert "refused" not in found
        receivers: list[str] = found["receivers"]
        return receivers

    def figure_9(self) -> list[list[str]]:
        return [self.got(topic) for topic, _ in FIGURE_9]

    def works_with(self, owner: str, subscriber: str, value: str | None = "true") -> None:
        self.line(json.dumps({"set": "extCollaborator", "owner": owner,
                              "subscriber": subscriber, "value": value}))  # fmt: skip


def test_figure_9_as_the_example_s_events_say_it() -> None:
    campus = Campus()
    found = campus.lines(*[line for line in EVENTS if '"publish"' in line])
    assert [(one["topic"], one["receivers"]) for one in found] == FIGURE_9
    assert campus.site.faults == []


def test_a_subscriber_in_the_same_room_receives_eve() -> None:
    campus = Campus()
    campus.got("loc/Alice/EECS/1005")
    assert campus.figure_9()[:2] == [["Alice", "Eve"], ["Eve"]]


def test_an_event_that_nobody_received_says_where_its_owner_is() -> None:
    campus = Campus()
    assert campus.got("loc/Alice/EECS/1005") == []
    assert campus.got("loc/Eve/EECS/1005") == ["Alice", "Eve"]
    assert campus.got("loc/Alice/EECS/1003") == [], "she moves on"
    assert campus.got("loc/Eve/EECS/1005") == ["Eve"]


@pytest.mark.parametrize(
    ("time", "receivers"),
    [("WORK_DAY", ["Alice", "Eve"]), ("WORK_NIGHT", ["Alice", "Eve"]), ("WEEKEND", [])],
)
def test_bob_is_received_while_he_works(time: str, receivers: list[str]) -> None:
    assert Campus(time).got("loc/Bob/GGBR/1005") == receivers


def test_two_filters_that_match_deliver_once() -> None:
    assert Campus().got("loc/Bob/EECS/2246") == ["Alice", "Eve"]


def test_nick_is_received_by_those_who_work_with_him_while_they_do() -> None:
    campus = Campus()
    assert campus.got("loc/Nick/EECS/2246") == []
    campus.works_with("Nick", "Eve")
    assert campus.got("loc/Nick/EECS/1005") == ["Eve"]
    assert campus.got("loc/Nick/EECS/2246") == ["Eve"]
    campus.works_with("Nick", "Alice")
    assert campus.got("loc/Nick/EECS/2246") == ["Alice", "Eve"]
    campus.works_with("Nick", "Eve", None)
    assert campus.got("loc/Nick/EECS/2246") == ["Alice"]
    campus.works_with("Alice", "Eve")
    assert campus.got("loc/Nick/EECS/1005") == [], "whose collaborator is the pair's, not one's"


def test_alice_lets_bob_receive_her_and_no_others() -> None:
    campus = Campus()
    said = {"do": "assert", "licensees": ["Bob"], "app": "LOC_APP", "type": "LOC_INFO",
            "actions": ["RECEIVE"]}  # fmt: skip
    [found] = campus.lines(json.dumps({"command": said, "client": "Alice"}))
    assert found["answer"]["assertion"]["owner"] == "Alice"
    assert campus.figure_9() == [["Eve"], ["Eve"], [], ["Bob"], []]


def test_alice_does_not_let_anybody_receive_bob() -> None:
    campus = Campus()
    for owner in ("Bob", "*"):
        said = {"do": "assert", "licensees": ["Sam"], "actions": ["RECEIVE"], "owner": owner}
        [found] = campus.lines(json.dumps({"command": said, "client": "Alice"}))
        assert found["refused"] in (
            "owners.command.no-change-policy",
            "owners.command.all-owners",
        )
    assert campus.got("loc/Bob/EECS/2246") == ["Alice", "Eve"]


def test_what_is_stale_denies() -> None:
    campus = Campus()
    campus.site.engine.take_attributes([Attribute("extTime", "", "WORK_DAY", campus.now_ms + 10)])
    assert campus.got("loc/Bob/EECS/2246") == ["Alice", "Eve"]
    campus.now_ms += 10
    assert campus.got("loc/Bob/EECS/2246") == []
    campus.site.engine.take_attributes([Attribute("extTime", "", "WORK_DAY", FOREVER)])
    assert campus.got("loc/Bob/EECS/2246") == ["Alice", "Eve"]


def test_who_may_publish_is_decided_too() -> None:
    campus = Campus()
    for client in ("Alice", "Bob"):
        found = campus.line(json.dumps({"publish": "loc/Bob/EECS/2246", "client": client}))
        assert found is not None
        assert found["refused"] == "owners.publish.not-allowed"
    found = campus.line(json.dumps({"publish": "else/where", "client": "location_publisher"}))
    assert found is not None
    assert found["refused"] == "owners.publish.no-type"


@pytest.mark.parametrize(
    "line",
    [
        "", "[]", "{}", '{"publish": 1, "client": "Bob"}', '{"publish": "a"}', '{"at": "now"}',
        '{"publish": "a", "subscribe": "b", "client": "Bob"}', '{"publish": "a", "color": "red"}',
        '{"set": "extNone", "value": 1}', '{"set": "extTime", "value": 1.5}',
        "[" * 100_000, '{"at": 253402300800000}', '{"at": "0000-01-01T00:00:00Z"}',
        '{"at": "2026-02-30T00:00:00Z"}', '{"subscribe": "a", "client": "Bob", "where": 5}',
        '{"unsubscribe": "a", "client": "Bob", "where": {"a": 1}}',
        '{"publish": "a", "client": "Bob", "attributes": [1]}',
        '{"publish": "a", "client": "Bob", "attributes": {"x": "\\ud800"}}',
        '{"subscribe": "a", "client": "\\ud800"}',
    ],
)  # fmt: skip
def test_a_line_that_says_nothing_is_refused(line: str) -> None:
    with pytest.raises(BadLine):
        Campus().line(line)


def test_times_are_utc() -> None:
    assert at_ms("1970-01-01T00:00:00Z") == 0
    assert at_ms("2004-10-05T15:00:00Z") == 1_096_988_400_000
    assert at_ms("2024-02-29T23:59:59Z") == 1_709_251_199_000
    for year in (1970, 1999, 2000, 2024, 2100):
        for month, day in itertools.product(range(14), range(33)):
            text = f"{year}-{month:02}-{day:02}T01:02:03Z"
            try:
                wanted = int(datetime.fromisoformat(text).timestamp()) * 1000
            except ValueError:
                with pytest.raises(BadLine):
                    at_ms(text)
            else:
                assert at_ms(text) == wanted
