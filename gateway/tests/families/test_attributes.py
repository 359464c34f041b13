"""Attributes that clients tell, that come of events, that count, and calendars: in the engine."""

from __future__ import annotations

import datetime
import json
import random
import re
import tomllib
import zoneinfo
from collections.abc import Iterable
from pathlib import Path
from typing import Any, ClassVar

import pytest

from families.factory import FACTORY, Site
from sealmq.attributes import files, zones
from sealmq.cli.main import main
from sealmq.families import conditions, told
from sealmq.families.api import (
    Ask,
    Attribute,
    Dep,
    Family,
    FamilyRecord,
    Proposal,
    Seen,
    UnknownAttribute,
    Verdict,
    allow,
    deny,
    pair,
)
from sealmq.families.counts import EXACT, FAMILY, MOST
from sealmq.site.check import parse

HR, BOB, EVE = "control-room-temp-sensor", "m1-temp-sensor", "m2-temp-sensor"
TOPIC = "machine/1/temperature"
HOUR = 3_600_000
SETTINGS = f"""
[attributes.contract]
source = "client"
of = "subscriber"
by = ["{HR}"]
valid = "1h"
[attributes.collaborator]
source = "client"
of = "pair"
by = ["{HR}", "{EVE}"]
valid = "1d"
[attributes.shift]
source = "client"
of = "site"
by = ["{HR}"]
valid = "1h"
[attributes.room]
source = "events"
family = "labels"
of = "owner"
valid = "1h"
[attributes.got]
source = "count"
of = "subscriber"
window = "1h"
[attributes.both]
source = "count"
of = "pair"
window = "1h"
[attributes.day]
source = "calendar"
zone = "Europe/Berlin"
else = "WEEKEND"
[attributes.day.hours]
LUNCH = {{ between = ["12:00", "13:00"], weekdays = ["mon", "fri"] }}
WORK_DAY = {{ between = ["08:00", "18:00"], weekdays = ["mon", "tue", "wed", "thu", "fri"] }}
WORK_NIGHT = {{ between = ["18:00", "08:00"], weekdays = ["mon", "tue", "wed", "thu"] }}
"""
TEXT = FACTORY + SETTINGS.replace('"labels"', '"probe"')
ORDER = '\n[policy]\norder = ["labels", "probe"]\n'


class Probe(Family):
    """Allows what the attribute that `wants` names is not false of; and derives what it is told."""

    name: ClassVar[str] = "probe"
    rules: ClassVar[dict[str, str]] = {"probe.yes": "It is.", "probe.no": "It is not."}

    def __init__(self, wants: str, subject: str | None = None, below: int = 0) -> None:
        self.wants, self.subject, self.below = wants, subject, below
        self.derives: list[Any] = []
        self.asked = 0

    def _answer(self, ask: Ask) -> Verdict:
        self.asked += 1
        found = ask.attribute(self.wants, ask.who.client if self.subject is None else self.subject)
        good = found < self.below if self.below else bool(found)
        return allow("probe.yes", str(found)) if good else deny("probe.no", str(found))

    connect = publish = subscribe = deliver = _answer

    def see(self, what: Seen, ask: Ask) -> Iterable[Dep | Attribute]:
        yield ("probe", "seen")
        if what == "accepted":
            yield from self.derives


class Scene(Site):
    def __init__(self, probe: Probe, text: str = TEXT, *, enforce: bool = True) -> None:
        self.probe = probe
        super().__init__(text + ORDER, probe, enforce=enforce)

    def command(self, client: str, said: object) -> Any:
        """The reply, or the rule by which it is refused; what is proposed is committed."""
        body = said if isinstance(said, bytes) else json.dumps(said).encode()
        got = self.conn(client).command("attributes", body, self.now)
        if isinstance(got, Verdict):
            assert len(got.reason.encode()) <= 200
            return got.rule
        assert isinstance(got, Proposal)
        self.last = got
        self.rows = [row for row in got.records if isinstance(row, FamilyRecord)]
        self.commit(list(got.records))
        return json.loads(got.reply)

    def tell(self, name: str, subject: Any, value: Any, by: str = HR, **more: Any) -> Any:
        said = {"name": name, "value": value, **more}
        return self.command(by, said | ({"subject": subject} if subject else {}))

    def asks(self, name: str, subject: str, client: str = BOB) -> Any:
        ask = self.conn(client).ask
        ask.fill("deliver", TOPIC, self.now)
        try:
            return ask.attribute(name, subject)
        except UnknownAttribute:
            return None

    def got(self, client: str = BOB) -> bool:
        """One delivery, as the mediator makes it."""
        conn = self.conn(client)
        decision = conn.deliver(TOPIC, "m1-temp", 0, self.now)
        if decision.allow:
            conn.delivered(decision, self.now)
        return decision.allow


# --- what clients tell ---


def test_what_a_client_tells_is_in_force_with_the_commit_and_ends_with_its_validity() -> None:
    site = Scene(Probe("contract"))
    assert site.publish(BOB, TOPIC).rule == "engine.unknown-attribute"
    assert site.tell("contract", BOB, "signed", valid_s=60) == {"until": site.now + 60_000}
    first = site.publish(BOB, TOPIC)
    assert first.allow
    assert site.publish(BOB, TOPIC) is first, "cached"
    assert first.until == site.now + 60_000
    site.now += 60_000
    assert site.publish(BOB, TOPIC).rule == "engine.unknown-attribute"
    assert site.tell("contract", BOB, "signed") == {"until": site.now + HOUR}, "as declared"
    assert site.publish(BOB, TOPIC).allow
    assert site.tell("contract", BOB, None) == {"until": 0}
    assert (site.last.urgent, site.rows[0].value) == (True, None)
    assert site.publish(BOB, TOPIC).rule == "engine.unknown-attribute"


def test_the_record_of_the_audit_log_is_that_of_a_change() -> None:
    site = Scene(Probe("contract"))
    site.tell("collaborator", ["alice", BOB], "früh")
    assert site.last.event == "attribute-changed"
    assert site.last.audit == {
        "attribute": "collaborator",
        "subject": f"alice/{BOB}",
        "value": '"früh"',
        "until_ms": site.now + 24 * HOUR,
    }
    assert [(r.family, r.client) for r in site.rows] == [("attributes", HR)]
    site.tell("shift", "", None)
    assert site.last.audit == {"attribute": "shift", "subject": None}


@pytest.mark.parametrize(
    ("by", "said", "rule"),
    [
        (EVE, {"name": "contract", "subject": BOB, "value": 1}, "not-yours"),
        (HR, {"name": "contracts", "subject": BOB, "value": 1}, "not-yours"),
        (HR, {"name": "day", "subject": "", "value": "WEEKEND"}, "not-yours"),
        (HR, {"name": "room", "subject": BOB, "value": "1005"}, "not-yours"),
        (HR, {"name": "got", "subject": BOB, "value": 0}, "not-yours"),
        ("off", {"name": "contract", "subject": BOB, "value": 1}, "not-yours"),
        (EVE, {"list": "contract"}, "not-yours"),
        (HR, {"name": "contract", "value": 1}, "subject"),
        (HR, {"name": "contract", "subject": "nobody", "value": 1}, "subject"),
        (HR, {"name": "contract", "subject": [BOB, EVE], "value": 1}, "subject"),
        (HR, {"name": "contract", "subject": pair(BOB, EVE), "value": 1}, "subject"),
        (HR, {"name": "contract", "subject": 3, "value": 1}, "subject"),
        (HR, {"name": "collaborator", "subject": BOB, "value": 1}, "subject"),
        (HR, {"name": "collaborator", "subject": ["alice", "nobody"], "value": 1}, "subject"),
        (HR, {"name": "collaborator", "subject": [pair("a", "b"), BOB], "value": 1}, "subject"),
        (HR, {"name": "shift", "subject": BOB, "value": 1}, "subject"),
        (HR, {"name": "contract", "subject": BOB, "value": 1, "valid_s": 3601}, "validity"),
        (HR, {"name": "contract", "subject": BOB, "value": 1, "valid_s": 0}, "malformed"),
        (HR, {"name": "contract", "subject": BOB, "value": 1, "valid_s": True}, "malformed"),
        (HR, {"name": "contract", "subject": BOB, "value": None, "valid_s": 5}, "malformed"),
        (HR, {"name": "contract", "subject": BOB, "value": 1.5}, "malformed"),
        (HR, {"name": "contract", "subject": BOB, "value": [1]}, "malformed"),
        (HR, {"name": "contract", "subject": BOB, "value": "x" * 257}, "malformed"),
        (HR, {"name": "contract", "subject": BOB, "value": 1 << 62}, "malformed"),
        (HR, {"name": "contract", "subject": BOB, "value": 1, "by": HR}, "malformed"),
        (HR, {"name": "contract", "subject": BOB}, "malformed"),
        (HR, b'{"name": "contract", "name": "shift", "value": 1}', "malformed"),
        (HR, b"[]", "malformed"),
        (HR, b"\xff", "malformed"),
        (HR, b"[" * 2000, "malformed"),
        (HR, b" " * 2049, "malformed"),
    ],
)
def test_what_a_client_must_not_tell_is_refused_and_changes_nothing(
    by: str, said: object, rule: str
) -> None:
    site = Scene(Probe("contract"))
    before = list(site.stored)
    assert site.command(by, said) == f"engine.attribute-{rule}"
    assert site.stored == before
    assert f"engine.attribute-{rule}" in site.engine.rules


def test_nothing_is_told_while_the_site_is_closed() -> None:
    site = Scene(Probe("contract"))
    site.engine.close_site("lost")
    assert site.tell("contract", BOB, "signed") == "engine.closed"


def test_who_is_no_longer_named_or_gone_or_disabled_has_told_nothing() -> None:
    site = Scene(Probe("contract"))
    site.tell("contract", BOB, "signed")
    site.tell("collaborator", ["alice", BOB], 1, by=EVE)

    def known() -> tuple[Any, Any]:
        return site.asks("contract", BOB), site.asks("collaborator", pair("alice", BOB))

    assert known() == ("signed", 1)
    text = TEXT + ORDER
    for without in (
        text.replace(f'by = ["{HR}"]', f'by = ["{EVE}"]'),
        text.replace(HR, "hr"),
        text.replace(f'{HR} = {{ label = "ctrl-room-temp" }}',
                     f'{HR} = {{ label = "ctrl-room-temp", disabled = true }}'),
        text.replace('[attributes.contract]\nsource = "client"\nof = "subscriber"',
                     '[attributes.contract]\nsource = "client"\nof = "site"'),
    ):  # fmt: skip
        site.reload(without)
        assert known() == (None, 1), without
        site.reload(text)
        assert known() == ("signed", 1)
    site.reload(text.replace('valid = "1h"', 'valid = "1s"'))
    assert site.engine.attributes.held("contract", BOB) == Attribute(
        "contract", BOB, "signed", site.now + 1000
    ), "no longer than is declared now"


def test_what_clients_told_before_takes_nothing_from_another_source_of_that_name() -> None:
    site = Scene(Probe("contract"))
    site.tell("contract", BOB, "signed", valid_s=60)
    was = f'source = "client"\nof = "subscriber"\nby = ["{HR}"]\nvalid = "1h"\n[attributes.coll'
    text = TEXT.replace(was, 'source = "file"\npath = "/contract.toml"\n[attributes.coll') + ORDER
    site.reload(text)
    assert site.asks("contract", BOB) is None, "what clients told is not what the file says"
    site.engine.take_attributes([Attribute("contract", BOB, "by file", site.now + HOUR)])
    site.reload(text + "[limits]\ntopics = 7\n")
    assert site.asks("contract", BOB) == "by file"
    # The row is swept out of the store with a later command, and others come to have names anew.
    site.commit([FamilyRecord("attributes", f"contract\x1f{BOB}", None)])
    site.engine.noted({"somebody": 1})
    assert site.asks("contract", BOB) == "by file"


def test_what_another_bearer_of_a_name_has_told_or_was_told_of_is_void() -> None:
    for name in (HR, BOB, "alice"):
        site = Scene(Probe("contract"))
        site.tell("collaborator", ["alice", BOB], 1)
        assert not site.engine.noted({HR: 1, BOB: site.now, "alice": 1})
        assert site.asks("collaborator", pair("alice", BOB)) == 1
        since = {name: site.now + 1}
        assert site.engine.noted(since), name
        assert site.asks("collaborator", pair("alice", BOB)) is None, "at once"
        gone = site.engine.bearers(since, site.stored.copy)
        assert gone == [FamilyRecord("attributes", f"collaborator\x1falice\x1f{BOB}", None)]
        site.commit(gone)
        assert not site.engine.noted(since)


def test_a_restart_knows_what_was_told_and_what_is_over_goes_with_the_next_command() -> None:
    site = Scene(Probe("contract"))
    site.tell("contract", BOB, "signed", valid_s=1)
    site.tell("contract", EVE, "signed")
    site.tell("collaborator", ["alice", BOB], 1, by=EVE, valid_s=1)
    again = Scene(Probe("contract"))
    again.engine.apply(site.stored)
    assert again.asks("contract", BOB) == "signed"
    again.now += 1000
    assert again.asks("contract", BOB) is None
    again.tell("shift", "", "early")
    assert [(r.key.split("\x1f")[0], r.value is None) for r in again.rows] == [
        ("shift", False),
        ("contract", True),
    ], "its own alone"
    assert again.command(HR, {"list": True}) == {
        "told": [
            ["contract", [EVE], "signed", 1000 + HOUR, HR],
            ["shift", [], "early", again.now + HOUR, HR],
        ],
        "more": 0,
    }
    assert again.command(EVE, {"list": "collaborator"}) == {"told": [], "more": 0}
    assert again.command(BOB, {"list": True}) == {"told": [], "more": 0}


def test_an_answer_to_list_is_bounded() -> None:
    site = Scene(Probe("contract"))
    for n in range(60):
        site.tell("collaborator", [f"owner-{n}", BOB], "x" * 250)
    got = site.command(HR, {"list": True})
    assert len(site.last.reply) <= 8192
    assert len(got["told"]) + got["more"] == 60
    assert got["more"] > 0


def test_a_number_that_nobody_reads_is_refused_before_anybody_is_asked(
    capsys: pytest.CaptureFixture[str],
) -> None:
    who = ["attribute", "set", "nowhere", "--client", "hr", "--name", "shift"]
    assert main([*who, "--value", "9" * 5000]) == 1
    assert "a number of 5000 digits" in capsys.readouterr().err


# --- what comes of events ---


def accepted(site: Scene, *rows: object) -> None:
    site.probe.derives = list(rows)
    site.conn(BOB).saw("accepted", TOPIC, site.now)


def room(value: Any, until: int = 1 << 60, subject: str = BOB) -> Attribute:
    return Attribute("room", subject, value, until)


def test_what_a_family_derives_is_in_force_before_anything_else_is_judged() -> None:
    site = Scene(Probe("room"))
    assert not site.publish(BOB, TOPIC).allow
    accepted(site, room("1005"))
    first = site.publish(BOB, TOPIC)
    assert first.allow
    assert first.until == site.now + HOUR, "as declared, whatever the family says"
    accepted(site, room("1005"))
    assert site.publish(BOB, TOPIC) is first, "nothing has changed"
    accepted(site, room("1005", until=site.now + 5))
    assert site.publish(BOB, TOPIC).until == site.now + 5, "it ends earlier"
    accepted(site, room(False))
    assert site.publish(BOB, TOPIC).rule == "probe.no"
    accepted(site, room(None, until=0))
    assert site.publish(BOB, TOPIC).rule == "engine.unknown-attribute"
    assert site.faults == []


def test_what_events_told_of_an_earlier_bearer_of_a_name_is_void() -> None:
    site = Scene(Probe("room"))
    accepted(site, room("1005"))
    assert site.publish(BOB, TOPIC).allow
    row = site.engine.attributes.held("room", BOB)
    assert row is not None
    site.engine.noted({BOB: site.now, EVE: site.now + 1})
    assert site.publish(BOB, TOPIC).allow, "of another client, and of this one since then"
    site.now += 1000
    site.engine.noted({BOB: site.now})
    assert site.publish(BOB, TOPIC).rule == "engine.unknown-attribute"
    site.engine.take_attributes([row])
    assert site.publish(BOB, TOPIC).rule == "engine.unknown-attribute", "another worker's word"
    accepted(site, room("1005"))
    assert site.publish(BOB, TOPIC).allow, "the next one is there, too"


def test_a_shorter_validity_lets_nothing_through_of_an_earlier_bearer() -> None:
    """When a value was told is reckoned from its end."""
    site = Scene(Probe("room"))
    accepted(site, room("1005"))
    site.now += 1000
    shorter = TEXT.replace(
        '"probe"\nof = "owner"\nvalid = "1h"', '"probe"\nof = "owner"\nvalid = "5m"'
    )
    assert shorter != TEXT
    site.engine.reload(parse(shorter + ORDER))
    site.engine.noted({BOB: site.now})
    assert site.publish(BOB, TOPIC).rule == "engine.unknown-attribute"
    accepted(site, room("1005"))
    assert site.publish(BOB, TOPIC).allow
    site.engine.reload(parse(TEXT + ORDER))
    assert site.publish(BOB, TOPIC).allow, "a longer one takes nothing away"


def test_what_is_not_the_familys_is_a_fault_and_its_deps_go_all_the_same() -> None:
    site = Scene(Probe("room"))
    bad = [
        Attribute("contract", BOB, "signed", 1 << 60),
        Attribute("nothing", BOB, "signed", 1 << 60),
        room("1005", subject=pair(BOB, EVE)),
        room("1005", subject=""),
        room(1.5),
    ]
    for row in bad:
        accepted(site, row)
    assert [fault[:2] for fault in site.faults] == [("probe", "accepted")] * len(bad)
    assert site.engine.take_derived() == []
    assert site.asks("contract", BOB) is None
    other = Scene(Probe("room"), TEXT.replace('family = "probe"', 'family = "labels"'))
    accepted(other, room("1005"))
    assert len(other.faults) == 1, "another family's"
    assert other.asks("room", BOB) is None
    heard: list[list[Dep]] = []
    site.engine._gone = lambda deps: heard.append(list(deps))  # type: ignore[method-assign]
    accepted(site, bad[0], room("1005"))
    assert heard == [[("probe", "seen"), ("attribute", "room", BOB)]]


def test_a_value_that_stays_travels_only_when_a_part_of_its_validity_has_passed() -> None:
    site = Scene(Probe("room"))
    calls: list[int] = []
    site.engine.on_derived = lambda: calls.append(site.now)
    begin = site.now
    for minute in range(60):
        site.now = begin + minute * 60_000
        accepted(site, room("1005"))
    assert [(at - begin) // 60_000 for at in calls] == [0, 8, 16, 24, 32, 40, 48, 56]
    assert len(site.engine.take_derived()) == 1, "of each value the last"


def test_of_very_many_subjects_the_further_ones_stay_unknown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(told, "MOST", 3)
    site = Scene(Probe("room"))
    accepted(site, *(room("1005", site.now + 5, f"s{n}") for n in range(4)))
    assert [site.asks("room", f"s{n}") for n in range(4)] == ["1005"] * 3 + [None]
    accepted(site, room("1003", subject="s0"), room(None, 0, "s1"), room("1003", subject="s3"))
    assert [site.asks("room", f"s{n}") for n in range(4)] == ["1003", None, "1005", "1003"]
    site.now += 5
    accepted(site, room("1003", subject="s4"))
    assert site.asks("room", "s4") == "1003", "what is over makes room"


class Owner:
    """What the owner process does with what workers derive (AttributeSources.derived)."""

    def __init__(self, sites: list[Scene]) -> None:
        self.sites, self.held = sites, dict[str, Attribute]()
        self.sent: list[tuple[int, list[Attribute], list[Attribute] | None]] = []
        self.late: list[list[str]] = [[] for _ in sites]

    def call(self, worker: int) -> None:
        self.sent.append((worker, self.sites[worker].engine.take_derived(), None))

    def serve(self) -> None:
        worker, rows, _ = self.sent.pop(0)
        for row in rows:
            self.held[row.subject] = row
            for late in self.late:
                late.append(row.subject)
        # The answer goes after what was sent to that worker before.
        self.pass_on(worker)
        now = [self.held[row.subject] for row in rows]
        self.sites[worker].engine.told_derived(rows, now)

    def pass_on(self, worker: int) -> None:
        late, self.late[worker] = self.late[worker], []
        self.sites[worker].engine.take_attributes([self.held[subject] for subject in late])


@pytest.mark.parametrize("seed", range(20))
def test_however_events_of_several_workers_fall_all_end_with_the_same_value(seed: int) -> None:
    draw = random.Random(seed)
    sites = [Scene(Probe("room")) for _ in range(3)]
    owner = Owner(sites)
    for step in range(200):
        worker = draw.randrange(3)
        what = draw.randrange(4)
        if what == 0:
            accepted(sites[worker], room(step, subject=draw.choice("ab")))
        elif what == 1:
            owner.call(worker)
        elif what == 2 and owner.sent:
            owner.serve()
        else:
            owner.pass_on(worker)
    for worker in range(3):
        owner.call(worker)
    while owner.sent:
        owner.serve()
    for worker in range(3):
        owner.pass_on(worker)
    assert len({(s.asks("room", "a"), s.asks("room", "b")) for s in sites}) == 1


def test_a_worker_does_not_go_back_to_what_another_one_derived_before() -> None:
    site = Scene(Probe("room"))
    accepted(site, room("1005"))
    before = room("1003", until=site.now + HOUR)
    site.engine.take_attributes([before])
    assert site.asks("room", BOB) == "1005", "the others do not know it yet"
    sent = site.engine.take_derived()
    site.engine.take_attributes([before])
    assert site.asks("room", BOB) == "1005", "they are being told"
    accepted(site, room("1007"))
    site.engine.told_derived(sent, sent)
    assert site.asks("room", BOB) == "1007", "it is newer than what they were told"
    sent = site.engine.take_derived()
    site.engine.told_derived(sent, [before])
    assert site.asks("room", BOB) == "1003", "another worker's came later to the owner"
    site.engine.take_attributes([before._replace(value="1001")])
    assert site.asks("room", BOB) == "1001"


# --- counts ---


def test_once_an_hour_and_what_was_not_delivered_or_not_read_counts_nothing() -> None:
    site = Scene(Probe("got", below=1))
    assert site.conn(BOB).deliver(TOPIC, "m1-temp", 0, site.now).until == 0, "never cached"
    for _ in range(5):
        assert site.conn(BOB).deliver(TOPIC, "m1-temp", 0, site.now).allow, "judging counts nothing"
    assert site.got()
    assert not site.got()
    assert site.got(EVE) is False, "its label"
    site.now += HOUR - 1
    assert not site.got()
    site.now += 1
    assert site.got()
    assert not site.got()
    other = Scene(Probe("room"))
    accepted(other, room("1005"))
    assert other.got()
    assert other.engine.counts.changed() == [], "no count was read"


def test_a_count_of_a_pair_is_of_both_and_of_another_reader_unknown() -> None:
    site = Scene(Probe("both", pair("alice", BOB), below=1))
    assert site.got()
    assert not site.got()
    site.probe.subject = pair("carol", BOB)
    assert site.got()
    site.probe.subject = pair("alice", EVE)
    assert site.conn(BOB).deliver(TOPIC, "m1-temp", 0, site.now).rule == "engine.unknown-attribute"
    site.probe.subject = BOB
    assert site.conn(BOB).deliver(TOPIC, "m1-temp", 0, site.now).rule == "engine.unknown-attribute"
    assert site.asks("got", EVE) is None


def test_a_count_is_never_too_low_and_bounded() -> None:
    draw = random.Random(7)
    site = Scene(Probe("got", below=1 << 30))
    at: list[int] = []
    for _ in range(600):
        site.now += draw.choice([1, 1000, 60_000, 200_000])
        true = sum(1 for moment in at if site.now - moment < HOUR)
        got = site.asks("got", BOB)
        assert got >= true
        if true <= EXACT and len(at) <= EXACT:
            assert got == true
        assert site.got()
        at.append(site.now)
    rows = site.engine.counts.changed()
    assert len(json.loads(rows[0].value or b"")) <= EXACT
    assert site.engine.counts.changed() == []
    site.engine.counts.not_stored(rows)
    assert site.engine.counts.changed() == rows, "again"
    # The clock was set back: what lies ahead counts.
    site.now -= 24 * HOUR
    assert site.asks("got", BOB) > 0


def test_counts_survive_a_restart_and_after_a_kill_are_unknown_for_a_window() -> None:
    site = Scene(Probe("got", below=1))
    assert site.got()
    rows = site.engine.counts.changed()
    assert [(row.family, row.client) for row in rows] == [(FAMILY, "")]
    again = Scene(Probe("got", below=1))
    again.engine.load(again.config, [*site.stored, *rows])
    assert not again.got()
    again.now += HOUR
    assert again.got()
    again.now += HOUR
    again.engine.tick(again.now)
    [gone] = again.engine.counts.changed()
    assert gone.value is None, "its row goes, too"
    killed = Scene(Probe("got", below=1))
    killed.engine.counts.blind_ms = killed.now
    assert killed.conn(BOB).deliver(TOPIC, "m1-temp", 0, killed.now).rule == (
        "engine.unknown-attribute"
    )
    killed.now += HOUR
    assert killed.got()


def test_when_there_are_too_many_counts_a_further_one_is_unknown() -> None:
    site = Scene(Probe("both", below=1))
    site.engine.counts.add([("both", pair(f"o{n}", BOB)) for n in range(MOST)], site.now)
    assert site.asks("both", pair("o0", BOB)) == 1
    assert site.asks("both", pair("new", BOB)) is None
    site.now += HOUR
    site.engine.tick(site.now)
    assert site.asks("both", pair("new", BOB)) == 0


# --- calendars ---

BERLIN = zoneinfo.ZoneInfo("Europe/Berlin")


def _named(now_ms: int) -> str:
    local = datetime.datetime.fromtimestamp(now_ms / 1000, BERLIN)
    at, day = f"{local:%H:%M}", local.weekday()
    if "12:00" <= at < "13:00" and day in (0, 4):
        return "LUNCH"
    if "08:00" <= at < "18:00" and day < 5:
        return "WORK_DAY"
    if (at >= "18:00" and day < 4) or (at < "08:00" and 1 <= day <= 4):
        return "WORK_NIGHT"
    return "WEEKEND"


@pytest.mark.parametrize("begin", ["2026-03-27", "2026-10-23", "2026-06-04"])
def test_each_quarter_of_an_hour_has_the_name_of_the_calendar_and_none_outlives_it(
    begin: str,
) -> None:
    start = int(datetime.datetime.fromisoformat(begin).replace(tzinfo=BERLIN).timestamp() * 1000)
    site = Scene(Probe("day", ""))
    rows, until = zones.steps(BERLIN, start)
    site.engine.take_attributes([Attribute("day", "", rows, until)])
    ends, kept, judged = 0, "", 0
    for now in range(start, start + 4 * 86_400_000, 900_000):
        site.now = now
        truth = _named(now)
        if now < ends:
            assert kept == truth
        found = site.publish(BOB, TOPIC)
        assert found.reason or found.votes[-1].reason == truth
        assert found.votes[-1].reason == truth
        judged += found.until != ends
        ends, kept = found.until, truth
        assert ends > now
        assert _named(ends - 1) == truth, "until before the end"
    assert judged < 40, "cached in between"


def test_a_calendar_that_is_declared_otherwise_counts_at_once_and_others_stay_cached() -> None:
    site = Scene(Probe("day", ""))
    site.now = 1_780_000_000_000
    rows, until = zones.steps(BERLIN, site.now)
    site.engine.take_attributes([Attribute("day", "", rows, until)])
    first = site.publish(BOB, TOPIC)
    site.reload(TEXT.replace("[attributes.got]", "[attributes.got2]") + ORDER)
    assert site.publish(BOB, TOPIC) is first
    name = first.votes[-1].reason
    site.reload(TEXT.replace(name, "OTHER_NAME") + ORDER)
    assert site.publish(BOB, TOPIC).votes[-1].reason == "OTHER_NAME"


def test_the_settings_say_what_there_is() -> None:
    config = parse(TEXT + ORDER)
    day = config.attributes["day"]
    assert (day.of, day.names) == ("site", ("LUNCH", "WORK_DAY", "WORK_NIGHT", "WEEKEND"))
    assert config.attributes["both"].window_ms == HOUR


def test_the_samples_of_the_readme_are_settings() -> None:
    page = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
    section = page.partition("\n## Attributes")[2].partition("\n## ")[0]
    blocks = re.findall(r"```toml\n(.*?)```", section, re.DOTALL)
    settings = [block for block in blocks if "[attributes." in block]
    [values] = [block for block in blocks if block not in settings]
    text = FACTORY.replace("[clients]", '[clients]\nthermometer = { label = "bottom" }')
    config = parse(text + "".join(settings))
    assert {one.source for one in config.attributes.values()} == {
        "time", "file", "calendar", "client", "count",
    }  # fmt: skip
    assert files.parse(values.encode(), ".toml", "contract")["thermometer"].value == "signed"
    whens = re.findall(r"`(\{ attribute = .*?\})`", section)
    for row in whens:
        if '"shift"' not in row:
            conditions.parse(tomllib.loads(f"when = {row}")["when"], "when", config)
    assert len(whens) == 7
