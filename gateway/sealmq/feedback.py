"""What a client says of a message of another site (SPEC.md 3.5, GATEWAY.md G11): a command of the
name `feedback`, which is the mediator's, and what becomes of it on its way to the bridge.

A message is named by what nobody knows who has not received it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import NamedTuple

from sealmq_spec.const import MAX_TOPIC
from sealmq_spec.errors import Malformed
from sealmq_spec.topics import check_topic

NAME = "feedback"
"""Of the command, and of the news to the bridge's client; no policy family has it."""
ID = 16
_BAD, _GOOD = 0, 1


class Said(NamedTuple):
    """good: what the client thinks of it. topic: as it is read here, @SITE/TOPIC."""

    good: bool
    message: bytes
    topic: str

    def pack(self) -> bytes:
        """The command's body."""
        return bytes((_GOOD if self.good else _BAD,)) + self.message + self.topic.encode()


def read(body: bytes) -> Said:
    """Malformed."""
    if not 1 + ID < len(body) <= 1 + ID + MAX_TOPIC or body[0] not in (_BAD, _GOOD):
        raise Malformed("feedback is 0 or 1, the message's 16 bytes, and its topic")
    try:
        topic = body[1 + ID :].decode()
    except UnicodeDecodeError:
        raise Malformed("a topic that is no UTF-8") from None
    check_topic(topic)
    return Said(body[0] == _GOOD, body[1 : 1 + ID], topic)


class Told(NamedTuple):
    """What the bridge's client hears of it. assessor: whether the site names the client as one."""

    client: str
    said: Said
    assessor: bool

    def pack(self) -> bytes:
        """JSON."""
        said = self.said
        row: Mapping[str, object] = {
            "client": self.client, "message": said.message.hex(), "good": said.good,
            "topic": said.topic, "assessor": self.assessor,
        }  # fmt: skip
        return json.dumps(row, ensure_ascii=False).encode()


def read_told(raw: bytes) -> Told:
    """Malformed."""
    try:
        row = json.loads(raw)
        client, good, assessor = row["client"], row["good"], row["assessor"]
        said = Said(good, bytes.fromhex(row["message"]), row["topic"])
    except (ValueError, TypeError, KeyError, RecursionError):
        raise Malformed("no feedback as a mediator tells it") from None
    right = isinstance(client, str) and isinstance(said.topic, str)
    if not right or type(good) is not bool or type(assessor) is not bool:
        raise Malformed("no feedback as a mediator tells it")
    return Told(client, said, assessor)
