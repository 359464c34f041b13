"""r_p: publish iff the topic is new or σ(c) = σ(t). r_s: read iff σ(c) ≥ σ(t) (paper, section 3).

σ(t) is what sealmq.toml fixes, else what the first publisher made it (learned, in the store). none
(⊖) disables a client; for a topic it forgets the learned label once (section 3.2).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

from sealmq.kinds import BORDER, GATEWAY, MADE
from sealmq_spec.errors import Malformed
from sealmq_spec.topics import check_filter, check_topic, is_reserved

from ..api import (
    FOREVER,
    NEVER,
    Ask,
    Change,
    CreationPolicy,
    Dep,
    Duties,
    Family,
    FamilyConfigError,
    LabelTopic,
    Policy,
    Record,
    ResetDone,
    SealToLink,
    TopicLabel,
    TopicReset,
    Verdict,
    Who,
    allow,
    deny,
)
from ..creation import match, may_create
from ..shared import PUBLIC, inner, is_mounted, mounts
from ..topiclabels import NONE, TopicLabels, weight
from . import rules

CREATION: Dep = ("creation",)
PEERS: Dep = ("peers",)
BORDERS: Dep = ("borders",)


class Labels(Family):
    """The first family: who may publish where, and who may read it."""

    name: ClassVar[str] = "labels"
    rules: ClassVar[Mapping[str, str]] = rules.RULES
    duties: ClassVar[Duties] = {
        "publish": frozenset({LabelTopic}),
        "deliver": frozenset({SealToLink}),
    }
    records: ClassVar[frozenset[type[Record]]] = frozenset({TopicLabel, TopicReset, ResetDone})

    def __init__(self) -> None:
        self._config: Policy | None = None
        self._topics = TopicLabels()
        self._resets: set[str] = set()
        # What topics of peers begin with.
        self._mounts: frozenset[str] = frozenset()
        # By name, and by the names of their clients.
        self._borders: Mapping[str, Any] = {}
        self._border_of: dict[str, Any] = {}
        self._creation: list[tuple[str, tuple[str, ...], tuple[str, ...]]] = []
        # Answers of the order that verdicts may rest on; a reload compares them with the new order.
        self._order: dict[Dep, bool] = {}

    # State

    def configure(self, config: Policy) -> Change:
        for key in config.families.get(self.name, {}):
            # Nothing would read it, and whoever wrote it believes that it protects.
            hint = "[labels], [topics] and [[creation]] say who reads and publishes what"
            raise FamilyConfigError(key, "labels have no settings of their own", hint)
        deps: list[Dep] = [("topic", topic) for topic in self._topics.configure(config)]
        creation = [(r.filter, tuple(r.labels), tuple(r.clients)) for r in config.creation]
        if creation != self._creation:
            deps.append(CREATION)
        before, self._mounts = self._mounts, mounts(config)
        if before != self._mounts:
            deps.append(PEERS)
        if dict(config.borders) != dict(self._borders):
            deps.append(BORDERS)
        self._borders = config.borders
        found = config.borders.values()
        self._border_of = {name: one for one in found for name in (one.client_in, one.client_out)}
        for order, was in list(self._order.items()):
            if config.dominates(*order[1:]) != was:
                deps.append(order)
                del self._order[order]
        self._creation, self._config = creation, config
        return Change(deps, self._reset(config))

    def _reset(self, config: Policy) -> list[Record]:
        """⊖ is an event, not a state: a mark in the store says that it has happened.

        Nothing changes here; the index follows when the records come back through `apply`.
        """
        none = {topic for topic, label in config.topics.items() if label == NONE}
        records: list[Record] = [TopicReset(topic) for topic in sorted(none - self._resets)]
        records += [ResetDone(topic) for topic in sorted(self._resets - none)]
        return records

    def apply(self, records: Sequence[Record]) -> Iterable[Dep]:
        for record in records:
            if isinstance(record, TopicReset):
                self._resets.add(record.topic)
            elif isinstance(record, ResetDone):
                self._resets.discard(record.topic)
        return [("topic", topic) for topic in self._topics.apply(records)]

    def noted(self, since: Mapping[str, int]) -> bool:
        self._topics.bearers(since)
        return False

    def label_of(self, topic: str) -> str | None:
        """σ(t), or None when nobody has published there."""
        return self._topics.of(topic)

    def _holds(self, order: Dep) -> bool:
        """Whether of ("order", high, low) high ≥ low."""
        known = self._order.get(order)
        if known is None:
            _, high, low = order
            known = self._config is not None and self._config.dominates(high, low)
            self._order[order] = known
        return known

    # Questions

    def connect(self, ask: Ask) -> Verdict:
        if ask.who.label == NONE:
            return _disabled(ask.who)
        return allow(rules.CONNECT_ENABLED, f"label {ask.who.label}")

    def publish(self, ask: Ask) -> Verdict:
        who, topic = ask.who, ask.topic
        if who.label == NONE:
            return _disabled(who)
        if who.kind == GATEWAY:
            return _brought(who, topic)
        if is_reserved(topic):
            return deny(rules.PUBLISH_RESERVED, "the topic begins with $, ! or @")
        try:
            check_topic(topic)
        except (Malformed, UnicodeEncodeError):
            return deny(rules.PUBLISH_MALFORMED, "1 to 1,024 bytes without +, # and NUL")
        deps, wrong = self._across(who, topic)
        if wrong:
            return deny(rules.PUBLISH_BORDER, wrong, deps=deps)
        label = self._topics.of(topic)
        if label is None:
            return self._first(who, topic, deps)
        deps = (("topic", topic), *deps)
        if label == who.label:
            return allow(rules.PUBLISH_SAME, f"both have {label}", deps=deps)
        return deny(
            rules.PUBLISH_OTHER, f"the topic has {label}, the client {who.label}", deps=deps
        )

    # Why a client must not publish there as far as borders go, "" if it may.
    def _across(self, who: Who, topic: str) -> tuple[tuple[Dep, ...], str]:
        if who.kind != BORDER and not topic.startswith(MADE):
            return (), ""
        found = self._borders.values()
        there = next((one for one in found if topic.startswith(one.mount)), None)
        wrong = ""
        if there is not None and who.client != there.client_out:
            wrong = f"border {there.name} publishes there, and nobody else"
        elif there is None and who.kind == BORDER:
            wrong = "a border publishes below its own border/NAME/, and nowhere else"
        return (BORDERS,), wrong

    def _first(self, who: Who, topic: str, more: tuple[Dep, ...]) -> Verdict:
        deps: tuple[Dep, ...] = (("topic", topic), CREATION, *more)
        creation = self._creates(topic)
        if creation is not None and not may_create(creation, who):
            if creation.labels or creation.clients:
                reason = f"topics under {creation.filter} are created by others"
                return deny(rules.CREATE_NOT_ALLOWED, reason, deps=deps)
            reason = f"names under {creation.filter} are reserved"
            return deny(rules.CREATE_RESERVED, reason, deps=deps)
        rule, reason = self._full(who, topic)
        if rule:
            # What is there now counts, and a topic may be forgotten at any time.
            return deny(rule, reason, until=NEVER, deps=deps)
        return allow(
            rules.PUBLISH_FIRST,
            f"the topic becomes {who.label}",
            deps=deps,
            duties=(LabelTopic(who.label),),
        )

    def _creates(self, topic: str) -> CreationPolicy | None:
        return match(self._config.creation, topic) if self._config is not None else None

    def _full(self, who: Who, topic: str) -> tuple[str, str]:
        if self._config is None:
            return "", ""
        limits, more = self._config.limits, weight(topic)
        if self._topics.of_client[who.client] + more > limits.topics:
            return (
                rules.CREATE_CLIENT_FULL,
                f"a client creates topics for {limits.topics} at most ([limits] topics)",
            )
        if self._topics.of_label[who.label] + more > limits.label_topics:
            most = limits.label_topics
            return (
                rules.CREATE_LABEL_FULL,
                f"the clients of {who.label} create {most} topics at most ([limits] label_topics)",
            )
        return "", ""

    def subscribe(self, ask: Ask) -> Verdict:
        who, filt = ask.who, ask.topic
        if who.label == NONE:
            return _disabled(who)
        try:
            check_filter(filt)
            filt = inner(filt)
        except (Malformed, UnicodeEncodeError):
            return deny(rules.SUBSCRIBE_MALFORMED, "1 to 1,024 bytes; + and # stand alone")
        if who.kind == BORDER:
            return self._listed(who, ask.topic)
        if filt.startswith(PUBLIC):
            return allow(rules.SUBSCRIBE_RECORDS, "public records")
        if is_mounted(filt, self._mounts) and who.kind != GATEWAY:
            return allow(rules.SUBSCRIBE_MOUNTED, f"the client has {who.label}", deps=(PEERS,))
        if is_reserved(filt):
            reason = "the filter begins with $, ! or @"
            return deny(rules.SUBSCRIBE_RESERVED, reason, deps=(PEERS,))
        if "+" in filt or "#" in filt:
            return allow(rules.SUBSCRIBE_NARROWED, f"the client has {who.label}")
        label = self._topics.of(filt)
        if label is None:
            return allow(rules.SUBSCRIBE_UNLABELLED, "no label yet", deps=(("topic", filt),))
        order = ("order", who.label, label)
        deps = (("topic", filt), order)
        reason = f"the topic has {label}, the client {who.label}"
        if self._holds(order):
            return allow(rules.SUBSCRIBE_DOMINATED, reason, deps=deps)
        return deny(rules.SUBSCRIBE_ABOVE, reason, deps=deps)

    # Of a border, each filter as it stands there: none that would reach more.
    def _listed(self, who: Who, filt: str) -> Verdict:
        mine = self._border_of.get(who.client)
        if mine is None or who.client != mine.client_in or filt not in mine.topics:
            reason = "its border's table does not list this filter for it"
            return deny(rules.SUBSCRIBE_NOT_LISTED, reason, deps=(BORDERS,))
        return allow(rules.SUBSCRIBE_BORDER, f"border {mine.name} lists it", deps=(BORDERS,))

    def deliver(self, ask: Ask) -> Verdict:
        who, topic, label = ask.who, ask.topic, ask.label
        mine = who.label
        if mine == NONE:
            return _disabled(who)
        if not label and topic.startswith(PUBLIC):
            return allow(rules.DELIVER_RECORD, "a public record")
        if label in ("", NONE):
            return deny(rules.DELIVER_UNLABELLED, "the message has no label")
        if who.kind == GATEWAY:
            return self._passed(mine, topic, label)
        if who.kind == BORDER:
            return self._crossed(who, topic, label)
        order = ("order", mine, label)
        deps: tuple[Dep, ...] = (("topic", topic), order)
        if not self._holds(order):
            reason = f"the message has {label}, the client {mine}"
            return deny(rules.DELIVER_ABOVE, reason, deps=deps)
        now = self._topics.of(topic)
        if now is not None and now != label:
            order = ("order", mine, now)
            deps = (*deps, order)
            if not self._holds(order):
                reason = f"the topic now has {now}, the client {mine}"
                return deny(rules.DELIVER_TOPIC_ABOVE, reason, deps=deps)
        reason = f"{mine} is at or above {label}"
        return Verdict(True, rules.DELIVER_DOMINATED, reason, FOREVER, deps)

    # To a bridge, which has no keys: sealed to its link. What came from elsewhere stays here.
    def _passed(self, mine: str, topic: str, label: str) -> Verdict:
        deps = (("topic", topic),)
        now = self._topics.of(topic)
        if label != mine or now not in (None, mine) or is_reserved(topic):
            reason = f"the message has {label}, the bridge is for {mine}"
            return deny(rules.DELIVER_NOT_EXPORTED, reason, deps=deps)
        reason = f"{mine} is exported"
        return allow(rules.DELIVER_EXPORTED, reason, deps=deps, duties=(SealToLink(),))

    # To a border, which reads like any client; but of what its label dominates only what is listed.
    def _crossed(self, who: Who, topic: str, label: str) -> Verdict:
        deps: tuple[Dep, ...] = (("topic", topic), BORDERS)
        mine, now = self._border_of.get(who.client), self._topics.of(topic)
        if mine is None or who.client != mine.client_in:
            return deny(
                rules.DELIVER_NOT_LISTED, "this client of a border reads nothing", deps=deps
            )
        wrong = mine.refuses(topic, label) or (now and mine.refuses(topic, now))
        if wrong:
            return deny(rules.DELIVER_NOT_LISTED, wrong, deps=deps)
        return Verdict(True, rules.DELIVER_BORDER, f"border {mine.name} lists it", FOREVER, deps)

    # Words

    def explain(self, ask: Ask, verdict: Verdict) -> Sequence[str]:
        topic = ask.topic
        if ask.question == "connect" or "+" in topic or "#" in topic or is_reserved(topic):
            return ()
        fixed, learned = self._topics.fixed.get(topic), self._topics.learned.get(topic)
        if fixed is not None:
            return (f"{topic} has the label {fixed}, fixed in sealmq.toml",)
        if learned is not None:
            return (f"{topic} has the label {learned.label}, from {learned.client}'s publish",)
        rule = self._creates(topic)
        if rule is None:
            return ()
        may = ", ".join((*rule.labels, *rule.clients)) or "nobody"
        return (f"[[creation]] filter {rule.filter} lets topics be created by {may}",)


def _brought(who: Who, topic: str) -> Verdict:
    _, at, peer = who.label.rpartition("@")
    if at and topic.startswith(f"@{peer}/"):
        return allow(rules.PUBLISH_MOUNTED, f"{peer} exports it")
    return deny(rules.PUBLISH_NOT_MOUNTED, f"a bridge publishes below @{peer}/ alone")


def _disabled(who: Who) -> Verdict:
    if who.kind == "unknown":
        return deny(rules.CLIENT_UNKNOWN, "no such client")
    return deny(rules.CLIENT_DISABLED, "the client is disabled")
