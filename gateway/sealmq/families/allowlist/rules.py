"""Every rule id that the family's verdicts use, with a plain line for `explain`."""

from __future__ import annotations

from collections.abc import Mapping

CONNECT = "allowlist.connect"
PUBLISH_ALLOWED = "allowlist.publish.allowed"
PUBLISH_NOT_ALLOWED = "allowlist.publish.not-allowed"
SUBSCRIBE_ALLOWED = "allowlist.subscribe.allowed"
SUBSCRIBE_NARROWED = "allowlist.subscribe.narrowed"
SUBSCRIBE_NOT_ALLOWED = "allowlist.subscribe.not-allowed"
SUBSCRIBE_SHARED = "allowlist.subscribe.shared"
SUBSCRIBE_RECORDS = "allowlist.subscribe.records"
SUBSCRIBE_MALFORMED = "allowlist.subscribe.malformed"
DELIVER_ALLOWED = "allowlist.deliver.allowed"
DELIVER_FROM = "allowlist.deliver.from"
DELIVER_SEALED = "allowlist.deliver.sealed"
DELIVER_OTHER_SENDER = "allowlist.deliver.other-sender"
DELIVER_GROUP = "allowlist.deliver.sealed-group"
DELIVER_NOT_ALLOWED = "allowlist.deliver.not-allowed"
DELIVER_RECORD = "allowlist.deliver.record"

RULES: Mapping[str, str] = {
    CONNECT: "The allowlist says what may be published and read, not who may connect.",
    PUBLISH_ALLOWED: "A rule lets the client publish there.",
    PUBLISH_NOT_ALLOWED: "No rule lets the client publish there.",
    SUBSCRIBE_ALLOWED: "A rule lets the client read all that the filter matches.",
    SUBSCRIBE_NARROWED: "Rules let the client read a part of it; each message is judged when it is "
    "delivered.",
    SUBSCRIBE_NOT_ALLOWED: "No rule lets the client read anything that the filter matches.",
    SUBSCRIBE_SHARED: "A group's messages go to one member each, so each has to be allowed all of "
    "the filter by one rule, whoever sends.",
    SUBSCRIBE_RECORDS: "Public records are for everybody.",
    SUBSCRIBE_MALFORMED: "This is no topic filter.",
    DELIVER_ALLOWED: "A rule lets the client read the topic.",
    DELIVER_FROM: "Rules let the client read what some senders publish there.",
    DELIVER_SEALED: "A rule lets the client read the topic, and one has it sealed to its link.",
    DELIVER_OTHER_SENDER: "No rule lets the client read what this sender publishes there.",
    DELIVER_GROUP: "A rule lets the client read the topic, and one has it sealed for a group that "
    "it is in.",
    DELIVER_NOT_ALLOWED: "No rule lets the client read the topic.",
    DELIVER_RECORD: "Public records are for everybody.",
}
