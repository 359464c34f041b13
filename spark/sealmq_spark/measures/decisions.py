"""Allowed and denied, by question, rule, label, client and hour, from the gateway's audit records.

What there is to know about reading the table: a subscription that was allowed leaves no record, nor
does a question to a family; the records of a denial have no label but for deliveries, and those of
what was allowed no rule. What `enforce = false` let through is counted as allowed (`unenforced`
has the rule that had denied it).
"""

from __future__ import annotations

from collections.abc import Iterable

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ..rules import Sql, listed
from .columns import hour, text, total

COUNTED = {
    "publish-accepted": ("publish", True),
    "publish-refused": ("publish", False),
    "delivered": ("deliver", True),
    "deliver-denied": ("deliver", False),
    "connect": ("connect", True),
    "connect-refused": ("connect", False),
    "subscribe-refused": ("subscribe", False),
    "packet-refused": ("packet", False),
    "command": ("command", True),
    "config-reloaded": ("config", True),
    "config-refused": ("config", False),
    "store-unavailable": ("publish", False),
    "attribute-changed": ("attribute", True),
    "attribute-away": ("attribute", False),
}
"""event -> (question, allowed). `folded` counts as what it is `of`.

Two of them are not that simple, see `_question` and `_decided`.
"""
NOT_COUNTED = {
    "unenforced": "has a table of its own; the message itself was delivered or accepted",
    "folded": "counts as the event that it is of",
    "topic-labelled": "labelling",
    "topic-reset": "labelling",
    **dict.fromkeys(
        ("start", "stop", "policy-off", "store-back", "family-fault", "disconnect"),
        "the process, or the end of a connection; what it denied has a record of its own",
    ),
    **dict.fromkeys(
        (
            "attribute-back",
            "border-dropped",
            "bridge-down",
            "bridge-dropped",
            "bridge-up",
            "broker-away",
            "broker-back",
            "handover-missed",
            "journal-dropped",
            "kg-away",
            "kg-back",
            "message-set-aside",
            "worker-ended",
        ),
        "something cannot be reached or kept: nobody has decided it",
    ),
    "border-crossed": "the mediator has decided both: what the border gets, and what it publishes",
    **dict.fromkeys(
        ("token-refused", "rating-crossed", "peer-blocked", "peer-unblocked"),
        "about another site; what is refused of its messages is named as dropped",
    ),
    **dict.fromkeys(
        ("provisioned", "client-provisioned", "client-enrolled", "client-lent", "client-left"),
        "a client's life, by the operator's hand",
    ),
    **dict.fromkeys(("keys-changed", "keys-restored", "epoch"), "keys"),
    **dict.fromkeys(("site-closed", "site-reopened"), "the whole site, by a loss and an operator"),
    **dict.fromkeys(
        ("log-recovered", "log-lost", "log-fault", "log-opened", "log-ended", "log-expired"),
        "the log itself",
    ),
}
"""The other events of the contract, and why they are no decisions."""

_ALLOWED = [event for event, (_, allowed) in COUNTED.items() if allowed]
_TEXTS = ("rule", "label", "client")
_BY = ("site", "hour", "question", "allowed", *_TEXTS)


def decisions(audit: DataFrame) -> DataFrame:
    """audit -> site, hour, question, allowed, rule, label, client, count.

    site: 8 hex digits. hour: timestamp, UTC. rule, label, client: "" where a record has none (a
    client that has not proved who it is has no name). count: messages, packets, filters, CONNECTs,
    changes of the site's file or of an attribute from outside (allowed: it has another value;
    denied: its source failed); what was folded into a count has that.
    """
    event = F.expr("IF(event = 'folded', of, event) AS event")
    count = F.expr("coalesce(count, 1) AS count")
    told = audit.select("site", hour().alias("hour"), event, *map(text, _TEXTS), count)
    question, allowed = f"{_question()} AS question", f"{_is_one(_ALLOWED)} AS allowed"
    return decided_in_all(
        told.where(_decided()).selectExpr("site", "hour", question, allowed, *_TEXTS, "count")
    )


def decided_in_all(rows: DataFrame) -> DataFrame:
    """decisions of some records and of others -> of all of them."""
    return rows.groupBy(*_BY).agg(total()).select(*_BY, "count")


# A store that fails is told of once for all (no rule) and once for each PUBLISH that it refused.
def _decided() -> Sql:
    return f"{_is_one(COUNTED)} AND (event <> 'store-unavailable' OR rule <> '')"


# A command is refused as the packet that it came in. Only policy has rules that are neither the
# mediator's own nor MQTT's, and nothing else that policy refuses is told of as a packet.
def _question() -> Sql:
    theirs = "rule LIKE 'mediator.%' OR rule LIKE 'mqtt.%'"
    command = f"(NOT ({theirs}) OR rule LIKE 'mediator.command.%')"
    found = f"CASE WHEN event = 'packet-refused' AND {command} THEN 'command'"
    for question in dict.fromkeys(question for question, _ in COUNTED.values()):
        mine = _is_one(event for event, both in COUNTED.items() if both[0] == question)
        found += f" WHEN {mine} THEN '{question}'"
    return f"{found} END"


def _is_one(events: Iterable[str]) -> Sql:
    return f"event IN ({listed(events)})"


def by_rule(decided: DataFrame) -> DataFrame:
    """decisions -> the same without clients, of whom there may be many."""
    by = [name for name in _BY if name != "client"]
    return decided.groupBy(*by).agg(total()).select(*by, "count")


def by_client(decided: DataFrame) -> DataFrame:
    """decisions -> site, of (timestamp: a day, UTC), client, allowed, count."""
    day = F.date_trunc("day", "hour").alias("of")
    found = decided.groupBy("site", day, "client", "allowed").agg(total())
    return found.select("site", "of", "client", "allowed", "count")
