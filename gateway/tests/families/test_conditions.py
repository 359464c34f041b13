"""Conditions of rules: what is met when, what the answer rests on, and when it ends."""

from __future__ import annotations

import datetime
import zoneinfo
from typing import Any, ClassVar

import pytest

from families.factory import FACTORY, Site, config
from sealmq.attributes import zones
from sealmq.families import conditions, hours
from sealmq.families.api import Ask, Family, FamilyConfigError, Verdict, Who, allow, deny
from sealmq.families.ask import FOREVER
from sealmq.families.attributes import Attribute, Attributes
from sealmq.families.conditions import When

BERLIN = zoneinfo.ZoneInfo("Europe/Berlin")
SITE = config(
    '[attributes.time]\nsource = "time"\nzone = "Europe/Berlin"\n'
    '[attributes.contract]\nsource = "file"\npath = "/tmp/contract.toml"\n'
)
SHIFT = {"attribute": "time", "between": ["07:00", "19:00"]}
NIGHT = {"attribute": "time", "between": ["22:00", "06:00"], "weekdays": ["fri"]}
WEEKEND = {"attribute": "time", "weekdays": ["sat", "sun"]}
MINUTE = 60_000


def ms(text: str) -> int:
    at = datetime.datetime.fromisoformat(text)
    return int((at if at.tzinfo else at.replace(tzinfo=BERLIN)).timestamp() * 1000)


def when(row: object) -> When:
    return conditions.parse(row, "rule.0.when", SITE)


def asked(held: Attributes, now_ms: int, client: str = "bob") -> Ask:
    ask = Ask(Who(client, 1, "device", "", "low"), held, {}, ("subs", "1"))
    ask.fill("publish", "t", now_ms)
    return ask


def clock(now_ms: int) -> Attributes:
    rows, until = zones.steps(zones.zone("Europe/Berlin"), now_ms)
    held = Attributes()
    held.take(Attribute("time", "", rows, until))
    return held


@pytest.mark.parametrize(
    ("row", "now", "met", "until"),
    [
        (SHIFT, "2026-06-03T06:59:59.999", False, "2026-06-03T07:00"),
        (SHIFT, "2026-06-03T07:00", True, "2026-06-03T19:00"),
        (SHIFT, "2026-06-03T18:59:59.999", True, "2026-06-03T19:00"),
        (SHIFT, "2026-06-03T19:00", False, "2026-06-04T07:00"),
        # 2026-06-05 is a Friday.
        (NIGHT, "2026-06-05T21:59", False, "2026-06-05T22:00"),
        (NIGHT, "2026-06-05T22:00", True, "2026-06-06T00:00"),
        (NIGHT, "2026-06-06T05:59", True, "2026-06-06T06:00"),
        (NIGHT, "2026-06-06T06:00", False, "2026-06-06T22:00"),
        (NIGHT, "2026-06-05T03:00", False, "2026-06-05T06:00"),
        (WEEKEND, "2026-06-06T00:00", True, "2026-06-07T00:00"),
        (WEEKEND, "2026-06-07T23:59:59.999", True, "2026-06-08T00:00"),
        # Clocks go forward at 02:00 on 2026-03-29, back at 03:00 on 2026-10-25.
        (SHIFT, "2026-03-28T20:00", False, "2026-03-29T03:00"),
        (SHIFT, "2026-10-24T20:00", False, "2026-10-25T01:00+00:00"),
    ],
)
def test_hours_begin_and_end_by_the_clock_on_the_wall(
    row: object, now: str, met: bool, until: str
) -> None:
    ask = asked(clock(ms(now)), ms(now))
    assert when(row).met(ask) is met
    assert ask.until == ms(until)
    assert ("attribute", "time", "") in ask.deps


def _naive(row: dict[str, Any], now_ms: int) -> bool:
    local = datetime.datetime.fromtimestamp(now_ms / 1000, BERLIN)
    first, last = row.get("between", ("00:00", "24:00"))
    days = row.get("weekdays", hours.WEEKDAYS)
    today = hours.WEEKDAYS[local.weekday()]
    yesterday = hours.WEEKDAYS[local.weekday() - 1]
    at = f"{local:%H:%M}"
    if first < last:
        return today in days and first <= at < last
    return (today in days and at >= first) or (yesterday in days and at < last)


@pytest.mark.parametrize("begin", ["2026-03-28T00:00", "2026-10-24T00:00", "2026-06-05T00:00"])
@pytest.mark.parametrize(
    "row",
    [
        SHIFT,
        NIGHT,
        WEEKEND,
        {"attribute": "time", "between": ["02:30", "03:30"]},
        {"attribute": "time", "between": ["02:15", "02:45"], "weekdays": ["sun"]},
        {"attribute": "time", "between": ["23:59", "00:01"]},
        {"attribute": "time", "between": ["18:00", "24:00"], "weekdays": ["sat"]},
    ],
)
def test_each_minute_of_three_days_is_as_a_calendar_says_and_no_answer_outlives_its_truth(
    row: dict[str, Any], begin: str
) -> None:
    held, compiled = clock(ms(begin)), when(row)
    until, kept = 0, False
    for now in range(ms(begin), ms(begin) + 3 * 1440 * MINUTE, MINUTE):
        truth = _naive(row, now)
        if now < until:
            assert kept is truth, datetime.datetime.fromtimestamp(now / 1000, BERLIN)
        ask = asked(held, now)
        assert compiled.met(ask) is truth, datetime.datetime.fromtimestamp(now / 1000, BERLIN)
        assert ask.until > now
        until, kept = ask.until, truth


def test_a_value_of_the_client_that_asks_or_of_the_site() -> None:
    held = Attributes()
    held.take(Attribute("contract", "bob", "signed", 2_000))
    held.take(Attribute("contract", "", 1, 3_000))
    signed = when({"attribute": "contract", "is": "signed"})
    ask = asked(held, 1_000)
    assert signed.met(ask)
    assert (ask.until, list(ask.deps)) == (2_000, [("attribute", "contract", "bob")])
    assert not signed.met(asked(held, 2_000)), "its validity is over"
    assert not signed.met(asked(held, 1_000, "alice")), "unknown of alice"
    site = {"attribute": "contract", "of": "site"}
    assert when({**site, "in": [3, 1]}).met(asked(held, 1_000, "alice"))
    assert not when({**site, "is": True}).met(asked(held, 1_000)), "true is not 1"
    assert not when({**site, "is": "1"}).met(asked(held, 1_000))


def test_all_of_several_conditions_have_to_be_met() -> None:
    now = ms("2026-06-03T12:00")
    held = clock(now)
    both = when([SHIFT, {"attribute": "contract", "is": "signed"}])
    ask = asked(held, now)
    assert not both.met(ask)
    assert ("attribute", "contract", "bob") in ask.deps, "its arrival is noticed"
    held.take(Attribute("contract", "bob", "signed", now + 1))
    ask = asked(held, now)
    assert both.met(ask)
    assert ask.until == now + 1
    assert both.words == "time between 07:00 and 19:00 and contract is signed"


def test_before_the_time_that_a_source_knows_about_nothing_is_met() -> None:
    now = ms("2026-06-03T12:00")
    held = clock(now)
    assert when(SHIFT).met(asked(held, now))
    assert not when(SHIFT).met(asked(held, now - 30 * 86_400_000)), "the clock was set back"
    assert not when(SHIFT).met(asked(held, now + 30 * 86_400_000)), "its source is gone"


def test_a_value_of_the_wrong_kind_meets_nothing() -> None:
    held = Attributes()
    held.take(Attribute("time", "", "12:00", FOREVER))
    assert not when(SHIFT).met(asked(held, 1_000))


def test_no_condition_is_always_met() -> None:
    ask = asked(Attributes(), 1)
    assert When().met(ask)
    assert (ask.until, ask.deps) == (FOREVER, {})


@pytest.mark.parametrize(
    ("row", "what", "hint"),
    [
        ("time", "a condition is a table", "when ="),
        ([], "0 conditions", "leave `when` out"),
        ([SHIFT] * 9, "9 conditions", "1 to 8"),
        ({}, "names an attribute", "there is: contract, time"),
        ({"attribute": "tine"}, "there is no attribute tine", "did you mean time?"),
        ({"attribute": "time"}, "asked for nothing", "between ="),
        ({"attribute": "time", "is": 3}, "is does not go with time", "between, weekdays"),
        ({"attribute": "time", "between": ["07:00"]}, "two times of day", "between ="),
        ({"attribute": "time", "between": ["7:00", "19:00"]}, "'7:00' is no time", "07:00"),
        ({"attribute": "time", "between": ["07:00", "24:01"]}, "'24:01' is no time", "24:00"),
        ({"attribute": "time", "between": ["07:00", "07:00"]}, "begin and end at once", "all day"),
        ({"attribute": "time", "between": ["24:00", "07:00"]}, "where a day ends", "00:00"),
        ({"attribute": "time", "weekdays": ["monday"]}, "weekdays is", "mon, tue"),
        ({"attribute": "time", "weekdays": []}, "weekdays is", "mon, tue"),
        ({"attribute": "contract"}, "said once", "is ="),
        ({"attribute": "contract", "is": 1, "in": [1]}, "said once", "is ="),
        ({"attribute": "contract", "in": []}, "cannot be", "texts"),
        ({"attribute": "contract", "is": 1.5}, "cannot be", "texts"),
        ({"attribute": "contract", "is": 1, "of": "bob"}, "of is 'bob'", "client, site"),
        ({"attribute": "contract", "between": ["07:00", "19:00"]}, "does not go with", "is, in"),
    ],
)
def test_a_condition_that_says_nothing_sensible_is_refused(
    row: object, what: str, hint: str
) -> None:
    with pytest.raises(FamilyConfigError) as caught:
        when(row)
    assert caught.value.key == "rule.0.when"
    assert what in caught.value.what
    assert hint in caught.value.hint


# --- in the engine ---


class Shift(Family):
    """Allows what its condition is met for."""

    name: ClassVar[str] = "shift"
    rules: ClassVar[dict[str, str]] = {"shift.yes": "It is time.", "shift.no": "It is not."}

    def __init__(self, row: object) -> None:
        self._when = conditions.parse(row, "when", SITE)

    def _answer(self, ask: Ask) -> Verdict:
        return allow("shift.yes", "") if self._when.met(ask) else deny("shift.no", "")

    connect = publish = subscribe = deliver = _answer


SENSOR, TOPIC = "m1-temp-sensor", "machine/1/temperature"


def test_a_cached_answer_ends_when_the_shift_does_and_when_the_clock_is_set() -> None:
    site = Site(FACTORY, Shift(SHIFT))
    site.now = ms("2026-06-03T12:00")
    assert site.publish(SENSOR, TOPIC).rule == "shift.no", "no source has told the time"
    rows, until = zones.steps(BERLIN, site.now)
    site.engine.take_attributes([Attribute("time", "", rows, until)])
    got = site.publish(SENSOR, TOPIC)
    assert got.allow
    assert site.publish(SENSOR, TOPIC) is got
    site.now = ms("2026-06-03T19:00")
    assert not site.publish(SENSOR, TOPIC).allow
    site.now = ms("2026-06-04T08:00")
    assert site.publish(SENSOR, TOPIC).allow
    site.now = ms("2026-06-04T05:00")
    site.engine.clock_set()
    assert not site.publish(SENSOR, TOPIC).allow, "what was allowed before the clock was set back"


def test_a_value_that_is_told_again_with_a_later_end_is_noticed_after_it_was_over() -> None:
    site = Site(FACTORY, Shift({"attribute": "contract", "is": "signed"}))

    def told(value: object, until: int) -> None:
        site.engine.take_attributes([Attribute("contract", SENSOR, value, until)])

    told("signed", 2_000)
    assert site.publish(SENSOR, TOPIC).allow
    site.now = 2_000
    assert not site.publish(SENSOR, TOPIC).allow
    told("signed", 9_000)
    assert site.publish(SENSOR, TOPIC).allow
    told("ended", 9_000)
    assert not site.publish(SENSOR, TOPIC).allow
    told("signed", 9_000)
    assert site.publish(SENSOR, TOPIC).allow
    told(None, 0)
    assert not site.publish(SENSOR, TOPIC).allow, "it is not told any more"
