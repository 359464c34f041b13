"""Shared subscriptions: $share/GROUP/FILTER (MQTT 5, 4.8.2)."""

from __future__ import annotations

from sealmq_spec.errors import Malformed
from sealmq_spec.topics import matches

GROUP = "$share/"


def inner(filt: str) -> str:
    """The filter itself. Malformed when there is no group or no filter."""
    if not filt.startswith(GROUP):
        return filt
    parts = filt.split("/", 2)
    if len(parts) < 3 or not parts[1] or not parts[2] or "+" in parts[1] or "#" in parts[1]:
        raise Malformed("a shared subscription is $share/group/filter")
    return parts[2]


def sub_matches(filter: str, topic: str) -> bool:
    """matches(), also for a shared subscription."""
    if filter.startswith(GROUP):
        filter = filter.split("/", 2)[-1]
    return bool(matches(filter, topic))
