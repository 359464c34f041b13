"""What a client may subscribe to, shared subscriptions among it: $share/GROUP/FILTER (MQTT 5,
4.8.2).
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial

from sealmq_spec.errors import Malformed
from sealmq_spec.topics import check_filter, is_reserved, matches

from .api import Policy

GROUP = "$share/"
PUBLIC = "@sm1/"
"""Where the site's public records are, which carry no label."""
NO_FILTER = "no filter, or one that begins with $, ! or @"
"""What a client is told of what `asked_filter` does not take."""


def mounts(config: Policy) -> frozenset[str]:
    """What topics of peers begin with."""
    return frozenset(f"@{name}/" for name in config.peers)


def is_mounted(topic: str, mounts: Collection[str]) -> bool:
    """Whether a topic or a filter is a peer's. It names the peer: no wildcard reaches there."""
    return topic[: topic.find("/") + 1] in mounts


def asked_filter(filt: str, mounts: Collection[str] = ()) -> str:
    """The filter that a subscription asks for: of clients' topics, of topics of peers, for a family
    that knows these, or of public records. Malformed: it is none, or of other topics of the
    protocol's own.
    """
    try:
        check_filter(filt)
        found = inner(filt)
    except UnicodeEncodeError:
        raise Malformed(NO_FILTER) from None
    if is_reserved(found) and not (found.startswith(PUBLIC) or is_mounted(found, mounts)):
        raise Malformed(NO_FILTER)
    return found


def inner(filt: str) -> str:
    """The filter itself. Malformed when there is no group or no filter."""
    if not filt.startswith(GROUP):
        return filt
    parts = filt.split("/", 2)
    if len(parts) < 3 or not parts[1] or not parts[2] or "+" in parts[1] or "#" in parts[1]:
        raise Malformed("a shared subscription is $share/group/filter")
    return parts[2]


def reaching(filter: str) -> Callable[[str], bool]:
    """matches() for one filter, also of a shared subscription, that many topics are asked about."""
    if filter.startswith(GROUP):
        filter = filter.split("/", 2)[-1]
    if "+" in filter or "#" in filter[:-1] or filter == "#":
        return partial(matches, filter)
    if not filter.endswith("/#"):
        return filter.__eq__
    top, below = filter[:-2], filter[:-1]
    return lambda topic: topic.startswith(below) or topic == top
