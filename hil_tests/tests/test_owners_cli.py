"""`sealmq owners` in the paper's campus, started: what owners say, and what comes of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from running_site import ROOT, Site, program, publish, ran, sealmq, until

# Who owns events may let others open them in an emergency; types beside the paper's.
MORE = """
[[families.owners.policy]]
authorizer = "location_admin"
licensees = ["owner"]
actions = ["EMERGENCY", "PUBLISH"]

[families.owners.types.CAR]
app = "CAR_APP"
topic = "car/{user}"
owner = "user"
admin = "location_admin"
attributes = { speed = "int" }

[families.owners.types.BUILDING]
app = "LOC_APP"
topic = "building/{user}/{building}"
owner = "user"
admin = "location_admin"

[families.owners.types.HEADCOUNT]
app = "LOC_APP"
topic = "headcount/{building}"
owner = "sender"
admin = "location_admin"

[[families.owners.policy]]
authorizer = "POLICY"
licensees = ["location_admin"]
actions = ["*"]

[[families.owners.policy]]
authorizer = "location_admin"
licensees = ["owner"]
actions = ["RECEIVE", "CHANGE_POLICY"]
"""
EXAMPLE = ROOT / "gateway/sealmq/families/owners/examples/buildings.py"


@pytest.fixture(scope="module")
def campus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    made = Site(tmp_path_factory.mktemp("campus"), example="campus", policy="owners")
    made.edit('kind = "embedded"', 'kind = "mosquitto"')
    made.toml.write_text(made.toml.read_text() + MORE)
    made.up()
    yield made
    made.down()


def owners(site: Site, verb: str, client: str = "", *words: object) -> dict[str, Any]:
    """The answer of `sealmq owners VERB --json`."""
    who = ("--client", client) if client else ()
    found: dict[str, Any] = json.loads(ran("owners", verb, site.path, *who, *words, "--json"))
    return found


def refused(site: Site, rule: str, verb: str, client: str, *words: object) -> str:
    done = sealmq("owners", verb, site.path, "--client", client, *words)
    assert done.returncode == 12, done.stderr
    assert rule in done.stderr
    return done.stderr


class Heard:
    """A `sealmq sub` of a client, subscribed; its lines, and what it was told besides."""

    def __init__(self, site: Site, folder: Path, client: str, *flags: str) -> None:
        self.out, self.err = folder / f"{client}.out", folder / f"{client}.err"
        words = ["sub", str(site.path), "--client", client, "-v", "-d", *flags]
        with self.out.open("w") as out, self.err.open("w") as err:
            self._process = subprocess.Popen([program(), *words], stdout=out, stderr=err)
        until("the subscription", lambda: "subscribed: " in self.err.read_text())

    def lines(self) -> list[str]:
        return self.out.read_text().splitlines()

    def end(self) -> None:
        self._process.terminate()
        assert self._process.wait(30) == 0


def seen_at(site: Site, user: str, place: str, text: str) -> None:
    publish(site, "location_publisher", f"loc/{user}/{place}", text, "-q", 1)


def test_an_owner_gives_and_takes_back_and_who_subscribed_notices(
    campus: Site, tmp_path: Path
) -> None:
    bob = Heard(campus, tmp_path, "Bob", "-t", "loc/Alice/#")
    alice = Heard(campus, tmp_path, "Alice", "-t", "loc/Alice/#")
    seen_at(campus, "Alice", "ATL/133", "1")
    until("what is Alice's own", lambda: len(alice.lines()) == 1)
    grant = owners(campus, "assert", "Alice", "--to", "Bob", "--action", "RECEIVE")
    seen_at(campus, "Alice", "ATL/133", "2")
    until("what Alice lets Bob receive", lambda: bob.lines() == ["loc/Alice/ATL/133 2"])
    allowed = owners(campus, "who-can", "Alice", "-t", "loc/Alice/ATL/133")
    assert allowed["who"] == ["Alice", "Bob", "location_admin"]
    assert owners(campus, "who-can", "", "-t", "loc/Alice/ATL/133") == allowed
    explained = owners(campus, "explain", "Alice", "-t", "loc/Alice/ATL/133", "--for", "Bob")
    assert explained["allow"] is True
    assert explained["chain"][0]["id"] == grant["id"]
    [shown] = owners(campus, "list", "Alice")["assertions"]
    assert shown["licensees"] == ["Bob"]
    changed = ("--id", grant["id"], "--to", "Tom", "--action", "RECEIVE", "--if", 'room == "133"')
    owners(campus, "modify", "Alice", *changed)
    seen_at(campus, "Alice", "ATL/133", "3")
    until("Alice's third", lambda: len(alice.lines()) == 3)
    assert len(bob.lines()) == 1
    assert ran("owners", "retract", campus.path, "--client", "Alice", "--id", grant["id"]) == (
        f"{grant['id']}: retracted\n"
    )
    assert owners(campus, "list", "Alice")["assertions"] == []
    bob.end()
    alice.end()


def test_what_is_not_the_clients_to_say_is_refused_with_a_hint(campus: Site) -> None:
    about_bob = ("--owner", "Bob", "--to", "Tom", "--action", "RECEIVE")
    told = refused(campus, "owners.command.no-change-policy", "assert", "Alice", *about_bob)
    assert "hint: " in told
    refused(campus, "owners.command.no-such", "retract", "Alice", "--id", "policy.5")
    refused(campus, "did you mean RECEIVE", "assert", "Alice", "--to", "Bob", "--action", "RECIEVE")
    wrong = ("--to", "Bob", "--action", "RECEIVE", "--if", 'room = "1"')
    assert "write ==" in refused(campus, "owners.command.malformed", "assert", "Alice", *wrong)
    mine = ("--owner", "Bob", "--minutes", 5, "--reason", "no answer")
    refused(campus, "owners.command.no-emergency", "break-glass", "Eve", *mine)
    for words, code in (
        (("assert", campus.path, "--client", "Alice", "--action", "RECEIVE"), 1),
        (("assert", campus.path, "--to", "Bob"), 2),
        (("explain", campus.path, "-t", "loc/Bob/a/b"), 1),
        (("key", campus.path, "--client", "Alice"), 1),
    ):
        assert sealmq("owners", *words).returncode == code


def test_a_signed_grant_is_checked_by_anybody_and_an_unsigned_one_refused(
    campus: Site, tmp_path: Path
) -> None:
    key, grant, newer = tmp_path / "sam.pem", tmp_path / "grant.json", tmp_path / "newer.pem"
    public = owners(campus, "key", "Sam", "--new", key)["public"]
    assert key.stat().st_mode & 0o777 == 0o600
    to_tom = ("--to", "Tom", "--action", "RECEIVE")
    refused(campus, "owners.command.signature", "assert", "Sam", *to_tom)
    owners(campus, "assert", "Sam", *to_tom, "--key", key)
    grant.write_text(json.dumps(owners(campus, "list", "Sam")["assertions"][0]))
    assert "valid: Sam lets Tom RECEIVE" in ran("owners", "verify", grant, "--public", public)
    grant.write_text(grant.read_text().replace("Tom", "Eve"))
    assert sealmq("owners", "verify", grant, "--public", public).returncode == 1
    # Another key comes with the old one's signature alone, and is not left lying where it does not.
    refused(campus, "owners.command.signature", "key", "Sam", "--new", newer)
    assert not newer.exists()
    owners(campus, "key", "Sam", "--new", newer, "--key", key)
    key.chmod(0o640)
    done = sealmq("owners", "assert", campus.path, "--client", "Sam", *to_tom, "--key", key)
    assert done.returncode == 1
    assert "others can read it" in done.stderr
    owners(campus, "key", "Sam", "--none", "--key", newer)


def test_in_an_emergency_the_owner_is_told_at_once_and_later(campus: Site, tmp_path: Path) -> None:
    owners(campus, "assert", "Bob", "--to", "Tom", "--action", "EMERGENCY")
    bob = Heard(campus, tmp_path, "Bob", "-t", "loc/Bob/#")
    tom = Heard(campus, tmp_path, "Tom", "-t", "loc/Bob/#")
    open_it = ("--owner", "Bob", "--minutes", 5, "--reason", "no answer at the door")
    owners(campus, "break-glass", "Tom", *open_it)
    until("Bob to be told", lambda: "no answer at the door" in bob.err.read_text())
    seen_at(campus, "Bob", "GGBR/1005", "1")
    until("Bob's event", lambda: tom.lines() == ["loc/Bob/GGBR/1005 1"])
    [opening] = owners(campus, "openings", "Bob")["openings"]
    assert (opening["client"], opening["seen"]) == ("Tom", False)
    owners(campus, "close-glass", "Bob", "--of", "Tom")
    seen_at(campus, "Bob", "GGBR/1005", "2")
    until("Bob's own second", lambda: len(bob.lines()) == 2)
    assert len(tom.lines()) == 1
    ran("owners", "openings", campus.path, "--client", "Bob", "--seen")
    bob.end()
    tom.end()


def test_sealed_attributes_are_published_and_asked_for(campus: Site, tmp_path: Path) -> None:
    fast = Heard(campus, tmp_path, "Bob", "-t", "car/Bob", "--where", "speed > 50")
    for speed in (49, 51):
        text = f"at {speed}"
        publish(campus, "Bob", "car/Bob", text, "-q", 1, "--attribute", f"speed={speed}")
    until("the faster one", lambda: fast.lines() == ["car/Bob at 51"])
    fast.end()
    asked = ("-t", "car/Bob", "--attribute", "speed=57")
    assert owners(campus, "who-can", "Bob", *asked)["owner"] == "Bob"


def test_types_contracts_and_a_mediator_of_ones_own(campus: Site) -> None:
    new = ("--app", "LOC_APP", "--type", "BADGE")
    kind = ("-t", "badge/{user}/{door}", "--owner", "user", "--control", "both")
    refused(campus, "owners.command.no-advertise", "advertise", "Eve", *new, *kind)
    owners(campus, "advertise", "location_admin", *new, *kind)
    named = {one["type"] for one in owners(campus, "types", "Eve")["types"]}
    assert named == {"BADGE", "BUILDING", "CAR", "HEADCOUNT", "LOC_INFO"}
    owners(campus, "withdraw", "location_admin", *new)
    terms = "https://example.org/terms"
    owners(campus, "sign", "Eve", "--address", terms)
    assert owners(campus, "contracts", "Eve")["contracts"] == [{"address": terms, "signed": True}]
    owners(campus, "sign", "Eve", "--address", terms, "--withdraw")
    owners(campus, "appoint", "Tom", "--mediator", 9)
    done = sealmq("pub", campus.path, "--client", "location_publisher", "-t", "loc/Tom/a/b",
                  "-m", "x", "-q", 1)  # fmt: skip
    assert done.returncode == 12
    assert "mediator 9" in done.stderr
    owners(campus, "appoint", "Tom", "--mediator", 0)


def test_a_privacy_filter_republishes_as_the_owner_without_the_room(
    campus: Site, tmp_path: Path
) -> None:
    made = campus.enrol("blur", "campus")
    owners(campus, "assert", "Nick", "--to", "blur", "--action", "RECEIVE")
    published = ("--to", "blur", "--action", "PUBLISH", "--type", "BUILDING", "--app", "LOC_APP")
    mine = owners(campus, "assert", "Nick", *published)
    to_tom = ("--to", "Tom", "--action", "RECEIVE", "--type", "BUILDING", "--app", "LOC_APP")
    owners(campus, "assert", "Nick", *to_tom)
    tom = Heard(campus, tmp_path, "Tom", "-t", "building/#", "-t", "loc/#")
    env = {**os.environ, "PYTHONUNBUFFERED": "1"}
    blur = subprocess.Popen([sys.executable, str(EXAMPLE), str(made)], env=env)
    try:

        def comes() -> bool:
            seen_at(campus, "Nick", "EECS/2246", "here")
            return "building/Nick/EECS here" in tom.lines()

        until("the building without the room", comes)
        assert not [line for line in tom.lines() if line.startswith("loc/Nick")]
        owners(campus, "retract", "Nick", "--id", mine["id"])
        before = len(tom.lines())
        seen_at(campus, "Nick", "EECS/3115", "here")
        until("the filter to be refused", lambda: campus.audit("publish-refused", client="blur"))
        assert len(tom.lines()) == before
        assert blur.poll() is None
    finally:
        blur.kill()
        blur.wait()
        tom.end()


@pytest.mark.full
def test_a_privacy_filter_counts_people_as_its_own_and_says_nothing_of_few(
    campus: Site, tmp_path: Path
) -> None:
    made = campus.enrol("tally", "campus")
    people = ("Nick", "Sam", "Alice")
    for name in people:
        owners(campus, "assert", name, "--to", "tally", "--action", "RECEIVE")
    to_tom = ("--to", "Tom", "--action", "RECEIVE", "--type", "HEADCOUNT", "--app", "LOC_APP")
    owners(campus, "assert", "tally", *to_tom)
    tom = Heard(campus, tmp_path, "Tom", "-t", "headcount/#", "-t", "loc/#")
    tally = subprocess.Popen([sys.executable, str(EXAMPLE), str(made), "--count", "3"])
    at = [(name, "EECS/2246") for name in people] + [(name, "ATL/1") for name in people[:2]]
    try:

        def comes() -> bool:
            with ThreadPoolExecutor(len(at)) as pool:
                list(pool.map(lambda one: seen_at(campus, one[0], one[1], "here"), at))
            return "headcount/EECS 3" in tom.lines()

        until("three people to be counted", comes)
        told = {line for line in tom.lines() if line.startswith("headcount/")}
        assert told == {"headcount/EECS 3"}, "of two people nobody is told"
        assert not [line for line in tom.lines() if line.startswith("loc/Nick")]
        assert tally.poll() is None
    finally:
        tally.kill()
        tally.wait()
        tom.end()


def test_could_answers_from_the_log_what_was_and_what_nobody_knows(campus: Site) -> None:
    grant = owners(campus, "assert", "Alice", "--to", "Sam", "--action", "RECEIVE")
    owners(campus, "retract", "Alice", "--id", grant["id"])

    def said() -> list[dict[str, Any]]:
        rows = campus.audit("command", family="owners", client="Alice")
        return [row for row in rows if grant["id"] in row["detail"]]

    made, gone = until("the log to have it", lambda: said() if len(said()) == 2 else None)

    def could(at_ms: int, topic: str) -> tuple[int, dict[str, Any]]:
        at = f"{at_ms / 1000:.3f}"
        stamp = subprocess.run(
            ["date", "-u", "-d", f"@{at}", "+%Y-%m-%dT%H:%M:%S.%3N"],
            capture_output=True, text=True, check=True,
        ).stdout.strip()  # fmt: skip
        words = ("--client", "Sam", "-t", topic, "--at", stamp, "--json")
        done = sealmq("owners", "could", campus.path, *words)
        return done.returncode, json.loads(done.stdout)

    code, answer = could(made["at_ms"], "loc/Alice/ATL/133")
    assert (code, answer["answer"]) == (0, "yes")
    assert answer["chain"][0]["id"] == grant["id"]
    assert could(gone["at_ms"], "loc/Alice/ATL/133")[0] == 1
    assert could(made["at_ms"] - 1, "loc/Alice/ATL/133")[0] == 1
    # Where Sam was then, events told the mediator, and no record.
    code, answer = could(gone["at_ms"], "loc/Eve/ATL/133")
    assert (code, answer["rests_on"]) == (3, ["extBuilding", "extRoom"])


def test_simulate_says_who_receives_figure_9_and_changes_nothing(campus: Site) -> None:
    words: tuple[object, ...] = ("owners", "simulate", campus.path)
    words = (*words, "--events", campus.path / "events.jsonl")
    found = [json.loads(line) for line in ran(*words, "--json").splitlines()]
    assert [one["receivers"] for one in found] == [["Eve"], ["Eve"], [], [], []]
    assert ran(*words).splitlines()[0] == "loc/Eve/EECS/1005: Eve"
    lines = [
        {"at": "2004-10-05T15:00:00Z"},
        {"subscribe": "loc/#", "client": "Eve"},
        {"subscribe": "nothing/#", "client": "Eve"},
        {"publish": "loc/Bob/GGBR/1005", "client": "location_publisher"},
        {"at": "2004-10-09T15:00:00Z"},
        {"publish": "loc/Bob/GGBR/1005", "client": "location_publisher"},
        {"command": {"do": "types"}, "client": "Eve"},
    ]
    text = "\n".join(map(json.dumps, lines))
    words = ("owners", "simulate", campus.path, "--events", "-", "--json")
    done = sealmq(*words, stdin=text)
    found = [json.loads(line)["receivers"] for line in done.stdout.splitlines()]
    assert found == [["Eve"], []]
    assert "line 3: Eve: " in done.stderr
    assert len(sealmq(*words, "--all", stdin=text).stdout.splitlines()) == 4
    done = sealmq(*words, stdin='{"at": "soon"}')
    assert (done.returncode, "line 1" in done.stderr) == (1, True)


# The last one: it switches enforcement off.
def test_the_doctor_tries_to_break_it_and_says_where_it_is_open(campus: Site) -> None:
    def tried(code: int) -> dict[str, Any]:
        done = sealmq("doctor", campus.path, "--json")
        assert done.returncode == code, done.stdout + done.stderr
        return {row["name"]: row["ok"] for row in json.loads(done.stdout)["tries"]}

    before = campus.toml.read_bytes()
    assert set(tried(0).values()) == {True}
    assert campus.toml.read_bytes() == before
    campus.edit("[policy]\n", "[policy]\nenforce = false\n")
    assert sealmq("reload", campus.path).returncode == 0
    open_to_all = {name for name, ok in tried(1).items() if ok is False}
    assert open_to_all >= {
        "read another's event",
        "publish another's event",
        "read on when the owner has retracted",
        "ask for another's events with a condition of one's own",
    }
