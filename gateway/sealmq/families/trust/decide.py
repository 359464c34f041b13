"""Whether a site accepts a token, and whether it signs it (Chen, Vidalis and Yang, III-B and
III-D). Nothing is accepted but by one of these ways:

neighbour: k neighbours have signed it that are rated at least π.
path: k of those who have signed it have a least trustworthy path to this site of at least θ.
spki: every member of a path from the issuer to this site has signed it; no rating is asked for.

Of a neighbour's own client one signer is enough, whatever k is.

Accept first, sign second: on acceptance the rating of the neighbour that handed the message over
says what else is done. At least π: sign, deliver, forward. At least θ: deliver and forward,
unsigned. Below: neither.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from .paths import Least, Measure, Oriented
from .ratings import SCALE

Way = Literal["neighbour", "path", "spki"]

ACCEPTED = "trust.message.accepted"
SIGNED = "trust.message.signed"
NOT_ACCEPTED = "trust.message.not-accepted"
HANDED = "trust.message.handed-over-by"


@dataclass(frozen=True, slots=True)
class Rules:
    """θ ≤ π, in 1/10,000; k signers. ValueError."""

    way: Way = "path"
    measure: Measure = "average"
    sign: int = 6000
    accept: int = 5000
    signers: int = 1

    def __post_init__(self) -> None:
        if not 0 <= self.accept <= self.sign <= SCALE:
            raise ValueError(f"0 ≤ θ ≤ π ≤ {SCALE}: θ is {self.accept}, π {self.sign}")
        if self.signers < 1:
            raise ValueError(f"{self.signers} signers accept nothing")


RULES = Rules()


class Vote(NamedTuple):
    """A signer and what it counts: its rating (None: no path, or no neighbour), and whether that
    is enough."""

    signer: str
    rating: Least | None
    counts: bool


class Acceptance(NamedTuple):
    """Whether the token is accepted, and why, in words."""

    ok: bool
    reason: str
    votes: Sequence[Vote]


def accepts(
    rules: Rules,
    me: str,
    signers: frozenset[str],
    neighbours: Mapping[str, int],
    graph: Oriented,
    least: Mapping[str, Least],
) -> Acceptance:
    """signers: S; what this site itself has signed counts nothing. neighbours: this site's ratings
    of those that are not blocked; graph: oriented for the token's issuer; least: its least paths
    to this site. An issuer to which no links lead is no site of this graph (any more).
    """
    if me == graph.issuer or me not in graph.distance:
        return Acceptance(False, f"no links lead to {graph.issuer}", ())
    if rules.way == "spki":
        ok = graph.signed_throughout(signers - {me}, me)
        reason = "every member of a path has signed" if ok else "no path has signed throughout"
        return Acceptance(ok, reason, [Vote(signer, None, ok) for signer in sorted(signers)])
    votes = []
    for signer in sorted(signers - {me}):
        if rules.way == "neighbour":
            own = neighbours.get(signer)
            rating, threshold = None if own is None else Least(own, 1), rules.sign
        else:
            rating, threshold = least.get(signer), rules.accept
        votes.append(Vote(signer, rating, rating is not None and rating.reaches(threshold)))
    needed = _needed(rules, neighbours, graph)
    enough = sum(vote.counts for vote in votes)
    one = enough == 1
    who = "signer" if one else "signers"
    if rules.way == "neighbour":
        who = "neighbour that has signed" if one else "neighbours that have signed"
    sign = "π" if rules.way == "neighbour" else "θ"
    at = rules.sign if rules.way == "neighbour" else rules.accept
    reason = f"{enough} {who} at {sign} = {at / SCALE:g} or above, {needed} needed"
    return Acceptance(enough >= needed, reason, votes)


# A neighbour's own client: nobody else can have signed before it came here.
def _needed(rules: Rules, neighbours: Mapping[str, int], graph: Oriented) -> int:
    return 1 if graph.issuer in neighbours else rules.signers


class Handed(NamedTuple):
    """What is done with a message whose token is accepted, by the rating of who handed it over."""

    deliver: bool
    sign: bool
    rule: str


def handed(rules: Rules, rating: int) -> Handed:
    """Of an accepted token."""
    if rating >= rules.sign:
        return Handed(True, True, SIGNED)
    if rating >= rules.accept:
        return Handed(True, False, ACCEPTED)
    return Handed(False, False, HANDED)
