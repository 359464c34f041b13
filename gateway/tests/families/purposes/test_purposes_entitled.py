"""Who may reserve, presubscribe, set and ask; and what somebody who may not tries."""

from __future__ import annotations

import json

import pytest

from families.purposes.purposes_factory import (
    ANGLE,
    DPO,
    OTHER,
    PANEL,
    READER,
    SENSOR,
    TEMP,
    House,
    rule,
)
from sealmq.families.api import FamilyRecord, Proposal, TopicReset, Verdict
from sealmq.families.purposes.commands import MAX_ANSWER, PURPOSES, WILD
from sealmq.families.purposes.state import GUESSES
from sealmq_spec import purposes as say

NEW = "machine/1/humidity"


def granted(filt: str, *clients: str, labels: tuple[str, ...] = ()) -> str:
    q = json.dumps
    return (
        f"[[families.purposes.grant]]\nfilter = {q(filt)}\n"
        f"clients = {q(clients)}\nlabels = {q(labels)}\n"
    )


def test_a_topic_is_reserved_by_clients_of_its_own_label_only() -> None:
    house = House()
    assert house.reserve(SENSOR, TEMP, ("billing",)) == "entitled.label"
    # Above or beside it in the order is not its own.
    for client in (PANEL, READER, OTHER, "public"):
        assert house.reserve(client, TEMP, ("all",)) == "!entitled.other-label"
        assert house.release(client, TEMP) == "!entitled.other-label"
    assert house.asked(DPO, "eip", TEMP)["aip"] == ["billing"]


def test_wildcards_need_a_grant_or_a_steward() -> None:
    house = House()
    for filt in ("#", "machine/1/+", "machine/1/temperature/#", "+/1/temperature"):
        assert house.reserve(SENSOR, filt, ("all",)) == "!entitled.no-grant"
        assert house.release(SENSOR, filt) == "!entitled.no-grant"
        assert house.reserve(DPO, filt, ("care",)) == "entitled.steward"


def test_a_grant_reaches_as_far_as_its_filter() -> None:
    house = House(granted("machine/1/#", SENSOR))
    for filt in (TEMP, ANGLE, "machine/1/#", "machine/1/+", "machine/1", "machine/1/arm/#"):
        assert house.reserve(SENSOR, filt, ("a",)) == "entitled.grant"
    for filt in ("machine/#", "machine/+/temperature", "#", "machine/+"):
        assert house.reserve(SENSOR, filt, ("a",)) == "!entitled.no-grant"
    assert house.reserve(SENSOR, "machine/2/temperature") == "!entitled.other-label"


def test_where_a_grant_reaches_a_label_alone_does_not_count() -> None:
    house = House(granted("machine/1/#", PANEL))
    assert house.reserve(SENSOR, TEMP, ("a",)) == "!entitled.not-granted"
    assert house.reserve(PANEL, TEMP, ("a",)) == "entitled.grant"
    by_label = House(granted("machine/1/#", labels=("m1-temp",)))
    assert by_label.reserve(SENSOR, "machine/1/#", ("a",)) == "entitled.grant"
    assert by_label.reserve(PANEL, ANGLE, ("a",)) == "!entitled.not-granted"


def test_an_earlier_grant_for_others_is_in_no_wider_reservation() -> None:
    narrow, wide = granted("machine/1/temperature", PANEL), granted("machine/#", SENSOR)
    house = House(narrow + wide)
    assert house.reserve(SENSOR, "machine/#", ("a",)) == "!entitled.not-granted"
    assert house.reserve(SENSOR, TEMP, ("a",)) == "!entitled.not-granted"
    assert house.reserve(SENSOR, "machine/2/#", ("a",)) == "entitled.grant"
    # The other way round the wide one comes first, and reaches all.
    assert House(wide + narrow).reserve(SENSOR, "machine/#", ("a",)) == "entitled.grant"


def test_a_grant_for_nobody_keeps_names_for_stewards() -> None:
    house = House(granted("machine/1/temperature"))
    assert house.reserve(SENSOR, TEMP, ("a",)) == "!entitled.not-granted"
    assert house.reserve(DPO, TEMP, ("a",)) == "entitled.steward"


def test_a_new_topic_is_reserved_by_whoever_may_create_it() -> None:
    house = House(text=_creation("machine/1/#", "m1-temp"))
    assert house.reserve(PANEL, NEW, ("a",)) == "!entitled.not-creator"
    assert house.reserve(SENSOR, NEW, ("a",)) == "entitled.new-topic"
    assert house.reserve(OTHER, "elsewhere", ("a",)) == "entitled.new-topic"


def _creation(filt: str, label: str) -> str:
    from families.factory import FACTORY

    return FACTORY + f'[[creation]]\nfilter = "{filt}"\nlabels = ["{label}"]\n'


def test_whoever_reserves_a_new_topic_for_another_one_has_no_say_once_it_is_published() -> None:
    house = House()
    assert house.reserve(OTHER, NEW, ("advertising",)) == "entitled.new-topic"
    assert house.take(READER, NEW, "advertising").allow
    assert house.publish(SENSOR, NEW).allow
    # Neither did it become the reader's for that, nor is the owner kept out.
    assert house.read(READER, NEW).rule == "purposes.deliver.no-reservation"
    assert house.reserve(SENSOR, NEW, ("billing",)) == "entitled.label"
    assert house.read(READER, NEW).rule == "purposes.deliver.not-allowed"
    assert house.reserve(OTHER, NEW, ("advertising",)) == "!entitled.other-label"


def test_a_label_undoes_no_stewards_prohibition() -> None:
    house = House()
    assert house.reserve(DPO, TEMP, ("billing",), ("billing/marketing",)) == "entitled.steward"
    assert house.reserve(SENSOR, TEMP, ("billing",)) == "!entitled.held"
    assert house.release(SENSOR, TEMP) == "!entitled.held"
    assert house.asked(DPO, "eip", TEMP)["pip"] == ["billing/marketing"]
    assert house.release(DPO, TEMP) == "entitled.steward"
    assert house.reserve(SENSOR, TEMP, ("billing",)) == "entitled.label"


def test_a_label_undoes_no_grants_reservation() -> None:
    house = House(granted(NEW, PANEL))
    assert house.reserve(PANEL, NEW, ("a",), ("b",)) == "entitled.grant"
    house.reload(_without_grants())
    house.label(NEW, "m1-temp")
    assert house.reserve(SENSOR, NEW, ("b",)) == "!entitled.held"


def _without_grants() -> str:
    from families.purposes.purposes_factory import toml

    return toml()


def test_on_a_topic_without_a_label_another_label_does_not_replace_a_prohibition() -> None:
    house = House("strict = false\n")
    assert house.reserve(SENSOR, NEW, ("a",), ("b",)) == "entitled.new-topic"
    assert house.reserve(OTHER, NEW, ("b",)) == "!entitled.held"
    assert house.release(OTHER, NEW) == "!entitled.held"
    house.publish(SENSOR, NEW)
    house.take(READER, "machine/#", "b")
    assert house.read(READER, NEW).rule == "purposes.deliver.prohibited"


def test_a_reservation_counts_while_its_topic_has_the_label_that_it_hangs_on() -> None:
    house = House()
    house.publish(SENSOR, NEW)
    house.reserve(SENSOR, NEW, ("billing",))
    house.take(READER, NEW, "billing")
    assert house.read(READER, NEW).allow
    house.reload(toml_with_topic(NEW, "m2-temp"))
    got = house.read(READER, NEW)
    assert got.rule == "purposes.deliver.no-reservation"
    said = house.engine.explain(house.conn(READER), got)
    assert any("reserved it as a topic of m1-temp; it has m2-temp now" in line for line in said)
    # Who has it now may say so, and does not find the other one in the way.
    assert house.reserve(OTHER, NEW, ("ops",)) == "entitled.label"
    assert house.reserve(SENSOR, NEW, ("billing",)) == "!entitled.other-label"
    house.release(OTHER, NEW)
    house.reserve(OTHER, NEW, ("billing",))
    assert house.read(READER, NEW).allow


def toml_with_topic(topic: str, label: str) -> str:
    from families.factory import FACTORY
    from families.purposes.purposes_factory import toml

    return toml(text=FACTORY + f'"{topic}" = "{label}"\n')


def test_a_label_that_comes_back_brings_the_reservation_back() -> None:
    house = House()
    house.publish(SENSOR, NEW)
    house.reserve(SENSOR, NEW, ("billing",))
    house.take(READER, NEW, "billing")
    house.reload(toml_with_topic(NEW, "m2-temp"))
    assert not house.read(READER, NEW).allow
    house.reload(_without_grants())
    assert house.read(READER, NEW).allow
    house.commit([TopicReset(NEW)])
    assert house.deliver(READER, NEW, "m1-temp").allow, "no label yet: it still counts"
    house.label(NEW, "m2-temp")
    assert not house.read(READER, NEW).allow


@pytest.mark.parametrize("filt", ["$SYS/x", "!c1", "@sm1/z", "$share/g/a", "!AP/a"])
def test_what_is_the_protocols_own_is_not_reserved(filt: str) -> None:
    house = House()
    for client in (SENSOR, DPO):
        assert house.reserve(client, filt, ("a",)) == "!entitled.reserved"
        assert house.release(client, filt) == "!entitled.reserved"
    assert rule(house.tell(DPO, say.presubscribe(DPO, filt, "a"))) == "!entitled.reserved"


def test_a_disabled_or_unknown_client_says_nothing() -> None:
    house = House()
    for client in ("off", "nobody"):
        for text in (
            say.reserve("x", ("a",)),
            say.query("mode"),
            say.presubscribe(client, "x", "a"),
        ):
            assert rule(house.tell(client, text)) == "!command.disabled"


def test_one_presubscribes_for_oneself_and_stewards_for_all() -> None:
    house = House()
    house.reserve(SENSOR, TEMP, ("billing", "ads"))
    assert rule(house.tell(READER, say.presubscribe(READER, TEMP, "billing"))) == "entitled.itself"
    # Another's purpose would otherwise be replaced by one that its data is not for.
    assert rule(house.tell(OTHER, say.presubscribe(READER, TEMP, "ads"))) == "!entitled.not-steward"
    assert rule(house.tell(OTHER, say.presubscribe(READER, TEMP))) == "!entitled.not-steward"
    assert house.asked(READER, "presubs", READER)["presubs"][0]["purpose"] == "billing"
    assert rule(house.tell(DPO, say.presubscribe(READER, TEMP, "ads"))) == "entitled.steward"
    assert rule(house.tell(DPO, say.presubscribe("monitr", TEMP, "a"))) == "!presubscribe.no-client"
    assert house.asked(READER, "presubs", READER)["presubs"][0]["by"] == DPO


def test_settings_are_the_stewards() -> None:
    house = House()
    for client in (SENSOR, READER, "public"):
        for name, value in (("mode", "fop"), ("strict", "false"), ("mode", "")):
            assert rule(house.tell(client, say.setting(name, value))) == "!entitled.not-steward"
    assert (house.family.state.mode, house.family.state.strict) == ("hybrid", True)
    for name, value in (("mode", "foo"), ("strict", "no"), ("stewards", "me"), ("store", "flat")):
        assert rule(house.tell(DPO, say.setting(name, value))) == "!set.unknown"
    assert house.rows() == {}


def test_one_is_told_of_what_one_may_reserve() -> None:
    house = House(granted("machine/2/#", OTHER))
    house.reserve(SENSOR, TEMP, ("billing",), ("secret",))
    assert house.asked(SENSOR, "eip", TEMP)["of"][0]["by"] == SENSOR
    assert house.asked(OTHER, "reservations", "machine/2/#")["reservations"] == []
    for client, what, arg in (
        (OTHER, "eip", TEMP),
        (OTHER, "reservations", TEMP),
        (SENSOR, "reservations", "machine/#"),
        (SENSOR, "reservations", "#"),
        (SENSOR, "presubs", READER),
    ):
        got = house.tell(client, say.query(what, arg))
        assert rule(got).startswith("!")
        assert isinstance(got, Verdict)
        assert "billing" not in got.reason
        assert "secret" not in got.reason
    assert house.asked(SENSOR, "mode") == {"mode": "hybrid", "strict": True, "set": {}}


@pytest.mark.parametrize("what", ["eip", "reservations"])
def test_who_may_create_a_topic_is_told_only_of_what_it_has_reserved_there(what: str) -> None:
    """Else anybody asks about a name that nobody uses, and is told of what is reserved above it."""
    house = House()
    house.reserve(DPO, "payroll/#", ("billing",), ("secret",))
    for asked in ("before", "another has reserved it"):
        got = house.tell(SENSOR, say.query(what, "payroll/new"))
        assert rule(got) == "!entitled.no-question", asked
        assert isinstance(got, Verdict)
        assert "billing" not in got.reason
        house.reserve(OTHER, "payroll/new", ("secret",))
    assert house.release(OTHER, "payroll/new") == "entitled.new-topic"
    assert house.reserve(SENSOR, "payroll/new", ("a",), ("b",)) == "entitled.new-topic"
    told = house.asked(SENSOR, what, "payroll/new")
    row = {"filter": "payroll/new", "aip": ["a"], "pip": ["b"], "by": SENSOR, "source": "client"}
    assert told.get("of", told.get("reservations")) == [row]
    assert told["left_out"] == 0
    if what == "eip":
        assert (told["aip"], told["pip"]) == (["a"], ["b"])
    # Once it has the topic's label, it is told what holds there.
    house.label("payroll/new", "m1-temp")
    assert "payroll/#" in json.dumps(house.asked(SENSOR, what, "payroll/new"))


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"!RESERVE",
        b"!RESERVE/a",
        b"!RESERVE/a{a}",
        b"!RESERVE/a{a|b|c}",
        b"!RESERVE/a{a,a|}",
        b"!RESERVE/a/#{a|}",
        b"!RESERVE/a{A%2a|}",
        b"!RESERVE/{a|}",
        b"!AP/a{b}",
        b"!PBAC/SET/mode",
        b"!PBAC/PRESUB/root{a}",
        b"!PBAC/GET/ALL{}",
        b"\xff\xfe",
        b"!RESERVE/" + b"a" * 1025 + b"{a|}",
        b"!RESERVE/a{" + b"a" * 129 + b"|}",
        b"!RESERVE/a{" + b",".join(b"%d" % i for i in range(3000)) + b"|}",
        b"!RESERVE/" + b"a/" * 40 + b"a{a|}",
        b"!RESERVE/a\0{a|}",
    ],
)
def test_what_is_no_command_changes_nothing_and_is_no_fault(text: bytes) -> None:
    house = House()
    got = house.tell(DPO, text)
    assert rule(got) == "!command.malformed"
    assert house.faults == []
    assert house.rows() == {}


def test_what_a_client_stores_counts_on_it_and_what_a_steward_stores_on_nobody() -> None:
    house = House(granted("machine/2/#", OTHER))

    def counts_on(client: str, text: str) -> str:
        got = house.tell(client, text)
        assert isinstance(got, Proposal), got
        (row,) = got.records
        assert isinstance(row, FamilyRecord)
        return row.client

    assert counts_on(SENSOR, say.reserve("new", ("a",))) == SENSOR
    assert counts_on(OTHER, say.reserve("machine/2/#", ("a",))) == OTHER
    assert counts_on(SENSOR, say.presubscribe(SENSOR, "x", "a")) == SENSOR
    assert counts_on(SENSOR, say.release("new")) == SENSOR
    assert counts_on(DPO, say.reserve("new", ("a",))) == ""
    assert counts_on(DPO, say.presubscribe(DPO, "x", "a")) == ""
    assert counts_on(DPO, say.setting("mode", "fop")) == ""


def test_reservations_with_wildcards_are_bounded_more_closely() -> None:
    house = House(granted("machine/2/#", OTHER))
    assert WILD == 100
    for n in range(WILD):
        house.reserve(OTHER, f"machine/2/+/{n}", ("a",))
    assert house.reserve(OTHER, "machine/2/+/x", ("a",)) == "!command.full"
    assert house.reserve(OTHER, "machine/2/+/0", ("b",)) == "entitled.grant"
    assert house.reserve(OTHER, "machine/2/x", ("b",)) == "entitled.grant"


def test_a_reservation_has_a_bounded_number_of_purposes() -> None:
    """Else one client's share of them, or all that it has ever had, fills the memory."""
    house = House()
    many = tuple(f"p{n}" for n in range(PURPOSES))
    assert house.reserve(SENSOR, TEMP, many[1:], many[:1]) == "entitled.label"
    assert house.reserve(SENSOR, TEMP, many, ("one-more",)) == "!command.full"
    assert house.reserve(DPO, TEMP, (*many, "one-more")) == "!command.full"
    assert house.asked(DPO, "eip", TEMP)["pip"] == ["p0"]


def test_only_known_purposes_when_there_is_a_tree() -> None:
    house = House('[families.purposes.tree]\noperational = ["billing"]\n')
    got = house.tell(SENSOR, say.reserve(TEMP, ("biling",)))
    assert rule(got) == "!unknown"
    assert isinstance(got, Verdict)
    assert got.reason == "the site has no purpose biling; did you mean billing?"
    assert rule(house.tell(SENSOR, say.reserve(TEMP, (), ("ads",)))) == "!unknown"
    assert rule(house.tell(DPO, say.presubscribe(READER, TEMP, "ads"))) == "!unknown"
    assert house.take(READER, TEMP, "ads").rule == "purposes.unknown"
    assert house.reserve(SENSOR, TEMP, ("operational",)) == "entitled.label"
    assert house.take(READER, TEMP, "billing").allow


def test_what_was_meant_is_searched_for_some_times_a_second() -> None:
    """A search is slow, and one SUBSCRIBE may name 512 unknown purposes."""
    house = House('[families.purposes.tree]\noperational = ["billing"]\n')

    def meant(name: str) -> bool:
        return house.take(READER, TEMP, name).votes[-1].reason.endswith("did you mean billing?")

    found = [meant(f"billing{n}") for n in range(GUESSES + 1)]
    assert found == [True] * GUESSES + [False]
    house.now += 1000
    assert meant("billling")


def test_what_is_audited_says_who_what_and_by_which_right() -> None:
    house = House()
    got = house.tell(SENSOR, say.reserve(TEMP, ("b", "a"), ("a/c",)))
    assert isinstance(got, Proposal)
    assert got.audit == {
        "topic": TEMP,
        "rule": "purposes.entitled.label",
        "detail": "reserve aip=a,b pip=a/c",
    }
    assert got.reply == b""
    details = [
        (DPO, say.release(TEMP), "release"),
        (DPO, say.presubscribe(READER, TEMP, "a"), "presubscribe monitor a"),
        (DPO, say.presubscribe(READER, TEMP), "presubscribe monitor"),
        (DPO, say.setting("mode", "fos"), "set mode fos"),
        (DPO, say.setting("mode"), "set mode as sealmq.toml says"),
    ]
    for client, text, detail in details:
        said = house.tell(client, text)
        assert isinstance(said, Proposal)
        assert (said.audit or {})["detail"] == detail


def test_a_long_answer_is_cut_and_says_so() -> None:
    house = House()
    for n in range(300):
        house.reserve(DPO, f"long/{n}/{'x' * 40}", ("a",))
    got = house.tell(DPO, say.query("reservations", "long/#"))
    assert isinstance(got, Proposal)
    assert len(got.reply) <= 8192
    said = json.loads(got.reply)
    assert len(said["reservations"]) + said["left_out"] == 300
    assert said["left_out"] > 0


def test_an_answer_that_would_be_too_long_is_none() -> None:
    house = House()
    for filt in (TEMP, "machine/+/temperature", "machine/#"):
        purposes = tuple(f"{filt[:9]}-{n:02}-{'x' * 100}".replace("/", "-") for n in range(60))
        assert house.reserve(DPO, filt, purposes[:30], purposes[30:]) == "entitled.steward"
    assert rule(house.tell(DPO, say.query("eip", TEMP))) == "!command.too-long"
    told = house.tell(DPO, say.query("reservations", TEMP))
    assert isinstance(told, Proposal)
    assert len(told.reply) <= MAX_ANSWER
