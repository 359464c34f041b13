"""What the gateway decided: every event of the contract is counted, or said to be no decision."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from pyspark.sql import SparkSession

from audit_table import LAST, LATEST_MS, NOON, OTHER_SITE, PEER, SCHEMA, SITE, record, rows, table
from sealmq_spark.measures.columns import MOST
from sealmq_spark.measures.decisions import COUNTED, NOT_COUNTED, decisions
from sealmq_spark.measures.unenforced import unenforced

HOUR = NOON.replace(minute=0)
LATER = NOON + timedelta(minutes=50)
WHO: dict[str, Any] = {"client": "panel", "topic": "machine/1"}
WHY: dict[str, Any] = {"reason": "it says so"}
NO: dict[str, Any] = {"rule": "labels.publish.other-label", **WHY}


def test_all_events_are_known() -> None:
    events = {part["properties"]["event"]["const"] for part in SCHEMA["oneOf"]}
    assert events == {*COUNTED, *NOT_COUNTED}
    assert not {*COUNTED} & {*NOT_COUNTED}


def test_what_is_allowed_and_denied(spark: SparkSession) -> None:
    minute: dict[str, Any] = {"count": 3, "label": "low", **WHO}
    records = [
        # Counted by the minute: the hour is the minute's, though the record came an hour later.
        record("publish-accepted", NOON + timedelta(minutes=42), **minute),
        record("publish-accepted", NOON, **minute | {"count": 4}),
        record("publish-accepted", LATER, **minute),
        record("publish-accepted", NOON, **minute | {"topic": "another", "label": "high"}),
        record("publish-accepted", NOON, **minute, site=OTHER_SITE),
        record("delivered", NOON, **minute),
        record("delivered", NOON, **minute, purpose="care", under="machine/#"),
        record("deliver-denied", NOON, **minute, rule="purposes.deliver.no-purpose"),
        record("deliver-denied", NOON, **WHO, rule="mediator.deliver.slow", count=9),
        # One by one.
        record("connect", client="panel", peer=PEER),
        record("connect", LATER, client="panel", peer=PEER, client_id="p"),
        record("connect-refused", peer=PEER, rule="mediator.connect.unauthentic", **WHY),
        record("connect-refused", peer=PEER, client="panel", rule="mediator.connect.behind", **WHY),
        record("publish-refused", **WHO, **NO),
        record("publish-refused", **WHO, **NO),
        record("publish-refused", **WHO | {"client": "pump"}, **NO),
        record("subscribe-refused", **WHO, rule="labels.subscribe.above", **WHY),
        record("packet-refused", **WHO, rule="mediator.publish.replay", **WHY),
        record("packet-refused", peer=PEER, rule="mqtt.ProtocolError", **WHY),
        record("packet-refused", client="panel", rule="mediator.command.unavailable", **WHY),
        record("packet-refused", client="panel", rule="purposes.entitled.no-grant", **WHY),
        record("command", client="panel", family="purposes", rule="purposes.entitled.steward"),
        # The store: of one PUBLISH, and of itself (no decision).
        record("store-unavailable", **WHO, rule="mediator.publish.unavailable", **WHY),
        record("store-unavailable", client="panel", **WHY),
        record("store-unavailable", **WHY),
        # The site's own file.
        record("config-reloaded"),
        record("config-refused", **WHY),
        # Sources of attributes.
        record("attribute-changed", attribute="contract", subject="eve", value="1", until_ms=1),
        record("attribute-away", attribute="contract", reason="it is not TOML"),
        record("attribute-back", attribute="contract"),
        record("folded", of="attribute-changed", count=7),
        # Folded: as what it is of, with the count.
        record("folded", of="publish-refused", client="panel", rule=NO["rule"], count=70),
        record("folded", of="connect-refused", rule="mediator.connect.unauthentic", count=500),
        record("folded", of="connect", client="panel", count=5),
        record("folded", of="packet-refused", client="x", rule="purposes.set.unknown", count=2),
        record("folded", of="store-unavailable", count=50),
        record("folded", of="disconnect", client="panel", count=50),
        record("folded", of="broker-away", count=50),
        record("unenforced", **WHO, rule=NO["rule"], question="publish", count=8),
        record("delivered", **minute | {"client": "last"})
        | {"minute_ms": LATEST_MS // 60_000 * 60_000},
        # No decisions.
        record("topic-labelled", **WHO, label="low"),
        record("disconnect", client="panel", reason="DISCONNECT", clean=True),
        record("broker-away", client="panel", **WHY),
    ]
    beyond = [
        *(record("delivered", **minute | {"client": "most", "count": MOST}) for _ in range(2))
    ]
    found = decisions(table(spark, records, beyond))
    assert found.columns == [
        "site", "hour", "question", "allowed", "rule", "label", "client", "count",
    ]  # fmt: skip
    one = HOUR + timedelta(hours=1)
    unproved = "mediator.connect.unauthentic"
    assert rows(found) == sorted(
        [
            (SITE, HOUR, "publish", True, "", "low", "panel", 7),
            (SITE, one, "publish", True, "", "low", "panel", 3),
            (SITE, HOUR, "publish", True, "", "high", "panel", 3),
            (OTHER_SITE, HOUR, "publish", True, "", "low", "panel", 3),
            (SITE, HOUR, "deliver", True, "", "low", "panel", 6),
            (SITE, HOUR, "deliver", False, "purposes.deliver.no-purpose", "low", "panel", 3),
            (SITE, HOUR, "deliver", False, "mediator.deliver.slow", "", "panel", 9),
            (SITE, HOUR, "connect", True, "", "", "panel", 6),
            (SITE, one, "connect", True, "", "", "panel", 1),
            (SITE, HOUR, "connect", False, unproved, "", "", 501),
            (SITE, HOUR, "connect", False, "mediator.connect.behind", "", "panel", 1),
            (SITE, HOUR, "publish", False, NO["rule"], "", "panel", 72),
            (SITE, HOUR, "publish", False, NO["rule"], "", "pump", 1),
            (SITE, HOUR, "publish", False, "mediator.publish.unavailable", "", "panel", 1),
            (SITE, HOUR, "subscribe", False, "labels.subscribe.above", "", "panel", 1),
            (SITE, HOUR, "packet", False, "mediator.publish.replay", "", "panel", 1),
            (SITE, HOUR, "packet", False, "mqtt.ProtocolError", "", "", 1),
            (SITE, HOUR, "command", False, "mediator.command.unavailable", "", "panel", 1),
            (SITE, HOUR, "command", False, "purposes.entitled.no-grant", "", "panel", 1),
            (SITE, HOUR, "command", False, "purposes.set.unknown", "", "x", 2),
            (SITE, HOUR, "command", True, "purposes.entitled.steward", "", "panel", 1),
            (SITE, HOUR, "config", True, "", "", "", 1),
            (SITE, HOUR, "config", False, "", "", "", 1),
            (SITE, HOUR, "attribute", True, "", "", "", 8),
            (SITE, HOUR, "attribute", False, "", "", "", 1),
            (SITE, HOUR, "deliver", True, "", "low", "most", MOST),
            (
                SITE,
                LAST.replace(minute=0, second=0, microsecond=0),
                "deliver",
                True,
                "",
                "low",
                "last",
                3,
            ),
        ]
    )


def test_what_was_let_through(spark: SparkSession) -> None:
    rule = NO["rule"]
    through: dict[str, Any] = {**WHO, "rule": rule, "question": "publish"}
    records = [
        record("unenforced", NOON, **through, count=2),
        record("unenforced", NOON + timedelta(minutes=42), **through, count=3),
        record("unenforced", LATER, **through, count=4),
        record("unenforced", NOON, **through | {"question": "deliver"}, count=5),
        record("publish-accepted", NOON, **WHO, label="low", count=5),
    ]
    found = unenforced(table(spark, records))
    assert found.columns == ["site", "hour", "question", "rule", "client", "topic", "count"]
    assert rows(found) == [
        (SITE, HOUR, "deliver", rule, *WHO.values(), 5),
        (SITE, HOUR, "publish", rule, *WHO.values(), 5),
        (SITE, HOUR + timedelta(hours=1), "publish", rule, *WHO.values(), 4),
    ]


def test_what_passes_a_border_is_read_and_counted_where_the_mediator_decided_it(
    spark: SparkSession,
) -> None:
    what = {"border": "outlet", "topic": "mill/1", "role": "border", "digest": "ab" * 16}
    labels = {"label": "machine", "label_out": "shared", "sender": "mill"}
    records = [
        record("border-crossed", NOON, **what, **labels),
        record("border-dropped", NOON, **what, **WHY),
    ]
    for one in records:
        one["id"] = one["id"].replace("mediator", "border")
    read = table(spark, records)
    assert rows(decisions(read)) == []
    found = read.select("border", "label", "label_out", "sender", "digest").collect()
    assert tuple(found[0]) == ("outlet", "machine", "shared", "mill", "ab" * 16)
