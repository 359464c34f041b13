"""The judges of consent: a pulse is for what its wearer says, from the very next delivery on.

They compare the order in which the wearer was told that its word counts, and published, with what
each reader could read. Both readers hold the topic's key all the time.
"""

from __future__ import annotations

from sealmq.demo.evidence import Evidence
from sealmq.demo.finding import Finding
from sealmq.demo.judges import command_refused
from sealmq.demo.plot import Attempt

from . import plot
from .plot import PERFORMANCE, PULSE, SAFETY


def consent(evidence: Evidence, client: str) -> list[tuple[str, frozenset[str]]]:
    """(text, what its topic might be used for) of each pulse that a client published, in order:
    by what it had been told to count when it published.
    """
    out, now = [], frozenset[str]()
    for event in evidence.said.get(client, ()):
        if event["ev"] == "reserved":
            now = frozenset(event["purposes"])
        elif event["ev"] == "published" and event["topic"] == PULSE:
            out.append((str(event["text"]), now))
    return out


def disclosed(evidence: Evidence, client: str) -> dict[tuple[str, str], int]:
    """(purpose, reservation) -> how many pulses a client was given, by the audit log."""
    out: dict[tuple[str, str], int] = {}
    for record in evidence.records("delivered", client=client, topic=PULSE):
        key = record.get("purpose", ""), record.get("under", "")
        out[key] = out.get(key, 0) + int(record["count"])
    return out


# The wearer's pulses in the order of its consent: before, while one was withdrawn, after.
def _spans(evidence: Evidence) -> tuple[list[str], list[str], list[str]]:
    spans: tuple[list[str], list[str], list[str]] = [], [], []
    at = 0
    for text, purposes in consent(evidence, plot.WEARER):
        if (PERFORMANCE in purposes) != (at != 1):
            at += 1
        if at > 2:
            return [], [], []
        spans[at].append(text)
    return spans


# What the wearer told the mediator, by the audit log.
def _consents(finding: Finding, evidence: Evidence, attempt: Attempt, since: int) -> None:
    said = evidence.records("command", client=plot.WEARER, topic=attempt.topic)
    finding.evidence["audit"] = [record["id"] for record in said[since : since + 1]]
    finding.evidence["rule"] = said[since]["rule"] if len(said) > since else ""
    given = [PERFORMANCE in record["detail"] for record in said]
    finding.need(
        given == [True, False, True],
        f"the audit log has {len(said)} reservations of {plot.WEARER}, not one with "
        f"{PERFORMANCE}, one without, one with it again",
    )
    label = evidence.label_of(attempt.topic)
    finding.need(
        label is not None and evidence.policy.reads(attempt.who, label),
        f"{attempt.who} holds no key of {attempt.topic}, which shows nothing",
    )


def withdraw(evidence: Evidence, attempt: Attempt) -> Finding:
    before, during, _ = _spans(evidence)
    read, other = _pulses(evidence, attempt.who), _pulses(evidence, plot.STILL_ALLOWED)
    leaked = read & set(during)
    finding = Finding("accepted" if leaked else "withheld")
    _consents(finding, evidence, attempt, 1)
    finding.evidence["messages"] = [len(before), len(during)]
    finding.evidence["withheld"] = len(set(during) - read)
    finding.need(bool(during), "nothing was published while consent was withdrawn")
    finding.need(not leaked, f"{attempt.who} read {len(leaked)} that were published behind that")
    # The last one before may be on its way when consent ends.
    missing = set(before[:-1]) - read
    finding.need(len(before) > 1 and not missing, f"{attempt.who} missed {len(missing)} before")
    missing = set(during) - other
    finding.need(not missing, f"{plot.STILL_ALLOWED} missed {len(missing)}, allowed all the time")
    for who, purpose in ((attempt.who, PERFORMANCE), (plot.STILL_ALLOWED, SAFETY)):
        told, reads = disclosed(evidence, who), len(_pulses(evidence, who))
        finding.need(
            told == {(purpose, attempt.topic): reads},
            f"{who} read {reads}; the audit log says for what, by which reservation: {told}",
        )
    return finding


def give_back(evidence: Evidence, attempt: Attempt) -> Finding:
    _, _, after = _spans(evidence)
    read = _pulses(evidence, attempt.who)
    got = [text in read for text in after]
    finding = Finding("accepted" if any(got) else "withheld")
    _consents(finding, evidence, attempt, 2)
    finding.evidence["read"] = sum(got)
    finding.need(any(got), f"{attempt.who} read none of {len(after)} behind that")
    # The first ones may come before the broker has its subscription again.
    first = got.index(True) if any(got) else 0
    finding.need(all(got[first:]), f"{attempt.who} missed {got[first:].count(False)} later ones")
    return finding


def _pulses(evidence: Evidence, client: str) -> set[str]:
    return {event["text"] for event in evidence.events(client, "read", topic=PULSE)}


def reserve_other(evidence: Evidence, attempt: Attempt) -> Finding:
    return command_refused(evidence, attempt, "reserve", topic=attempt.topic)
