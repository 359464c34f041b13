# What a client of the demo says about what its topic may be used for. It is told once that counts.
from actor import say  # type: ignore[import-not-found]

from sealmq_spec.errors import SealError

_TYPING = False
if _TYPING:
    from typing import Any


def reserve(actor: "Any", topic: str, purposes: "list[str]") -> None:
    try:
        actor.client.reserve(topic, purposes)
    except SealError as e:
        actor.refused("reserve", e, topic, "")
    else:
        say("reserved", topic=topic, purposes=purposes)


# An order of the demo's.
def obey(actor: "Any", order: "dict[str, Any]") -> None:
    reserve(actor, order["topic"], order["purposes"])
