"""Texts of subscriptions: malformed, published, with other keywords, shared; none is a fault."""

from __future__ import annotations

import pytest

from families.factory import FACTORY
from families.purposes.purposes_factory import (
    DPO,
    READER,
    SENSOR,
    TEMP,
    House,
    rule,
    toml,
)
from sealmq.families.api import Rewrite
from sealmq.families.engine import Engine
from sealmq.families.purposes.family import PurposesFamily
from sealmq.site.check import parse
from sealmq_spec import purposes as say


@pytest.mark.parametrize("text", ["!AP/x", "!AP/x{}", "!AP/#{a}", "!AP/x{a|b}", "!AP/x{a}y"])
def test_a_malformed_purpose_is_refused_and_is_no_fault(text: str) -> None:
    house = House()
    got = house.subscribe(READER, text)
    assert (got.allow, got.rule) == (False, "engine.parse")
    assert len(got.reason.encode()) <= 500
    assert house.faults == []


def test_what_is_not_a_subscription_is_not_parsed() -> None:
    house = House()
    text = say.access(TEMP, "a")
    assert house.publish("root", text).rule == "labels.publish.reserved"
    assert house.conn(READER).parse("subscribe", text) == TEMP
    assert house.subscribe(READER, say.access("!c1", "a")).rule == "labels.subscribe.reserved"


def test_alone_in_the_order_it_reaches_nothing_of_the_protocol() -> None:
    engine = Engine([PurposesFamily()])
    engine.load(parse(FACTORY), [])
    conn = engine.connection(engine.who(READER, 1))
    for text in (say.access("!c1", "a"), say.access("$SYS/#", "a"), "$share/g", "$share//x"):
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


OTHER_WORDS = """
published = true
[families.purposes.words]
ap = "!FOR"
reserve = "!BIND"
open = "<"
close = ">"
hash = "ALL"
"""


def test_a_site_reads_other_words_and_the_canonical_form_for_the_same() -> None:
    house = House(OTHER_WORDS)
    assert rule(house.tell(SENSOR, f"!BIND/{TEMP}<a|>")) == "entitled.label"
    assert list(house.family.state.store.eip(TEMP).aip) == ["a"]
    assert rule(house.tell(SENSOR, say.reserve(TEMP, ("a", "b")))) == "entitled.label"
    assert sorted(house.family.state.store.eip(TEMP).aip) == ["a", "b"]
    for text in (f"!FOR/{TEMP}<a>", say.access(TEMP, "a")):
        got = house.subscribe(READER, text)
        assert (got.allow, got.topic) == (True, TEMP), text
    assert house.subscribe(READER, "!FOR/machine/ALL<a>").topic == "machine/#"
    # A level ALL is a name to our clients.
    assert house.subscribe(READER, say.access("machine/ALL", "a")).topic == "machine/ALL"
    assert house.subscribe(READER, f"!FOR/{TEMP}{{a}}").rule == "engine.parse"
    assert house.subscribe(READER, "!FER/x<a>").rule == "labels.subscribe.reserved"


def test_what_a_foreign_client_has_subscribed_to_is_judged_anew_when_the_site_changes() -> None:
    house = House(OTHER_WORDS)
    house.reserve(SENSOR, TEMP, ("a",))
    raw = f"!FOR/{TEMP}<a>"
    got = house.subscribe(READER, raw)
    house.conn(READER).subscribed(got, 0, house.now)
    assert house.read(READER, TEMP).allow
    house.reload(toml())
    assert [due for _, due in house.engine.due()] == [raw]
    again = house.conn(READER).again(raw, house.now)
    assert again is not None
    assert again.rule == "labels.subscribe.reserved"
    assert not house.read(READER, TEMP).allow


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
    house.tell(READER, say.presubscribe(READER, "machine/#", "b"))
    assert house.take(READER, "$share/h/machine/#").topic == "$share/b.h/machine/#"
    house.tell(READER, say.presubscribe(READER, "x" * 1000, "a" * 20))
    assert house.take(READER, "$share/g/" + "x" * 1000).rule == "purposes.subscribe.malformed"


def test_in_an_open_site_a_group_without_a_purpose_is_one_of_its_own() -> None:
    house = House("strict = false\n")
    assert house.take(READER, "$share/a.g/x").topic == "$share/.a.g/x"
