"""Rule ids of the family, each with one plain line."""

from __future__ import annotations

from collections.abc import Mapping

CONNECT = "owners.connect"
CONNECT_ALLOWED = "owners.connect.allowed"
CONNECT_NOT_ALLOWED = "owners.connect.not-allowed"
PUBLISH_ALLOWED = "owners.publish.allowed"
PUBLISH_NOT_ALLOWED = "owners.publish.not-allowed"
PUBLISH_NO_TYPE = "owners.publish.no-type"
PUBLISH_NO_OWNER = "owners.publish.no-owner"
PUBLISH_ATTRIBUTES = "owners.publish.attributes"
PUBLISH_APPOINTED = "owners.publish.appointed"
SUBSCRIBE_ALLOWED = "owners.subscribe.allowed"
SUBSCRIBE_OPEN = "owners.subscribe.open"
SUBSCRIBE_PARTLY = "owners.subscribe.partly"
SUBSCRIBE_NOT_ALLOWED = "owners.subscribe.not-allowed"
SUBSCRIBE_NO_TYPE = "owners.subscribe.no-type"
SUBSCRIBE_PEER = "owners.subscribe.peer"
SUBSCRIBE_SHARED = "owners.subscribe.shared"
SUBSCRIBE_CONTRACT = "owners.subscribe.contract"
SUBSCRIBE_WHERE = "owners.subscribe.where"
SUBSCRIBE_RECORDS = "owners.subscribe.records"
SUBSCRIBE_MALFORMED = "owners.subscribe.malformed"
DELIVER_ALLOWED = "owners.deliver.allowed"
DELIVER_NO_CONTROL = "owners.deliver.no-control"
DELIVER_BREAK_GLASS = "owners.deliver.break-glass"
DELIVER_NOT_ALLOWED = "owners.deliver.not-allowed"
DELIVER_OTHER_SENDER = "owners.deliver.other-sender"
DELIVER_WHERE = "owners.deliver.where"
DELIVER_NO_TYPE = "owners.deliver.no-type"
DELIVER_PEER = "owners.deliver.peer"
DELIVER_NO_OWNER = "owners.deliver.no-owner"
DELIVER_ATTRIBUTES = "owners.deliver.attributes"
DELIVER_APPOINTED = "owners.deliver.appointed"
DELIVER_RECORD = "owners.deliver.record"
TOO_MUCH = "owners.too-much"

# Of commands.
MALFORMED = "owners.command.malformed"
TOO_MANY = "owners.command.too-many"
DISABLED = "owners.command.disabled"
BY_OWNER = "owners.command.by-owner"
BY_AUTHOR = "owners.command.by-author"
BY_RIGHT = "owners.command.by-right"
BY_ITSELF = "owners.command.by-itself"
NO_CHANGE_POLICY = "owners.command.no-change-policy"
NOT_ITS_OWN = "owners.command.not-its-own"
ALL_OWNERS = "owners.command.all-owners"
NO_SUCH = "owners.command.no-such"
NO_QUESTION = "owners.command.no-question"
FULL = "owners.command.full"
SIGNATURE = "owners.command.signature"
NO_ADVERTISE = "owners.command.no-advertise"
TYPE_TAKEN = "owners.command.type-taken"
NO_EMERGENCY = "owners.command.no-emergency"

RULES: Mapping[str, str] = {
    CONNECT: "Owners say who receives what; connecting needs no assertion here.",
    CONNECT_ALLOWED: "An assertion lets the client authenticate.",
    CONNECT_NOT_ALLOWED: "No assertion lets the client authenticate.",
    PUBLISH_ALLOWED: "Assertions let the client publish events of this type and owner.",
    PUBLISH_NOT_ALLOWED: "No assertion that leads back to the site's policy lets the client "
    "publish events of this type and owner.",
    PUBLISH_NO_TYPE: "The topic is of no event type.",
    PUBLISH_NO_OWNER: "The event has no owner that could be a client.",
    PUBLISH_ATTRIBUTES: "The message's sealed attributes are not what its event type says.",
    PUBLISH_APPOINTED: "The owner has appointed another mediator.",
    SUBSCRIBE_ALLOWED: "Assertions let the client subscribe to all that the filter reaches.",
    SUBSCRIBE_OPEN: "Anybody may subscribe to events of these types; each event is judged when it "
    "is delivered.",
    SUBSCRIBE_PARTLY: "The client may subscribe to some of the types that the filter reaches; "
    "each event is judged when it is delivered.",
    SUBSCRIBE_NOT_ALLOWED: "No assertion lets the client subscribe to all events of a type that "
    "the filter reaches.",
    SUBSCRIBE_NO_TYPE: "The filter reaches no event type.",
    SUBSCRIBE_PEER: "Who owns another site's events has said nothing here: nobody receives them.",
    SUBSCRIBE_SHARED: "A group's messages go to one member each, so each has to be allowed all "
    "that the filter reaches, without a condition of its own.",
    SUBSCRIBE_CONTRACT: "The owner asks for a contract that the client has not signed.",
    SUBSCRIBE_WHERE: "The subscription's condition asks for what no event that it reaches has.",
    SUBSCRIBE_RECORDS: "Public records are for everybody.",
    SUBSCRIBE_MALFORMED: "This is no topic filter.",
    DELIVER_ALLOWED: "Assertions let the client receive the event.",
    DELIVER_NO_CONTROL: "The event's type is without access control.",
    DELIVER_BREAK_GLASS: "The client has opened the owner's events in an emergency, as the owner "
    "had granted; the owner is told.",
    DELIVER_NOT_ALLOWED: "No assertion that leads back to the site's policy lets the client "
    "receive the event now.",
    DELIVER_OTHER_SENDER: "No assertion lets the client receive the event from this sender.",
    DELIVER_WHERE: "The conditions of the client's own subscriptions are not met.",
    DELIVER_NO_TYPE: "The topic is of no event type.",
    DELIVER_PEER: "Who owns another site's events has said nothing here: nobody receives them.",
    DELIVER_NO_OWNER: "The event has no owner that could be a client.",
    DELIVER_ATTRIBUTES: "The message's sealed attributes are not what its event type says.",
    DELIVER_APPOINTED: "The owner has appointed another mediator.",
    DELIVER_RECORD: "Public records are for everybody.",
    TOO_MUCH: "Too many assertions would have to be looked at.",
    MALFORMED: "This is no command of owner policies, or says what cannot be.",
    TOO_MANY: "The client sends commands faster than the site takes them.",
    DISABLED: "A client without a label changes nothing.",
    BY_OWNER: "The client owns the events.",
    BY_AUTHOR: "The client has made it.",
    BY_RIGHT: "The client may change the policy there.",
    BY_ITSELF: "The client says it of itself.",
    NO_CHANGE_POLICY: "The client may not change the policy of these events.",
    NOT_ITS_OWN: "The client would let others do what it may not do itself.",
    ALL_OWNERS: "An assertion about the events of all owners needs a right over all of them.",
    NO_SUCH: "There is no such thing, or the client may not know of it.",
    NO_QUESTION: "The client may not ask that about these events.",
    FULL: "There are as many as may be.",
    SIGNATURE: "The owner's signature is missing or wrong.",
    NO_ADVERTISE: "The client may not advertise types of this application.",
    TYPE_TAKEN: "Another type reaches these topics, or is another's.",
    NO_EMERGENCY: "The owner has granted no emergency access to the client.",
}
