"""Verdicts that are for some senders' messages only: cached once, compared with each message."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

import pytest

from families.factory import FACTORY, Site
from sealmq.families.api import (
    Ask,
    Dep,
    Duties,
    Family,
    FamilyRecord,
    OnlyFrom,
    Record,
    Verdict,
    allow,
)
from sealmq.families.decision import CLOSED
from sealmq.families.engine import Decision

TOPIC, READER = "machine/1/temperature", "monitor"
OWNER, OTHER = "m1-temp-sensor", "m2-temp-sensor"
UNKNOWN = ""


def owned(topic: str, *senders: str) -> Record:
    """The record that says whose messages of the topic are delivered."""
    return FamilyRecord("owners", topic, ",".join(senders).encode())


class Owners(Family):
    """Of a topic that no record names everybody's messages are delivered."""

    name: ClassVar[str] = "owners"
    rules: ClassVar[dict[str, str]] = {
        "owners.any": "The family has nothing against it.",
        "owners.other": "The message is of somebody else than the topic's owners.",
    }
    duties: ClassVar[Duties] = {"deliver": frozenset({OnlyFrom})}

    def __init__(self) -> None:
        self.senders: dict[str, frozenset[str]] = {}
        # How often it was asked about a delivery.
        self.asked = 0

    def apply(self, records: Sequence[Record]) -> Iterable[Dep]:
        mine = [r for r in records if isinstance(r, FamilyRecord) and r.family == self.name]
        for record in mine:
            names = (record.value or b"").decode().split(",")
            self.senders[record.key] = frozenset(name for name in names if name)
        return [("owners", record.key) for record in mine]

    def connect(self, ask: Ask) -> Verdict:
        return allow("owners.any", "fine")

    publish = subscribe = connect

    def deliver(self, ask: Ask) -> Verdict:
        self.asked += 1
        senders = self.senders.get(ask.topic)
        only = () if senders is None else (OnlyFrom(senders, "owners.other", "not its owner's"),)
        return allow("owners.any", "fine", deps=(("owners", ask.topic),), duties=only)


@pytest.fixture
def owners() -> Owners:
    return Owners()


@pytest.fixture
def site(owners: Owners) -> Site:
    made = Site(FACTORY, owners)
    made.commit([owned(TOPIC, OWNER)])
    return made


def of(site: Site, sender: str, topic: str = TOPIC) -> Decision:
    """What the reader gets of a message of this sender."""
    conn = site.conn(READER)
    return conn.for_sender(conn.deliver(topic, "m1-temp", 0, site.now), sender)


def test_messages_of_others_are_denied_by_the_familys_rule_without_asking_it_again(
    site: Site, owners: Owners
) -> None:
    for _ in range(3):
        got = of(site, OWNER)
        assert (got.allow, got.rule) == (True, "labels.deliver.dominated")
        for sender in (OTHER, UNKNOWN):
            got = of(site, sender)
            assert (got.allow, got.family, got.rule) == (False, "owners", "owners.other")
            assert (got.reason, got.duties, got.audit) == ("not its owner's", (), ())
            assert [vote.family for vote in got.votes] == ["labels", "owners"]
    assert owners.asked == 1
    assert of(site, OTHER, "machine/2/temperature").allow
    assert owners.asked == 2


def test_a_change_of_the_senders_counts_from_the_next_message_on(
    site: Site, owners: Owners
) -> None:
    assert [of(site, sender).allow for sender in (OWNER, OTHER)] == [True, False]
    site.commit([owned(TOPIC, OTHER)])
    assert [of(site, sender).allow for sender in (OWNER, OTHER)] == [False, True]
    site.commit([owned(TOPIC)])
    assert [of(site, sender).allow for sender in (OWNER, OTHER, UNKNOWN)] == [False] * 3
    assert owners.asked == 3


def test_of_several_families_each_has_its_say_and_the_first_that_denies_counts() -> None:
    class Second(Owners):
        name = "second"
        rules: ClassVar[dict[str, str]] = {"second.any": "Fine.", "second.other": "Others'."}

        def connect(self, ask: Ask) -> Verdict:
            return allow("second.any", "fine")

        publish = subscribe = connect

        def deliver(self, ask: Ask) -> Verdict:
            only = OnlyFrom(frozenset({OTHER, "root"}), "second.other", "second")
            return allow("second.any", "fine", duties=(only,))

    site = Site(FACTORY, Owners(), Second())
    site.commit([owned(TOPIC, OWNER, "root")])
    said = {sender: of(site, sender) for sender in (OWNER, OTHER, "root", "public")}
    assert [sender for sender, got in said.items() if got.allow] == ["root"]
    denies = [said[sender].family for sender in (OWNER, OTHER, "public")]
    assert denies == ["second", "owners", "owners"]


def test_what_another_family_denies_is_denied_for_every_sender(site: Site) -> None:
    conn = site.conn(READER)
    got = conn.for_sender(conn.deliver(TOPIC, "none", 0, site.now), OWNER)
    assert (got.allow, got.family, got.duties) == (False, "labels", ())


def test_a_closed_site_and_a_policy_that_is_off_count_for_each_message(owners: Owners) -> None:
    site = Site(FACTORY, owners, enforce=False)
    site.commit([owned(TOPIC, OWNER)])
    mine, others = of(site, OWNER), of(site, OTHER)
    assert (mine.allow, mine.overridden) == (True, False)
    assert (others.allow, others.overridden, others.rule) == (True, True, "owners.other")
    site.engine.close_site("lost")
    assert [of(site, sender).rule for sender in (OWNER, OTHER)] == [CLOSED, CLOSED]
    assert not of(site, OTHER).allow
    site.engine.close_site("")
    site.engine.reload(site.config, enforce=True)
    assert [of(site, sender).allow for sender in (OWNER, OTHER)] == [True, False]


def test_explain_says_whose_messages_it_is_about(site: Site) -> None:
    conn = site.conn(READER)
    assert f"only messages of {OWNER}" in site.engine.explain(conn, of(site, OWNER))
    lines = site.engine.explain(conn, of(site, OTHER))
    rule = Owners.rules["owners.other"]
    assert [line for line in lines if "owner" in line] == [
        f"owners.other: {rule} (not its owner's)"
    ]


def test_the_envelope_is_not_opened_for_families_that_go_by_named_senders(site: Site) -> None:
    """The mediator opens those messages alone whose verdicts name senders."""
    assert not site.engine.opens


@pytest.mark.parametrize(
    "duty",
    [
        OnlyFrom(frozenset({OWNER}), "owners.unheard-of", "x"),
        OnlyFrom(frozenset({OWNER}), "labels.deliver.above", "another's rule"),
        OnlyFrom(frozenset({OWNER, UNKNOWN}), "owners.other", "x"),
        OnlyFrom([OWNER], "owners.other", "x"),  # type: ignore[arg-type]
        OnlyFrom(frozenset({OWNER}), "owners.other", None),  # type: ignore[arg-type]
    ],
)
def test_senders_that_cannot_be_compared_or_a_rule_that_is_not_the_familys_deny(duty: Any) -> None:
    class Wrong(Owners):
        def deliver(self, ask: Ask) -> Verdict:
            return allow("owners.any", "fine", duties=(duty,))

    site = Site(FACTORY, Wrong())
    assert [of(site, sender).rule for sender in (OWNER, OTHER)] == ["engine.bad-duty"] * 2
