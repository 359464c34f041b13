"""The family through the engine: each rule, and what the paper says of reservations."""

from __future__ import annotations

import tomllib
from typing import Any

import pytest

from families.factory import FACTORY
from families.purposes.purposes_factory import (
    ANGLE,
    DPO,
    OTHER,
    READER,
    SENSOR,
    TEMP,
    House,
    rule,
    said,
)
from sealmq.families.api import Proposal, Verdict
from sealmq.families.engine import Decision, Engine
from sealmq.families.pace import BURST
from sealmq.families.purposes.commands import PURPOSES
from sealmq.families.purposes.family import PurposesFamily
from sealmq.families.purposes.rules import RULES
from sealmq.site.check import parse
from sealmq_spec import purposes as say

STORES = ("cache", "tree", "flat")


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest) -> str:
    return f'store = "{request.param}"\n'


def test_every_rule_has_a_plain_line_and_stands_in_its_family() -> None:
    for name, line in RULES.items():
        assert name.startswith("purposes.")
        assert line.endswith(".")
        assert len(name) <= 100


def test_connecting_and_publishing_are_the_labels_business() -> None:
    house = House()
    assert said(house.connect(SENSOR)) == "connect"
    got = house.publish(SENSOR, TEMP)
    assert (said(got), got.duties, got.topic) == ("publish", (), TEMP)
    assert house.publish(SENSOR, TEMP) is got, "cached"
    # In a strict site, too: data without a reader harms nobody.
    assert house.publish(SENSOR, "never/reserved").allow


def test_the_papers_vehicle(store: str) -> None:
    """V-A: operational and marketing, but not individualised marketing."""
    house = House(store)
    house.reserve(DPO, "car/+/location", ("operational", "marketing"), ("marketing/individual",))
    house.label("car/7/location", "m1-temp")
    for ap, want in (
        ("operational/billing", "deliver.allowed"),
        ("marketing", "deliver.allowed"),
        ("marketing/individual", "!deliver.no-subscription"),
        ("marketing/individual/mail", "!deliver.no-subscription"),
        ("research", "!deliver.no-subscription"),
        ("operationally", "!deliver.no-subscription"),
    ):
        house.take(READER, "car/7/location", ap)
        assert said(house.read(READER, "car/7/location")) == want, ap
        house.conn(READER).unsubscribed(say.access("car/7/location", ap))
    assert said(house.take(READER, "car/7/location", "marketing/individual")) == (
        "!subscribe.prohibited"
    )
    assert said(house.take(READER, "car/7/location", "research")) == "!subscribe.not-allowed"


def test_reservations_that_match_are_united_and_what_one_prohibits_is_out(store: str) -> None:
    house = House(store)
    house.reserve(DPO, "machine/#", ("a",))
    house.reserve(DPO, "machine/1/+", ("b",))
    house.reserve(SENSOR, TEMP, ("c",), ("b/x",))
    for ap, want in (("a", True), ("b", True), ("c/d", True), ("b/x", False), ("d", False)):
        house.take(READER, "machine/#", ap)
        assert house.read(READER, TEMP).allow == want, ap
        house.conn(READER).unsubscribed(say.access("machine/#", ap))
    eip = house.asked(DPO, "eip", TEMP)
    assert (eip["aip"], eip["pip"]) == (["a", "b", "c"], ["b/x"])


def test_an_empty_set_allows_nothing_and_an_empty_reservation_is_none(store: str) -> None:
    house = House(store + "strict = false\n")
    house.take(READER, "machine/1/#", "a")
    assert said(house.read(READER, TEMP)) == "deliver.unreserved"
    house.reserve(SENSOR, TEMP)
    assert said(house.read(READER, TEMP)) == "!deliver.not-allowed"
    assert house.release(SENSOR, TEMP) == "entitled.label"
    assert said(house.read(READER, TEMP)) == "deliver.unreserved"
    assert house.rows() == {}


def test_the_next_reservation_of_a_filter_replaces_it(store: str) -> None:
    house = House(store)
    house.take(READER, "machine/#", "a")
    house.reserve(SENSOR, TEMP, ("a",))
    assert house.read(READER, TEMP).allow
    house.reserve(SENSOR, TEMP, ("b",))
    assert said(house.read(READER, TEMP)) == "!deliver.not-allowed"
    assert len(house.rows()) == 1


def test_several_subscriptions_of_one_client(store: str) -> None:
    house = House(store)
    house.reserve(SENSOR, TEMP, ("a",))
    house.take(READER, "machine/+/temperature", "b")
    house.take(READER, "machine/#", "a/x")
    got = house.read(READER, TEMP)
    assert (said(got), got.audit) == ("deliver.allowed", (("purpose", "a/x"), ("under", TEMP)))
    house.conn(READER).unsubscribed(say.access("machine/#", "a/x"))
    got = house.read(READER, TEMP)
    assert (said(got), dict(got.audit)["purpose"]) == ("!deliver.not-allowed", "b")


def test_without_a_purpose_strict_and_open(store: str) -> None:
    house = House(store)
    got = house.take(READER, "machine/#")
    assert said(got) == "!subscribe.no-purpose"
    assert f'presubscribe] {READER} = {{ "machine/#" = ' in got.reason
    house = House(store + "strict = false\n")
    assert said(house.take(READER, "machine/#")) == "subscribe.possible"
    assert said(house.read(READER, TEMP)) == "deliver.unreserved"
    house.reserve(SENSOR, TEMP, ("a",))
    assert said(house.read(READER, TEMP)) == "!deliver.no-purpose"
    assert said(house.read(READER, ANGLE)) == "deliver.unreserved"


def test_what_an_operator_is_told_to_write_means_what_was_asked_and_no_more() -> None:
    """A client's filter and purpose may look like the file itself."""
    house = House('mode = "fos"\n')
    filt, ap = 'x" = { aip = ["a"] } \\/\x7f', 'a", "b'
    for reason, found in (
        (house.take(READER, filt, ap).reason, ["families", "purposes", "reserve", filt, "aip"]),
        (house.take(READER, filt).reason, ["families", "purposes", "presubscribe", READER, filt]),
    ):
        at: Any = tomllib.loads(reason.partition(": ")[2].replace("] ", "]\n", 1))
        for key in found:
            assert list(at) == [key]
            at = at[key]
        assert at in ([ap], "PURPOSE")


def test_who_withdrew_consent_stands_before_the_line_that_overrules_it() -> None:
    house = House('mode = "fos"\n')
    house.reserve(SENSOR, TEMP)
    reason = house.take(READER, TEMP, "a").reason
    assert 0 < reason.index("its owner can allow it") < reason.index("[families.purposes.reserve]")


@pytest.mark.parametrize("how", [0, 1, 2, 3])
def test_messages_of_all_ages_are_judged(how: int) -> None:
    house = House()
    house.reserve(SENSOR, TEMP, ("a",))
    house.take(READER, "machine/#", "b")
    assert said(house.deliver(READER, TEMP, "m1-temp", how)) == "!deliver.not-allowed"
    house.take(READER, TEMP, "a")
    assert said(house.deliver(READER, TEMP, "m1-temp", how)) == "deliver.allowed"


def test_each_rule_is_reached() -> None:
    """What no test reaches may be wrong for years; the denials among them are told to clients."""
    reached: set[str] = set()

    def met(got: Decision | str | Proposal | Verdict) -> None:
        if isinstance(got, Decision):
            reached.update(v.rule for v in got.votes if v.family == "purposes")
        else:
            name = got if isinstance(got, str) else rule(got)
            reached.add("purposes." + name.removeprefix("!"))

    grant = f'[[families.purposes.grant]]\nfilter = "machine/2/#"\nclients = ["{OTHER}"]\n'
    tree = '[families.purposes.tree]\na = ["b"]\nc = []\n'
    creation = '[[creation]]\nfilter = "kept/#"\n'
    house = House(grant + tree, text=FACTORY + creation)
    met(house.connect(SENSOR))
    met(house.publish(SENSOR, TEMP))
    for client, filt in (
        (SENSOR, "machine/2/x"),
        (OTHER, "machine/2/x"),
        (SENSOR, "machine/1/#"),
        (OTHER, TEMP),
        (SENSOR, "kept/x"),
        (SENSOR, "new"),
        (SENSOR, TEMP),
        (SENSOR, "$x"),
        (OTHER, "new"),
        (DPO, ANGLE),
        ("off", "x"),
    ):
        met(house.reserve(client, filt, ("a",), ("c",)))
    met(house.reserve(SENSOR, TEMP, tuple(f"{n}" for n in range(PURPOSES + 1))))
    for client, text in (
        (SENSOR, "nothing"),
        (OTHER, say.query("eip", "elsewhere")),
        (READER, say.presubscribe(READER, "legacy", "b")),
        (READER, say.presubscribe(SENSOR, "legacy", "b")),
        (DPO, say.presubscribe("nobody", "legacy", "b")),
        (DPO, say.setting("colour", "red")),
        (READER, say.presubscribe(READER, "x", "typo")),
    ):
        met(house.tell(client, text))
    for _ in range(BURST):
        house.tell(READER, "nothing")
    met(house.tell(READER, "nothing"))
    for filt, ap in ((TEMP, ""), (TEMP, "c"), (TEMP, "typo"), ("machine/1/#", "b"), (TEMP, "b")):
        met(house.take(READER, filt, ap))
    met(house.read(READER, TEMP))
    met(house.read(READER, "machine/2/y"))
    met(house.read(OTHER, TEMP))
    met(house.read("monitor", ANGLE))
    met(house.deliver(READER, "@sm1/z/1/2", ""))
    house.tell(DPO, say.setting("mode", "fop"))
    met(house.take(READER, "machine/1/#", "c"))
    met(house.read(READER, TEMP))
    house.tell(DPO, say.setting("mode", "fos"))
    house.reserve(DPO, "machine/1/+", ("c",))
    met(house.take(READER, "machine/1/+", "b"))
    met(house.take(READER, "machine/#", "b"))
    met(house.take(READER, TEMP, "c"))
    met(house.read(READER, TEMP))
    met(house.subscribe(READER, "@sm1/#"))
    met(house.subscribe(READER, "$share/g"))
    house.tell(DPO, say.setting("strict", "false"))
    met(house.take(READER, "free"))
    met(house.read(READER, "free"))
    for mode, ap in (("fop", "other"), ("fos", "a"), ("fop", ""), ("fop", "a/x")):
        house = House(f'mode = "{mode}"\nstrict = false\n')
        house.take(READER, "machine/#", ap)
        house.reserve(SENSOR, TEMP, ("a",), ("a/x",))
        house.reserve(DPO, ANGLE, ("b",))
        met(house.read(READER, TEMP))
        met(house.read(SENSOR, TEMP))
        met(house.take(READER, TEMP, "a"))
    house = House()
    for filt, letter in (("a/+", "x"), ("a/b", "y")):
        house.reserve(DPO, filt, tuple(f"{n}{letter * 95}" for n in range(PURPOSES)))
    met(house.tell(DPO, say.query("eip", "a/b")))
    alone = Engine([PurposesFamily()])
    alone.load(parse(FACTORY), [])
    conn = alone.connection(alone.who(READER, 1))
    met(conn.subscribe("@sm1/#", 0, 1))
    met(conn.subscribe("$share/g", 0, 1))
    assert reached >= RULES.keys(), sorted(RULES.keys() - reached)
    assert reached <= RULES.keys()
