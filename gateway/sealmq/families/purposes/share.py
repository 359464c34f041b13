"""Shared subscriptions: $share/GROUP/FILTER (MQTT 5, 4.8.2). A group shares one purpose.

A member with another purpose would swallow messages that it must not have; so the group's name at
the broker carries the purpose, and one group becomes one for each purpose.
"""

from __future__ import annotations

from sealmq_spec.const import MAX_TOPIC
from sealmq_spec.errors import Malformed

GROUP = "$share/"
_PLAIN = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-")


def inner(filt: str) -> str:
    """The filter itself. Malformed when there is no group or no filter."""
    if not filt.startswith(GROUP):
        return filt
    parts = filt.split("/", 2)
    if len(parts) < 3 or not parts[1] or not parts[2] or "+" in parts[1] or "#" in parts[1]:
        raise Malformed("a shared subscription is $share/group/filter")
    return parts[2]


def at_broker(filt: str, ap: str) -> str:
    """The group's filter under the name that it has at the broker. Malformed: too long.

    PURPOSE.GROUP, the purpose escaped so that no dot is in it: no two of them are alike.
    """
    _, group, rest = filt.split("/", 2)
    purpose = "".join(chr(b) if b in _PLAIN else f"%{b:02X}" for b in ap.encode())
    text = f"{GROUP}{purpose}.{group}/{rest}"
    if len(text.encode()) > MAX_TOPIC:
        raise Malformed("the shared filter and its purpose are too long together")
    return text
