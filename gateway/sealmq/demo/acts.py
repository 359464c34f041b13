"""The play as a whole: the demo's own, with the acts of policy families, which judge its site.

A family brings an act by its manifest (`demo`); it is part of a checkout, as the demo is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, cast

from sealmq.cli.init import DEFAULT
from sealmq.families import registry
from sealmq.families.manifest import Manifest

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
    def SETTINGS(self) -> str:
        """What is put at the end of the site's sealmq.toml."""

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


def _families() -> list[Manifest]:
    """Those of the policy that `sealmq init` writes, then all others that bring an act."""
    last = registry.manifest(DEFAULT)
    written = [*map(registry.manifest, last.stands_on), last]
    return [*written, *(m for m in registry.manifests() if m.demo and m not in written)]


def _attempts() -> tuple[Attempt, ...]:
    found: list[Attempt] = []
    for attempt in plot.OWN:
        found.append(attempt)
        for act in FAMILIES:
            found += act.ATTEMPTS.get(attempt.name, ())
    return tuple(found)


_FAMILIES = _families()
FAMILIES = [cast(Act, each.load(each.demo)) for each in _FAMILIES if each.demo]
ORDER = [each.name for each in _FAMILIES]
SETTINGS = "".join(act.SETTINGS for act in FAMILIES)
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
