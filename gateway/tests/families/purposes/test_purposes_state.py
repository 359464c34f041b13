"""Presubscriptions, what sealmq.toml declares, rows and restarts; what explain says of it."""

from __future__ import annotations

import json

import pytest

from families.factory import FACTORY, Site
from families.purposes.purposes_factory import (
    DPO,
    OTHER,
    READER,
    SENSOR,
    TEMP,
    House,
    said,
    toml,
)
from sealmq.families.api import FamilyRecord
from sealmq.families.engine import Decision, Engine
from sealmq.families.labels.family import Labels
from sealmq.families.purposes import records
from sealmq.families.purposes.family import PurposesFamily
from sealmq_spec import purposes as say

STORES = ("cache", "tree", "flat")


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest) -> str:
    return f'store = "{request.param}"\n'


def purpose(got: Decision) -> str:
    """What the audit log would say that it is for."""
    return dict(got.audit)["purpose"]


def test_a_presubscription_gives_a_plain_subscription_its_purpose(store: str) -> None:
    house = House(store)
    house.reserve(SENSOR, TEMP, ("billing",))
    assert not house.take(READER, TEMP).allow
    house.tell(DPO, say.presubscribe(READER, TEMP, "billing"))
    got = house.take(READER, TEMP)
    assert (got.allow, purpose(got), got.raw) == (True, "billing", TEMP)
    assert purpose(house.read(READER, TEMP)) == "billing"
    # Of that filter and that client only.
    assert not house.take(READER, "machine/#").allow
    assert not house.take("m1-arm-operator", TEMP).allow
    # It is live.
    house.tell(DPO, say.presubscribe(READER, TEMP, "ads"))
    assert said(house.read(READER, TEMP)) == "!deliver.not-allowed"
    assert (house.conn(READER), TEMP) in house.engine.due()
    house.tell(READER, say.presubscribe(READER, TEMP))
    assert said(house.read(READER, TEMP)) == "!deliver.no-purpose"


def test_a_subscriptions_own_purpose_counts_before_a_presubscription() -> None:
    house = House()
    house.reserve(SENSOR, TEMP, ("billing",))
    house.tell(READER, say.presubscribe(READER, TEMP, "billing"))
    assert not house.take(READER, TEMP, "ads").allow


def test_what_sealmq_toml_declares_holds_beside_and_cannot_be_overwritten(store: str) -> None:
    more = (
        f"{store}[families.purposes.reserve]\n"
        f'"{TEMP}" = {{ aip = ["a"], pip = ["b"] }}\n'
        "[families.purposes.presubscribe]\n"
        f'{READER} = {{ "{TEMP}" = "a" }}\n'
    )
    house = House(more)
    assert purpose(house.take(READER, TEMP)) == "a"
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
    house.tell(DPO, say.presubscribe(READER, TEMP, "ads"))
    assert purpose(house.read(READER, TEMP)) == "a"
    house.reload(toml(store))
    assert said(house.read(READER, TEMP)) == "!deliver.not-allowed", "ads, and the site's are gone"


def test_a_restart_finds_everything_again(store: str) -> None:
    house = House(store)
    house.reserve(SENSOR, TEMP, ("a",), ("a/x",))
    house.reserve(SENSOR, "old", ("a",))
    house.label("old", "m2-temp")
    house.tell(DPO, say.presubscribe(READER, TEMP, "a"))
    house.tell(DPO, say.setting("mode", "fop"))
    family = PurposesFamily()
    engine = Engine([Labels(), family])
    engine.apply(engine.load(house.config, house.stored))
    conn = engine.connection(engine.who(READER, 1))
    got = conn.subscribe(TEMP, 0, 1)
    assert (purpose(got), got.allow) == ("a", True)
    conn.subscribed(got, 0, 1)
    assert conn.deliver(TEMP, "m1-temp", 3, 1).audit[1] == ("under", TEMP)
    assert family.state.mode == "fop"
    assert list(family.state.dormant) == ["old"]


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
    house.tell(DPO, say.setting("mode", "fop"))
    for ap in ("operational/spying/x", "other"):
        house.take(READER, "machine/1/+", ap)
    lines = house.engine.explain(house.conn(READER), house.read(READER, TEMP))
    assert "purposes are filtered in mode fop, strict; mode was set by a steward" in lines
    assert (
        "operational/spying/x is out: operational/spying, which it is below, is prohibited" in lines
    )
    assert "other is out: neither it nor a purpose above it is allowed" in lines
    house.tell(DPO, say.setting("mode"))
    refused = house.subscribe(READER, say.access(TEMP, "operational/spying"))
    lines = house.engine.explain(house.conn(READER), refused)
    assert "monitor subscribes to machine/1/temperature for operational/spying" in lines
    lines = house.engine.explain(house.conn(OTHER), house.subscribe(OTHER, say.access("x", "a")))
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
