"""[families.allowlist] of sealmq.toml, checked: one wrong word, and none of it is taken over.

[[families.allowlist.rule]]
clients = [...], labels = [...], kinds = [...]   whom it is about, by either; without any: everybody
publish = ["machine/%c/#"]                       what these may publish on
read = ["machine/+/temperature"]                 what they may read
from = ["m1-sensor"]                             whose messages of it, by name; without it: all
sealed = ["machine/#"]                           what of it is sealed to the link of each of them
sealed_for = "shift"                             sealed for all of them instead, who share a key:
                                                 the name of this group
when = { attribute = "time", between = ["07:00", "19:00"] }   not always (conditions.py)

What a peer exports is named by @PEER/...: no wildcard of the first level reaches there.

In a pattern %c stands for the client's name and %l for its label, each alone in its level.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from sealmq.kinds import KINDS
from sealmq.near import near
from sealmq_spec.errors import SealError
from sealmq_spec.topics import check_filter, is_reserved

from .. import conditions
from ..api import FamilyConfigError, Policy
from ..conditions import When
from ..shared import is_mounted, mounts

NAME = "allowlist"
CLIENT, LABEL = "%c", "%l"
WHOM = ("clients", "labels", "kinds")
FROM = "from"
SEALED = "sealed"
WHAT = ("publish", "read", SEALED)
_GROUP = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
MOST_LEVELS = 32
MOST_PATTERNS = 2000
"""A look at what a filter has in common with them must not hold others up."""
MOST_WHENS = 32
"""Likewise: rules of one condition are looked at together."""
_EXAMPLE = '[[families.allowlist.rule]] clients = ["..."] publish = ["state/%c"] read = ["news/#"]'


class Rule(NamedTuple):
    """One [[families.allowlist.rule]]; about everybody if it names nobody."""

    clients: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()
    publish: tuple[str, ...] = ()
    read: tuple[str, ...] = ()
    sealed: tuple[str, ...] = ()
    when: When = When()
    senders: tuple[str, ...] = ()
    """Whose messages may be read; none: everybody's."""
    sealed_for: str = ""
    """The group for which it is sealed; "": to the link of each reader."""

    @property
    def everybody(self) -> bool:
        return not (self.clients or self.labels or self.kinds)

    def what(self) -> Mapping[str, tuple[str, ...]]:
        """Its patterns, by WHAT."""
        return {"publish": self.publish, "read": self.read, SEALED: self.sealed}

    def about(self, client: str, label: str, kind: str) -> bool:
        """Whether it is about this client."""
        named = client in self.clients or label in self.labels or kind in self.kinds
        return named or self.everybody


def read(config: Policy) -> tuple[Rule, ...]:
    """The rules in the file's order. FamilyConfigError: the first thing that is wrong."""
    settings = config.families.get(NAME, {})
    _only(settings, "", ("rule",))
    rows = settings.get("rule", [])
    if not isinstance(rows, list) or not all(isinstance(row, Mapping) for row in rows):
        raise FamilyConfigError("rule", "rules are an array of tables", _EXAMPLE)
    rules = tuple(_rule(row, f"rule.{i}", config) for i, row in enumerate(rows))
    groups: dict[str, int] = {}
    for i, rule in enumerate(rules):
        if rule.sealed_for and groups.setdefault(rule.sealed_for, i) != i:
            raise FamilyConfigError(
                f"rule.{i}.sealed_for",
                f"another rule is sealed for {rule.sealed_for!r}, too",
                "a group is those whom one rule is about: put both together, or give this one "
                "another name",
            )
    count = sum(len(patterns) for rule in rules for patterns in rule.what().values())
    if count > MOST_PATTERNS:
        raise FamilyConfigError(
            "rule",
            f"{count} patterns, and {MOST_PATTERNS} are the most",
            "one pattern with %c or %l stands for a pattern of each client or label",
        )
    if len({rule.when for rule in rules}) > MOST_WHENS:
        raise FamilyConfigError(
            "rule",
            f"more than {MOST_WHENS} different conditions",
            "a file that says who may (an attribute's source) takes the place of many",
        )
    return rules


def _rule(row: Mapping[str, Any], key: str, config: Policy) -> Rule:
    _only(row, key, (*WHOM, *WHAT, FROM, "sealed_for", "when"))
    clients, labels, kinds = (_names(row, key, word) for word in WHOM)
    senders = _names(row, key, FROM)
    for word, names in (("clients", clients), (FROM, senders)):
        for name in names:
            if name not in config.clients:
                raise FamilyConfigError(
                    f"{key}.{word}", f"there is no client {name!r}", near(name, config.clients)
                )
    for label in labels:
        # A label that there is dominates itself; `none` does not.
        if not config.dominates(label, label):
            raise FamilyConfigError(
                f"{key}.labels",
                f"no client has the label {label!r}",
                "labels stand in [labels]; bottom and top are built in",
            )
    for kind in kinds:
        if kind not in KINDS:
            raise FamilyConfigError(f"{key}.kinds", f"there is no kind {kind!r}", near(kind, KINDS))
    when = conditions.parse(row["when"], f"{key}.when", config) if "when" in row else When()
    publish, reads, sealed = (_names(row, key, word) for word in WHAT)
    group = _group(row, f"{key}.sealed_for", sealed)
    rule = Rule(clients, labels, kinds, publish, reads, sealed, when, senders, group)
    if senders and not reads:
        raise FamilyConfigError(
            f"{key}.{FROM}",
            "it says whose messages may be read, and the rule has no `read`",
            'read = ["..."]; or take it out',
        )
    if senders and any(is_mounted(pattern, mounts(config)) for pattern in reads):
        raise FamilyConfigError(
            f"{key}.{FROM}",
            "who sends at another site is no client here, and has no name",
            "a rule of its own for @PEER/..., without `from`",
        )
    if rule.sealed and when.conditions:
        # What is unknown meets no condition: it would go out unsealed.
        raise FamilyConfigError(
            f"{key}.when",
            "what is sealed is sealed always",
            "a rule without `when` for what is sealed, another one for what is read",
        )
    if not any(rule.what().values()):
        raise FamilyConfigError(
            key,
            "the rule allows nothing",
            'publish = ["..."] or read = ["..."]; or take the rule out',
        )
    for word, patterns in rule.what().items():
        for pattern in patterns:
            _check_pattern(pattern, f"{key}.{word}", config)
    return rule


def _group(row: Mapping[str, Any], key: str, sealed: Sequence[str]) -> str:
    """The name of those for whom all of `sealed` is sealed; "" where each has it for itself."""
    name = row.get("sealed_for")
    if name is None:
        return ""
    if not isinstance(name, str) or not _GROUP.fullmatch(name):
        hint = "a name has 1 to 64 of A-Z a-z 0-9 . _ - and starts with a letter or digit"
        raise FamilyConfigError(key, f"{name!r} is no name", hint)
    if not sealed:
        raise FamilyConfigError(
            key, f"nothing is sealed for {name}", 'sealed = ["..."] in the same rule'
        )
    for pattern in sealed:
        if CLIENT in pattern.split("/"):
            raise FamilyConfigError(
                key,
                f"{pattern!r} is each client's own, and all of {name} could open it",
                "take sealed_for out: without it each client's is sealed to its own link",
            )
    return name


def _only(table: Mapping[str, Any], where: str, names: Iterable[str]) -> None:
    for name in table:
        if name not in names:
            key = f"{where}.{name}" if where else name
            raise FamilyConfigError(key, f"unknown key {name!r}", near(name, names))


def _names(row: Mapping[str, Any], key: str, word: str) -> tuple[str, ...]:
    """A list of names; where none stands for everybody, an empty one would mislead."""
    key, value = f"{key}.{word}", row.get(word)
    if value is None:
        return ()
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        raise FamilyConfigError(key, f"{word} is a list of texts", f'{word} = ["...", "..."]')
    if len(set(value)) != len(value):
        raise FamilyConfigError(key, "one stands there twice", "name each once")
    if not value and word in (*WHOM, FROM):
        raise FamilyConfigError(
            key,
            f"an empty list names nobody, and a rule without {word} is about everybody",
            f"for everybody take {word} out; for nobody take the rule out",
        )
    return tuple(value)


def _check_pattern(pattern: str, key: str, config: Policy) -> None:
    try:
        check_filter(pattern)
    except (SealError, UnicodeEncodeError) as error:
        raise FamilyConfigError(key, str(error), "a filter, as in a/+/%c/#") from None
    if is_reserved(pattern) and not is_mounted(pattern, mounts(config)):
        raise FamilyConfigError(
            key,
            f"{pattern!r}: names that begin with $, ! or @ are the protocol's own",
            "rename it; a shared subscription is allowed by the filter after $share/GROUP/, and "
            "what a peer in [peers] exports by @PEER/...",
        )
    levels = pattern.split("/")
    if len(levels) > MOST_LEVELS:
        raise FamilyConfigError(
            key,
            f"{pattern!r} has {len(levels)} levels, and {MOST_LEVELS} are the most",
            "shorten it, or end it with #",
        )
    for level in levels:
        if "%" in level and level not in (CLIENT, LABEL):
            raise FamilyConfigError(
                key,
                f"{level!r} in {pattern!r} is neither %c nor %l",
                "%c stands for the client's name and %l for its label, each alone in its level; a "
                "level that really has a % in it is reached by +",
            )
