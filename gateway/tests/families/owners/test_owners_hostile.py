"""What owners, advertisers and readers do to others: with types, bombs, and what is remembered."""

from __future__ import annotations

import gc
import json
from dataclasses import replace
from typing import Any

import pytest

from families.owners.owners_site import LOC, ROOT, SITE, People
from families.owners.test_owners_family import policy
from sealmq.families.api import Later, Proposal, TopicLabel
from sealmq.families.owners import (
    chains,
    commands,
    events,
    expressions,
    facts,
    records,
    rules,
    where,
)
from sealmq.families.owners.assertions import Assertion
from sealmq.families.owners.events import BadAttributes, EventType
from sealmq.families.owners.expressions import condition
from sealmq.families.owners.turn import MAX_ANSWER
from sealmq_spec.const import MAX_COMMAND
from sealmq_spec.errors import Malformed

PLACE = """
[attributes.room]
source = "events"
family = "owners"
of = "subscriber"
valid = "8h"
"""
EVE = policy('authorizer = "POLICY"\nlicensees = ["eve"]\nactions = ["*"]\napp = "EVE"')
MINE = {"app": "EVE", "topic": "eve/{user}/{place}", "owner": "user"}


def test_an_advertiser_tells_no_attribute_of_anybody() -> None:
    site = People(SITE + PLACE + LOC.replace('admin = "admin"', 'derives = { room = "place" }')
                  + ROOT + EVE)  # fmt: skip
    assert site.command("eve", "advertise", type="X", derives={"room": "place"}, **MINE) == (
        rules.NO_ADVERTISE
    )
    assert site.command("eve", "advertise", type="X", **MINE)["type"]["derives"] == {}
    assert site.publish("eve", "eve/bob/1005").allow
    # A row that came into the store past the command derives nothing either.
    topic = MINE["topic"]
    liar = EventType("EVE", "X", topic, "user", derives={"room": "place"}, by="eve")
    site.commit([records.event_type(liar)])
    site.accepted("eve/bob/1005", "eve")
    assert site.engine.attributes.held("room", "bob") is None
    site.accepted("loc/bob/1003")
    found = site.engine.attributes.held("room", "bob")
    assert found is not None
    assert found.value == "1003"


def kept(site: People, client: str, topic: str, how: int, age_s: int) -> Any:
    """A delivery of what was published so long ago."""
    site.engine.apply([TopicLabel(topic, "all", "meter", 0)])
    return site.conn(client).deliver(topic, "all", how, site.now, age_ms=age_s * 1000)


def test_an_advertised_type_opens_nothing_that_was_there_before_it() -> None:
    site = People(SITE + LOC + ROOT + EVE)
    kind = {"app": "APP", "topic": "log/{user}", "owner": "user"}
    site.command("admin", "advertise", type="LOG", **kind)
    site.now += 60_000
    assert kept(site, "ann", "log/ann", 1, 30).allow
    assert not kept(site, "eve", "log/ann", 1, 30).allow
    site.command("admin", "advertise", type="LOG", control="both", **kind)
    assert kept(site, "ann", "log/ann", 1, 30).allow, "the same topics"
    site.command("admin", "withdraw", app="APP", type="LOG")
    taken = {"app": "EVE", "topic": "log/{user}", "owner": "user", "control": "none"}
    assert site.command("eve", "advertise", type="X", **taken)["type"]
    for how in (1, 2, 3):
        got = kept(site, "eve", "log/ann", how, 30)
        assert (got.allow, got.rule) == (False, rules.DELIVER_NO_TYPE)
    assert kept(site, "eve", "log/ann", 0, 0).allow, "what comes from now on is of this type"
    site.now += 60_000
    moved = {**taken, "topic": "log/{u}", "owner": "u"}
    site.command("eve", "advertise", type="X", **moved)
    assert not kept(site, "eve", "log/ann", 1, 30).allow, "other topics, another beginning"


def test_a_type_whose_advertiser_is_gone_opens_nothing_that_was_there_before_it_either() -> None:
    """And another client has the advertiser's name."""
    site = People(SITE + PLACE + LOC + ROOT + EVE)
    site.now += 60_000
    taken = {"app": "EVE", "topic": "log/{user}", "owner": "user", "control": "none"}
    site.command("eve", "advertise", type="X", **taken)
    liar = EventType("EVE", "Y", MINE["topic"], "user", derives={"room": "place"}, by="eve",
                     at_ms=site.now)  # fmt: skip
    site.commit([records.event_type(liar)])
    site.now += 10_000
    since = {"eve": site.now}
    assert site.engine.noted(since)
    site.commit(site.engine.bearers(since, lambda: list(site.rows.values())))
    assert kept(site, "bob", "log/ann", 1, 5).allow
    [kind] = [one for one in site.command("hr", "types")["types"] if one["type"] == "X"]
    assert kind["by"] == "eve (removed)", "and not the operator"
    got = kept(site, "bob", "log/ann", 1, 15)
    assert (got.allow, got.rule) == (False, rules.DELIVER_NO_TYPE)
    site.accepted("eve/bob/1005", "hr")
    assert site.engine.attributes.held("room", "bob") is None
    row = site.rows["t/EVE/X"]
    older = (row.value or b"").replace(b"eve (removed)", b"")
    site.commit([replace(row, value=older)])
    assert b'"by":""' in older
    assert not kept(site, "bob", "log/ann", 1, 15).allow


BOMB = " || ".join(f'sender == "x{i}"' for i in range(60))


def test_an_owner_s_conditions_hold_nobody_up() -> None:
    many = "".join(f'n{i} = {{ label = "all" }}\n' for i in range(600))
    site = People(SITE.replace("[clients]\n", "[clients]\n" + many) + LOC + ROOT)
    for i in range(4):
        site.now += 1
        site.lets("ann", "bob", condition=f'{BOMB} || place == "{i}"')
    site.lets("ann", "cat", condition='sender == "meter"')
    assert site.deliver("bob", "loc/ann/hall").rule == rules.TOO_MUCH
    assert site.may("cat", "loc/ann/hall"), "whoever is let in few words has it"
    assert not site.may("cat", "loc/ann/hall", sender="n1")
    # A subscriber's own conditions, many of them.
    site.lets("dan", "eve")
    wanted = BOMB[:400].rpartition(" ||")[0]
    for i in range(4):
        site.subscribe("eve", where.encode("loc/#", f'{wanted} || place == "{i}"'))
    assert facts.MOST_TESTS < 600 * 4 * 15
    assert site.deliver("eve", "loc/dan/hall").rule == rules.TOO_MUCH


def test_a_long_chain_is_not_followed_for_each_sender() -> None:
    """One condition at its root asks who has sent it; the rest of the chain asks for nothing."""
    many = "".join(f'n{i} = {{ label = "all" }}\n' for i in range(600))
    site = People(SITE.replace("[clients]\n", "[clients]\n" + many) + LOC + ROOT)
    both = ["RECEIVE", "CHANGE_POLICY"]
    site.lets("ann", "cat", actions=both, condition='sender == "meter"')
    for name in ("dan", "eve", "hr"):
        for _ in range(20):
            site.now += 1000
            site.lets("cat", name, owner="ann", actions=both)
            site.lets(name, "bob", owner="ann")
    assert site.deliver("bob", "loc/ann/hall").rule == rules.TOO_MUCH
    assert site.may("cat", "loc/ann/hall", sender="meter"), "whoever is let in few words has it"
    assert not site.may("cat", "loc/ann/hall", sender="n1")


def test_who_can_takes_few_tests_between_two_turns_for_others() -> None:
    many = "".join(f'n{i} = {{ label = "all" }}\n' for i in range(60))
    site = People(SITE.replace("[clients]\n", "[clients]\n" + many) + LOC + ROOT)
    values = ", ".join(f'"x{i}"' for i in range(150))
    for n in range(10):
        site.now += 1000
        site.lets("ann", "*", condition=f'subscriber in [{values}, "y{n}", "n7"]')
    body = json.dumps({"do": "who-can", "topic": "loc/ann/hall"}).encode()
    later = site.conn("ann").command("owners", body, site.now)
    assert isinstance(later, Later)
    turns = 1
    while (answer := later.go_on()) is None:
        turns += 1
    assert isinstance(answer, Proposal)
    assert json.loads(answer.reply)["who"] == ["admin", "ann", "n7"]
    assert turns > 60 * 10 * 150 // facts.MOST_TESTS


def test_of_many_assertions_those_are_shown_that_an_answer_holds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    site = People()
    for n in range(300):
        site.now += 1000
        site.lets("ann", f"x{n}")
    shown: list[str] = []
    fields = vars(Assertion)["fields"].fget

    def counted(made: Assertion) -> Any:
        shown.append(made.id)
        return fields(made)

    monkeypatch.setattr(Assertion, "fields", property(counted))
    answer = site.command("ann", "list")
    assert len(answer["assertions"]) + answer["left_out"] == 300
    assert len(answer["assertions"]) <= len(shown) <= commands.MOST_LISTED


def test_one_owner_s_maze_is_that_owner_s_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of events that are their sender's."""
    own = LOC.replace("LOC", "NOTE").replace("loc/{user}", "note/{user}").replace(
        'owner = "user"', 'owner = "sender"'
    )  # fmt: skip
    site = People(SITE + own + ROOT)
    site.lets("ann", "bob")
    for name in ("cat", "dan", "eve", "hr"):
        site.lets("cat", name, actions=["CHANGE_POLICY", "RECEIVE"])
    for name in ("dan", "eve", "hr"):
        for i in range(3):
            site.now += 1
            site.lets(name, "bob", owner="cat", condition=f'place == "{i}"')
    monkeypatch.setattr(chains, "MOST_LOOKED", 8)
    assert not site.may("bob", "note/x/hall", sender="cat")
    assert site.may("bob", "note/x/hall", sender="ann")


def test_an_assertion_takes_no_other_s_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if somebody had found what has the same id."""
    site = People()
    monkeypatch.setattr(records, "identity", lambda made, at_ms: "000000000000")
    site.lets("ann", "bob")
    assert site.lets("eve", "cat") == rules.FULL
    assert site.may("bob", "loc/ann/hall")
    assert not site.may("cat", "loc/eve/hall")


def test_what_was_asked_about_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    site = People()
    plans = site.owners.state.plans
    monkeypatch.setattr(chains, "MOST_NODES", 50)
    site.lets("ann", "bob")
    for i in range(400):
        site.now += 1000
        site.command("ann", "explain", topic="loc/ann/hall", client=f"n{i}")
    assert plans.nodes <= 60
    assert site.may("bob", "loc/ann/hall")


def test_conditions_that_nobody_holds_are_forgotten() -> None:
    held = condition('place == "held"')
    before = len(expressions.shared)
    for i in range(3000):
        condition(f'place == "{i}"')
    gc.collect()
    assert len(expressions.shared) <= before + expressions.REMEMBERED
    assert condition('place == "held"') is held


@pytest.mark.parametrize(
    ("do", "body"),
    [
        ("sign", {"address": "\ud800"}),
        ("assert", {"licensees": ["bob"], "actions": "RECEIVE", "condition": 'place == "\ud800"'}),
        ("who-can", {"topic": "loc/ann/\ud800"}),
        ("advertise", {"type": "\ud800", "app": "\udfff", "topic": "a", "owner": "b"}),
        ("break-glass", {"owner": "bob", "reason": "\ud800", "minutes": 5}),
    ],
)
def test_what_is_no_text_is_malformed_and_no_defect(do: str, body: dict[str, Any]) -> None:
    site = People()
    assert site.command("ann", do, **body) == rules.MALFORMED
    assert site.faults == []
    with pytest.raises(BadAttributes):
        events.read_attributes(b'{"word": "\\ud800"}', {"word": "text"})


def test_a_long_answer_that_costs_too_much_is_refused_and_no_defect(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    site = People()
    for i in range(20):
        site.now += 1
        site.lets("ann", "bob", condition=f'place == "{i}"')
    site.owners.state.plans.clear()
    monkeypatch.setattr(chains, "MOST_LOOKED", 10)
    assert site.command("ann", "who-can", topic="loc/ann/hall") == rules.TOO_MUCH
    assert site.faults == []


OF_ALL = "".join(
    f'[attributes.{name}]\nsource = "file"\nof = "{of}"\n'
    for name, of in (("roomOf", "owner"), ("extRoom", "subscriber"), ("mate", "pair"),
                     ("open", "site"))
)  # fmt: skip


@pytest.mark.parametrize("asker", ["ann", "bob", "cat", "admin"])
def test_a_client_learns_of_no_other_by_asking_what_a_condition_comes_to(asker: str) -> None:
    """Ann owns, bob reads, cat changes ann's policy, and so does the administrator. What is told of
    another counts as unknown in the answer, and the answer says that it may rest on that.
    """
    site = People(SITE + OF_ALL + LOC + ROOT)
    site.lets("ann", "cat", actions=["CHANGE_POLICY", "RECEIVE"])
    site.told("roomOf", "hall", "ann")
    site.told("extRoom", "hall", "", "bob")
    site.told("mate", "hall", "ann", "bob")
    site.told("open", "hall")
    may = {}
    for name in ("roomOf", "extRoom", "mate", "open"):
        for op in ("==", "!="):
            id = site.lets("ann", "bob", condition=f"place {op} {name}")
            assert site.may("bob", "loc/ann/hall") is (op == "=="), "for himself it counts"
            got = site.command(asker, "explain", topic="loc/ann/hall", client="bob")
            who = got if asker == "bob" else site.command(asker, "who-can", topic="loc/ann/hall")
            told = got["allow"], got.get("veiled", False)
            if asker != "bob":
                assert ("bob" in who["who"], who.get("veiled", False)) == told
            may[name, op] = told
            site.command("ann", "retract", id=id)
    known = {"ann": {"roomOf", "mate", "open"}, "bob": {"extRoom", "mate", "open"}}
    for (name, op), told in may.items():
        if name in known.get(asker, {"open"}):
            assert told == (op == "==", False), name
        else:
            assert told == (False, True), name
    # The operator, who reads it from the site's files, is told all.
    site.owners.state.tells_all = True
    site.lets("ann", "bob", condition="place == roomOf && place == extRoom")
    assert site.command("ann", "explain", topic="loc/ann/hall", client="bob")["allow"]


def test_attributes_that_no_mediator_has_sealed_count_for_nothing() -> None:
    """Whoever has the label's key, and reaches the broker, forges them."""
    car = LOC.replace("LOC", "CAR").replace("loc/{user}", "car/{user}")
    site = People(SITE + car + 'attributes = { speed = "int" }\n' + ROOT)
    site.lets("ann", "bob", condition="speed < 50")
    assert site.may("bob", "car/ann/hall", speed=49)
    tlv = {events.TLV: events.write_attributes({"speed": 49})}
    got = site.conn("bob").deliver("car/ann/hall", "all", 0, site.now, 0, tlv)
    assert (got.allow, got.rule) == (False, rules.DELIVER_ATTRIBUTES)


def test_a_condition_is_bounded() -> None:
    many = " && ".join(['a == "b"'] * 150)
    deep = "!" * 100 + "a"
    wide = " || ".join(f"a{i}" for i in range(40))
    for text in (many, deep, wide, "a" * 3000):
        with pytest.raises(expressions.ConditionError):
            condition(text)


@pytest.mark.parametrize(
    "text",
    [
        "!" * 46 + "place==1",
        "||".join(["!place==1"] * 47),
        " || ".join(['place=="%s"' % ("x" * 150)] * 12) + "||place==1" * 8,
    ],
    ids=["deep", "many", "long"],
)
def test_a_condition_that_is_taken_is_read_at_the_next_start(text: str) -> None:
    """Kept is its canonical text, which is longer, deeper and of more parts: a row that cannot be
    read would leave the whole site without a policy.
    """
    site = People()
    site.lets("cat", "dan")
    assert site.lets("ann", "bob", condition=text) == rules.MALFORMED
    # What is taken at the bounds.
    whole = "!" * 40 + 'place == "hall"', " || ".join(["!(place == 1)"] * 25)
    for one in whole:
        assert f"a/{site.lets('ann', 'bob', condition=one)}" in site.rows
    condition.cache_clear()
    expressions.shared.clear()
    again = People(records=tuple(site.rows.values()))
    assert again.faults == []
    assert again.engine.lost == ""
    assert again.may("dan", "loc/cat/hall")


@pytest.mark.parametrize("text", ["||".join(["place==1"] * 51), 'place == "\udcff"', " "])
def test_what_no_mediator_takes_with_a_subscription_is_refused_before_it_is_sent(text: str) -> None:
    with pytest.raises(Malformed):
        where.encode("loc/#", text)


def test_no_assertion_is_so_long_that_it_hides_others_from_the_owner() -> None:
    """A delegate's, of which an answer has no room for one."""
    site = People()
    site.lets("ann", "bob", actions=["CHANGE_POLICY", "RECEIVE"])
    names = [f"{n:02}{'x' * 62}" for n in range(64)]
    parts = [f'place=="{chr(92) * n}"' for n in (800, 800, 200)] + ["place==1"] * 14
    said = {"licensees": names, "owner": "ann", "actions": "RECEIVE", "condition": "||".join(parts)}
    body = json.dumps({"do": "assert", **said}, separators=(",", ":")).encode()
    assert len(body) <= MAX_COMMAND
    made = site.conn("bob").command("owners", body, site.now)
    assert isinstance(made, Proposal)
    assert len(made.reply) <= MAX_ANSWER
    site.commit(made.records)
    for _ in range(9):
        site.now += 1
        site.lets("ann", "cat")
    listed: list[str] = []
    while True:
        answer = site.command("ann", "list", after=listed[-1] if listed else "")
        listed += [one["id"] for one in answer["assertions"]]
        if not answer["assertions"] or not answer["left_out"]:
            break
    assert {f"a/{id}" for id in listed} == set(site.rows)
    long = next(one for one in site.command("bob", "list")["assertions"] if one["owner"] == "ann")
    assert long["licensees"] == names
    assert (long["condition"][-1], long["cut"]) == ("…", True)


class _Signed(dict[str, Any]):
    """That nobody goes through."""

    def __iter__(self) -> Any:
        raise AssertionError("each contract that it has signed is looked at")

    values = items = keys = __iter__


def test_a_reader_with_many_contracts_holds_up_nobody() -> None:
    """One answer may ask for as many contracts as it may take tests."""
    site = People()
    for n in range(50):
        site.now += 1000
        site.command("bob", "sign", address=f"urn:{n}")
    site.lets("ann", "bob", condition=" || ".join(f'contract("urn:{n}")' for n in range(49, 80)))
    consents = site.owners.state.consents
    consents["bob"] = _Signed(consents["bob"])
    assert site.may("bob", "loc/ann/hall")
    consents["bob"] = dict(dict.items(consents["bob"]))
    site.now += 1000
    site.command("bob", "sign", address="urn:49", withdraw=True)
    assert not site.may("bob", "loc/ann/hall")
