"""The verdict holds for a good run and for no doctored one: each test spoils one thing."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest

from demo_world import AFTER, BEFORE, DURING, HEARTS, LOST, MESSAGES, PULSES, SPOOFED, World, m3
from sealmq.demo import plot, report
from sealmq.demo.acts import ATTEMPTS
from sealmq.demo.evidence import Evidence
from sealmq.demo.plot import Attempt
from sealmq.demo.verdict import give
from sealmq.families.owners.demo import plot as hers
from sealmq.families.purposes.demo import plot as ours
from sealmq.families.purposes.demo.plot import PERFORMANCE, PULSE, SAFETY
from sealmq.mqtt import build

READING = MESSAGES[0][2]


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def failed(world: World, about: str) -> list[str]:
    """What failed, all of it about one thing."""
    wrong = world.verdict().failed
    assert wrong, "the verdict holds"
    assert all(text.startswith(f"{about}: ") for text in wrong), wrong
    return wrong


def test_a_good_run_holds(world: World) -> None:
    verdict = world.verdict()
    assert verdict.failed == []
    assert verdict.holds
    assert verdict.messages == len(MESSAGES) + len(PULSES) + len(HEARTS)
    assert verdict.readers["monitor"] == len(MESSAGES)
    assert verdict.readers["m1-arm-operator"] == 3


@pytest.mark.parametrize(
    "leaked",
    [
        READING.encode(),
        READING.encode().hex().encode(),
        READING.encode().hex().upper().encode(),
        base64.b64encode(READING.encode()),
        base64.b64encode(b"x" + READING.encode() + b"yz"),
        base64.urlsafe_b64encode(b"xx" + READING.encode() + b"\xff"),
        SPOOFED.encode(),
    ],
)
@pytest.mark.parametrize("tap", ["broker", "network"])
def test_plaintext_in_a_capture(world: World, leaked: bytes, tap: str) -> None:
    world.write()
    path = next(iter(sorted((world.places.capture / tap).glob("*-from-server.bin"))))
    path.write_bytes(path.read_bytes() + b"\x00\x01" + leaked + b"\x02")
    verdict = give(Evidence.load(world.places))
    assert not verdict.holds
    assert all(text.startswith("plaintext: ") for text in verdict.failed)
    assert report.summary(Evidence.load(world.places), verdict, 1.0)["broker"]["plaintext_found"]


FORBIDDEN = [a for a in ATTEMPTS if a.rule.startswith(("labels.publish.other", "labels.subs"))]
ON_THE_WIRE = [plot.REPLAY_PUBLISH, plot.CHANGE_M2, plot.REPLAY_CONNECT]


@pytest.mark.parametrize("attempt", [*FORBIDDEN, *ON_THE_WIRE], ids=lambda a: str(a.name))
def test_no_audit_record(world: World, attempt: Attempt) -> None:
    def about(row: dict[str, Any]) -> bool:
        mine = row.get("client") == attempt.who and row.get("rule") == attempt.rule
        return mine and row.get("topic", "") == attempt.topic and row["event"].endswith("-refused")

    world.audit = [row for row in world.audit if not about(row)]
    assert "audit log" in failed(world, attempt.name)[0]


def test_the_audit_record_of_another_rule_does_not_count(world: World) -> None:
    for row in world.audit:
        if row.get("client") == plot.REPLAY_PUBLISH.who and row.get("rule") == plot.REPLAYED:
            row["rule"] = "mediator.publish.stale"
    failed(world, plot.REPLAY_PUBLISH.name)


@pytest.mark.parametrize("attempt", [plot.REPLAY_M3, plot.CHANGE_M3], ids=lambda a: str(a.name))
def test_the_reader_did_not_refuse(world: World, attempt: Attempt) -> None:
    world.forget(
        lambda row: row.get("ev") == "not-taken" and attempt.rule in row.get("refused", "")
    )
    failed(world, attempt.name)


def test_the_reader_took_the_replay_for_a_message(world: World) -> None:
    world.say("monitor", "read", topic=plot.TEMPERATURE_2, text=MESSAGES[2][2])
    assert "read twice" in failed(world, plot.REPLAY_M3.name)[0]


def test_a_forbidden_publish_was_accepted_and_forwarded(world: World) -> None:
    attempt = plot.PUBLISH_OTHER
    who, topic = attempt.who, attempt.topic
    world.forget(lambda row: row.get("client") == who and row["event"] == "publish-refused")
    world.forget(lambda row: row.get("ev") == "refused" and row["text"] == SPOOFED)
    world.say(who, "published", topic=topic, text=SPOOFED)
    world.record("publish-accepted", client=who, topic=topic, label="m2-temp", count=1)
    world.record("unenforced", client=who, topic=topic, rule=attempt.rule, count=1)
    world.to_broker(who, build.publish(topic, m3("m2-temp", SPOOFED)))
    world.say("monitor", "read", topic=topic, text=SPOOFED)
    verdict = world.verdict()
    findings = {attempt.name: finding for attempt, finding in verdict.findings}
    assert findings[attempt.name].outcome == "accepted"
    assert [name for name, finding in findings.items() if not finding.ok] == [attempt.name]
    assert any(text.startswith("labels: ") for text in verdict.failed)
    assert any(text.startswith("policy: ") for text in verdict.failed)


def test_a_forbidden_publish_reached_the_broker_behind_the_logs_back(world: World) -> None:
    world.to_broker("m2-temp-sensor", build.publish(plot.TEMPERATURE_1, m3("m2-temp", SPOOFED)))
    wrong = world.verdict().failed
    assert any(
        text.startswith(plot.PUBLISH_OTHER.name) and "reached the broker" in text for text in wrong
    )
    # The topic carries another label now, too.
    assert any(text.startswith("labels: ") for text in wrong)


def test_a_forbidden_subscription_reached_the_broker(world: World) -> None:
    world.to_broker("m2-control-panel", build.subscribe(1, [(plot.TEMPERATURE_1, 1)]))
    assert "reached the broker" in failed(world, plot.SUBSCRIBE_OTHER.name)[0]


def test_the_replayed_publish_was_forwarded(world: World) -> None:
    who, topic, text = MESSAGES[0]
    world.to_broker(who, build.publish(topic, m3("m1-temp", text)))
    wrong = world.verdict().failed
    assert any(text.startswith(plot.REPLAY_PUBLISH.name) for text in wrong)
    assert any(text.startswith("books: ") for text in wrong)


def test_the_replayed_connect_reached_the_broker(world: World) -> None:
    world.extra_streams.append((world.hello(plot.REPLAY_CONNECT.who), b"\x20\x02\0\0"))
    assert "2 connections" in failed(world, plot.REPLAY_CONNECT.name)[0]


def test_the_lower_reader_opened_a_packet(world: World) -> None:
    world.say(plot.HANDED_TO, "opened", topic=plot.ANGLE_1, text=LOST[1])
    failed(world, plot.HANDED.name)


def test_the_lower_reader_derived_the_label(world: World) -> None:
    world.said[plot.HANDED_TO][0]["labels"] = [1, 17]
    failed(world, plot.HANDED.name)


def test_the_control_opened_nothing(world: World) -> None:
    world.forget(lambda row: row.get("ev") == "opened")
    failed(world, plot.HANDED.name)


def without_records(world: World) -> None:
    """As with a broker that the mediator gives no records: amqtt."""
    world.extra_streams.clear()
    for who in (plot.HANDED_TO, plot.handed_to_control(True)):
        del world.said[who]
    world.handed.clear()
    world.hand_over(records=False)


def test_at_a_broker_without_records_the_publisher_is_the_control(world: World) -> None:
    without_records(world)
    assert world.verdict().failed == []


def test_without_records_the_control_opened_nothing(world: World) -> None:
    without_records(world)
    world.forget(lambda row: row.get("ev") == "opened")
    failed(world, plot.HANDED.name)


def test_records_at_the_broker_that_were_not_handed_over_prove_nothing(world: World) -> None:
    seen = world.extra_streams[0]
    without_records(world)
    world.extra_streams.append(seen)
    failed(world, plot.HANDED.name)


def test_packets_that_never_were_at_the_broker_prove_nothing(world: World) -> None:
    world.handed[0] = world.handed[0][0], m3("m1-ctrl", "made up")
    failed(world, plot.HANDED.name)


def test_the_new_topic_was_not_labelled_as_its_first_publisher(world: World) -> None:
    for row in world.audit:
        if row["event"] == "topic-labelled":
            row["label"] = "m2-ctrl"
    failed(world, plot.FIRST_PUBLISH.name)


def test_a_reading_that_a_right_reader_misses(world: World) -> None:
    world.said["monitor"] = [
        event for event in world.said["monitor"] if event.get("text") != READING
    ]
    assert READING in failed(world, "readers")[0]


def test_only_one_message_may_be_lost_to_the_changed_packet(world: World) -> None:
    world.said["m1-arm-operator"] = [
        event for event in world.said["m1-arm-operator"] if event.get("topic") != plot.ANGLE_1
    ]
    assert len(failed(world, "readers")) == 1


def test_a_reading_that_somebody_reads_who_may_not(world: World) -> None:
    world.say("m2-arm-operator", "read", topic=plot.TEMPERATURE_1, text=READING)
    failed(world, "readers")


# --- consent ---


def reads(world: World, who: str, text: str) -> None:
    world.say(who, "read", topic=PULSE, text=text)
    world.record("delivered", client=who, topic=PULSE, count=1, purpose=PERFORMANCE, under=PULSE)


def misses(world: World, who: str, *texts: str) -> None:
    world.said[who] = [event for event in world.said[who] if event.get("text") not in texts]
    row = next(r for r in world.audit if r["event"] == "delivered" and r["client"] == who)
    row["count"] -= len(texts)


def test_a_reader_goes_on_behind_withdrawn_consent(world: World) -> None:
    reads(world, "shift-planner", PULSES[2])
    verdict = world.verdict()
    assert verdict.failed[0].startswith(f"{ours.WITHDRAW.name}: shift-planner read 1 ")
    findings = {attempt.name: finding for attempt, finding in verdict.findings}
    assert findings[ours.WITHDRAW.name].outcome == "accepted"


def test_a_reader_with_the_key_and_no_purpose(world: World) -> None:
    world.say("monitor", "read", topic=PULSE, text=PULSES[0])
    assert "not for it" in failed(world, "readers")[0]


def test_consent_that_was_never_withdrawn_proves_nothing(world: World) -> None:
    for event in world.said[ours.WEARER]:
        if event["ev"] == "reserved":
            event["purposes"] = [SAFETY, PERFORMANCE]
    assert any(text.startswith(ours.WITHDRAW.name) for text in world.verdict().failed)


def test_nothing_published_meanwhile_proves_nothing(world: World) -> None:
    world.forget(lambda row: row.get("text") in PULSES[2:4])
    for row in world.audit:
        if row.get("topic") == PULSE and row.get("client") in (ours.WEARER, "safety-officer"):
            row["count"] = 4
    wrong = [text for text in world.verdict().failed if not text.startswith("books: ")]
    assert wrong[0] == f"{ours.WITHDRAW.name}: nothing was published while consent was withdrawn"


def test_a_reader_that_never_got_anything_proves_nothing(world: World) -> None:
    misses(world, "shift-planner", PULSES[0])
    assert "missed 1 before" in failed(world, ours.WITHDRAW.name)[0]


def test_who_is_allowed_all_the_time_goes_on(world: World) -> None:
    misses(world, "safety-officer", PULSES[3])
    assert any("allowed all the time" in text for text in world.verdict().failed)


def test_consent_given_back_that_changes_nothing(world: World) -> None:
    misses(world, "shift-planner", *PULSES[4:])
    assert "read none of 2" in failed(world, ours.GIVE_BACK.name)[0]


def test_a_gap_behind_consent_given_back(world: World) -> None:
    misses(world, "shift-planner", PULSES[5])
    assert "missed 1 later" in failed(world, ours.GIVE_BACK.name)[0]


def test_the_first_message_behind_it_may_be_missed(world: World) -> None:
    misses(world, "shift-planner", PULSES[4])
    assert world.verdict().failed == []


@pytest.mark.parametrize("field", ["purpose", "under", "count"])
def test_an_audit_log_that_does_not_tell_who_got_it_for_what(world: World, field: str) -> None:
    for row in world.audit:
        if row["event"] == "delivered" and row["topic"] == PULSE:
            row[field] = 9 if field == "count" else "machine/#"
    failed(world, ours.WITHDRAW.name)


def test_consent_that_the_audit_log_does_not_have(world: World) -> None:
    world.forget(lambda row: row.get("event") == "command" and PERFORMANCE not in row["detail"])
    assert any("audit log has 2" in text for text in world.verdict().failed)


def test_a_reader_without_the_key_proves_nothing_about_consent(world: World) -> None:
    for row in world.audit:
        if row.get("topic") == PULSE and "label" in row:
            row["label"] = "none"
    assert any("holds no key" in text for text in world.verdict().failed)


def test_somebody_else_consents(world: World) -> None:
    who = ours.RESERVE_OTHER.who
    world.record("command", client=who, family="purposes", topic=PULSE, detail="reserve", rule="x")
    failed(world, ours.RESERVE_OTHER.name)


# --- owners ---

PRIVATE, LET, TAKE_BACK = (each.name for each in (hers.PRIVATE, hers.LET, hers.TAKE_BACK))


def bob(world: World, *, reads: str = "", misses: str = "") -> None:
    """What he could read besides, or could not; the audit log counts it, too."""
    if misses:
        said = [event for event in world.said[hers.FRIEND] if event.get("text") != misses]
        world.said[hers.FRIEND] = said
    if reads:
        world.say(hers.FRIEND, "read", topic=hers.PULSE, text=reads)
    more = bool(reads) - bool(misses)
    rows = [row for row in world.audit if row.get("client") == hers.FRIEND and "count" in row]
    delivered, denied, _ = rows
    delivered["count"] += more
    denied["count"] -= more


def wrong(world: World) -> dict[str, str]:
    """What failed, the last line of each attempt or other part."""
    parts = [text.partition(": ") for text in world.verdict().failed]
    return {name: what for name, _, what in parts}


@pytest.mark.parametrize(
    ("attempt", "text"),
    [(PRIVATE, BEFORE[0]), (PRIVATE, BEFORE[1]), (TAKE_BACK, AFTER[0]), (TAKE_BACK, AFTER[1])],
)
def test_a_pulse_that_its_owner_lets_nobody_have_was_read(
    world: World, attempt: str, text: str
) -> None:
    bob(world, reads=text)
    verdict = world.verdict()
    assert [line.partition(": ")[0] for line in verdict.failed] == [attempt, "readers"]
    assert {a.name: f.outcome for a, f in verdict.findings}[attempt] == "accepted"


def test_what_is_under_way_when_the_owner_says_something_is_judged_when_it_arrives(
    world: World,
) -> None:
    bob(world, reads=BEFORE[-1])
    bob(world, misses=DURING[-1])
    assert world.verdict().failed == []


def test_the_very_next_pulse_reaches_whom_its_owner_lets(world: World) -> None:
    bob(world, misses=DURING[0])
    assert wrong(world) == {LET: "bob missed 1 of them"}


@pytest.mark.parametrize("texts", [BEFORE[1:], DURING[1:], AFTER[1:]])
def test_an_owner_who_published_next_to_nothing_then_proves_nothing(
    world: World, texts: tuple[str, ...]
) -> None:
    world.forget(lambda row: row.get("text") in texts)
    part = {BEFORE[1:]: PRIVATE, DURING[1:]: LET, AFTER[1:]: TAKE_BACK}[texts]
    assert f"{part}: alice published" in "\n".join(world.verdict().failed)


@pytest.mark.parametrize("do", ["let", "take-back"])
def test_an_owner_who_never_said_it_proves_nothing(world: World, do: str) -> None:
    world.forget(lambda row: row.get("ev") == do)
    assert {LET, TAKE_BACK} <= wrong(world).keys()


def test_an_owner_who_lets_him_once_more_proves_nothing_about_the_first_time(world: World) -> None:
    world.say(hers.OWNER, "let", licensee=hers.FRIEND, id="cd")
    assert {PRIVATE, LET, TAKE_BACK} <= wrong(world).keys()


@pytest.mark.parametrize("what", ["assert", "retract"])
def test_an_assertion_that_the_audit_log_does_not_have(world: World, what: str) -> None:
    world.forget(lambda row: row.get("detail", "").startswith(what))
    assert wrong(world).keys() == {LET, TAKE_BACK}


def test_pulses_that_the_broker_withheld_prove_nothing(world: World) -> None:
    to, back = world.streams[hers.FRIEND]
    world.streams[hers.FRIEND] = to, back[: back.index(hers.PULSE.encode()) - 4]
    assert wrong(world).keys() == {PRIVATE, TAKE_BACK}


@pytest.mark.parametrize("event", ["delivered", "deliver-denied"])
def test_an_audit_log_that_does_not_tell_who_got_how_many(world: World, event: str) -> None:
    world.forget(lambda row: row.get("client") == hers.FRIEND and row.get("event") == event)
    assert "the audit log says" in wrong(world)[TAKE_BACK]


def test_a_friend_without_the_key_proves_nothing(world: World) -> None:
    for row in world.audit:
        if row.get("topic") == hers.PULSE and row["event"] == "publish-accepted":
            row["label"] = "none"
    assert any("holds no key" in line for line in world.verdict().failed)


def test_who_has_label_and_purpose_and_not_the_owners_word(world: World) -> None:
    world.say("monitor", "read", topic=hers.PULSE, text=DURING[0])
    assert "not for it" in failed(world, "readers")[0]


def test_the_owner_reads_all_of_hers(world: World) -> None:
    world.forget(lambda row: row.get("ev") == "read" and row["text"] == BEFORE[0])
    assert "alice did not read" in failed(world, "readers")[0]


def test_somebody_else_lets_himself(world: World) -> None:
    world.record("command", client=hers.FRIEND, family="owners", detail="assert", rule="x")
    assert "took 1" in failed(world, hers.LET_ONESELF.name)[0]


def test_who_lets_himself_and_is_not_told_that_it_is_refused(world: World) -> None:
    world.forget(lambda row: row.get("what") == "let")
    assert "not told" in failed(world, hers.LET_ONESELF.name)[0]


def test_a_refusal_to_let_oneself_that_the_audit_log_does_not_have(world: World) -> None:
    world.forget(lambda row: row.get("client") == hers.FRIEND and row["event"] == "packet-refused")
    assert "audit log" in failed(world, hers.LET_ONESELF.name)[0]


def test_an_accepted_message_that_nobody_published(world: World) -> None:
    world.record("publish-accepted", client="monitor", topic="a", label="monitor", count=1)
    failed(world, "books")


def test_a_client_that_died(world: World) -> None:
    world.said["m2-temp-sensor"].pop()
    failed(world, "books")


def test_a_reader_that_refused_more_than_was_done_to_it(world: World) -> None:
    world.said["m2-arm-operator"][-1]["refused"] = {"Stale": 1}
    failed(world, "refusals")


def test_an_empty_capture_does_not_pass(world: World) -> None:
    world.streams = {}
    assert len(world.verdict().failed) > 5


def test_a_torn_audit_log_is_no_evidence(world: World) -> None:
    world.write()
    path = world.places.audit / "mediator" / "a.jsonl"
    path.write_text(path.read_text()[:-5])
    with pytest.raises(ValueError, match=r"."):
        Evidence.load(world.places)


def test_summary_has_what_scripts_read(world: World) -> None:
    verdict = world.verdict()
    told = report.summary(Evidence.load(world.places), verdict, 12.34)
    assert told["verdict"] == "pass"
    assert told["seconds"] == 12.3
    assert {a["name"] for a in told["attempts"]} == {a.name for a in ATTEMPTS}
    assert all(a["ok"] and a["outcome"] for a in told["attempts"])
    assert told["broker"]["sample_hex"].startswith("1320")
    path = world.places.summary
    report.write(path, told)
    assert path.read_text().endswith("}\n")
