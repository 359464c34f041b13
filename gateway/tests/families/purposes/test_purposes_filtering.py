"""The three modes, switched live; what a change ends, and what it leaves."""

from __future__ import annotations

import pytest

from families.purposes.purposes_factory import (
    ANGLE,
    DPO,
    READER,
    SENSOR,
    TEMP,
    House,
    rule,
    said,
    toml,
)
from sealmq.families.api import Follow
from sealmq_spec import purposes as say

STORES = ("cache", "tree", "flat")


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest) -> str:
    return f'store = "{request.param}"\n'


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
    assert (said(got), got.audit[1]) == ("subscribe.allowed", ("under", "machine/1/#"))
    # The other side's prohibition anywhere in it counts.
    house.reserve(DPO, ANGLE, ("b",), ("a",))
    assert said(house.subscribe(READER, say.access("machine/1/#", "a"))) == "!subscribe.partly"
    assert said(house.subscribe(READER, say.access(TEMP, "a"))) == "subscribe.allowed"


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
    assert said(house.subscribe(READER, say.access("machine/#", "a"))) == "subscribe.allowed"
    assert said(house.subscribe(READER, say.access("machine/#", "b"))) == "!subscribe.partly"
    house.reserve(DPO, "machine/+/temperature", ("b",))
    assert said(house.subscribe(READER, say.access("machine/#", "a"))) == "!subscribe.partly"


def test_modes_are_switched_live_and_back_to_what_the_file_says(store: str) -> None:
    house = House(store)
    house.reserve(SENSOR, TEMP, ("a",))
    house.take(READER, "machine/#", "a")
    assert house.read(READER, TEMP).allow
    assert house.engine.due() == []
    assert rule(house.tell(DPO, say.setting("mode", "fos"))) == "entitled.steward"
    assert [raw for _, raw in house.engine.due()] == [say.access("machine/#", "a")]
    assert said(house.read(READER, TEMP)) == "!deliver.paused"
    house.tell(DPO, say.setting("mode"))
    assert house.read(READER, TEMP).allow
    house.tell(DPO, say.setting("strict", "false"))
    assert said(house.read(READER, ANGLE)) == "deliver.unreserved"
    assert house.asked(READER, "mode")["set"] == {"strict": "false"}
    # What a steward has set outlives a reload that says nothing of it.
    house.reload(toml(store + 'mode = "fop"\n'))
    assert house.asked(READER, "mode") == {
        "mode": "fop",
        "strict": False,
        "set": {"strict": "false"},
    }


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
    assert say.access("machine/1/#", "a") in due
    if "cache" in store:
        assert say.access("machine/2/#", "a") not in due
    again = house.conn(READER).again(say.access("machine/1/#", "a"), house.now)
    assert again is not None
    assert not again.allow
    house.release(SENSOR, TEMP)
    assert say.access("machine/1/#", "a") in {raw for _, raw in house.engine.due()}
