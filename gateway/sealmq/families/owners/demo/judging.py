"""The judges: a pulse is for whom its owner lets receive it, from the very next one on.

They compare the order in which the owner was told that her word counts, and published, with what
her friend could read. He holds the topic's key all the time, and the broker sends him all of them.
"""

from __future__ import annotations

from typing import NamedTuple

from sealmq.demo.evidence import Evidence
from sealmq.demo.finding import Finding
from sealmq.demo.judges import command_refused
from sealmq.demo.plot import Attempt

from .. import rules
from .plot import FRIEND, OWNER, PULSE


class Pulses(NamedTuple):
    """What the owner published before she let her friend receive it, while she did, and after."""

    before: list[str]
    during: list[str]
    after: list[str]


def pulses(evidence: Evidence) -> Pulses:
    """By what she had been told to count when she published. Empty if she said these two in another
    order, or anything after them.
    """
    found, at = Pulses([], [], []), 0
    for event in evidence.said.get(OWNER, ()):
        if event["ev"] in ("let", "take-back"):
            if event["ev"] != ("let", "take-back", "")[at]:
                return Pulses([], [], [])
            at += 1
        elif event["ev"] == "published" and event["topic"] == PULSE:
            found[at].append(str(event["text"]))
    return found


def by_audit(evidence: Evidence, client: str) -> dict[str, int]:
    """How many pulses the mediator delivered to a client, and how many it denied it."""
    counts = {}
    for key, event, more in (
        ("delivered", "delivered", {}),
        ("denied", "deliver-denied", {"rule": rules.DELIVER_NOT_ALLOWED}),
    ):
        records = evidence.records(event, client=client, topic=PULSE, **more)
        counts[key] = sum(int(record["count"]) for record in records)
    return counts


def _read(evidence: Evidence) -> set[str]:
    return {event["text"] for event in evidence.events(FRIEND, "read", topic=PULSE)}


# What was withheld, and that it was the owner's word that did it.
def _withheld(finding: Finding, evidence: Evidence, of: list[str]) -> None:
    read = _read(evidence)
    leaked = read & set(of)
    finding.outcome = "accepted" if leaked else "withheld"
    finding.evidence["withheld"] = len(set(of) - read)
    finding.need(len(of) > 1, f"{OWNER} published {len(of)} pulses then, which shows nothing")
    finding.need(not leaked, f"{FRIEND} read {len(leaked)} of them")
    label = evidence.label_of(PULSE)
    finding.need(
        label is not None and evidence.policy.reads(FRIEND, label),
        f"{FRIEND} holds no key of {PULSE}, which shows nothing",
    )
    sent = sum(len(stream.delivered(PULSE)) for stream in evidence.behind(FRIEND))
    count = len(evidence.events(OWNER, "published", topic=PULSE))
    finding.need(sent == count, f"the broker sent {sent} of {count} towards {FRIEND}")
    told = by_audit(evidence, FRIEND)
    finding.need(
        told == {"delivered": len(read), "denied": count - len(read)},
        f"{FRIEND} read {len(read)} of {count}; the audit log says {told}",
    )


# What the owner told the mediator, by the audit log.
def _said(finding: Finding, evidence: Evidence, at: int) -> None:
    said = evidence.records("command", client=OWNER)
    finding.evidence["audit"] = [record["id"] for record in said[at : at + 1]]
    finding.evidence["rule"] = rules.BY_OWNER
    told = [(record["rule"], record["detail"].partition(" ")[0]) for record in said]
    finding.need(
        told == [(rules.BY_OWNER, "assert"), (rules.BY_OWNER, "retract")],
        f"the audit log has other commands of {OWNER} than one to assert, one to retract: {told}",
    )


def private(evidence: Evidence, attempt: Attempt) -> Finding:
    finding = Finding("")
    denied = evidence.records("deliver-denied", client=FRIEND, topic=PULSE, rule=attempt.rule)
    finding.evidence = {"audit": [record["id"] for record in denied], "rule": attempt.rule}
    # The last one may be on its way when she lets him.
    _withheld(finding, evidence, pulses(evidence).before[:-1])
    return finding


def let_oneself(evidence: Evidence, attempt: Attempt) -> Finding:
    return command_refused(evidence, attempt, "let", rule=attempt.rule)


def let(evidence: Evidence, attempt: Attempt) -> Finding:
    read, during = _read(evidence), pulses(evidence).during
    finding = Finding("accepted" if read & set(during) else "withheld")
    _said(finding, evidence, 0)
    finding.evidence["read"] = len(read & set(during))
    # The very next one, and all others; the last may be on its way when she takes that back.
    missing = set(during[:-1]) - read
    finding.need(len(during) > 1, f"{OWNER} published {len(during)} pulses while she let him")
    finding.need(not missing, f"{attempt.who} missed {len(missing)} of them")
    return finding


def take_back(evidence: Evidence, attempt: Attempt) -> Finding:
    finding = Finding("")
    _said(finding, evidence, 1)
    _withheld(finding, evidence, pulses(evidence).after)
    return finding
