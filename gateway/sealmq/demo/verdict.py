"""The verdict: every attempt went as expected, and the factory as a whole told the truth.

It reads evidence only. What the demo meant to do counts for nothing here.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from . import plot
from .acts import ATTEMPTS, FAMILIES, PARTS, judge
from .capture import label_number
from .cast import listens
from .evidence import Evidence
from .finding import Finding
from .plot import Attempt
from .search import Find, search


@dataclass
class Verdict:
    """`failed`: what did not hold, in plain words; empty means that all did."""

    findings: list[tuple[Attempt, Finding]]
    failed: list[str] = field(default_factory=list)
    found: list[Find] = field(default_factory=list)
    readers: dict[str, int] = field(default_factory=dict)
    messages: int = 0

    @property
    def holds(self) -> bool:
        return not self.failed


def give(evidence: Evidence) -> Verdict:
    """Judge everything."""
    verdict = Verdict([(attempt, judge(evidence, attempt)) for attempt in ATTEMPTS])
    for attempt, finding in verdict.findings:
        verdict.failed += [f"{attempt.name}: {wrong}" for wrong in finding.wrong]
    verdict.messages = len(evidence.published())
    verdict.readers = {
        part.name: len(evidence.events(part.name, "read")) for part in PARTS if part.filters
    }
    _plaintext(evidence, verdict)
    _books(evidence, verdict)
    _readers(evidence, verdict)
    _own_refusals(evidence, verdict)
    _labels(evidence, verdict)
    return verdict


# No reading anywhere at the broker or on the devices' network, in a capture that has all messages.
def _plaintext(evidence: Evidence, verdict: Verdict) -> None:
    places = {}
    for name, streams in (("broker", evidence.broker), ("network", evidence.network)):
        for stream in streams:
            places[f"{name} {stream.number:04d} to server"] = stream.raw_to
            places[f"{name} {stream.number:04d} from server"] = stream.raw_from
    texts = evidence.spoken()
    verdict.found = search(sorted(texts), places)
    verdict.failed += [
        f"plaintext: {find.text!r} as {find.form} in the capture, {find.where}, byte {find.at}"
        for find in verdict.found
    ]
    if not texts:
        verdict.failed.append("plaintext: there was nothing to look for")


# For each client and topic: as often said, as often accepted (audit), as often at the broker.
def _books(evidence: Evidence, verdict: Verdict) -> None:
    said = Counter((client, topic) for client, topic, _ in evidence.published())
    accepted: Counter[tuple[str, str]] = Counter()
    for record in evidence.records("publish-accepted"):
        accepted[record["client"], record["topic"]] += int(record["count"])
    for client, topic in sorted(said.keys() | accepted.keys()):
        key = client, topic
        at_broker = evidence.forwarded(client, topic) if client in evidence.numbers else 0
        if not said[key] == accepted[key] == at_broker:
            verdict.failed.append(
                f"books: {client} on {topic}: {said[key]} published, {accepted[key]} accepted, "
                f"{at_broker} at the broker"
            )
    for part in PARTS:
        if not evidence.events(part.name, "bye"):
            verdict.failed.append(f"books: {part.name} did not end properly")
        if part.script == "sensor.py" and not evidence.events(part.name, "published"):
            verdict.failed.append(f"books: {part.name} published nothing")


# Every message reached each client that listens, and may read it by each family; no other.
def _readers(evidence: Evidence, verdict: Verdict) -> None:
    changed = plot.CHANGE_M3
    may = [act.may(evidence) for act in FAMILIES]
    unsure = frozenset[str]().union(*(act.UNSURE for act in FAMILIES))
    for part in PARTS:
        read = Counter((e["topic"], e["text"]) for e in evidence.events(part.name, "read"))
        due = {
            (topic, text)
            for client, topic, text in evidence.published()
            if listens(part, topic)
            and evidence.policy.reads(part.name, evidence.policy.label[client])
            and all(allows(part, topic, text) for allows in may)
        }
        missing = sorted(due - read.keys())
        if part.name in unsure:
            missing = []
        # The message whose envelope was changed under way is the one that may be missing.
        spare = [m for m in missing if part.name == changed.who and m[0] == changed.topic][:1]
        for topic, text in missing:
            if (topic, text) not in spare:
                verdict.failed.append(f"readers: {part.name} did not read {text!r} on {topic}")
        for topic, text in sorted(read.keys() - due):
            verdict.failed.append(f"readers: {part.name} read {text!r} on {topic}, not for it")


# A reader that refuses more than what was done to it has met a fault.
def _own_refusals(evidence: Evidence, verdict: Verdict) -> None:
    expected = {a.who: {a.rule: 1} for a in (plot.REPLAY_M3, plot.CHANGE_M3)}
    for part in PARTS:
        for event in evidence.events(part.name, "bye"):
            if event["refused"] != expected.get(part.name, {}):
                verdict.failed.append(f"refusals: {part.name} refused {event['refused']}")


# A topic's messages carry one label, in the broker's eyes too; the policy was on all the time. What
# begins with @ is the mediator's own: public records, and what it asks of a broker.
def _labels(evidence: Evidence, verdict: Verdict) -> None:
    numbers: dict[str, set[int | None]] = {}
    for stream in evidence.broker:
        for packet in stream.published():
            if not packet.topic.startswith("@"):
                numbers.setdefault(packet.topic, set()).add(label_number(packet.payload))
    for topic, seen in sorted(numbers.items()):
        if len(seen) != 1 or None in seen:
            shown = ", ".join("none" if n is None else str(n) for n in seen)
            verdict.failed.append(f"labels: {topic} carries the labels {shown} at the broker")
    for event in ("policy-off", "unenforced"):
        if evidence.records(event):
            verdict.failed.append(f"policy: the audit log has {event} records")


def as_json(attempt: Attempt, finding: Finding) -> dict[str, Any]:
    """An attempt as summary.json has it."""
    return {
        "name": attempt.name,
        "title": attempt.title,
        "expected": attempt.expected,
        "outcome": finding.outcome,
        "evidence": finding.evidence,
        "ok": finding.ok,
        "wrong": finding.wrong,
    }
