"""Rule ids, with a plain line for each."""

CONNECT = "blinded.connect"
PUBLISHED = "blinded.publish.granted"
NO_ID = "blinded.publish.no-policy-id"
UNKNOWN = "blinded.publish.unknown"
BORROWED = "blinded.publish.borrowed"
ELSEWHERE = "blinded.publish.elsewhere"
SUBSCRIBED = "blinded.subscribe.customer"
STRANGER = "blinded.subscribe.stranger"
SHARED = "blinded.subscribe.shared"
MALFORMED = "blinded.subscribe.malformed"
MATCHED = "blinded.deliver.matched"
RECORD = "blinded.public-record"
UNBOUND = "blinded.deliver.unbound"
GONE = "blinded.deliver.gone"
NOT_LET = "blinded.deliver.not-let"
NOT_WANTED = "blinded.deliver.not-wanted"
BROKEN = "blinded.deliver.broken"
DOCTOR = "blinded.doctor"

RULES = {
    CONNECT: "Anybody may connect.",
    PUBLISHED: "An event grant lets this client publish there under this policy id.",
    NO_ID: "A message says under which policy id it is published, and this one does not.",
    UNKNOWN: "There is no event grant with this policy id, or no longer.",
    BORROWED: "The event grant is another client's.",
    ELSEWHERE: "The event grant is for other topics.",
    SUBSCRIBED: "A customer may subscribe; each event is matched.",
    STRANGER: "This client is no customer: nobody has granted it any attributes.",
    SHARED: "What does not match one member of a group would be lost to the others.",
    MALFORMED: "This is no filter, or it begins with $, ! or @.",
    MATCHED: "The event's policy lets the reader have it, and the reader's own policy takes it.",
    RECORD: "Public records are for everybody.",
    UNBOUND: "The message has no policy id of the mediators'.",
    GONE: "The event grant under which it was published is no longer there.",
    NOT_LET: "The event's policy does not let the reader have it.",
    NOT_WANTED: "The reader's own policy does not take it.",
    DOCTOR: "What `sealmq doctor` tries with labels has no policy.",
    BROKEN: "The key generator has told something that it would never have made.",
}
