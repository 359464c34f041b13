"""Every rule of the purposes family: its stable id and one plain line (audit, notices, explain)."""

from __future__ import annotations

from collections.abc import Mapping

CONNECT = "purposes.connect"
PUBLISH = "purposes.publish"
UNKNOWN = "purposes.unknown"
SUBSCRIBE_RECORDS = "purposes.subscribe.records"
SUBSCRIBE_NO_PURPOSE = "purposes.subscribe.no-purpose"
SUBSCRIBE_MALFORMED = "purposes.subscribe.malformed"
SUBSCRIBE_LATER = "purposes.subscribe.judged-later"
SUBSCRIBE_UNRESERVED = "purposes.subscribe.unreserved"
SUBSCRIBE_POSSIBLE = "purposes.subscribe.possible"
SUBSCRIBE_ALLOWED = "purposes.subscribe.allowed"
SUBSCRIBE_PROHIBITED = "purposes.subscribe.prohibited"
SUBSCRIBE_NOT_ALLOWED = "purposes.subscribe.not-allowed"
SUBSCRIBE_PARTLY = "purposes.subscribe.partly"
DELIVER_RECORD = "purposes.deliver.record"
DELIVER_UNRESERVED = "purposes.deliver.unreserved"
DELIVER_NO_RESERVATION = "purposes.deliver.no-reservation"
DELIVER_ALLOWED = "purposes.deliver.allowed"
DELIVER_PROHIBITED = "purposes.deliver.prohibited"
DELIVER_NOT_ALLOWED = "purposes.deliver.not-allowed"
DELIVER_NO_PURPOSE = "purposes.deliver.no-purpose"
DELIVER_NO_SUBSCRIPTION = "purposes.deliver.no-subscription"
DELIVER_PAUSED = "purposes.deliver.paused"
MALFORMED = "purposes.command.malformed"
DISABLED = "purposes.command.disabled"
TOO_MANY = "purposes.command.too-many"
FULL = "purposes.command.full"
TOO_LONG = "purposes.command.too-long"
BY_STEWARD = "purposes.entitled.steward"
BY_GRANT = "purposes.entitled.grant"
BY_LABEL = "purposes.entitled.label"
BY_CREATING = "purposes.entitled.new-topic"
BY_ITSELF = "purposes.entitled.itself"
NOT_GRANTED = "purposes.entitled.not-granted"
NO_GRANT = "purposes.entitled.no-grant"
OTHER_LABEL = "purposes.entitled.other-label"
NOT_CREATOR = "purposes.entitled.not-creator"
NO_QUESTION = "purposes.entitled.no-question"
HELD = "purposes.entitled.held"
RESERVED = "purposes.entitled.reserved"
NOT_STEWARD = "purposes.entitled.not-steward"
NO_CLIENT = "purposes.presubscribe.no-client"
BAD_SETTING = "purposes.set.unknown"

RULES: Mapping[str, str] = {
    CONNECT: "Purposes have no say in who connects.",
    PUBLISH: "Purposes have no say in who publishes; they bind the readers.",
    UNKNOWN: "The site's purposes stand in [families.purposes.tree]; this one does not.",
    SUBSCRIBE_RECORDS: "Public records are for everybody, for any purpose.",
    SUBSCRIBE_NO_PURPOSE: "A subscription says what it is for; this one does not.",
    SUBSCRIBE_MALFORMED: "What is subscribed to with a purpose is a topic filter.",
    SUBSCRIBE_LATER: "Filter on publish: each message is judged when it is delivered.",
    SUBSCRIBE_UNRESERVED: "No reservation reaches these topics, and the site is not strict.",
    SUBSCRIBE_POSSIBLE: "Hybrid: not all of it is forbidden; each message is judged on delivery.",
    SUBSCRIBE_ALLOWED: "Filter on subscribe: the purpose is allowed on every topic of the filter.",
    SUBSCRIBE_PROHIBITED: "A reservation prohibits the purpose on topics of the filter.",
    SUBSCRIBE_NOT_ALLOWED: "No reservation allows the purpose on topics of the filter.",
    SUBSCRIBE_PARTLY: "Filter on subscribe: not every topic of the filter allows the purpose.",
    DELIVER_RECORD: "Public records are for everybody, for any purpose.",
    DELIVER_UNRESERVED: "No reservation matches the topic, and the site is not strict.",
    DELIVER_NO_RESERVATION: "No reservation matches the topic: nobody may use it for anything.",
    DELIVER_ALLOWED: "A reservation allows a purpose that the reader subscribed for.",
    DELIVER_PROHIBITED: "A reservation of the topic prohibits what the reader subscribed for.",
    DELIVER_NOT_ALLOWED: "No reservation of the topic allows what the reader subscribed for.",
    DELIVER_NO_PURPOSE: "The topic is reserved, and the reader's subscription names no purpose.",
    DELIVER_NO_SUBSCRIPTION: "The topic is reserved, and no subscription says what it is read for.",
    DELIVER_PAUSED: "Filter on subscribe: the subscription reaches a topic that it must not.",
    MALFORMED: "This is no command about purposes.",
    DISABLED: "A client without a label has no say.",
    TOO_MANY: "A client that is no steward sends so many commands a second, not more.",
    FULL: "One client may reserve so many filters with wildcards, for so many purposes each.",
    TOO_LONG: "What a topic may be used for, and not, is more than one answer holds.",
    BY_STEWARD: "The client is a steward of the site's purposes.",
    BY_GRANT: "A [[families.purposes.grant]] names the client or its label.",
    BY_LABEL: "The topic has the client's own label.",
    BY_CREATING: "The topic has no label yet, and the client may create it.",
    BY_ITSELF: "A client presubscribes for itself.",
    NOT_GRANTED: "A [[families.purposes.grant]] lets others reserve there, not this client.",
    NO_GRANT: "Wildcards are reserved by stewards, or with a grant that covers them.",
    OTHER_LABEL: "The topic has another label; without a grant only its own clients reserve it.",
    NOT_CREATOR: "The topic is not there yet, and others create it.",
    NO_QUESTION: "Of a topic without a label its creators are told what they have reserved there.",
    HELD: "Another right holds the reservation; a label replaces only what hangs on that label.",
    RESERVED: "Topics that begin with $, ! or @ are the protocol's own and have no reservations.",
    NOT_STEWARD: "That is for a steward of the site's purposes.",
    NO_CLIENT: "The client to presubscribe for stands not in the configuration.",
    BAD_SETTING: "There is no such setting, or not with that value.",
}
