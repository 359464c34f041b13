"""What a spectator should know at a moment: the one state that both displays show.

It is fed by what clients say, by the audit log as it grows, and by the tap at the broker.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from .acts import ATTEMPTS
from .audit_log import Record
from .plot import Attempt

_KEEP = 200


@dataclass
class Message:
    """One reading: who published it, who could open it."""

    at: float
    publisher: str
    topic: str
    text: str
    readers: list[str] = field(default_factory=list)


@dataclass
class Tried:
    """An attempt so far. `state`: waiting, trying, refused, accepted, withheld, unseen."""

    attempt: Attempt
    state: str = "waiting"
    why: str = ""


class Board:
    """`show` gets each line of text and the second it is about."""

    def __init__(self, show: Callable[[str, float], None]) -> None:
        self.began = time.monotonic()
        self.step = ""
        self.site = ""
        self.messages: list[Message] = []
        self.tried = {attempt.name: Tried(attempt) for attempt in ATTEMPTS}
        self.packets: list[tuple[str, bytes]] = []
        self.broker_packets = 0
        self._show = show
        self._by_text: dict[tuple[str, str], Message] = {}
        self._early: dict[tuple[str, str], list[str]] = {}

    @property
    def seconds(self) -> float:
        """Since the demo began."""
        return time.monotonic() - self.began

    def line(self, text: str, at: float | None = None) -> None:
        """For a display that shows lines."""
        self._show(text, self.seconds if at is None else at)

    def say(self, step: str) -> None:
        """What the demo does now."""
        self.step = step
        self.line(step)

    def told(self, client: str, event: dict[str, Any]) -> None:
        """A client said something."""
        if event["ev"] == "published":
            message = Message(self.seconds, client, event["topic"], event["text"])
            key = message.topic, message.text
            message.readers += self._early.pop(key, [])
            self._by_text[key] = message
            self.messages.append(message)
            del self.messages[:-_KEEP]
        elif event["ev"] == "read":
            key = event["topic"], event["text"]
            found = self._by_text.get(key)
            # QoS 1: a reader may be faster than the publisher's PUBACK.
            readers = found.readers if found is not None else self._early.setdefault(key, [])
            readers.append(client)
        elif event["ev"] == "again":
            self.line(f"{client} has no connection and tries again: {event['why']}")

    def audited(self, record: Record) -> None:
        """The audit log has a new record."""
        if record["event"] == "command":
            who, topic = record["client"], record.get("topic", "")
            self.line(f"audit: command {who} {topic} {record.get('detail', '')}".rstrip())
        elif record["event"].endswith("-refused") or record["event"] == "topic-labelled":
            who = record.get("client") or record.get("peer", "?")
            what = record.get("rule") or record.get("label", "")
            reason = record.get("reason", "")
            self.line(
                f"audit: {record['event']} {who} {record.get('topic', '')} {what} {reason}".rstrip()
            )

    def at_broker(self, topic: str, payload: bytes) -> None:
        """The broker received a message."""
        if not topic.startswith("@"):
            self.broker_packets += 1
            self.packets.append((topic, payload))
            del self.packets[:-_KEEP]

    def trying(self, attempt: Attempt) -> None:
        """An attempt begins."""
        self.tried[attempt.name].state = "trying"
        self.say(f"attempt: {attempt.title}")

    def result(self, attempt: Attempt, state: str, why: str) -> None:
        """What could be seen of its end; the verdict looks again, at the evidence."""
        tried = self.tried[attempt.name]
        tried.state, tried.why = state, why
        self.line(f"  {state}: {why}")
