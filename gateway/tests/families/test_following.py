"""Subscriptions that are asked about again: which are due, and when."""

from __future__ import annotations

import random

import pytest

from families.factory import FACTORY, Site
from families.gate import Gate, opened, shut
from sealmq.families.api import FamilyConfigError, Verdict
from sealmq.families.engine import Conn, Decision
from sealmq.families.questions import LOOKED_AT
from sealmq.families.shared import reaching
from sealmq_spec.topics import matches

MONITOR = "monitor"
BILL, CARE = "!AP/machine/%23{bill}", "!AP/machine/%23{care}"


@pytest.fixture
def gate() -> Gate:
    return Gate()


@pytest.fixture
def site(gate: Gate) -> Site:
    return Site(FACTORY, gate)


def held(site: Site, *filters: str, client: str = MONITOR) -> Conn:
    conn = site.conn(client)
    for filt in filters:
        conn.subscribed(conn.subscribe(filt, 1, site.now), 1, site.now)
    return conn


def again(conn: Conn, filt: str) -> Decision:
    decision = conn.again(filt, 1)
    assert decision is not None
    return decision


def test_exactly_what_rests_on_a_change_is_due_and_once(site: Site) -> None:
    conn = held(site, BILL, CARE)
    other = held(site, BILL, client="root")
    assert site.engine.due() == []
    site.engine.apply(shut("bill"))
    assert sorted(site.engine.due(), key=str) == sorted([(conn, BILL), (other, BILL)], key=str)
    assert site.engine.due() == []
    assert not again(conn, BILL).allow
    site.engine.apply(shut("nothing"))
    assert site.engine.due() == []


def test_a_denied_one_is_followed_too_and_comes_back(site: Site) -> None:
    conn = held(site, BILL)
    site.engine.apply(shut("bill"))
    site.engine.due()
    assert again(conn, BILL).rule == "gate.shut"
    site.engine.apply(opened("bill"))
    assert site.engine.due() == [(conn, BILL)]
    assert again(conn, BILL).allow


def test_what_is_left_or_over_is_not_due(site: Site) -> None:
    conn = held(site, BILL, CARE)
    site.engine.apply(shut("bill", "care"))
    conn.unsubscribed(BILL)
    assert site.engine.due() == [(conn, CARE)]
    site.engine.apply(opened("care"))
    conn.close(1)
    assert site.engine.due() == []
    assert len(site.engine.following) == 0
    assert conn.again(BILL, 1) is None


def test_a_family_that_does_not_follow_costs_nothing() -> None:
    site = Site()
    held(site, "machine/#")
    assert len(site.engine.following) == 0


def test_a_verdict_that_ends_is_due_when_it_has_ended(site: Site, gate: Gate) -> None:
    gate.until = 5000
    conn = held(site, BILL)
    site.engine.tick(4999)
    assert site.engine.due() == []
    site.engine.tick(5000)
    assert site.engine.due() == [(conn, BILL)]
    gate.until = 9000
    assert conn.again(BILL, 5000)
    site.engine.tick(5001)
    assert site.engine.due() == []


def test_all_are_due_when_a_family_has_lost_its_state(
    site: Site, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    conn = held(site, BILL)

    def broken(*_: object) -> object:
        raise RuntimeError("defect")

    monkeypatch.setattr(gate, "apply", broken)
    site.engine.apply(shut("care"))
    assert site.engine.due() == [(conn, BILL)]
    assert again(conn, BILL).rule == "engine.exception"
    # Nor does it say who may change what the store has.
    answer = conn.command("gate", b"open bill", 5000)
    assert isinstance(answer, Verdict)
    assert answer.rule == "engine.exception"


def test_all_are_due_when_enforcing_changes() -> None:
    site = Site(FACTORY + "[policy]\nenforce = false\n", Gate(), enforce=False)
    site.engine.apply(shut("bill"))
    conn = held(site, BILL)
    site.reload(FACTORY)
    assert site.engine.due() == [(conn, BILL)]
    assert not again(conn, BILL).allow


def test_a_subscription_that_changes_ends_the_verdicts_that_it_reaches_of_many_all(
    site: Site,
) -> None:
    conn = held(site, BILL)

    def cached(count: int) -> int:
        for n in range(count):
            site.deliver(MONITOR, f"machine/{n}", "m1-temp")
        conn.holds(conn.subscribe("!AP/machine/0{bill}", 0, site.now), 0)
        conn.unsubscribed("!AP/machine/0{bill}")
        return site.engine.cache.resting(conn.rests_on_subs())

    assert cached(LOOKED_AT) == LOOKED_AT - 1
    assert cached(LOOKED_AT + 1) == 0


def test_who_is_relabelled_is_asked_about_all(site: Site) -> None:
    conn = held(site, BILL)
    site.reload(FACTORY.replace('monitor = { label = "monitor"', 'monitor = { label = "m1-arm"'))
    assert site.engine.due() == [(conn, BILL)]


def test_what_a_family_says_for_the_audit_comes_with_the_decision(site: Site) -> None:
    conn = held(site, BILL)
    got = site.deliver(MONITOR, "machine/1/temperature", "m1-temp")
    assert got.audit == (("purpose", "bill"), ("under", "gate"))
    assert site.deliver(MONITOR, "machine/1/temperature", "m1-temp") is got
    assert (site.publish("root", "x").audit, conn.connect(1).audit) == ((), ())
    site.engine.apply(shut("bill"))
    denied = site.deliver(MONITOR, "machine/1/temperature", "m1-temp")
    assert (denied.rule, denied.audit) == ("gate.shut", ())


def test_a_lower_qos_granted_is_what_families_see(site: Site) -> None:
    conn = held(site, BILL)
    conn.granted(BILL, 0)
    conn.granted("never held", 0)
    conn.ask.fill("deliver", "machine/1", 0)
    assert [sub.qos for sub in conn.ask.subs] == [0]


def test_what_a_family_cannot_take_has_its_place() -> None:
    error = FamilyConfigError("tree.billing", "it is below itself", "break the cycle")
    assert (error.key, error.what, error.hint) == (
        "tree.billing",
        "it is below itself",
        "break the cycle",
    )
    assert str(error) == "tree.billing: it is below itself"


def test_a_filter_reaches_the_topics_that_it_matches() -> None:
    r = random.Random(3)

    def made(levels: list[str]) -> str:
        return "/".join(r.choice(levels) for _ in range(r.randint(1, 4)))

    reached = 0
    for _ in range(5_000):
        filt, topic = made(["a", "b", "", "+", "#", "$x", "a#", "+b"]), made(["a", "b", "", "$x"])
        for shared in ("", "$share/g/"):
            assert reaching(shared + filt)(topic) == matches(filt, topic), (filt, topic)
        reached += matches(filt, topic)
    assert 500 < reached < 4_500
