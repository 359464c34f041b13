"""Connections that have proved nothing yet: so many may wait, whoever they are.

When one more comes than there are places, the oldest one of whoever has most of them ends. So a
peer that proves itself promptly gets in, whatever others hold open: they push out their own
connections first, and from one address the oldest, which have had the longest to prove themselves.
"""

from __future__ import annotations

import ipaddress
from typing import Protocol

# An address, a network, or the client in whose name something has verified.
Source = str | int


class Stranger(Protocol):
    """What is ended for want of a place."""

    def close(self, reason: str) -> None:
        """Ends it."""


def source_of(address: str) -> str:
    """Who is behind an address: an IPv6 host has a /64 of them, or more."""
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
    """At most `places` of them; each costs the same few steps, however many there are."""

    def __init__(self, places: int) -> None:
        self.places = places
        # How many were ended for want of a place, since somebody last asked.
        self.ended = 0
        self._source: dict[Stranger, Source] = {}
        # Of each source its connections, oldest first; and the sources that have so many.
        self._held: dict[Source, dict[Stranger, None]] = {}
        self._having: dict[int, dict[Source, None]] = {}
        self._most = 0

    def __len__(self) -> int:
        return len(self._source)

    def enter(self, stranger: Stranger, source: Source) -> None:
        """One more, from an address; or one that is here is from now on one of a client's, since
        something in that client's name has verified. Ends another one where there is no place.
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
