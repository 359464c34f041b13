"""Rules that are not for always: what they allow, to whom, and when that ends."""

from __future__ import annotations

import pytest

from families.allowlist.allowlist_site import Ruled, said, toml
from families.factory import FACTORY
from sealmq.families.api import FamilyConfigError, Proposal, Verdict
from sealmq.families.attributes import Attribute
from sealmq.site.config import ConfigError, loads

SENSOR, PANEL, TOPIC = "m1-temp-sensor", "m1-control-panel", "machine/1/temperature"
ATTRIBUTES = """
[attributes.time]
source = "time"
zone = "UTC"
[attributes.contract]
source = "file"
path = "/contract.toml"
"""
TEXT = FACTORY + ATTRIBUTES
SIGNED = 'when = { attribute = "contract", is = "signed" }'
HOURS = 'when = { attribute = "time", between = ["07:00", "19:00"] }'
ALL = 'publish = ["machine/#"]\nread = ["machine/#"]'
HOUR = 3_600_000


def signed(site: Ruled, client: str, until: int) -> None:
    site.engine.take_attributes([Attribute("contract", client, "signed", until)])


def test_a_rule_allows_whom_its_attribute_is_about_and_only_while_it_holds() -> None:
    site = Ruled(f"{ALL}\n{SIGNED}", text=TEXT)
    denied = site.publish(SENSOR, TOPIC)
    assert said(denied) == "!publish.not-allowed"
    assert denied.reason == (
        "no rule lets this client publish there now, but while contract is signed"
    )
    signed(site, SENSOR, 5_000)
    got = site.publish(SENSOR, TOPIC)
    assert got.allow
    assert got.until == 5_000
    assert site.publish(SENSOR, TOPIC) is got
    assert said(site.read(PANEL, TOPIC)) == "!deliver.not-allowed"
    site.now = 5_000
    assert said(site.publish(SENSOR, TOPIC)) == "!publish.not-allowed"
    signed(site, SENSOR, 9_000)
    assert site.publish(SENSOR, TOPIC).allow
    signed(site, SENSOR, 0)
    assert not site.publish(SENSOR, TOPIC).allow


def test_what_a_rule_for_always_allows_rests_on_no_attribute() -> None:
    site = Ruled(f"{ALL}\n{SIGNED}", ALL, text=TEXT)
    got = site.publish(SENSOR, TOPIC)
    assert got.allow
    signed(site, SENSOR, 5_000)
    assert site.publish(SENSOR, TOPIC) is got


def test_a_standing_subscription_is_asked_about_when_its_hours_end_and_begin() -> None:
    site = Ruled(f"{ALL}\n{HOURS}", text=TEXT)
    site.engine.take_attributes([Attribute("time", "", [[0, 0]], 1 << 50)])
    site.now = 12 * HOUR
    assert said(site.take(PANEL, "machine/1/#")) == "subscribe.allowed"
    conn = site.conn(PANEL)
    assert site.engine.due() == []
    for hour, allowed in ((19, False), (31, True)):
        site.now = hour * HOUR
        assert site.read(PANEL, TOPIC).allow is allowed, "no delivery waits for that"
        site.engine.tick(site.now)
        assert site.engine.due() == [(conn, "machine/1/#")]
        again = conn.again("machine/1/#", site.now)
        assert again is not None
        assert again.allow is allowed


MORE = f"""
[attributes.day]
source = "calendar"
zone = "UTC"
else = "NIGHT"
[attributes.day.hours]
DAY = {{ between = ["07:00", "19:00"] }}
[attributes.shift]
source = "client"
of = "subscriber"
by = ["{PANEL}"]
valid = "1h"
[attributes.got]
source = "count"
of = "subscriber"
window = "1h"
[attributes.friend]
source = "client"
of = "pair"
by = ["{PANEL}"]
valid = "1h"
"""


def test_a_rule_may_ask_about_a_calendar_and_what_clients_tell() -> None:
    shift = '{ attribute = "shift", in = ["early", "late"] }'
    when = f'when = [{{ attribute = "day", is = "DAY" }}, {shift}]'
    site = Ruled(f"{ALL}\n{when}", text=TEXT + MORE)
    site.engine.take_attributes([Attribute("day", "", [[0, 0]], 1 << 50)])
    site.now = 12 * HOUR
    assert said(site.publish(SENSOR, TOPIC)) == "!publish.not-allowed"
    body = b'{"name": "shift", "subject": "%s", "value": "late"}' % SENSOR.encode()
    told = site.conn(PANEL).command("attributes", body, site.now)
    assert isinstance(told, Proposal)
    site.commit(list(told.records))
    got = site.publish(SENSOR, TOPIC)
    assert (said(got), got.until) == ("publish.allowed", 13 * HOUR)
    site.now = 12 * HOUR + 1
    assert isinstance(site.conn(SENSOR).command("attributes", body, site.now), Verdict)
    site.now = 19 * HOUR
    assert said(site.publish(SENSOR, TOPIC)) == "!publish.not-allowed"


def test_a_rule_may_ask_how_much_its_reader_has_got() -> None:
    site = Ruled(f'{ALL}\nwhen = {{ attribute = "got", below = 2 }}', text=TEXT + MORE)
    conn = site.conn(PANEL)
    for allowed in (True, True, False):
        decision = site.read(PANEL, TOPIC)
        assert decision.allow is allowed
        if allowed:
            conn.delivered(decision, site.now)
    site.now += HOUR
    assert site.read(PANEL, TOPIC).allow


@pytest.mark.parametrize(
    ("when", "what", "hint"),
    [
        ('{ attribute = "day", is = "NOON" }', "day is never 'NOON'", "DAY"),
        ('{ attribute = "day", is = "DAY", of = "site" }', "of does not go with day", "is, in"),
        ('{ attribute = "friend", is = true }', "friend is of a pair", "client that asks"),
        ('{ attribute = "got", is = 1 }', "is does not go with got", "below"),
        ('{ attribute = "got", below = 0 }', "below is 0", "from 1 on"),
        ('{ attribute = "got", below = true }', "below is True", "from 1 on"),
    ],
)
def test_what_a_rule_cannot_ask_is_refused(when: str, what: str, hint: str) -> None:
    with pytest.raises(FamilyConfigError) as caught:
        Ruled(f"{ALL}\nwhen = {when}", text=TEXT + MORE)
    assert what in str(caught.value)
    assert hint in caught.value.hint


def test_a_reload_that_changes_a_condition_reaches_what_was_answered() -> None:
    site = Ruled(f"{ALL}\n{SIGNED}", text=TEXT)
    assert not site.publish(SENSOR, TOPIC).allow
    site.rule(ALL)
    assert site.publish(SENSOR, TOPIC).allow
    site.rule(f"{ALL}\n{SIGNED}")
    assert not site.publish(SENSOR, TOPIC).allow
    signed(site, SENSOR, 5_000)
    assert site.publish(SENSOR, TOPIC).allow
    site.rule()
    assert not site.publish(SENSOR, TOPIC).allow


def test_explain_says_while_what_a_rule_allows() -> None:
    site = Ruled(f"{ALL}\n{SIGNED}", text=TEXT)
    lines = site.engine.explain(site.conn(SENSOR), site.publish(SENSOR, TOPIC))
    assert "rule 1 lets everybody publish on machine/# while contract is signed" in lines


@pytest.mark.parametrize(
    ("rules", "key", "hint"),
    [
        ([f'{ALL}\nwhen = {{ attribute = "tine" }}'], "rule.0.when", "did you mean time?"),
        ([f'{ALL}\nsealed = ["machine/#"]\n{SIGNED}'], "rule.0.when", "for what is sealed"),
        (
            [f'{ALL}\nwhen = {{ attribute = "contract", is = {n} }}' for n in range(40)],
            "rule",
            "takes the place of many",
        ),
    ],
)
def test_a_condition_that_cannot_be_is_refused_with_the_line(
    rules: list[str], key: str, hint: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        loads(toml(*rules, text=TEXT))
    assert caught.value.key == f"families.allowlist.{key}"
    assert hint in (caught.value.hint or "")
