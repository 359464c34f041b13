"""Every rule id that the family's verdicts use, with a plain line for `explain`."""

from __future__ import annotations

from collections.abc import Mapping

CONNECT = "trust.connect"
PUBLISH_TOKEN = "trust.publish.token"  # noqa: S105 - a rule's id
PUBLISH_BROUGHT = "trust.publish.brought"
PUBLISH_OUTSIDE = "trust.publish.outside"
SUBSCRIBE_TOKEN = "trust.subscribe.token"  # noqa: S105 - a rule's id
SUBSCRIBE_BRIDGE = "trust.subscribe.bridge"
SUBSCRIBE_OUTSIDE = "trust.subscribe.outside"
SUBSCRIBE_RECORDS = "trust.subscribe.records"
SUBSCRIBE_MALFORMED = "trust.subscribe.malformed"
DELIVER_TOKEN = "trust.deliver.token"  # noqa: S105 - a rule's id
DELIVER_BRIDGE = "trust.deliver.bridge"
DELIVER_OUTSIDE = "trust.deliver.outside"
DELIVER_RECORD = "trust.deliver.record"
FEEDBACK_OWN = "trust.feedback.own"
FEEDBACK_OUTSIDE = "trust.feedback.outside"
FEEDBACK_LABEL = "trust.feedback.label"
FEEDBACK_RATE = "trust.feedback.rate"
FEEDBACK_LONG = "trust.feedback.long"

RULES: Mapping[str, str] = {
    CONNECT: "A token says what may be published and read, not who may connect.",
    PUBLISH_TOKEN: "The topic is in F_p of the client's token.",
    PUBLISH_BROUGHT: "A bridge brings what has been judged between sites.",
    PUBLISH_OUTSIDE: "The topic is not in F_p of the client's token.",
    SUBSCRIBE_TOKEN: "All that the filter matches is in F_s of the client's token.",
    SUBSCRIBE_BRIDGE: "A bridge gets what is exported; tokens are judged when it leaves.",
    SUBSCRIBE_OUTSIDE: "No one filter of the client's token (F_s) has all that this one matches.",
    SUBSCRIBE_RECORDS: "Public records are for everybody.",
    SUBSCRIBE_MALFORMED: "This is no topic filter.",
    DELIVER_TOKEN: "The topic is in F_s of the client's token.",
    DELIVER_BRIDGE: "A bridge gets what is exported; tokens are judged when it leaves.",
    DELIVER_OUTSIDE: "The topic is not in F_s of the client's token.",
    FEEDBACK_OWN: "Feedback is on messages of other sites, @SITE/TOPIC.",
    FEEDBACK_OUTSIDE: "The topic is not in F_s of the client's token.",
    FEEDBACK_LABEL: "The site exports nothing to this one that the client's label reads.",
    FEEDBACK_RATE: "The client says more than it may.",
    FEEDBACK_LONG: "The topic is longer than what a bridge can be told.",
    DELIVER_RECORD: "Public records are for everybody.",
}
