"""Could a client have received it then? Replayed over records as the mediator writes them."""

from __future__ import annotations

from importlib import resources
from typing import Any

import pytest

from sealmq.families.attributes import Attribute, Attributes
from sealmq.families.owners import archive
from sealmq.families.owners import records as rows
from sealmq.families.owners.assertions import from_fields
from sealmq.families.records import FamilyRecord
from sealmq.site.check import parse
from sealmq.site.edit import fill

TEMPLATES = resources.files("sealmq.families.owners") / "templates"
HEAD = (resources.files("sealmq.site") / "templates/head.toml").read_text("utf-8")
WORDS = {"name": "x", "id": "00000000", "listen": "127.0.0.1:1883", "broker": "embedded"}
CAMPUS = parse(
    fill(HEAD, WORDS)
    + (TEMPLATES / "order.toml").read_text("utf-8")
    + (TEMPLATES / "campus.toml").read_text("utf-8")
)
HOUR = 3_600_000
ID = "4ed358170602"
SAID = f"{ID} by=Alice owner=Alice licensees=Bob app= type= actions=RECEIVE condition="


def command(at_ms: int, client: str, detail: str) -> dict[str, Any]:
    record = {"event": "command", "at_ms": at_ms, "family": "owners", "client": client}
    return {**record, "detail": detail}


def told(at_ms: int, subject: str, value: str, until_ms: int) -> dict[str, Any]:
    record = {"event": "attribute-changed", "at_ms": at_ms, "attribute": "extCollaborator"}
    return {**record, "subject": subject, "value": value, "until_ms": until_ms}


def asked(
    at_ms: int,
    records: list[dict[str, Any]],
    client: str = "Bob",
    topic: str = "loc/Alice/ATL/133",
    held: tuple[FamilyRecord, ...] = (),
    begins_ms: int | None = 0,
) -> archive.Answer:
    attributes = Attributes()
    attributes.declare(CAMPUS.attributes)
    attributes.take(Attribute("extTime", "", [[0, 0]], 1 << 50))
    then = archive.Archive(at_ms, attributes, begins_ms)
    then.feed(records)
    return archive.could(then, CAMPUS, held, client, topic, {}, "")


def stored(at_ms: int, licensees: list[str], condition: str = "") -> FamilyRecord:
    fields = {"licensees": licensees, "actions": ["RECEIVE"], "condition": condition}
    made = from_fields(fields, "Alice", "Alice")
    made.id, made.at_ms = ID, at_ms
    return rows.assertion(made)


LIFE = [
    command(10, "Alice", f"assert {SAID}"),
    command(20, "Alice", f"modify {SAID.replace('Bob', 'Bob,Tom')}"),
    command(30, "Bob", f"retract {SAID.replace('Bob', 'Bob,Tom')}"),
]


@pytest.mark.parametrize(
    ("at_ms", "bob", "tom"),
    [(9, "no", "no"), (10, "yes", "no"), (19, "yes", "no"), (20, "yes", "yes"), (30, "no", "no")],
)
def test_an_assertion_counts_from_its_record_to_the_one_that_takes_it_back(
    at_ms: int, bob: str, tom: str
) -> None:
    assert asked(at_ms, LIFE).word == bob
    assert asked(at_ms, LIFE, "Tom").word == tom


def test_what_is_older_than_the_log_the_store_knows_or_the_record_that_ended_it() -> None:
    held = (stored(5, ["Bob"]),)
    assert asked(10, [], held=held, begins_ms=8).word == "yes"
    assert asked(4, [], held=held, begins_ms=8).word == "no"
    # Retracted since: the retraction says what it was; a modification does not say what was before.
    assert asked(10, LIFE[2:], "Tom", begins_ms=8).word == "yes"
    answer = asked(10, LIFE[1:2], "Tom", held=(stored(20, ["Bob"]),), begins_ms=8)
    assert answer.word == "unknown"
    # Made since, whatever the store has.
    assert asked(9, LIFE[:1], held=(stored(10, ["Bob"]),)).word == "no"


def test_what_was_cut_off_takes_a_no_away_and_never_a_yes() -> None:
    cut = command(10, "Alice", f"assert {SAID.replace(ID, 'f' * 12)}" + "x" * archive.CUT)
    assert asked(15, [cut]).word == "unknown"
    assert asked(15, [*LIFE[:1], cut]).word == "yes"
    assert asked(15, [command(10, "Alice", "assert")]).word == "unknown"


def test_attributes_are_what_the_log_says_and_else_unknown() -> None:
    about = ("Eve", "loc/Nick/EECS/2246")
    day = 24 * HOUR
    at = 40 * day  # longer than any value of it is valid
    true = told(at - HOUR, "Nick/Eve", '"true"', at + HOUR)
    assert asked(at, [true], *about).word == "yes"
    # Over, taken away, of another, and told by nobody within the longest validity.
    assert asked(at + HOUR, [true], *about).word == "no"
    gone = {k: v for k, v in told(at - 5, "Nick/Eve", "", 0).items() if k != "value"}
    assert asked(at, [true, gone], *about).word == "no"
    assert asked(at, [told(at - HOUR, "Nick/Tom", '"true"', at + HOUR)], *about).word == "no"
    assert asked(at, [], *about).word == "no"
    # Before that nobody knows; nor where records are lost.
    for records, begins in (([], at - day), ([], None), ([{"event": "log-lost", "at_ms": 1,
                                                          "count": 3}], 0)):  # fmt: skip
        answer = asked(at, records, *about, begins_ms=begins)
        assert (answer.word, answer.rests_on) == ("unknown", ("extCollaborator",))
    # What events have told is nowhere.
    answer = asked(at, [], "Tom", "loc/Eve/EECS/1005")
    assert (answer.word, set(answer.rests_on)) == ("unknown", {"extBuilding", "extRoom"})


def test_a_calendar_is_asked_for_that_hour() -> None:
    about = ("Eve", "loc/Bob/GGBR/1005")
    assert asked(4 * 24 * HOUR + 15 * HOUR, [], *about).word == "yes"  # Monday 1970-01-05
    assert asked(2 * 24 * HOUR + 15 * HOUR, [], *about).word == "no"  # Saturday


def test_emergencies_contracts_and_mediators_as_they_were() -> None:
    grant = command(5, "Bob", SAID.replace("Alice", "Bob").replace("Bob app", "Tom app"))
    grant["detail"] = "assert " + grant["detail"].replace("RECEIVE", "EMERGENCY").replace(
        "licensees=Bob", "licensees=Tom"
    )
    glass = command(100, "Tom", "break-glass owner=Bob minutes=5 reason=a door")
    closed = command(200, "Bob", "close-glass owner=Bob client=Tom")
    about = ("Tom", "loc/Bob/GGBR/1005")
    # Bob cannot give what he has not got: the campus gives its owners no EMERGENCY.
    assert asked(150, [grant, glass], *about).word == "no"
    more = ("[[families.owners.policy]]\nauthorizer = 'location_admin'\nlicensees = ['owner']\n"
            "actions = ['EMERGENCY']\n")  # fmt: skip
    text = fill(HEAD, WORDS) + (TEMPLATES / "order.toml").read_text("utf-8")
    config = parse(text + (TEMPLATES / "campus.toml").read_text("utf-8") + more)

    def then(at_ms: int, *records: dict[str, Any]) -> str:
        made = archive.Archive(at_ms, Attributes(), 0)
        made.feed(records)
        return archive.could(made, config, (), "Tom", "loc/Bob/GGBR/1005", {}, "").word

    assert then(150, grant, glass) == "yes"
    assert then(99, grant, glass) == "no"
    assert then(250, grant, glass, closed) == "no"
    assert then(150, grant, glass, closed) == "yes"
    assert then(150 + 5 * 60_000, grant, glass) == "no"
    assert then(150, glass) == "no"
    assert then(150, grant, glass, command(120, "Bob", "appoint 7")) == "no"
    assert then(150, grant, glass, command(120, "Bob", "appoint 7"),
                command(130, "Bob", "appoint 0")) == "yes"  # fmt: skip

    terms = SAID + 'contract("https://x.example")'
    asks = command(5, "Alice", f"assert {terms}")
    signs = command(6, "Bob", "sign https://x.example")
    takes = command(9, "Bob", "withdraw from https://x.example")
    assert asked(7, [asks, signs]).word == "yes"
    assert asked(7, [asks]).word == "no"
    assert asked(10, [asks, signs, takes]).word == "no"
    assert asked(8, [asks, signs, takes]).word == "yes"


def test_types_by_command_and_topics_of_none() -> None:
    assert asked(5, [], topic="badge/Alice/1").word == "no"
    said = "advertise LOC_APP/BADGE topic=badge/{user}/{door} owner=user control=none"
    made = command(3, "location_admin", said)
    assert asked(5, [made], topic="badge/Alice/1").word == "yes"
    assert asked(2, [made], topic="badge/Alice/1").word == "no"
    gone = command(4, "location_admin", "withdraw LOC_APP/BADGE")
    assert asked(5, [made, gone], topic="badge/Alice/1").word == "no"
    assert asked(3, [made, gone], topic="badge/Alice/1").word == "yes"


def test_what_was_said_before_the_log_begins_and_said_again_is_not_known() -> None:
    """Of a log whose first segments went as `[audit] keep` has it."""
    expired = {"event": "log-expired", "at_ms": 90, "notes": ["mediator-1"]}
    asks = command(5, "Alice", f"assert {SAID}" + 'contract("https://x.example")')
    signs = command(20, "Bob", "sign https://x.example")
    assert asked(10, [asks, signs]).word == "no"
    assert asked(10, [asks, signs, expired]).word == "unknown", "it may have been signed already"
    assert asked(20, [asks, signs, expired]).word == "yes"
    withdrawn = command(9, "Bob", "withdraw from https://x.example")
    assert asked(10, [asks, withdrawn, signs, expired]).word == "no"
    said = "advertise LOC_APP/BADGE topic=badge/{user}/{door} owner=user control=none"
    again = command(20, "location_admin", said)
    assert asked(10, [again, expired], topic="badge/Alice/1").word == "unknown"
