"""Shared subscriptions: $share/GROUP/FILTER (MQTT 5, 4.8.2)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

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
