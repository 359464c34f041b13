"""Who may create a topic: the first [[creation]] rule whose filter matches, in the file's order.

It names labels and clients; either suffices. Both lists empty reserve the names. Without a matching
rule whoever publishes first creates the topic, as the paper has it (section 3, r_p).
"""

from __future__ import annotations

from collections.abc import Sequence

from sealmq_spec.topics import matches

from .api import CreationPolicy
from .ask import Who


def match(creation: Sequence[CreationPolicy], topic: str) -> CreationPolicy | None:
    """The rule that counts for the topic, or None."""
    return next((rule for rule in creation if matches(rule.filter, topic)), None)


def may_create(rule: CreationPolicy | None, who: Who) -> bool:
    """By the rule that counts for the topic."""
    return rule is None or who.label in rule.labels or who.client in rule.clients
