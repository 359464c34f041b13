"""A group of a shared subscription shares one purpose, too.

A member with another purpose would swallow messages that it must not have; so the group's name at
the broker carries the purpose, and one group becomes one for each purpose.
"""

from __future__ import annotations

from sealmq_spec.const import MAX_TOPIC
from sealmq_spec.errors import Malformed

from ..shared import GROUP

_PLAIN = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-")


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
