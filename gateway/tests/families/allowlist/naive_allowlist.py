"""The allowlist by its definition: a pattern stands for a set of topics out of a small world, a
client may what is in the union of its rules' sets; of a rule with senders, for messages of those.
Shares no code with the family.
"""

from __future__ import annotations

import itertools
from functools import cache
from typing import NamedTuple

# Levels of patterns and topics; "z" is in no pattern, and %c is a level that a topic may have.
WORDS = ("a", "b", "c1", "L1", "%c", "", "z")
WORLD = tuple(
    "/".join(levels)
    for depth in range(1, 5)
    for levels in itertools.product(WORDS, repeat=depth)
    if levels != ("",)
)


class Rule(NamedTuple):
    clients: tuple[str, ...]
    labels: tuple[str, ...]
    kinds: tuple[str, ...]
    publish: tuple[str, ...]
    read: tuple[str, ...]
    when: str = ""
    """The attribute of the site that has to be true; "" for always."""
    senders: tuple[str, ...] = ()
    sealed: tuple[str, ...] = ()
    sealed_for: str = ""
    """The group for which it is sealed; "": to each reader's link."""


def hits(pattern: tuple[str, ...], topic: tuple[str, ...]) -> bool:
    """MQTT 4.7, level by level."""
    if pattern == ("#",):
        return True
    if not pattern or not topic:
        return not pattern and not topic
    return pattern[0] in ("+", topic[0]) and hits(pattern[1:], topic[1:])


def levels(text: str) -> tuple[str, ...]:
    return tuple(text.split("/"))


_PATHS = tuple((topic, levels(topic)) for topic in WORLD)


@cache
def meant(pattern: tuple[str | None, ...]) -> frozenset[str]:
    """The topics of a pattern whose marks are filled in; None is a level that matches nothing."""
    known = tuple(level for level in pattern if level is not None)
    if len(known) < len(pattern):
        return frozenset()
    return frozenset(topic for topic, path in _PATHS if hits(known, path))


def filled(pattern: str, client: str, label: str) -> tuple[str | None, ...]:
    """With the names for the marks."""
    marks = {"%c": client, "%l": label}
    found: list[str | None] = []
    for level in pattern.split("/"):
        name = marks.get(level, level)
        unfit = level in marks and (not name or any(sign in name for sign in "/+#"))
        found.append(None if unfit else name)
    return tuple(found)


def sealed(rules: list[Rule], topic: str, client: str, label: str, kind: str) -> str | None:
    """How it is sealed for the client: "" to its link, else for that group; None: to the label."""
    names = [
        rule.sealed_for
        for rule in rules
        if any(topic in each for each in sets([rule], "sealed", client, label, kind))
    ]
    return min(names, default=None)


def sets(rules: list[Rule], verb: str, client: str, label: str, kind: str) -> list[frozenset[str]]:
    """What each pattern that is about the client stands for; "read" is by whomever, "read NAME"
    what that client sends.
    """
    found = []
    for rule in rules:
        named = [*rule.clients, *rule.labels, *rule.kinds]
        mine = client in rule.clients or label in rule.labels or kind in rule.kinds
        sent = verb.removeprefix("read ") in rule.senders or not rule.senders
        if (sent or not verb.startswith("read")) and (mine or not named):
            for pattern in getattr(rule, verb.partition(" ")[0]):
                found.append(meant(filled(pattern, client, label)))
    return found
