"""Connections that have proved nothing yet: a bounded number of them may wait.

When all places are taken, the source with the most of them loses its oldest. So a peer that proves
itself promptly gets in, however many connections others hold open: they push out their own first,
and of these the oldest, which had the most time to prove themselves.
"""

from __future__ import annotations

import ipaddress
from typing import Protocol

# An address, a network, or the client in whose name something has verified.
Source = str | int


class Stranger(Protocol):
    """A connection that may be ended because its place is needed."""

    def close(self, reason: str) -> None:
        """Ends it."""


def source_of(address: str) -> str:
    """What counts as one source: an address, of IPv6 a network, since a host has a /64 or more."""
    try:
        ip = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if ip.version == 4:
        return address
    if ip.ipv4_mapped is not None:
        return str(ip.ipv4_mapped)
    return str(ipaddress.IPv6Network((ip, 64), strict=False))


class Strangers:
    """At most `places` of them. What one more costs does not depend on how many there are."""

    def __init__(self, places: int) -> None:
        self.places = places
        # How many were ended because places were needed, since this was last set to 0.
        self.ended = 0
        self._source: dict[Stranger, Source] = {}
        # The connections of each source, oldest first; and by number the sources that have so many.
        self._held: dict[Source, dict[Stranger, None]] = {}
        self._having: dict[int, dict[Source, None]] = {}
        self._most = 0

    def __len__(self) -> int:
        return len(self._source)

    def enter(self, stranger: Stranger, source: Source) -> None:
        """One more, from an address; or one that is here counts as the client's from now on, since
        something in that client's name has verified. Ends another one if all places are taken.
        """
        self.leave(stranger)
        held = self._held.setdefault(source, {})
        held[stranger] = None
        self._source[stranger] = source
        self._counted(source, len(held) - 1, len(held))
        if len(self._source) > self.places:
            self.ended += 1
            self._oldest().close("its place was needed")

    def leave(self, stranger: Stranger) -> None:
        """It has proved who it is, or is gone. Nothing if it is not here."""
        source = self._source.pop(stranger, None)
        if source is None:
            return
        held = self._held[source]
        del held[stranger]
        self._counted(source, len(held) + 1, len(held))
        if not held:
            del self._held[source]

    def _oldest(self) -> Stranger:
        while not self._having.get(self._most):
            self._most -= 1
        source = next(iter(self._having[self._most]))
        return next(iter(self._held[source]))

    def _counted(self, source: Source, was: int, now: int) -> None:
        before = self._having.get(was, {})
        before.pop(source, None)
        if not before:
            self._having.pop(was, None)
        if now:
            self._having.setdefault(now, {})[source] = None
            self._most = max(self._most, now)
