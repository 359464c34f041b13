"""What rules allow, and that nothing else is: publish, subscribe, and each delivery again."""

from __future__ import annotations

import pytest

from families.allowlist.allowlist_site import Ruled, said, toml
from families.factory import FACTORY
from sealmq.families import registry
from sealmq.families.allowlist import kg_part
from sealmq.families.allowlist.family import Allowlist
from sealmq.families.api import Duty, OnlyFrom, SealToGrant, SealToLink
from sealmq.families.ask import Who
from sealmq.families.engine import Engine
from sealmq.site.check import parse

SENSOR, PANEL, ARM, MONITOR = "m1-temp-sensor", "m1-control-panel", "m1-arm-operator", "monitor"
TEMP, ANGLE = "machine/1/temperature", "machine/1/arm/angle"
NO_PUBLISH, NO_READ = "!publish.not-allowed", "!deliver.not-allowed"


def test_it_does_not_stand_without_labels() -> None:
    with pytest.raises(registry.WrongOrder, match="allowlist stands on labels, which is not there"):
        registry.load(["allowlist"])
    with pytest.raises(registry.WrongOrder, match="comes after it"):
        registry.load(["allowlist", "labels"])
    assert [f.name for f in registry.load(["labels", "allowlist"])] == ["labels", "allowlist"]


def test_without_a_rule_a_client_may_connect_and_nothing_else() -> None:
    site = Ruled()
    assert site.connect(SENSOR).allow
    assert said(site.publish(SENSOR, TEMP)) == NO_PUBLISH
    assert said(site.subscribe(MONITOR, TEMP)) == "!subscribe.not-allowed"
    assert said(site.subscribe(MONITOR, "#")) == "!subscribe.not-allowed"
    assert said(site.read(MONITOR, TEMP)) == NO_READ


def test_a_new_topic_that_no_rule_allows_gets_no_label() -> None:
    site = Ruled()
    got = site.conn(SENSOR).publish("new/topic", 0, False, 1, 1)
    assert (got.allow, got.label) == (False, None)
    assert site.labels.label_of("new/topic") is None


@pytest.mark.parametrize(
    ("whom", "allowed"),
    [
        ('clients = ["m1-temp-sensor"]', True),
        ('clients = ["m1-control-panel"]', False),
        ('labels = ["m1-temp"]', True),
        ('labels = ["m1-ctrl"]', False),
        ('kinds = ["device"]', True),
        ('kinds = ["app"]', False),
        ('clients = ["monitor"]\nlabels = ["m1-temp"]', True),
        ("", True),
    ],
)
def test_a_rule_is_about_whom_it_names_by_client_label_or_kind(whom: str, allowed: bool) -> None:
    site = Ruled(f'{whom}\npublish = ["{TEMP}"]')
    assert site.publish(SENSOR, TEMP).allow is allowed


def test_who_may_publish_may_not_read_and_the_other_way_round() -> None:
    site = Ruled(f'publish = ["{TEMP}"]')
    assert site.publish(SENSOR, TEMP).allow
    assert said(site.read(SENSOR, TEMP)) == NO_READ
    site = Ruled(f'read = ["{TEMP}"]')
    assert said(site.publish(SENSOR, TEMP)) == NO_PUBLISH
    assert site.read(SENSOR, TEMP).allow


def test_a_rule_opens_nothing_that_a_label_keeps_closed() -> None:
    site = Ruled('publish = ["#"]\nread = ["#"]')
    assert site.read(PANEL, TEMP).allow
    assert site.publish(PANEL, TEMP).rule == "labels.publish.other-label"
    assert site.read(SENSOR, ANGLE).rule == "labels.deliver.above"
    assert site.connect("off").rule == "labels.client.disabled"
    assert not site.publish("nobody", TEMP).allow


@pytest.mark.parametrize(
    ("pattern", "topic", "allowed"),
    [
        ("own/%c", f"own/{SENSOR}", True),
        ("own/%c", "own/m1-control-panel", False),
        ("own/%c", "own/%c", False),
        ("own/%c/#", f"own/{SENSOR}", True),
        ("own/%c/#", f"own/{SENSOR}/a/b", True),
        ("own/%l/+", "own/m1-temp/a", True),
        ("own/%l/+", f"own/{SENSOR}/a", False),
        ("own/%l/+", "own/%l/a", False),
        ("%c/#", SENSOR, True),
        ("%c/+/%l", f"{SENSOR}/x/m1-temp", True),
        ("%l/%c", f"{SENSOR}/m1-temp", False),
        ("+/%c", f"/{SENSOR}", True),
        ("a/+", "a/", True),
        ("a/+", "a", False),
        ("a/+/c", "a/b/c", True),
        ("#", "x", True),
        ("/#", "/x", True),
        ("/#", "x", False),
    ],
)
def test_patterns_match_as_filters_do_and_c_and_l_are_levels(
    pattern: str, topic: str, allowed: bool
) -> None:
    site = Ruled(f'publish = ["{pattern}"]')
    assert site.publish(SENSOR, topic).allow is allowed


def test_what_begins_with_the_protocols_own_signs_is_never_allowed() -> None:
    engine = Engine([Allowlist()])
    engine.load(parse(toml('publish = ["#", "+/x"]\nread = ["#", "+/x"]')), [])
    conn = engine.connection(engine.who(SENSOR, 1))
    for topic in ("$SYS/x", "!c1/x", "@sm1/x", "a/+", "a/#", "#"):
        assert not conn.publish(topic, 0, False, 1, 1).allow, topic
        assert not conn.deliver(topic, "m1-temp", 0, 1).allow, topic
    for filt in ("$SYS/#", "!c1/#", "$share/g/$SYS/#", "$share//x", "a/#/b"):
        assert not conn.subscribe(filt, 0, 1).allow, filt


def test_public_records_are_for_everybody() -> None:
    site = Ruled()
    assert site.subscribe(SENSOR, "@sm1/#").allow
    assert site.deliver(SENSOR, "@sm1/x", "").allow
    assert not site.deliver(SENSOR, "@sm1/x", "m1-temp").allow


ODD = ("a/b", "+", "#", "a+", "x#", "+/#", "")


@pytest.mark.parametrize("name", ODD)
@pytest.mark.parametrize("mark", ["%c", "%l"])
def test_a_name_with_a_wildcard_or_a_slash_never_matches_a_pattern(name: str, mark: str) -> None:
    """CVE-2017-7650. Such names do not get into sealmq.toml; the family does not rest on that."""
    engine = Engine([Allowlist()])
    pattern = f'["own/{mark}", "own/{mark}/#", "{mark}"]'
    engine.load(parse(toml(f"publish = {pattern}\nread = {pattern}")), [])
    client, label = (name, "m1-temp") if mark == "%c" else ("x", name)
    conn = engine.connection(Who(client, 1, "device", "00c0ffee", label))
    for topic in (f"own/{name}", f"own/{name}/x", "own/x/y", "own/y", "own/a/b", name, "own/"):
        assert not conn.publish(topic, 0, False, 1, 1).allow, topic
        assert not conn.deliver(topic, "m1-temp", 0, 1).allow, topic
    for filt in (f"own/{name}", "own/+", "own/#", "+/+", "+", "#"):
        got = conn.subscribe(filt, 0, 1)
        assert not got.allow, filt
    lines = engine.explain(conn, conn.publish("own/y", 0, False, 1, 1))
    assert f"no pattern with {mark} is about it: {name} has a /, + or #" in lines


@pytest.mark.parametrize(
    ("filt", "rule"),
    [
        (TEMP, "subscribe.allowed"),
        ("machine/+/temperature", "subscribe.allowed"),
        ("machine/#", "subscribe.narrowed"),
        ("#", "subscribe.narrowed"),
        ("+/+/temperature", "subscribe.narrowed"),
        ("machine/1/+", "subscribe.narrowed"),
        ("machine/1/arm/#", "!subscribe.not-allowed"),
        ("+", "!subscribe.not-allowed"),
        ("own/monitor", "subscribe.allowed"),
        ("own/+", "subscribe.narrowed"),
        ("own/other", "!subscribe.not-allowed"),
        ("$share/g/machine/+/temperature", "subscribe.allowed"),
        ("$share/g/machine/#", "!subscribe.shared"),
        ("$share/g/#", "!subscribe.shared"),
        ("$share/g/own/other", "!subscribe.not-allowed"),
    ],
)
def test_a_filter_is_granted_if_a_rule_allows_something_of_it_and_a_shared_one_as_a_whole(
    filt: str, rule: str
) -> None:
    site = Ruled('clients = ["monitor"]\nread = ["machine/+/temperature", "own/%c"]')
    assert said(site.subscribe(MONITOR, filt)) == rule


def test_of_a_granted_filter_each_message_is_judged() -> None:
    site = Ruled('clients = ["monitor"]\nread = ["machine/+/temperature"]')
    assert site.take(MONITOR, "#").allow
    assert site.read(MONITOR, TEMP).allow
    for how in range(4):  # live, retained, of a will, queued
        got = site.conn(MONITOR).deliver(ANGLE, "m1-ctrl", how, site.now)
        assert said(got) == NO_READ


# Reloads


def test_a_reload_ends_exactly_what_it_reaches() -> None:
    one, two = f'publish = ["{TEMP}"]\nread = ["{TEMP}"]', 'publish = ["a/+"]\nread = ["b/#"]'
    site = Ruled(one, two)
    read, publish = site.read(MONITOR, TEMP), site.publish(SENSOR, TEMP)
    far, closed = site.publish(SENSOR, "c/d"), site.publish(SENSOR, "a/b/c")
    other = site.publish(SENSOR, "a/b")
    assert (read.allow, publish.allow, far.allow, closed.allow, other.allow) == (
        True, True, False, False, True,
    )  # fmt: skip
    site.rule(one, 'publish = ["a/+", "a/+/c"]\nread = ["b/#"]')
    assert site.read(MONITOR, TEMP) is read
    assert site.publish(SENSOR, TEMP) is publish
    assert site.publish(SENSOR, "a/b") is other
    assert site.publish(SENSOR, "c/d") is far, "the new rule reaches nothing there"
    assert site.publish(SENSOR, "a/b/c").allow
    site.rule(f'publish = ["{TEMP}"]', two)
    assert site.publish(SENSOR, TEMP) is publish
    assert said(site.read(MONITOR, TEMP)) == NO_READ
    site.rule(two)
    assert said(site.publish(SENSOR, TEMP)) == NO_PUBLISH


@pytest.mark.parametrize("pattern", ["+/b", "%c/#", "a/b", "#", "a/%l", "a/+"])
def test_a_new_rule_reaches_what_was_refused(pattern: str) -> None:
    site = Ruled()
    topic = {"%c/#": f"{SENSOR}/x", "a/%l": "a/m1-temp"}.get(pattern, "a/b")
    filters = (topic, "#", "+/#")
    assert not site.publish(SENSOR, topic).allow
    assert not site.deliver(SENSOR, topic, "m1-temp").allow
    assert not any(site.subscribe(SENSOR, filt).allow for filt in filters)
    site.rule(f'publish = ["{pattern}"]\nread = ["{pattern}"]')
    assert site.publish(SENSOR, topic).allow
    assert site.deliver(SENSOR, topic, "m1-temp").allow
    assert all(site.subscribe(SENSOR, filt).allow for filt in filters)


def test_an_allow_falls_when_whom_the_rule_names_changes() -> None:
    site = Ruled('clients = ["monitor", "m1-control-panel"]\nread = ["#"]')
    assert site.read(MONITOR, TEMP).allow
    panel = site.read(PANEL, TEMP)
    assert panel.allow
    site.rule('clients = ["m1-control-panel"]\nread = ["#"]')
    assert said(site.read(MONITOR, TEMP)) == NO_READ
    assert site.read(PANEL, TEMP) is panel


def test_a_client_that_gets_another_label_has_the_rules_of_that_one() -> None:
    rule = 'labels = ["m1-temp"]\npublish = ["x"]'
    site = Ruled(rule)
    assert site.publish(SENSOR, "x").allow
    site.text = FACTORY.replace(
        'm1-temp-sensor = { label = "m1-temp" }', 'm1-temp-sensor = { label = "m2-temp" }'
    )
    site.rule(rule, 'labels = ["m2-temp"]\npublish = ["y"]')
    assert not site.publish(SENSOR, "x").allow
    assert site.publish(SENSOR, "y").allow


def test_a_subscription_is_asked_about_again_when_its_rule_goes_and_when_one_comes() -> None:
    site = Ruled(f'clients = ["monitor"]\nread = ["{TEMP}"]', 'read = ["control-room/#"]')
    for filt in (TEMP, "machine/#", "control-room/temperature"):
        assert site.take(MONITOR, filt).allow
    conn = site.conn(MONITOR)
    assert site.engine.due() == []
    site.rule('read = ["control-room/#"]')
    due = {filt for _, filt in site.engine.due()}
    assert due == {TEMP, "machine/#"}
    for filt in due:
        again = conn.again(filt, site.now)
        assert again is not None
        assert not again.allow, "it is paused"
    site.rule('read = ["control-room/#"]', 'clients = ["monitor"]\nread = ["machine/2/+"]')
    due = {filt for _, filt in site.engine.due()}
    assert due == {TEMP, "machine/#"}
    assert not conn.again(TEMP, site.now).allow  # type: ignore[union-attr]
    assert conn.again("machine/#", site.now).allow  # type: ignore[union-attr]


def test_a_member_that_may_no_longer_read_all_of_a_group_is_paused() -> None:
    """Else it would go on taking messages from the others."""
    site = Ruled('read = ["machine/#"]')
    filt = "$share/g/machine/#"
    assert site.take(MONITOR, filt).allow
    site.rule('read = ["machine/1/#"]')
    assert [due for _, due in site.engine.due()] == [filt]
    again = site.conn(MONITOR).again(filt, site.now)
    assert again is not None
    assert said(again) == "!subscribe.shared"


def test_rules_in_another_order_change_no_answer() -> None:
    one, two = 'publish = ["a"]', 'publish = ["b"]'
    site = Ruled(one, two)
    a, b = site.publish(SENSOR, "a"), site.publish(SENSOR, "b")
    site.rule(two, one, one)
    assert site.publish(SENSOR, "a") is a
    assert site.publish(SENSOR, "b") is b


def test_a_reload_that_is_refused_changes_nothing() -> None:
    site = Ruled(f'publish = ["{TEMP}"]')
    publish = site.publish(SENSOR, TEMP)
    wrong = toml('publish = ["own/%u"]')
    with pytest.raises(ValueError, match="neither %c nor %l"):
        site.engine.reload(parse(wrong))
    assert site.publish(SENSOR, TEMP).allow
    assert publish.allow


# Words


def test_explain_names_the_rules_that_are_about_the_client() -> None:
    site = Ruled(
        'clients = ["monitor"]\nread = ["machine/+/temperature"]',
        'labels = ["m1-temp"]\npublish = ["a", "b", "c", "d", "e", "f"]',
        'publish = ["state/%c"]',
    )
    conn = site.conn(SENSOR)
    got = site.engine.explain(conn, conn.publish(TEMP, 0, False, 1, site.now))
    assert got[-2:] == [
        "rule 2 lets m1-temp publish on a, b, c, d, e, ...",
        "rule 3 lets everybody publish on state/%c",
    ]
    got = site.engine.explain(conn, site.read(SENSOR, TEMP))
    assert got[-1] == "no rule lets m1-temp-sensor read anything"
    conn = site.conn(MONITOR)
    got = site.engine.explain(conn, conn.subscribe("#", 0, site.now))
    assert got[-1] == "rule 1 lets monitor read machine/+/temperature"
    assert "(by machine/+/temperature)" in got[1]


def test_explain_shows_a_few_of_many_rules() -> None:
    site = Ruled(*(f'publish = ["a/{i}"]' for i in range(9)))
    conn = site.conn(SENSOR)
    got = site.engine.explain(conn, conn.publish("a/b", 0, False, 1, site.now))
    assert got[-1] == "and 4 rules more are about m1-temp-sensor"
    assert sum("lets everybody" in line for line in got) == 5


def test_a_refusal_tells_a_client_no_rule() -> None:
    site = Ruled('clients = ["monitor"]\npublish = ["secret/place"]\nread = ["secret/place"]')
    for got in (
        site.publish(SENSOR, "secret/place"),
        site.read(SENSOR, TEMP),
        site.subscribe(SENSOR, "secret/#"),
    ):
        assert not got.allow
        assert "secret" not in got.reason
        assert len(got.reason.encode()) <= 200


SEALED = (SealToLink(),)


def test_a_delivery_is_sealed_to_the_reader_where_a_rule_about_it_says_so() -> None:
    both = 'clients = ["m1-control-panel", "monitor"]\nread = ["machine/#"]'
    site = Ruled(both, f'clients = ["{PANEL}"]\nsealed = ["machine/+/temperature"]')
    assert (said(site.read(PANEL, TEMP)), site.read(PANEL, TEMP).duties) == (
        "deliver.sealed",
        SEALED,
    )
    assert (said(site.read(MONITOR, TEMP)), site.read(MONITOR, TEMP).duties) == (
        "deliver.allowed",
        (),
    )
    assert site.read(PANEL, "machine/1/setpoint").duties == ()


def test_what_is_sealed_is_not_allowed_by_that() -> None:
    site = Ruled('sealed = ["#"]')
    assert said(site.read(MONITOR, TEMP)) == NO_READ
    assert said(site.subscribe(MONITOR, TEMP)) == "!subscribe.not-allowed"


def test_a_reload_seals_from_the_next_delivery_and_leaves_other_answers() -> None:
    both = 'clients = ["m1-control-panel", "monitor"]\nread = ["#"]'
    site = Ruled(both)
    for client in (PANEL, MONITOR):
        assert site.read(client, TEMP).duties == ()
    other = site.read(PANEL, "hall/x")
    sealing = f'clients = ["{PANEL}"]\nsealed = ["machine/1/#"]'
    site.rule(both, sealing)
    assert site.read(PANEL, TEMP).duties == SEALED
    assert site.read(MONITOR, TEMP).duties == ()
    assert site.read(PANEL, "hall/x") is other
    site.rule(both)
    assert site.read(PANEL, TEMP).duties == ()


def group(name: str) -> tuple[Duty, ...]:
    return (SealToGrant("allowlist", name),)


def test_a_delivery_is_sealed_for_the_group_of_a_rule_about_the_reader() -> None:
    both = 'clients = ["m1-control-panel", "monitor"]\nread = ["machine/#"]'
    shift = f'clients = ["{PANEL}"]\nsealed = ["machine/+/temperature"]\nsealed_for = "shift"'
    site = Ruled(both, shift)
    got = site.read(PANEL, TEMP)
    assert (said(got), got.duties) == ("deliver.sealed-group", group("shift"))
    assert "sealed for shift by machine/+/temperature" in got.votes[-1].reason
    assert (said(site.read(MONITOR, TEMP)), site.read(MONITOR, TEMP).duties) == (
        "deliver.allowed",
        (),
    )
    assert site.read(PANEL, "machine/1/setpoint").duties == ()
    lines = site.engine.explain(site.conn(PANEL), got)
    assert any("sealed to those who hold shift of allowlist" in line for line in lines)


def test_a_link_goes_before_a_group_and_of_groups_the_first_by_name() -> None:
    allowed = 'read = ["#"]'

    def sealed(what: str, name: str = "") -> str:
        rule = f'clients = ["{PANEL}"]\nsealed = ["{what}"]'
        return rule + f'\nsealed_for = "{name}"' * bool(name)

    site = Ruled(allowed, sealed("machine/#", "night"))
    for rules, duties in (
        ([sealed("machine/#", "night")], group("night")),
        ([sealed("machine/#", "night"), sealed("machine/1/+", "day")], group("day")),
        ([sealed("machine/1/+", "day"), sealed("machine/#", "night")], group("day")),
        ([sealed("machine/#", "day"), sealed("machine/#", "night")], group("day")),
        ([sealed("machine/#", "night"), sealed("+/1/#")], SEALED),
        ([sealed("machine/#", "night")], group("night")),
        ([sealed("machine/#")], SEALED),
        ([], ()),
    ):
        site.rule(allowed, *rules)
        assert site.read(PANEL, TEMP).duties == duties, rules
        assert site.read(MONITOR, TEMP).duties == ()


def test_who_holds_a_group_the_key_generator_is_told_by_client_label_and_kind() -> None:
    some = f'clients = ["{SENSOR}"]\nlabels = ["m1-ctrl"]\nkinds = ["app"]\n'
    site = Ruled(
        some + 'sealed = ["a"]\nsealed_for = "some"',
        'sealed = ["a"]\nsealed_for = "all"',
        'clients = ["monitor"]\nsealed = ["a"]',
    )
    found = kg_part.grants(site.config)
    assert set(found) == {"some", "all"}
    assert {SENSOR, PANEL, MONITOR} <= set(found["some"]) < set(found["all"])
    assert set(found["all"]) == set(site.config.clients)
    by_rule = {
        name
        for name, client in site.config.clients.items()
        if name == SENSOR or client.label == "m1-ctrl" or client.kind == "app"
    }
    assert set(found["some"]) == by_rule


@pytest.mark.parametrize("patterns", [("#", "+/#"), ("+/#", "#"), ("/#", "/+/#")])
def test_rules_whose_patterns_are_one_name_their_senders_together(
    patterns: tuple[str, str],
) -> None:
    """# and +/# match the same topics, since no topic is empty."""
    rules = (
        f'clients = ["{PANEL}"]\nread = ["{pattern}"]\nfrom = ["{sender}"]'
        for pattern, sender in zip(patterns, (SENSOR, MONITOR), strict=True)
    )
    got = Ruled(*rules).read(PANEL, "/x" if patterns[0][0] == "/" else TEMP)
    assert [duty.senders for duty in got.duties if isinstance(duty, OnlyFrom)] == [
        {SENSOR, MONITOR}
    ]
