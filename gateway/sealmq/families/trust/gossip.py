"""Ratings as sites tell them: each signs its own, of its neighbours, and passes on what others have
signed.

A distance vector is hearsay, since a site could say of paths behind it what it likes. Here a site
lies about its own ratings at most: an edge counts if both its ends name each other, if both are
known (the graph is closed), and with the rater's signature; a higher serial replaces a record, and
a record ends.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping
from typing import NamedTuple

from ..signatures import is_signed
from .paths import Edges
from .ratings import HOUR_MS, SCALE
from .wire import BadRecord, malformed, name, number, opened, pack, pairs, u64, unpack

RATED = b"sealmq-ratings-1"
MOST_RATED = 128
"""Neighbours of one site."""
MOST_RATERS = 1024
MOST_OF_NEIGHBOUR = 4096
"""Ratings that one neighbour has brought, of all raters together: each is an edge of the graph."""
UNKNOWN = "trust.ratings.unknown-site"
FORGED = "trust.ratings.forged"
EXPIRED = "trust.ratings.expired"
FULL = "trust.ratings.full"
TOO_LONG = "trust.ratings.too-long"
MOST_VALID_MS = 48 * HOUR_MS
"""A site that says nothing any more is no part of the graph for ever."""


class Said(NamedTuple):
    """What a site says of its neighbours, each in 1/10,000, until then (Unix ms)."""

    rater: str
    serial: int
    until_ms: int
    ratings: Mapping[str, int]

    @property
    def raw(self) -> bytes:
        rows = (
            part
            for neighbour, rating in sorted(self.ratings.items())
            for part in (neighbour.encode(), rating.to_bytes(2, "big"))
        )
        return pack(RATED, self.rater.encode(), u64(self.serial), u64(self.until_ms), pack(*rows))


def signed_ratings(said: Said, sign: Callable[[bytes], bytes]) -> bytes:
    """The record."""
    return said.raw + pack(sign(said.raw))


def read_ratings(record: bytes) -> tuple[Said, bytes]:
    """And the signature. BadRecord."""
    fields = opened(record, RATED, 5)
    if len(fields) != 5:
        raise malformed("ratings are a record of five fields")
    ratings = {name(who): int.from_bytes(at, "big") for who, at in pairs(unpack(fields[3]))}
    if len(ratings) > MOST_RATED or max(ratings.values(), default=0) > SCALE:
        raise malformed(f"at most {MOST_RATED} ratings, of 0 to {SCALE}")
    said = Said(name(fields[0]), number(fields[1]), number(fields[2]), ratings)
    if said.raw != record[: len(said.raw)] or said.rater in ratings:
        raise malformed("ratings stand in order, each once, none of oneself")
    return said, fields[4]


class Board:
    """What all sites say. `key` gives a site's public key, or None: who is None is not known."""

    def __init__(self, key: Callable[[str], bytes | None]) -> None:
        self._key = key
        self._said: dict[str, tuple[Said, bytes]] = {}
        # The neighbour that has brought what a site says.
        self._by: dict[str, str] = {}
        self.version = 0
        """Rises with each change."""

    def __len__(self) -> int:
        return len(self._said)

    def take(self, said: Said, signature: bytes, now_ms: int, by: str = "") -> bool:
        """Whether it is news; `by` has brought it, "": this site. BadRecord."""
        public = self._key(said.rater)
        if public is None:
            raise BadRecord(UNKNOWN, f"{said.rater} is not known here")
        before = self._said.get(said.rater)
        if before is not None and said.serial <= before[0].serial:
            return False
        if now_ms >= said.until_ms:
            raise BadRecord(EXPIRED, f"these ratings of {said.rater} are over")
        if said.until_ms > now_ms + MOST_VALID_MS:
            raise BadRecord(TOO_LONG, f"these ratings of {said.rater} would hold for too long")
        if before is None and len(self._said) >= MOST_RATERS:
            raise BadRecord(FULL, f"{MOST_RATERS} sites rate others")
        if by and self._brought(by, but=said.rater) + len(said.ratings) > MOST_OF_NEIGHBOUR:
            raise BadRecord(FULL, f"{by} has brought {MOST_OF_NEIGHBOUR} ratings")
        if not is_signed(public, said.raw, signature):
            raise BadRecord(FORGED, f"{said.rater} has not signed these ratings")
        self._said[said.rater] = (said, signature)
        self._by[said.rater] = by
        self.version += 1
        return True

    def _brought(self, by: str, but: str) -> int:
        # Who brings a site's newest ratings has them in its share: nobody fills another's.
        return sum(
            len(self._said[rater][0].ratings)
            for rater, whose in self._by.items()
            if whose == by and rater != but
        )

    def raters(self) -> Iterator[str]:
        """Who has said something."""
        return iter(self._said)

    def record(self, rater: str) -> bytes | None:
        """What it says, to be passed on."""
        if rater not in self._said:
            return None
        said, signature = self._said[rater]
        return said.raw + pack(signature)

    def tick(self, now_ms: int, known: Container[str]) -> None:
        """What is over goes, and what sites have said that are known no more."""
        for rater, (said, _) in list(self._said.items()):
            if now_ms >= said.until_ms or rater not in known:
                del self._said[rater], self._by[rater]
                self.version += 1

    def edges(self) -> Edges:
        """The graph: trust(b, b') for neighbours that both say so."""
        return {
            (rated, rater): rating
            for rater, (said, _) in self._said.items()
            for rated, rating in said.ratings.items()
            if rated in self._said and rater in self._said[rated][0].ratings
        }
