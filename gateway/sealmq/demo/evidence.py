"""What a run left behind, read from files: audit log, captures, and what the clients said.

What the clients said is taken as their testimony: a reader's own refusal is only known to itself.
Everything about the gateway and the broker comes from the audit log and the captures.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from . import audit_log
from .audit_log import Record
from .capture import Stream, label_number, load
from .cast import Policy
from .places import Places

Event = dict[str, Any]


@dataclass(frozen=True)
class Evidence:
    """`said`: client -> events. `numbers`: client -> number. `handed`: packets (topic, bytes)."""

    audit: Sequence[Record]
    said: Mapping[str, Sequence[Event]]
    broker: Sequence[Stream]
    network: Sequence[Stream]
    policy: Policy
    numbers: Mapping[str, int]
    handed: Sequence[tuple[str, bytes]] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def load(cls, places: Places) -> Evidence:
        """OSError, ValueError: something is missing or is not what it should be."""
        facts = json.loads(places.facts.read_text(encoding="utf-8"))
        handed = json.loads(places.handed.read_text(encoding="utf-8"))
        return cls(
            audit_log.read(places.audit),
            {path.stem: _events(path) for path in sorted(places.said.glob("*.jsonl"))},
            load(places.capture / "broker"),
            load(places.capture / "network"),
            Policy.read(places.site / "sealmq.toml"),
            facts["numbers"],
            [(topic, bytes.fromhex(packet)) for topic, packet in handed["packets"]],
            facts,
        )

    def records(self, event: str, **fields: object) -> list[Record]:
        """Audit records of an event with these fields."""
        return [
            record
            for record in self.audit
            if record["event"] == event
            and all(record.get(name) == value for name, value in fields.items())
        ]

    def accepted(self, client: str, topic: str) -> int:
        """How many PUBLISHes the mediator says that it accepted."""
        found = self.records("publish-accepted", client=client, topic=topic)
        return sum(int(record["count"]) for record in found)

    def events(self, client: str, ev: str, **fields: object) -> list[Event]:
        """What a client said of one kind."""
        return [
            event
            for event in self.said.get(client, ())
            if event["ev"] == ev and all(event.get(name) == value for name, value in fields.items())
        ]

    def published(self) -> list[tuple[str, str, str]]:
        """(client, topic, text) of all that clients published and nobody refused them."""
        return [
            (client, event["topic"], event["text"])
            for client, events in self.said.items()
            for event in events
            if event["ev"] == "published"
        ]

    def spoken(self) -> set[str]:
        """Every text that a client sealed, accepted or not, and every text that one opened."""
        return {
            event["text"]
            for events in self.said.values()
            for event in events
            if event["ev"] in ("published", "refused", "read", "opened") and event["text"]
        }

    def behind(self, client: str) -> list[Stream]:
        """The mediator's connections to the broker that serve a client."""
        number = self.numbers[client]
        return [stream for stream in self.broker if stream.behind == number]

    def forwarded(self, client: str, topic: str) -> int:
        """How many PUBLISHes for a client reached the broker: all come over one connection, and
        are told apart by the label that stands in m3's header.
        """
        number = self._label_number(self.policy.label[client])
        packets = [packet for stream in self.broker for packet in stream.published(topic)]
        return sum(label_number(packet.payload) == number for packet in packets)

    # What most messages of topics that the audit log has under this label carry at the broker.
    def _label_number(self, label: str) -> int | None:
        topics = {r["topic"] for r in self.records("publish-accepted", label=label)}
        seen = Counter(
            label_number(packet.payload)
            for stream in self.broker
            for packet in stream.published()
            if packet.topic in topics
        )
        return seen.most_common(1)[0][0] if seen else None

    def label_of(self, topic: str) -> str | None:
        """σ(t) by the audit log: under which label the topic's messages were accepted."""
        labels = {r["label"] for r in self.records("publish-accepted", topic=topic)}
        return labels.pop() if len(labels) == 1 else None


def _events(path: Path) -> list[Event]:
    events = []
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            event = json.loads(line)
        except ValueError:
            continue  # a traceback; the client's "bye" is then missing
        if isinstance(event, dict) and "ev" in event:
            events.append(event)
    return events
