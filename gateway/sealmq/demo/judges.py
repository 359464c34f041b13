"""A judge for each attempt: what must be found in the evidence, and nowhere, for it to have gone
as expected.

A judge names what is wrong; an attempt that left no evidence has not gone as expected.
"""

from __future__ import annotations

from collections.abc import Callable

from sealmq.mqtt import Publish

from . import plot
from .capture import Stream, label_number
from .evidence import Evidence
from .finding import Finding
from .plot import Attempt

Judge = Callable[[Evidence, Attempt], Finding]


def command_refused(evidence: Evidence, attempt: Attempt, what: str, **told: str) -> Finding:
    """A command that the mediator took of nobody, and that its client was told of, in an event
    `refused` with these fields.
    """
    found = evidence.records("packet-refused", client=attempt.who, rule=attempt.rule)
    taken = evidence.records("command", client=attempt.who)
    finding = Finding("refused" if found and not taken else "not refused")
    finding.evidence = {"audit": [record["id"] for record in found], "rule": attempt.rule}
    finding.need(bool(found), f"no packet-refused of rule {attempt.rule} in the audit log")
    finding.need(not taken, f"the mediator took {len(taken)} commands of {attempt.who}")
    heard = evidence.events(attempt.who, "refused", what=what, **told)
    finding.need(bool(heard), "the client was not told that it was refused")
    return finding


# The audit log's word on a refusal.
def _by_audit(event: str, evidence: Evidence, attempt: Attempt) -> Finding:
    found = [
        record
        for record in evidence.records(event, client=attempt.who, rule=attempt.rule)
        if record.get("topic", "") == attempt.topic
    ]
    finding = Finding("refused" if found else "not refused")
    finding.evidence = {"audit": [r["id"] for r in found], "rule": attempt.rule}
    finding.need(bool(found), f"no {event} of rule {attempt.rule} in the audit log")
    return finding


# Each message that a client published on a topic: said, accepted, at the broker equally often.
def _once_each(finding: Finding, evidence: Evidence, attempt: Attempt) -> None:
    said = len(evidence.events(attempt.who, "published", topic=attempt.topic))
    accepted = evidence.accepted(attempt.who, attempt.topic)
    forwarded = evidence.forwarded(attempt.who, attempt.topic)
    finding.evidence["published_accepted_at_broker"] = [said, accepted, forwarded]
    finding.need(
        0 < said == accepted == forwarded,
        f"{said} messages published, {accepted} accepted, {forwarded} at the broker",
    )


def _publish(evidence: Evidence, attempt: Attempt) -> Finding:
    finding = _by_audit("publish-refused", evidence, attempt)
    refused = evidence.events(attempt.who, "refused", what="publish", topic=attempt.topic)
    finding.need(bool(refused), "the client was not told that it was refused")
    accepted = evidence.accepted(attempt.who, attempt.topic)
    finding.need(accepted == 0, f"the mediator accepted {accepted} of them")
    through = evidence.forwarded(attempt.who, attempt.topic)
    finding.need(through == 0, f"{through} of them reached the broker")
    texts = {
        event["text"]
        for event in evidence.said.get(attempt.who, ())
        if event["ev"] in ("refused", "published") and event["topic"] == attempt.topic
    }
    readers = _readers(evidence, texts)
    finding.need(not readers, f"{', '.join(readers)} read it")
    if accepted or through:
        finding.outcome = "accepted"
    return finding


def _readers(evidence: Evidence, texts: set[str]) -> list[str]:
    return sorted(
        name
        for name, events in evidence.said.items()
        if any(event["ev"] == "read" and event["text"] in texts for event in events)
    )


def _first_publish(evidence: Evidence, attempt: Attempt) -> Finding:
    label = evidence.policy.label[attempt.who]
    labelled = evidence.records("topic-labelled", topic=attempt.topic)
    finding = Finding("accepted" if labelled else "not accepted")
    finding.evidence = {"audit": [r["id"] for r in labelled], "rule": attempt.rule}
    finding.need(len(labelled) == 1, f"{len(labelled)} topic-labelled records, not one")
    for record in labelled:
        finding.need(
            (record["client"], record["label"]) == (attempt.who, label),
            f"labelled {record['label']} by {record['client']}",
        )
    _once_each(finding, evidence, attempt)
    texts = {e["text"] for e in evidence.events(attempt.who, "published", topic=attempt.topic)}
    readers = _readers(evidence, texts)
    finding.evidence["read_by"] = readers
    for right in ("m1-arm-operator", "monitor"):
        finding.need(right in readers, f"{right} did not read it")
    return finding


def _subscribe(evidence: Evidence, attempt: Attempt) -> Finding:
    finding = _by_audit("subscribe-refused", evidence, attempt)
    refused = evidence.events(attempt.who, "refused", what="subscribe", topic=attempt.topic)
    finding.need(bool(refused), "the client was not told that it was refused")
    streams = evidence.behind(attempt.who)
    finding.need(
        not any(attempt.topic in stream.filters() for stream in streams),
        "the subscription reached the broker",
    )
    finding.need(
        not any(stream.delivered(attempt.topic) for stream in streams),
        "the broker sent messages of the topic for this client",
    )
    if any(attempt.topic in stream.filters() for stream in streams):
        finding.outcome = "accepted"
    return finding


def _replay_publish(evidence: Evidence, attempt: Attempt) -> Finding:
    finding = _by_audit("packet-refused", evidence, attempt)
    _once_each(finding, evidence, attempt)
    return finding


def _change_m2(evidence: Evidence, attempt: Attempt) -> Finding:
    finding = _by_audit("packet-refused", evidence, attempt)
    told = evidence.events(attempt.who, "notice", rule=attempt.rule)
    finding.need(bool(told), "the client was not told that something did not verify")
    # The connection ended, and what the client had stored went out again: nothing is lost.
    _once_each(finding, evidence, attempt)
    return finding


def _replay_connect(evidence: Evidence, attempt: Attempt) -> Finding:
    finding = _by_audit("connect-refused", evidence, attempt)
    # Before its first one the mediator ends what the broker may have kept, with a clean session.
    streams = sum(not stream.clean for stream in evidence.behind(attempt.who))
    finding.need(streams == 1, f"{streams} connections to the broker for this client, not one")
    ended = evidence.records("disconnect", client=attempt.who, clean=False)
    finding.need(not ended, "the real client lost its connection")
    return finding


# What only the reader can say: it refused, once, and nobody else did.
def _by_reader(evidence: Evidence, attempt: Attempt) -> Finding:
    found = evidence.events(attempt.who, "not-taken", **{"class": attempt.rule})
    finding = Finding("refused by the reader" if found else "not refused")
    count = max((int(event["refused"].get(attempt.rule, 0)) for event in found), default=0)
    finding.evidence = {"rule": attempt.rule, "reader": attempt.who, "refused": count}
    finding.evidence["audit"] = []
    finding.need(count == 1, f"{attempt.who} refused {count} packets as {attempt.rule}, not one")
    return finding


def _replay_m3(evidence: Evidence, attempt: Attempt) -> Finding:
    finding = _by_reader(evidence, attempt)
    texts = [e["text"] for e in evidence.events(attempt.who, "read", topic=attempt.topic)]
    twice = sorted({text for text in texts if texts.count(text) > 1})
    finding.need(not twice, f"{attempt.who} read twice: {', '.join(twice)}")
    return finding


def _change_m3(evidence: Evidence, attempt: Attempt) -> Finding:
    return _by_reader(evidence, attempt)


def _handed(evidence: Evidence, attempt: Attempt) -> Finding:
    refused = evidence.events(plot.HANDED_TO, "not-taken")
    opened = evidence.events(plot.HANDED_TO, "opened")
    public = any(p.topic.startswith(plot.RECORDS) for s in evidence.broker for p in s.published())
    who = plot.handed_to_control(public)
    control = evidence.events(who, "opened", topic=attempt.topic)
    finding = Finding("refused by the reader" if refused and not opened else "not refused")
    packets = len(evidence.handed)
    classes = sorted({event["class"] for event in refused})
    finding.evidence = {
        "audit": [],
        "rule": ", ".join(classes),
        "refused": len(refused),
        "opened_by_the_control": len(control),
    }
    finding.need(packets > 0, "no packets were handed over")
    finding.need(not opened, f"{len(opened)} packets were opened")
    finding.need(
        len(refused) == packets and classes == [attempt.rule],
        f"{len(refused)} of {packets} packets refused, as {', '.join(classes) or 'nothing'}",
    )
    seen = {(p.topic, p.payload) for s in evidence.broker for p in _broker_side(s)}
    finding.need(
        all(packet in seen for packet in evidence.handed),
        "a packet that was handed over is not in the capture at the broker",
    )
    published = {text for _, topic, text in evidence.published() if topic == attempt.topic}
    finding.need(
        len(control) == packets and all(event["text"] in published for event in control),
        f"{plot.control(public)} opened {len(control)} of the same {packets} packets",
    )
    labels = {label_number(packet) for _, packet in evidence.handed}
    for name, can in ((plot.HANDED_TO, False), (who, public)):
        records = evidence.events(name, "records")
        finding.need(len(records) == 1, f"{name} does not say what became of the public records")
        for event in records:
            finding.need(
                (labels <= set(event["labels"])) == can and (event["refused"] > 0) == public,
                f"{name} has derived the labels {event['labels']} from the public records",
            )
    return finding


def _broker_side(stream: Stream) -> list[Publish]:
    return stream.published() + stream.delivered()


JUDGES: dict[str, Judge] = {
    plot.PUBLISH_OTHER.name: _publish,
    plot.PUBLISH_TAKEN.name: _publish,
    plot.FIRST_PUBLISH.name: _first_publish,
    plot.SUBSCRIBE_OTHER.name: _subscribe,
    plot.REPLAY_PUBLISH.name: _replay_publish,
    plot.REPLAY_CONNECT.name: _replay_connect,
    plot.CHANGE_M2.name: _change_m2,
    plot.REPLAY_M3.name: _replay_m3,
    plot.CHANGE_M3.name: _change_m3,
    plot.HANDED.name: _handed,
}
