"""Who may reserve a filter: stewards, whom a grant names, and the clients of the topic's own label.

Grants are read in the file's order, and those that share no topic with the filter are left out: the
first that does not name the client ends it, the first that does and covers the filter allows it.
So what an earlier grant keeps for others is in no wider reservation either, and where a grant
reaches, a label alone does not count (as with [[creation]]).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import NamedTuple

from sealmq_spec.topics import is_reserved

from ..api import CreationPolicy
from ..ask import Who
from ..creation import match, may_create
from ..filters import covers, crosses
from ..topiclabels import TopicLabels
from . import rules
from .settings import Grant, Settings
from .store import is_wild

MAX_REASON = 200
"""Bytes of a reason that a client is told (SPEC.md 4.4)."""


class Right(NamedTuple):
    """Whether, by which rule, why (of a denial), and the label that the right hangs on, or ""."""

    allow: bool
    rule: str
    reason: str = ""
    label: str = ""


def may_reserve(
    who: Who,
    filt: str,
    settings: Settings,
    labels: TopicLabels,
    creation: Sequence[CreationPolicy],
) -> Right:
    """May this client, which has a label, say what the filter's topics are for."""
    if is_reserved(filt):
        row = f'[families.purposes.reserve] {quoted(filt)} = {{ aip = ["PURPOSE"] }}'
        return Right(False, rules.RESERVED, not_here(filt, row))
    if who.client in settings.stewards:
        return Right(True, rules.BY_STEWARD)
    for grant in settings.grants:
        if not crosses(grant.filter, filt):
            continue
        if not _names(grant, who):
            return Right(False, rules.NOT_GRANTED, _why("others reserve there", who, filt))
        if covers(grant.filter, filt):
            return Right(True, rules.BY_GRANT)
    if is_wild(filt):
        return Right(False, rules.NO_GRANT, _why("no grant covers these wildcards", who, filt))
    label = labels.of(filt)
    if label is not None:
        if label == who.label:
            return Right(True, rules.BY_LABEL, label=label)
        return Right(False, rules.OTHER_LABEL, _why("the topic has another label", who, filt))
    # As r_p asks before a first publish.
    if may_create(match(creation, filt), who):
        return Right(True, rules.BY_CREATING, label=who.label)
    return Right(False, rules.NOT_CREATOR, _why("others create that topic", who, filt))


def _names(grant: Grant, who: Who) -> bool:
    return who.client in grant.clients or who.label in grant.labels


def _why(what: str, who: Who, filt: str) -> str:
    """With what an operator would write to allow it, where that fits."""
    line = f"{what}; to allow it: [[families.purposes.grant]] filter = {quoted(filt)}"
    return fitting(
        f'{line} clients = ["{who.client}"]',
        f"{what}; a [[families.purposes.grant]] would allow it",
    )


def not_here(filt: str, row: str) -> str:
    """Of a filter that no client's command is for; row: what sealmq.toml may say instead."""
    why = "the filter begins with $, ! or @"
    if not filt.startswith("@"):
        return why
    only = f"{why}; of other sites' topics sealmq.toml alone says it"
    return fitting(f"{only}: {row}", only)


def quoted(text: str) -> str:
    """As TOML has it: what a client has named is to mean itself in the file, and no more."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def fitting(text: str, shorter: str) -> str:
    """The text if a client can be told it, else the shorter one."""
    return text if len(text.encode()) <= MAX_REASON else shorter
