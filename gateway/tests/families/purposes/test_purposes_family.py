"""The family through the engine: each rule, the modes, what is live, what is kept, what is told."""

from __future__ import annotations

import json

import pytest

from families.factory import FACTORY, Site
from families.purposes.purposes_factory import (
    ANGLE,
    DPO,
    OTHER,
    READER,
    SENSOR,
    TEMP,
    G,
    House,
    rule,
    toml,
)
from sealmq.families.api import FamilyRecord, Follow, Proposal, Rewrite, Verdict
from sealmq.families.engine import Decision, Engine
from sealmq.families.labels import Labels
from sealmq.families.purposes import RULES, PurposesFamily, records
from sealmq.site.check import parse

STORES = ("cache", "tree", "flat")


def said(got: Decision) -> str:
    """The family's own rule; a denial is said with a !."""
    vote = next(v for v in got.votes if v.family == "purposes")
    assert len(vote.reason.encode()) <= 200
    return ("" if got.allow else "!") + vote.rule.removeprefix("purposes.")


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
    assert (said(got), got.plain) == ("publish", True)
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
        house.conn(READER).unsubscribed(G.access("car/7/location", ap))
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
        house.conn(READER).unsubscribed(G.access("machine/#", ap))
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
    assert (said(got), got.purpose, got.under) == ("deliver.allowed", "a/x", TEMP)
    house.conn(READER).unsubscribed(G.access("machine/#", "a/x"))
    assert said(house.read(READER, TEMP)) == "!deliver.not-allowed"


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
    house = House("limit = 2\n" + grant + tree, text=FACTORY + creation)
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
        (SENSOR, "full"),
        (SENSOR, "$x"),
        (OTHER, "new"),
        (DPO, ANGLE),
        ("off", "x"),
    ):
        met(house.reserve(client, filt, ("a",), ("c",)))
    for client, text in (
        (SENSOR, "nothing"),
        (READER, G.presubscribe(READER, "legacy", "b")),
        (READER, G.presubscribe(SENSOR, "legacy", "b")),
        (DPO, G.presubscribe("nobody", "legacy", "b")),
        (DPO, G.setting("colour", "red")),
        (READER, G.presubscribe(READER, "x", "typo")),
    ):
        met(house.tell(client, text))
    for filt, ap in ((TEMP, ""), (TEMP, "c"), (TEMP, "typo"), ("machine/1/#", "b"), (TEMP, "b")):
        met(house.take(READER, filt, ap))
    met(house.read(READER, TEMP))
    met(house.read(READER, "machine/2/y"))
    met(house.read(OTHER, TEMP))
    met(house.read("monitor", ANGLE))
    met(house.deliver(READER, "@sm1/z/1/2", ""))
    house.tell(DPO, G.setting("mode", "fop"))
    met(house.take(READER, "machine/1/#", "c"))
    met(house.read(READER, TEMP))
    house.tell(DPO, G.setting("mode", "fos"))
    house.reserve(DPO, "machine/1/+", ("c",))
    met(house.take(READER, "machine/1/+", "b"))
    met(house.take(READER, "machine/#", "b"))
    met(house.take(READER, TEMP, "c"))
    met(house.read(READER, TEMP))
    met(house.subscribe(READER, "@sm1/#"))
    met(house.subscribe(READER, "$share/g"))
    house.tell(DPO, G.setting("strict", "false"))
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
    alone = Engine([PurposesFamily()])
    alone.load(parse(FACTORY), [])
    conn = alone.connection(alone.who(READER, 1))
    met(conn.subscribe("@sm1/#", 0, 1))
    met(conn.subscribe("$share/g", 0, 1))
    assert reached >= RULES.keys(), sorted(RULES.keys() - reached)
    assert reached <= RULES.keys()


# Modes


def test_filter_on_publish_takes_every_subscription_and_judges_each_message(store: str) -> None:
    house = House(store + 'mode = "fop"\n')
    house.reserve(DPO, "machine/1/#", ("a",), ("a/x",))
    got = house.take(READER, "machine/1/#", "a/x")
    assert said(got) == "subscribe.judged-later"
    assert got.deps == (("purposes.settings",),), "no reservation changes that"
    assert said(house.read(READER, TEMP)) == "!deliver.prohibited"


def test_hybrid_refuses_what_no_topic_of_it_allows(store: str) -> None:
    house = House(store)
    assert said(house.take(READER, "machine/1/#", "a")) == "subscribe.possible"
    house.reserve(DPO, "machine/#", ("b",), ("b/x",))
    assert said(house.take(READER, "machine/2/#", "a")) == "!subscribe.not-allowed"
    assert said(house.take(READER, "machine/2/#", "b/x")) == "!subscribe.prohibited"
    # Allowed somewhere in it: taken, and the rest is filtered out message by message.
    house.reserve(SENSOR, TEMP, ("a",))
    assert said(house.take(READER, "machine/1/#", "a")) == "subscribe.possible"
    assert said(house.read(READER, TEMP)) == "deliver.allowed"
    assert said(house.read(READER, ANGLE)) == "!deliver.not-allowed"


def test_filter_on_subscribe_takes_what_is_allowed_as_a_whole(store: str) -> None:
    house = House(store + 'mode = "fos"\n')
    house.reserve(SENSOR, TEMP, ("a",))
    assert said(house.take(READER, "machine/1/#", "a")) == "!subscribe.partly"
    assert said(house.take(READER, TEMP, "a")) == "subscribe.allowed"
    house.reserve(DPO, "machine/1/#", ("a",))
    got = house.take(READER, "machine/1/#", "a")
    assert (said(got), got.under) == ("subscribe.allowed", "machine/1/#")
    # The other side's prohibition anywhere in it counts.
    house.reserve(DPO, ANGLE, ("b",), ("a",))
    assert said(house.subscribe(READER, G.access("machine/1/#", "a"))) == "!subscribe.partly"
    assert said(house.subscribe(READER, G.access(TEMP, "a"))) == "subscribe.allowed"


def test_a_paused_subscription_gives_nothing_not_even_what_it_might(store: str) -> None:
    house = House(store + 'mode = "fos"\n')
    house.reserve(DPO, "machine/1/#", ("a",))
    house.take(READER, "machine/1/#", "a")
    assert house.read(READER, TEMP).allow
    house.reserve(DPO, ANGLE, (), ("a",))
    assert said(house.read(READER, TEMP)) == "!deliver.paused"
    house.release(DPO, ANGLE)
    assert house.read(READER, TEMP).allow


def test_filter_on_subscribe_in_an_open_site(store: str) -> None:
    house = House(store + 'mode = "fos"\nstrict = false\n')
    assert said(house.take(READER, "machine/#")) == "subscribe.unreserved"
    assert said(house.take(READER, "machine/#", "a")) == "subscribe.unreserved"
    house.reserve(SENSOR, TEMP, ("a",))
    assert said(house.subscribe(READER, "machine/#")) == "!subscribe.no-purpose"
    assert said(house.subscribe(READER, "machine/2/#")) == "subscribe.unreserved"
    assert said(house.subscribe(READER, G.access("machine/#", "a"))) == "subscribe.allowed"
    assert said(house.subscribe(READER, G.access("machine/#", "b"))) == "!subscribe.partly"
    house.reserve(DPO, "machine/+/temperature", ("b",))
    assert said(house.subscribe(READER, G.access("machine/#", "a"))) == "!subscribe.partly"


def test_modes_are_switched_live_and_back_to_what_the_file_says(store: str) -> None:
    house = House(store)
    house.reserve(SENSOR, TEMP, ("a",))
    house.take(READER, "machine/#", "a")
    assert house.read(READER, TEMP).allow
    assert house.engine.due() == []
    assert rule(house.tell(DPO, G.setting("mode", "fos"))) == "entitled.steward"
    assert [raw for _, raw in house.engine.due()] == [G.access("machine/#", "a")]
    assert said(house.read(READER, TEMP)) == "!deliver.paused"
    house.tell(DPO, G.setting("mode"))
    assert house.read(READER, TEMP).allow
    house.tell(DPO, G.setting("strict", "false"))
    assert said(house.read(READER, ANGLE)) == "deliver.unreserved"
    assert house.asked(READER, "mode")["set"] == {"strict": "false"}
    # What a steward has set outlives a reload that says nothing of it.
    house.reload(toml(store + 'mode = "fop"\n'))
    assert house.asked(READER, "mode") == {
        "mode": "fop",
        "strict": False,
        "set": {"strict": "false"},
    }


# What verdicts rest on


def test_a_reservation_reaches_the_verdicts_that_it_crosses_and_no_others() -> None:
    house = House()
    house.reserve(DPO, "machine/#", ("a",))
    house.take(READER, "machine/#", "a")
    one, two = house.read(READER, TEMP), house.read(READER, ANGLE)
    assert house.read(READER, TEMP) is one
    house.reserve(SENSOR, TEMP, ("b",))
    assert house.read(READER, ANGLE) is two
    assert house.read(READER, TEMP) is not one
    house.reserve(DPO, "elsewhere/#", ("b",))
    assert house.read(READER, ANGLE) is two


def test_flat_and_tree_judge_every_message_anew() -> None:
    for kind, cached in (("cache", True), ("tree", False), ("flat", False)):
        house = House(f'store = "{kind}"\n')
        house.reserve(SENSOR, TEMP, ("a",))
        house.take(READER, TEMP, "a")
        one = house.read(READER, TEMP)
        assert (house.read(READER, TEMP) is one) == cached, kind
        assert house.read(READER, TEMP) == one


def test_a_withdrawal_is_due_for_the_subscriptions_that_it_reaches(store: str) -> None:
    house = House(store + 'mode = "fos"\n')
    house.reserve(DPO, "machine/#", ("a",))
    for filt in ("machine/1/#", "machine/2/#"):
        got = house.take(READER, filt, "a", qos=1)
        assert any(isinstance(duty, Follow) for duty in got.duties)
    house.reserve(SENSOR, TEMP, (), ("a",))
    due = {raw for _, raw in house.engine.due()}
    assert G.access("machine/1/#", "a") in due
    if "cache" in store:
        assert G.access("machine/2/#", "a") not in due
    again = house.conn(READER).again(G.access("machine/1/#", "a"), house.now)
    assert again is not None
    assert not again.allow
    house.release(SENSOR, TEMP)
    assert G.access("machine/1/#", "a") in {raw for _, raw in house.engine.due()}


# Clients that know nothing of purposes


def test_a_presubscription_gives_a_plain_subscription_its_purpose(store: str) -> None:
    house = House(store)
    house.reserve(SENSOR, TEMP, ("billing",))
    assert not house.take(READER, TEMP).allow
    house.tell(DPO, G.presubscribe(READER, TEMP, "billing"))
    got = house.take(READER, TEMP)
    assert (got.allow, got.purpose, got.raw) == (True, "billing", TEMP)
    assert house.read(READER, TEMP).purpose == "billing"
    # Of that filter and that client only.
    assert not house.take(READER, "machine/#").allow
    assert not house.take("m1-arm-operator", TEMP).allow
    # It is live.
    house.tell(DPO, G.presubscribe(READER, TEMP, "ads"))
    assert said(house.read(READER, TEMP)) == "!deliver.not-allowed"
    assert (house.conn(READER), TEMP) in house.engine.due()
    house.tell(READER, G.presubscribe(READER, TEMP))
    assert said(house.read(READER, TEMP)) == "!deliver.no-purpose"


def test_a_subscriptions_own_purpose_counts_before_a_presubscription() -> None:
    house = House()
    house.reserve(SENSOR, TEMP, ("billing",))
    house.tell(READER, G.presubscribe(READER, TEMP, "billing"))
    assert not house.take(READER, TEMP, "ads").allow


def test_what_sealmq_toml_declares_holds_beside_and_cannot_be_overwritten(store: str) -> None:
    more = (
        f"{store}[families.purposes.reserve]\n"
        f'"{TEMP}" = {{ aip = ["a"], pip = ["b"] }}\n'
        "[families.purposes.presubscribe]\n"
        f'{READER} = {{ "{TEMP}" = "a" }}\n'
    )
    house = House(more)
    assert house.take(READER, TEMP).purpose == "a"
    assert house.read(READER, TEMP).allow
    assert house.reserve(SENSOR, TEMP, ("b", "c")) == "entitled.label"
    assert house.reserve(DPO, TEMP, ("b", "c")) == "entitled.steward"
    assert house.release(DPO, TEMP) == "entitled.steward"
    house.reserve(SENSOR, TEMP, ("b", "c"))
    assert house.asked(SENSOR, "eip", TEMP) == {
        "topic": TEMP,
        "aip": ["a", "b", "c"],
        "pip": ["b"],
        "strict": True,
        "of": [
            {"filter": TEMP, "aip": ["b", "c"], "pip": [], "by": SENSOR, "source": "client"},
            {"filter": TEMP, "aip": ["a"], "pip": ["b"], "by": "", "source": "site"},
        ],
        "left_out": 0,
    }
    house.tell(DPO, G.presubscribe(READER, TEMP, "ads"))
    assert house.read(READER, TEMP).purpose == "a"
    house.reload(toml(store))
    assert said(house.read(READER, TEMP)) == "!deliver.not-allowed", "ads, and the site's are gone"


# Texts


@pytest.mark.parametrize("text", ["!AP/x", "!AP/x{}", "!AP/#{a}", "!AP/x{a|b}", "!AP/x{a}y"])
def test_a_malformed_purpose_is_refused_and_is_no_fault(text: str) -> None:
    house = House()
    got = house.subscribe(READER, text)
    assert (got.allow, got.rule) == (False, "engine.parse")
    assert len(got.reason.encode()) <= 500
    assert house.faults == []


def test_what_is_not_a_subscription_is_not_parsed() -> None:
    house = House()
    text = G.access(TEMP, "a")
    assert house.publish("root", text).rule == "labels.publish.reserved"
    assert house.conn(READER).parse("subscribe", text) == TEMP
    assert house.subscribe(READER, G.access("!c1", "a")).rule == "labels.subscribe.reserved"


def test_alone_in_the_order_it_reaches_nothing_of_the_protocol() -> None:
    engine = Engine([PurposesFamily()])
    engine.load(parse(FACTORY), [])
    conn = engine.connection(engine.who(READER, 1))
    for text in (G.access("!c1", "a"), G.access("$SYS/#", "a"), "$share/g", "$share//x"):
        got = conn.subscribe(text, 0, 1)
        assert (got.allow, got.rule) == (False, "purposes.subscribe.malformed"), text
    assert conn.subscribe("@sm1/#", 0, 1).rule == "purposes.subscribe.records"
    assert conn.deliver("@sm1/z/1/2", "", 1, 1).rule == "purposes.deliver.record"
    assert not conn.deliver("@sm1/z/1/2", "m1-temp", 1, 1).allow


def test_the_published_form_is_read_where_the_site_says_so() -> None:
    text = "!AP/machine/PLUS/temperature{a}"
    house = House()
    house.reserve(SENSOR, TEMP, ("a",))
    assert house.subscribe(READER, text).rule == "engine.parse"
    house = House("published = true\n")
    house.reserve(SENSOR, TEMP, ("a",))
    assert house.subscribe(READER, text).topic == "machine/+/temperature"


def test_other_keywords() -> None:
    house = House('[families.purposes.words]\nap = "!FOR"\nreserve = "!BIND"\n')
    assert rule(house.tell(SENSOR, f"!BIND/{TEMP}{{a|}}")) == "entitled.label"
    assert house.subscribe(READER, f"!FOR/{TEMP}{{a}}").allow
    assert house.subscribe(READER, G.access(TEMP, "a")).rule == "labels.subscribe.reserved"


# Shared subscriptions


def test_a_group_at_the_broker_has_one_purpose() -> None:
    house = House()
    house.reserve(DPO, "machine/#", ("a", "b"))
    raw = "$share/g/machine/#"
    names = set()
    for ap in ("a", "b", "a/c", "a.c", "%2F"):
        got = house.take(READER, raw, ap)
        if not got.allow:
            assert ap == "%2F" or ap == "a.c"
            continue
        assert [d for d in got.duties if isinstance(d, Rewrite)] == [Rewrite(got.topic)]
        assert got.topic.endswith("/machine/#")
        names.add(got.topic)
    assert names == {
        "$share/a.g/machine/#",
        "$share/b.g/machine/#",
        "$share/a%2Fc.g/machine/#",
    }
    # Nobody gets into another's group by its name.
    assert house.take(READER, "$share/a.g/machine/#", "b").topic == "$share/b.a.g/machine/#"
    assert house.read(READER, TEMP).allow
    house.tell(READER, G.presubscribe(READER, "machine/#", "b"))
    assert house.take(READER, "$share/h/machine/#").topic == "$share/b.h/machine/#"
    house.tell(READER, G.presubscribe(READER, "x" * 1000, "a" * 20))
    assert house.take(READER, "$share/g/" + "x" * 1000).rule == "purposes.subscribe.malformed"


def test_in_an_open_site_a_group_without_a_purpose_is_one_of_its_own() -> None:
    house = House("strict = false\n")
    assert house.take(READER, "$share/a.g/x").topic == "$share/.a.g/x"


# State


def test_a_restart_finds_everything_again(store: str) -> None:
    house = House(store)
    house.reserve(SENSOR, TEMP, ("a",), ("a/x",))
    house.reserve(SENSOR, "old", ("a",))
    house.label("old", "m2-temp")
    house.tell(DPO, G.presubscribe(READER, TEMP, "a"))
    house.tell(DPO, G.setting("mode", "fop"))
    family = PurposesFamily()
    engine = Engine([Labels(), family])
    engine.apply(engine.load(house.config, house.stored))
    conn = engine.connection(engine.who(READER, 1))
    got = conn.subscribe(TEMP, 0, 1)
    assert (got.purpose, got.allow) == ("a", True)
    conn.subscribed(got, 0, 1)
    assert conn.deliver(TEMP, "m1-temp", 3, 1).under == TEMP
    assert family.state.mode == "fop"
    assert list(family.state.dormant) == ["old"]
    assert family.state.held == house.family.state.held


def test_rows_of_a_family_that_left_the_order_stay_and_count_again_when_it_is_back() -> None:
    house = House()
    house.reserve(SENSOR, TEMP, ("a",))
    without = Site(FACTORY)
    without.commit(house.stored)
    assert without.deliver(READER, TEMP, "m1-temp").allow
    assert without.stored == house.stored, "nothing is taken out"
    engine = Engine([Labels(), PurposesFamily()])
    engine.load(house.config, without.stored)
    conn = engine.connection(engine.who(READER, 1))
    assert conn.deliver(TEMP, "m1-temp", 0, 1).rule == "purposes.deliver.no-subscription"


def test_rows_that_differ_in_anything_but_their_time_are_told_apart() -> None:
    one = '{"aip":["a,\\"at\\":"],"pip":[],"by":"root","label":"","at":1}'
    rows = [one, one.replace("1}", "22}"), one.replace('"pip":[]', '"pip":["b"]')]
    rows += [one.replace('"label":""', '"label":"m1-temp"'), one.replace("root", "monitor")]
    found = [records.read_reservation(f"t/{n}", row.encode()) for n, row in enumerate(rows)]
    told = [(r.filter, set(r.aip), set(r.pip), r.by, r.label) for r in found]
    aip = {'a,"at":'}
    assert told == [
        ("t/0", aip, set(), "root", ""),
        ("t/1", aip, set(), "root", ""),
        ("t/2", aip, {"b"}, "root", ""),
        ("t/3", aip, set(), "root", "m1-temp"),
        ("t/4", aip, set(), "monitor", ""),
    ]
    for wrong in (b"{", b"", one.encode()[:-8], one.encode().replace(b',"at":1', b",")):
        with pytest.raises(json.JSONDecodeError):
            records.read_reservation("t", wrong)


@pytest.mark.parametrize("row", [("r/x", b"{"), ("x/y", b"{}"), ("r/x", b'{"aip": 1}')])
def test_a_row_that_cannot_be_read_lets_nothing_through(row: tuple[str, bytes]) -> None:
    house = House("strict = false\n")
    assert house.take(READER, "machine/#", "a").allow
    house.engine.apply([FamilyRecord("purposes", *row)])
    assert not house.read(READER, TEMP).allow
    assert house.faults


def test_explain_says_which_reservations_whose_and_why() -> None:
    more = '[families.purposes.reserve]\n"machine/#" = { aip = ["operational"] }\n'
    house = House(more)
    house.reserve(SENSOR, TEMP, ("ads",), ("operational/spying",))
    house.take(READER, "machine/#", "operational/billing")
    got = house.read(READER, TEMP)
    lines = house.engine.explain(house.conn(READER), got)
    for line in (
        "purposes are filtered in mode hybrid, strict",
        "reservation machine/# of sealmq.toml allows operational",
        f"reservation {TEMP} of {SENSOR} allows ads and prohibits operational/spying",
        f"{TEMP} may be used for ads, operational, never for operational/spying",
        "monitor subscribes to machine/# for operational/billing",
        "operational/billing is in: operational, which it is below, is allowed",
    ):
        assert line in lines, line
    house.take(READER, TEMP, "operational/spying/x")
    house.take(READER, "machine/+/temperature", "other")
    house.tell(DPO, G.setting("mode", "fop"))
    for ap in ("operational/spying/x", "other"):
        house.take(READER, "machine/1/+", ap)
    lines = house.engine.explain(house.conn(READER), house.read(READER, TEMP))
    assert "purposes are filtered in mode fop, strict; mode was set by a steward" in lines
    assert (
        "operational/spying/x is out: operational/spying, which it is below, is prohibited" in lines
    )
    assert "other is out: neither it nor a purpose above it is allowed" in lines
    house.tell(DPO, G.setting("mode"))
    refused = house.subscribe(READER, G.access(TEMP, "operational/spying"))
    lines = house.engine.explain(house.conn(READER), refused)
    assert "monitor subscribes to machine/1/temperature for operational/spying" in lines
    lines = house.engine.explain(house.conn(OTHER), house.subscribe(OTHER, G.access("x", "a")))
    assert "no reservation reaches a topic of x" in lines


def test_what_a_client_is_told_names_no_reservation_of_others() -> None:
    house = House()
    house.reserve(DPO, "machine/#", ("secret-purpose",), ("barred-purpose",))
    for ap in ("a", "barred-purpose", "barred-purpose/x"):
        for got in (house.take(READER, "machine/1/#", ap), house.read(READER, TEMP)):
            assert not got.allow
            told = got.reason.replace(f'"{ap}"', "")
            assert "secret" not in told
            assert "machine/#" not in told
            assert DPO not in told
