"""The play as a whole: the demo's own, with the acts of the policy families that judge the site.

A family brings an act by its manifest (`demo`); it is part of a checkout, as the demo is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, cast

from sealmq.cli.init import DEFAULT
from sealmq.families import registry

from . import attacks, judges, plot
from . import cast as own
from .attacks import Doing
from .cast import Part
from .evidence import Evidence
from .finding import Finding
from .judges import Judge
from .plot import Attempt


class Act(Protocol):
    """What a family brings, a module."""

    @property
    def PARTS(self) -> Sequence[Part]:
        """Further clients."""

    @property
    def SCRIPTS(self) -> Path:
        """What they run."""

    @property
    def ATTEMPTS(self) -> Mapping[str, Sequence[Attempt]]:
        """Further attempts, by the one of ours after which they are made."""

    @property
    def ACTS(self) -> Mapping[str, Doing]:
        """How each is done."""

    @property
    def JUDGES(self) -> Mapping[str, Judge]:
        """And judged."""

    @property
    def UNSURE(self) -> frozenset[str]:
        """Clients of whom only these judges know what they should have read."""

    def may(self, evidence: Evidence) -> Callable[[Part, str, str], bool]:
        """Whether a client may read (topic, text), its label aside."""

    def summary(self, evidence: Evidence) -> dict[str, Any]:
        """For summary.json."""

    def show(self, told: Mapping[str, Any]) -> tuple[str, list[str]]:
        """The same for people: a title, and lines."""


def _acts() -> list[Act]:
    """Of the families of the site's policy, which is the one that `sealmq init` writes."""
    last = registry.manifest(DEFAULT)
    order = [*map(registry.manifest, last.stands_on), last]
    return [cast(Act, each.load(each.demo)) for each in order if each.demo]


def _attempts() -> tuple[Attempt, ...]:
    found: list[Attempt] = []
    for attempt in plot.OWN:
        found.append(attempt)
        for act in FAMILIES:
            found += act.ATTEMPTS.get(attempt.name, ())
    return tuple(found)


FAMILIES = _acts()
PARTS = (*own.PARTS, *(part for act in FAMILIES for part in act.PARTS))
SCRIPTS = tuple(act.SCRIPTS for act in FAMILIES)
ATTEMPTS = _attempts()
ACTS = dict(attacks.ACTS)
JUDGES = dict(judges.JUDGES)
for _act in FAMILIES:
    ACTS |= _act.ACTS
    JUDGES |= _act.JUDGES


def judge(evidence: Evidence, attempt: Attempt) -> Finding:
    """The finding about an attempt."""
    return JUDGES[attempt.name](evidence, attempt)
