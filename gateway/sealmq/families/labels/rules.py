"""Every rule of the labels family: its stable id and one plain line (audit, notices, explain)."""

from __future__ import annotations

from collections.abc import Mapping

CONNECT_ENABLED = "labels.connect.enabled"
CLIENT_UNKNOWN = "labels.client.unknown"
CLIENT_DISABLED = "labels.client.disabled"
PUBLISH_SAME = "labels.publish.same-label"
PUBLISH_OTHER = "labels.publish.other-label"
PUBLISH_FIRST = "labels.publish.first"
PUBLISH_RESERVED = "labels.publish.reserved"
PUBLISH_MOUNTED = "labels.publish.mounted"
PUBLISH_NOT_MOUNTED = "labels.publish.not-mounted"
PUBLISH_BORDER = "labels.publish.border"
PUBLISH_MALFORMED = "labels.publish.malformed"
CREATE_NOT_ALLOWED = "labels.create.not-allowed"
CREATE_RESERVED = "labels.create.reserved"
CREATE_CLIENT_FULL = "labels.create.client-full"
CREATE_LABEL_FULL = "labels.create.label-full"
SUBSCRIBE_DOMINATED = "labels.subscribe.dominated"
SUBSCRIBE_ABOVE = "labels.subscribe.above"
SUBSCRIBE_NARROWED = "labels.subscribe.narrowed"
SUBSCRIBE_UNLABELLED = "labels.subscribe.unlabelled"
SUBSCRIBE_RECORDS = "labels.subscribe.records"
SUBSCRIBE_MOUNTED = "labels.subscribe.mounted"
SUBSCRIBE_RESERVED = "labels.subscribe.reserved"
SUBSCRIBE_BORDER = "labels.subscribe.border"
SUBSCRIBE_NOT_LISTED = "labels.subscribe.not-listed"
SUBSCRIBE_MALFORMED = "labels.subscribe.malformed"
DELIVER_EXPORTED = "labels.deliver.exported"
DELIVER_NOT_EXPORTED = "labels.deliver.not-exported"
DELIVER_BORDER = "labels.deliver.border"
DELIVER_NOT_LISTED = "labels.deliver.not-listed"
DELIVER_DOMINATED = "labels.deliver.dominated"
DELIVER_ABOVE = "labels.deliver.above"
DELIVER_TOPIC_ABOVE = "labels.deliver.topic-above"
DELIVER_UNLABELLED = "labels.deliver.unlabelled"
DELIVER_RECORD = "labels.deliver.record"

RULES: Mapping[str, str] = {
    CONNECT_ENABLED: "The client has a label, so it may connect.",
    CLIENT_UNKNOWN: "No such client stands in the configuration.",
    CLIENT_DISABLED: "The client's label is none, which disables it.",
    PUBLISH_SAME: "A client may publish on topics of its own label.",
    PUBLISH_OTHER: "The topic has another label than the client; only equal labels may publish.",
    PUBLISH_FIRST: "Nobody has published there yet; the topic takes the client's label.",
    PUBLISH_MOUNTED: "A bridge publishes what a peer exports, below @PEER/.",
    PUBLISH_NOT_MOUNTED: "A bridge publishes what a peer exports, and nothing else anywhere else.",
    PUBLISH_RESERVED: "Topics that begin with $, ! or @ are the protocol's own.",
    PUBLISH_BORDER: "A border publishes below border/NAME/, there alone, and nobody else does.",
    PUBLISH_MALFORMED: "This is no topic to publish on.",
    CREATE_NOT_ALLOWED: "A creation rule lets others create topics there, not this client.",
    CREATE_CLIENT_FULL: "The client has created as many topics as [limits] topics lets one client.",
    CREATE_LABEL_FULL: "Its label's clients have created as many as [limits] label_topics says.",
    CREATE_RESERVED: "A creation rule reserves these names; nobody may create topics there.",
    SUBSCRIBE_DOMINATED: "The client's label is at or above the topic's.",
    SUBSCRIBE_ABOVE: "The topic's label is not at or below the client's.",
    SUBSCRIBE_NARROWED: "A filter with wildcards; each message is judged when it is delivered.",
    SUBSCRIBE_UNLABELLED: "Nobody has published there yet; each message is judged on delivery.",
    SUBSCRIBE_RECORDS: "Public records are for everybody.",
    SUBSCRIBE_MOUNTED: "What peers export is read below @PEER/; each message is judged.",
    SUBSCRIBE_RESERVED: "Filters that begin with $, ! or @ reach nothing; @sm1, $share, @PEER do.",
    SUBSCRIBE_BORDER: "A border subscribes to what its table in sealmq.toml lists.",
    SUBSCRIBE_NOT_LISTED: "A border subscribes to what its table lists, and to nothing else.",
    SUBSCRIBE_MALFORMED: "This is no topic filter.",
    DELIVER_EXPORTED: "The label is exported to this bridge's peer.",
    DELIVER_NOT_EXPORTED: "A bridge gets what was published here under its exported label.",
    DELIVER_BORDER: "A border gets what its table lists: messages of one label on such topics.",
    DELIVER_NOT_LISTED: "A border gets what its table lists, and nothing that a border has made.",
    DELIVER_DOMINATED: "The client's label is at or above the message's.",
    DELIVER_ABOVE: "The message's label is not at or below the client's.",
    DELIVER_TOPIC_ABOVE: "The topic now has a label that is not at or below the client's.",
    DELIVER_UNLABELLED: "Without a label there is no key; nobody has published there yet.",
    DELIVER_RECORD: "Public records are for everybody.",
}
