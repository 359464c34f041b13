"""Rules about some senders' messages: `from` names clients, and others' are not delivered."""

from __future__ import annotations

import pytest

from families.allowlist.allowlist_site import Ruled, said
from families.factory import FACTORY
from sealmq.families.api import OnlyFrom, SealToLink
from sealmq.families.attributes import Attribute

PANEL, MONITOR = "m1-control-panel", "monitor"
ONE, TWO, THREE = "m1-temp-sensor", "m2-temp-sensor", "control-room-temp-sensor"
SENDERS = (ONE, TWO, THREE, "")
TEMP, OTHER_TEMP = "machine/1/temperature", "machine/2/temperature"
ROOM_TEMP = "control-room/temperature"
READ = 'read = ["machine/#"]\n'
SIGNED = 'when = { attribute = "contract", is = "signed" }\n'
CONTRACT = '[attributes.contract]\nsource = "file"\npath = "/contract.toml"\n'


def from_(*names: str) -> str:
    return f"from = {list(names)}\n"


def heard(site: Ruled, client: str = MONITOR, topic: str = TEMP) -> list[str]:
    """Of these senders, "" being one that is not known, whose messages the client gets."""
    got, conn = site.read(client, topic), site.conn(client)
    return [sender for sender in SENDERS if conn.for_sender(got, sender).allow]


def test_a_reader_gets_messages_of_the_named_senders_and_of_nobody_else() -> None:
    site = Ruled(READ + from_(ONE, TWO))
    assert heard(site) == [ONE, TWO]
    got = site.read(MONITOR, TEMP)
    assert said(got) == "deliver.from"
    assert said(site.conn(MONITOR).for_sender(got, THREE)) == "!deliver.other-sender"
    assert heard(Ruled(READ)) == list(SENDERS)


def test_a_sender_itself_gets_its_own_messages_by_no_other_rule() -> None:
    site = Ruled(f'clients = ["{ONE}"]\n' + READ + from_(TWO))
    assert heard(site, ONE) == [TWO]


def test_of_several_rules_all_count_and_one_without_senders_is_enough() -> None:
    rules = [
        READ + from_(ONE),
        f'clients = ["{MONITOR}"]\nread = ["machine/1/+"]\n' + from_(TWO),
    ]
    site = Ruled(*rules)
    assert heard(site) == [ONE, TWO]
    assert heard(site, PANEL) == [ONE]
    assert heard(site, topic=OTHER_TEMP) == [ONE]
    site.rule(*rules, 'kinds = ["app"]\n' + READ)
    assert heard(site) == list(SENDERS)
    assert heard(site, PANEL) == [ONE]


@pytest.mark.parametrize("whom", ["clients = ['monitor']\n", "labels = ['monitor']\n", ""])
def test_two_rules_about_one_pattern_and_one_reader_both_count(whom: str) -> None:
    assert heard(Ruled(whom + READ + from_(ONE), whom + READ + from_(TWO))) == [ONE, TWO]


def test_rules_about_one_pattern_count_by_whatever_they_name_the_reader() -> None:
    rules = [
        READ + from_(ONE),
        "clients = ['monitor']\n" + READ + from_(TWO),
        "kinds = ['app']\n" + READ + from_(THREE),
    ]
    assert heard(Ruled(*rules)) == [ONE, TWO, THREE]
    assert heard(Ruled(*rules), PANEL) == [ONE]


def test_what_labels_refuse_no_sender_opens() -> None:
    site = Ruled(READ + from_(ONE))
    assert heard(site, "m2-control-panel") == []


def test_a_change_of_the_senders_counts_at_once_and_reaches_no_other_answer() -> None:
    def rules(*names: str) -> tuple[str, str]:
        return 'read = ["machine/1/#"]\n' + from_(*names), 'read = ["control-room/#"]\n' + from_(
            TWO
        )

    site = Ruled(*rules(ONE))
    other, before = site.read(MONITOR, ROOM_TEMP), site.read(MONITOR, TEMP)
    assert site.read(MONITOR, TEMP) is before
    site.rule(*rules(THREE))
    assert heard(site) == [THREE]
    site.rule(*rules(ONE, THREE))
    assert heard(site) == [ONE, THREE]
    site.rule(rules()[1])
    assert heard(site) == []
    assert said(site.read(MONITOR, TEMP)) == "!deliver.not-allowed"
    assert site.read(MONITOR, ROOM_TEMP) is other


def test_a_condition_counts_for_its_senders_alone() -> None:
    site = Ruled(READ + from_(ONE), READ + from_(TWO) + SIGNED, text=FACTORY + CONTRACT)
    assert heard(site) == [ONE]
    site.engine.take_attributes([Attribute("contract", MONITOR, "signed", 5_000)])
    assert heard(site) == [ONE, TWO]
    site.now = 5_000
    assert heard(site) == [ONE]


def test_a_filter_is_granted_and_a_group_takes_in_nobody_who_may_not_read_all_senders() -> None:
    """What it must not have would be lost to the group."""
    site = Ruled(READ + from_(ONE))
    for filt in ("machine/#", TEMP, "#"):
        assert said(site.subscribe(MONITOR, filt)) == "subscribe.narrowed"
        assert said(site.subscribe(MONITOR, f"$share/g/{filt}")) == "!subscribe.shared"
    site.rule(READ + from_(ONE), READ)
    assert said(site.subscribe(MONITOR, f"$share/g/{TEMP}")) == "subscribe.allowed"


def test_what_is_sealed_goes_by_its_sender_too() -> None:
    site = Ruled(READ + from_(ONE), 'sealed = ["machine/#"]')
    assert said(site.read(MONITOR, TEMP)) == "deliver.sealed"
    assert SealToLink() in site.read(MONITOR, TEMP).duties
    assert heard(site) == [ONE]


def test_a_rule_with_senders_publishes_and_seals_as_any_other() -> None:
    site = Ruled(f'publish = ["{TEMP}"]\nsealed = ["{TEMP}"]\n' + READ + from_(TWO))
    assert site.publish(ONE, TEMP).allow
    assert said(site.read(MONITOR, TEMP)) == "deliver.sealed"
    assert heard(site) == [TWO]


def test_answers_about_many_senders_share_their_names() -> None:
    site = Ruled(READ + from_(ONE, TWO))
    duties = [site.read(MONITOR, topic).duties for topic in (TEMP, OTHER_TEMP)]
    assert isinstance(duties[0][0], OnlyFrom)
    assert duties[0][0] is duties[1][0]


def test_explain_names_the_senders() -> None:
    site = Ruled(READ + from_(ONE, TWO))
    conn, got = site.conn(MONITOR), site.read(MONITOR, TEMP)
    lines = site.engine.explain(conn, got)
    assert f"only messages of {ONE}, {TWO}" in lines
    assert f"rule 1 lets everybody read machine/# from {ONE}, {TWO}" in lines
    lines = site.engine.explain(conn, conn.for_sender(got, THREE))
    (line,) = [line for line in lines if line.startswith("allowlist.")]
    assert line.startswith("allowlist.deliver.other-sender: No rule lets the client read what this")
    assert len(lines) == len(set(lines))


def test_what_others_send_uses_up_nothing_of_a_count_that_a_rule_has_for_some_senders() -> None:
    count = '[attributes.got]\nsource = "count"\nof = "subscriber"\nwindow = "1h"\n'
    few = READ + from_(ONE, THREE) + 'when = { attribute = "got", below = 2 }\n'
    site = Ruled(few, READ + from_(TWO), text=FACTORY + count)

    def gets(sender: str) -> bool:
        conn = site.conn(MONITOR)
        got = conn.for_sender(site.read(MONITOR, TEMP), sender)
        if got.allow:
            conn.delivered(got, site.now)
        return got.allow

    assert [gets(TWO) for _ in range(5)] == [True] * 5
    assert [gets(ONE), gets(THREE), gets(ONE)] == [True, True, False]
    assert gets(TWO)
    assert not gets(THREE)
    site.now += 3_600_000
    assert [gets(THREE), gets(TWO), gets(ONE), gets(ONE)] == [True, True, True, False]
