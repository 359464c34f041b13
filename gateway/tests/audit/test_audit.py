"""What the audit log says: every event after the schema, counts by the minute, floods folded."""

from __future__ import annotations

import asyncio
import copy
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

import audit_schema
from audit.audit_lines import Clock, contract, read, schema, short
from sealmq.audit import Audit, AuditError
from sealmq.audit import events as table
from sealmq.families.registry import manifests
from sealmq.site.reserve import Reserve

MINUTE = 60_000
FIELDS = {field.name: field for manifest in manifests() for field in manifest.audit}
MORE = {field.name: field.bound for field in FIELDS.values()}


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def audit(tmp_path: Path, clock: Clock) -> Iterator[Audit]:
    made = Audit(tmp_path, "mediator", 7, "00c0ffee", strict=True, now=clock, more=MORE)
    yield made
    made.close()


def example(name: str) -> Any:
    """A value that the field may have."""
    if name in table.TEXT or name in FIELDS:
        return name
    if name in table.FLAGS:
        return True
    return [name] if name in table.LISTS else MINUTE


def test_the_schema_is_one() -> None:
    Draft202012Validator.check_schema(schema)


def test_schema_and_table_name_the_same_events_and_fields() -> None:
    told = {
        branch["title"]: (
            tuple(branch.get("required", ())),
            tuple(name for name in branch["properties"] if name != "event"),
        )
        for branch in schema["oneOf"]
    }
    known = {name: (e.needs, (*e.needs, *e.may)) for name, e in table.EVENTS.items()}
    more = {name: (known[name][0], (*known[name][1], *FIELDS)) for name in table.MORE}
    assert told == known | more
    for branch in schema["oneOf"]:
        assert branch["properties"]["event"] == {"const": branch["title"]}
        assert branch["description"]
    names = {*table.TEXT, *table.NUMBERS, *table.FLAGS, *table.LISTS}
    assert {*names, *FIELDS} == set(schema["$defs"])
    assert {n: schema["$defs"][n]["maxLength"] for n in table.TEXT} == dict(table.TEXT)


@pytest.mark.parametrize("full", [True, False])
@pytest.mark.parametrize("event", table.EVENTS)
def test_every_event_is_written_as_the_schema_has_it(
    audit: Audit, tmp_path: Path, event: str, full: bool
) -> None:
    shape = table.EVENTS[event]
    fields = {name: example(name) for name in (*shape.needs, *(shape.may if full else ()))}
    audit.write(event, **dict(reversed(fields.items())))
    audit.close()
    [line] = short(read(tmp_path))
    assert line == {"event": event, **fields}
    # Reports know a record in the schema's order at the first look, what was counted last.
    last = [name for name in fields if name in table.LAST]
    assert list(line) == ["event", *(name for name in fields if name not in last), *last]


@pytest.mark.parametrize("event", table.EVENTS)
def test_the_schema_refuses_what_is_missing_or_not_of_the_event(
    audit: Audit, tmp_path: Path, event: str
) -> None:
    shape = table.EVENTS[event]
    audit.write(event, **{name: example(name) for name in shape.needs})
    audit.close()
    [line] = read(tmp_path)
    validator = contract.of(event)
    for name in (*schema["required"], *shape.needs):
        less = copy.copy(line)
        del less[name]
        assert not validator.is_valid(less), name
    assert not validator.is_valid({**line, "payload": "21.5"})
    theirs = FIELDS if event in table.MORE else ()
    for name in set(schema["$defs"]) - {*shape.needs, *shape.may, *theirs}:
        assert not validator.is_valid({**line, name: example(name)}), name
    for name in shape.needs:
        assert not validator.is_valid({**line, name: None}), name


def test_the_schema_has_the_fields_of_the_families_that_are_installed() -> None:
    assert FIELDS
    for name, field in FIELDS.items():
        text = {"type": "string", "minLength": 1, "maxLength": field.bound}
        assert schema["$defs"][name] == {"description": field.what, **text}
    assert audit_schema.text(audit_schema.with_fields(schema)) + "\n" == contract.path.read_text()


def test_what_families_say_of_a_delivery_stands_in_its_record(tmp_path: Path, clock: Clock) -> None:
    clock.now = start = clock.now // MINUTE * MINUTE
    more = {"purpose": 128, "under": 5}
    audit = Audit(tmp_path, "mediator", 7, "00c0ffee", strict=True, now=clock, more=more)
    for said in ((), (("purpose", "p"), ("under", "")), (("purpose", "p"), ("under", "a/b/c/d"))):
        for _ in range(2):
            audit.count_delivered("arm", "a", "l", said)
    audit.close()
    one = {"event": "delivered", "client": "arm", "topic": "a", "label": "l"}
    counted = {"count": 2, "minute_ms": start}
    assert short(read(tmp_path)) == [
        {**one, **counted},
        {**one, "purpose": "p", **counted},
        {**one, "purpose": "p", "under": "a/b/c", **counted},
    ]


def test_whose_message_was_denied_and_what_families_say_of_it_stands_in_its_record(
    tmp_path: Path, clock: Clock
) -> None:
    clock.now = start = clock.now // MINUTE * MINUTE
    audit = Audit(tmp_path, "mediator", 7, "00c0ffee", strict=True, now=clock, more={"purpose": 9})
    for more in ((), ("",), ("bob",), ("bob", (("purpose", "ads"),)), ("", (("purpose", ""),))):
        audit.count_denied("arm", "a", "x.no", "l", *more)
    audit.close()
    one = {"event": "deliver-denied", "client": "arm", "topic": "a", "rule": "x.no", "label": "l"}
    counted = {"count": 1, "minute_ms": start}
    assert short(read(tmp_path)) == [
        {**one, **counted, "count": 2},
        {**one, "sender": "bob", **counted},
        {**one, "sender": "bob", "purpose": "ads", **counted},
        {**one, **counted},
    ]


def test_a_field_of_no_family_of_the_order_is_not_written(audit: Audit, clock: Clock) -> None:
    with pytest.raises(AuditError, match="mood is no field of it"):
        audit.write("delivered", client="c", topic="t", label="l", count=1, minute_ms=0, mood="x")
    with pytest.raises(AuditError, match="purpose is no field of it"):
        audit.write("publish-accepted", client="c", topic="t", label="l", count=1, minute_ms=0,
                    purpose="x")  # fmt: skip


def test_the_frame_says_who_writes_and_when(audit: Audit, tmp_path: Path, clock: Clock) -> None:
    began = clock.now
    audit.write("start", enforce=True)
    clock.now += 5
    audit.write("stop")
    audit.close()
    first, second = read(tmp_path)
    assert first == {
        "v": 1,
        "id": f"00c0ffee-mediator-7-{began}-1",
        "at_ms": began,
        "site": "00c0ffee",
        "role": "mediator",
        "inst": 7,
        "event": "start",
        "enforce": True,
    }
    assert second["at_ms"] == began + 5
    assert second["id"].endswith("-2")


def test_counted_events_are_one_record_a_minute_for_each_key(
    audit: Audit, tmp_path: Path, clock: Clock
) -> None:
    clock.now = start = clock.now // MINUTE * MINUTE
    for _ in range(1000):
        audit.count_denied("temp", "arm/angle", "labels.deliver.above", "m1-ctrl")
        audit.count_accepted("panel", "arm/angle", "m1-ctrl")
    audit.count_delivered("arm", "arm/angle", "m1-ctrl")
    audit.count_unenforced("temp", "arm/angle", "labels.publish.other-label", "publish")
    clock.now += MINUTE - 1
    audit.count_denied("temp", "arm/angle", "labels.deliver.above", "m1-ctrl")
    clock.now += 1
    audit.part("nothing/that/was/counted")  # the table is looked at
    audit.count_denied("temp", "arm/angle", "labels.deliver.above", "m1-ctrl")
    audit.close()
    one = {"client": "temp", "topic": "arm/angle", "rule": "labels.deliver.above"}
    denied = {"event": "deliver-denied", **one, "label": "m1-ctrl"}
    assert short(read(tmp_path)) == [
        {**denied, "count": 1001, "minute_ms": start},
        {
            "event": "publish-accepted",
            "client": "panel",
            "topic": "arm/angle",
            "label": "m1-ctrl",
            "count": 1000,
            "minute_ms": start,
        },
        {
            "event": "delivered",
            "client": "arm",
            "topic": "arm/angle",
            "label": "m1-ctrl",
            "count": 1,
            "minute_ms": start,
        },
        {
            "event": "unenforced",
            "client": "temp",
            "topic": "arm/angle",
            "rule": "labels.publish.other-label",
            "question": "publish",
            "count": 1,
            "minute_ms": start,
        },
        {**denied, "count": 1, "minute_ms": start + MINUTE},
    ]


def test_a_minute_ends_without_another_packet(audit: Audit, tmp_path: Path, clock: Clock) -> None:
    audit.count_delivered("arm", "a", "l")
    clock.now += MINUTE

    while audit._lines == 0:
        time.sleep(0.01)
    asyncio.run(audit.synced())
    [path] = tmp_path.iterdir()
    assert b'"event":"delivered"' in path.read_bytes()


def test_a_table_of_counts_is_bounded_and_still_adds_up(
    audit: Audit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sealmq.audit.counts.MAX_KEYS", 10)
    for _ in range(3):
        for i in range(25):
            audit.count_delivered("reader", f"t/{i}", "l")
    audit.close()
    sums: dict[str, int] = {}
    for line in read(tmp_path):
        sums[line["topic"]] = sums.get(line["topic"], 0) + line["count"]
    assert sums == {f"t/{i}": 3 for i in range(25)}


def test_a_flood_is_folded_into_a_count(audit: Audit, tmp_path: Path, clock: Clock) -> None:
    clock.now = start = clock.now // MINUTE * MINUTE
    refused = {"peer": "127.0.0.1:1", "rule": "mqtt.MalformedPacket", "reason": "bad"}
    for _ in range(table.EACH_MINUTE + 50):
        audit.write("packet-refused", **refused)
    audit.write("topic-labelled", client="c", topic="t", label="l")
    clock.now += MINUTE
    audit.write("packet-refused", **refused)
    audit.close()
    lines = short(read(tmp_path))
    assert [line["event"] for line in lines].count("packet-refused") == table.EACH_MINUTE + 1
    assert {"event": "topic-labelled", "client": "c", "topic": "t", "label": "l"} in lines
    assert {
        "event": "folded",
        "of": "packet-refused",
        "rule": "mqtt.MalformedPacket",
        "count": 50,
        "minute_ms": start,
    } in lines


def test_a_file_of_attributes_that_flaps_does_not_fill_the_log(
    audit: Audit, tmp_path: Path, clock: Clock
) -> None:
    clock.now = start = clock.now // MINUTE * MINUTE
    for n in range(3 * table.EACH_MINUTE):
        said: dict[str, Any] = {"value": "1", "until_ms": n} if n % 2 else {}
        audit.write("attribute-changed", attribute="contract", subject=f"client-{n}", **said)
        audit.write("attribute-away", attribute="contract", reason="it is not TOML")
        audit.write("attribute-back", attribute="contract")
    audit.close()
    lines = short(read(tmp_path))
    folded = [line for line in lines if line["event"] == "folded"]
    assert len(lines) == 3 * table.EACH_MINUTE + 3
    count = {"count": 2 * table.EACH_MINUTE, "minute_ms": start}
    names = ("attribute-away", "attribute-back", "attribute-changed")
    assert sorted(folded, key=lambda line: str(line["of"])) == [
        {"event": "folded", "of": name, **count} for name in names
    ]


def test_on_a_full_disk_who_was_put_out_is_written_and_the_rest_later(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    space = 0
    monkeypatch.setattr("sealmq.audit.log.RETRY_S", 0.01)
    monkeypatch.setattr("sealmq.audit.log.Reserve", lambda at: Reserve(at, lambda _: space))
    audit = Audit(tmp_path, "kg", 7, "00c0ffee", strict=True, now=clock, spare=tmp_path / "spare")

    def written() -> list[str]:
        lines = "".join(path.read_text() for path in tmp_path.glob("*.jsonl*")).splitlines()
        return [json.loads(line)["event"] for line in lines]

    def until(events: list[str]) -> None:
        for _ in range(1000):
            if written() == events:
                return
            time.sleep(0.01)
        assert written() == events

    audit.write("start")
    audit.write("client-left", client="c", label="l", reason="disabled")
    until(["client-left"])
    audit.write("stop")
    audit.write("command", client="c", family="purposes")
    until(["client-left", "command"])
    space = 1 << 30
    until(["client-left", "command", "start", "stop"])
    asyncio.run(asyncio.wait_for(audit.synced(), 10))
    audit.close()


def test_a_flood_of_one_client_leaves_the_others_their_records(
    audit: Audit, tmp_path: Path, clock: Clock
) -> None:
    clock.now = start = clock.now // MINUTE * MINUTE
    refused = {"topic": "t", "rule": "labels.publish.other-label", "reason": "no"}
    for _ in range(2 * table.EACH_MINUTE):
        audit.write("publish-refused", client="loud", **refused)
    audit.write("publish-refused", client="quiet", **refused)
    audit.close()
    lines = [line for line in read(tmp_path) if line["event"] == "publish-refused"]
    assert [line["client"] for line in lines] == ["loud"] * table.EACH_CLIENT + ["quiet"]
    [folded] = [line for line in short(read(tmp_path)) if line["event"] == "folded"]
    assert folded == {
        "event": "folded",
        "of": "publish-refused",
        "client": "loud",
        "rule": "labels.publish.other-label",
        "count": 2 * table.EACH_MINUTE - table.EACH_CLIENT,
        "minute_ms": start,
    }


def test_a_flood_of_one_peer_leaves_the_other_peers_their_records(
    audit: Audit, tmp_path: Path, clock: Clock
) -> None:
    clock.now = start = clock.now // MINUTE * MINUTE
    dropped = {"topic": "@west/t", "reason": "its token is not known"}
    for _ in range(2 * table.EACH_MINUTE):
        audit.write("bridge-dropped", peer="north", **dropped)
    audit.write("bridge-dropped", peer="south", **dropped)
    audit.close()
    lines = [line for line in read(tmp_path) if line["event"] == "bridge-dropped"]
    assert [line["peer"] for line in lines] == ["north"] * table.EACH_PEER + ["south"]
    [folded] = [line for line in short(read(tmp_path)) if line["event"] == "folded"]
    count = 2 * table.EACH_MINUTE - table.EACH_PEER
    of = {"event": "folded", "of": "bridge-dropped", "peer": "north"}
    assert folded == {**of, "count": count, "minute_ms": start}


@pytest.mark.parametrize(
    ("event", "fields"),
    [
        ("no-such-event", {}),
        ("stop", {"payload": "x"}),
        ("connect", {"client": "c"}),
        ("connect", {"client": "c", "peer": 5}),
        ("start", {"enforce": "yes"}),
        ("log-lost", {"count": True}),
        ("log-lost", {"count": -1}),
        ("keys-changed", {"kseq": 1, "notes": "text"}),
    ],
)
def test_a_record_that_is_none_is_a_defect(audit: Audit, event: str, fields: Any) -> None:
    with pytest.raises(AuditError):
        audit.write(event, **fields)


def test_in_service_a_defect_becomes_a_record_and_carries_no_value(tmp_path: Path) -> None:
    audit = Audit(tmp_path, "kg", 1, "00c0ffee")
    audit.write("stop", secret="hunter2", reason="asked")
    audit.write("connect", client="c", secret="hunter2")
    audit.write("nonsense", secret="hunter2")
    audit.close()
    lines = short(read(tmp_path))
    assert [(line["event"], line.get("of")) for line in lines] == [
        ("log-fault", "stop"),
        ("stop", None),
        ("log-fault", "connect"),
        ("log-fault", "nonsense"),
    ]
    assert "hunter2" not in str(lines)


@pytest.mark.parametrize(
    "text", ["line\nbreak", "\u2028", "\x1b[2J", "ü" * 1024, "\udcff", "\x00", "x" * 5000, ""]
)
def test_hostile_text_stays_one_valid_line(audit: Audit, tmp_path: Path, text: str) -> None:
    audit.write("publish-refused", client="c", topic=text, rule="r", reason=text)
    audit.count_denied("c", text, "r", text)
    audit.close()
    first, second = read(tmp_path)
    if 0 < len(text) <= 500 and text != "\udcff":
        assert first["reason"] == first["topic"] == second["topic"] == second["label"] == text


def test_fields_that_do_not_apply_are_left_out(audit: Audit, tmp_path: Path) -> None:
    audit.write("stop", reason=None)
    audit.write("stop", reason="")
    audit.close()
    assert short(read(tmp_path)) == [{"event": "stop"}] * 2


def test_a_role_or_site_that_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(AuditError):
        Audit(tmp_path, "../kg", 1, "00c0ffee")
    with pytest.raises(AuditError):
        Audit(tmp_path, "kg", 1, "site")
