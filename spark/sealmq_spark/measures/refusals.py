"""Replays and forgeries that were refused: what no wrong setting explains."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from .columns import total

CLASSES = {
    "replay": "replayed",
    "behind": "replayed",
    "stale": "too old",
    "unauthentic": "forged",
    "ended": "old keys",
    "malformed": "malformed",
}
"""Last word of a rule of the mediator -> what it was (SPEC.md, section 11)."""
NO_ATTACK = {
    "denied": "policy said no, or a reserved topic was asked for",
    "wrongepoch": "made before a rekeying that its sender has not heard of",
    "unavailable": "store, broker or key generator were away",
    "toolarge": "over a limit",
    "ratelimited": "too many at a time",
    "unsupported": "a newer or another implementation",
    "nokey": "no root: policy in other words",
    "full": "no place was left for one more connection",
    "retained-full": "as many bytes of retained messages as one client may have",
    "sessions-full": "as many kept sessions as one client may have",
    "changed": "the client was disabled or had new keys while it connected",
    "disabled": "a will of a client that was disabled, rotated or relabelled",
    "journal": "the journal could not be written, or was full",
    "journal-full": "as much of the journal as one client may have",
    "slow": "the reader did not keep up",
    "packet": "larger than the reader's client takes",
    "expired": "its life was over before it could be sent",
    "quarantine": "only provisioning before there are keys",
    "unfit": "the broker sent what is too large, or on a topic that is none",
    "refused": "the broker refused a subscription that it had before",
    "qos": "the broker resumed a subscription with less",
}
"""The other last words, and why they are not counted here."""

_BY = ("site", "hour", "client", "class", "rule")


def refusals(decided: DataFrame) -> DataFrame:
    """decisions -> site, hour, client, class, rule, count: what the mediator refused by CLASSES.

    class: replayed, too old, forged, old keys, malformed. Old keys are what an enrolment of before
    a `client rotate` has, or a board put back to an old state; nobody can verify them, so they may
    be forged. client: whose link it came over, "" before anybody
    has proved anything; in rules `mediator.deliver.…` the reader that it was withheld from, for
    there it came from the broker.
    """
    refused = decided.where(~F.col("allowed")).withColumn("class", _class())
    found = refused.where("class is not null")
    return found.groupBy(*_BY).agg(total()).select(*_BY, "count")


# A family's own rule may end in such a word, too: that is a client's odd topic, behind its proof.
def _class() -> Column:
    rule = F.col("rule")
    word = F.substring_index(rule, ".", -1)
    found = F.when(rule.startswith("mqtt."), "malformed")
    for last, name in CLASSES.items():
        found = found.when(rule.startswith("mediator.") & (word == last), name)
    return found
