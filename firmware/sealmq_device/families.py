# What is said to the site's policy families, for the blocking client, the asyncio one and those
# that live. Each has command(family, body), which gives, awaits or drops the reply.
from sealmq_spec.errors import Malformed

_TYPING = False
if _TYPING:
    from collections.abc import Iterable
    from typing import Any

    Topic = str | bytes

_PURPOSES = "purposes"


# What data may be used for (PURPOSES.md); the words for it load with the first of these.
class Families:
    command: "Any"

    # What the messages of a filter may be used for and what they may not; durable at the gateway
    # when it returns, so not repeated by itself. Denied when this client is not entitled to it.
    def reserve(
        self, topic: "Topic", aip: "Iterable[str]" = (), pip: "Iterable[str]" = ()
    ) -> "Any":
        from sealmq_spec.purposes import reserve

        return self.command(_PURPOSES, reserve(to_text(topic), aip, pip))

    # Takes the reservation of this filter back.
    def release(self, topic: "Topic") -> "Any":
        from sealmq_spec.purposes import release

        return self.command(_PURPOSES, release(to_text(topic)))

    # Says what a client's subscriptions to a filter are for that do not say so themselves. purpose:
    # None takes it back.
    def presubscribe(self, client: str, topic: "Topic", purpose: "str | None") -> "Any":
        from sealmq_spec.purposes import check_purpose, presubscribe

        if purpose is not None:
            check_purpose(purpose)
        return self.command(_PURPOSES, presubscribe(client, to_text(topic), purpose or ""))

    # The filter as it goes after the token, for a purpose.
    def _for(self, topic: "Topic", purpose: str) -> str:
        from sealmq_spec.purposes import access

        return access(to_text(topic), purpose)


def to_text(topic: "Topic") -> str:
    if isinstance(topic, str):
        return topic
    try:
        return topic.decode()
    except ValueError:
        raise Malformed("a topic that is no UTF-8: %r" % topic) from None
