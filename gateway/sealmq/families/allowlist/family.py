"""Who may publish and read what: what no rule of [families.allowlist] allows is refused.

%c in a pattern is the name of the client that has proved who it is, never the MQTT client
identifier that it chose. Every message is judged when it is delivered; a filter that reaches beyond
what is allowed is granted if something of it is, but a shared one only as a whole: what one member
must not have would be lost to the group. Where rules are about some senders' messages (`from`), the
verdict names these, and stays one that is cached.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import ClassVar

from sealmq_spec.errors import Malformed
from sealmq_spec.topics import is_reserved

from ..api import (
    FOREVER,
    Ask,
    Change,
    Dep,
    Duties,
    Duty,
    Family,
    Follow,
    OnlyFrom,
    Policy,
    SealToGrant,
    SealToLink,
    Verdict,
    Who,
    allow,
    deny,
)
from ..filters import levels
from ..shared import GROUP, NO_FILTER, PUBLIC, asked_filter, is_mounted, mounts
from . import rules, settings
from .compiled import Grant, Groups, Verb, fits, senders
from .settings import Rule

_SHOWN = 5
# Characters of a reason.
_LONGEST = 150
_FOLLOW: tuple[Duty, ...] = (Follow(),)
_SEAL: tuple[Duty, ...] = (SealToLink(),)
_CONNECT = allow(rules.CONNECT, "anybody may connect")
_RECORD = allow(rules.SUBSCRIBE_RECORDS, "public records")
_DELIVER_RECORD = allow(rules.DELIVER_RECORD, "a public record")


class Allowlist(Family):
    """Rules by client, label and kind; nothing is kept but them."""

    name: ClassVar[str] = settings.NAME
    rules: ClassVar[Mapping[str, str]] = rules.RULES
    duties: ClassVar[Duties] = {
        "subscribe": frozenset({Follow}),
        "deliver": frozenset({OnlyFrom, SealToGrant, SealToLink}),
    }

    def __init__(self) -> None:
        self._rules: Sequence[Rule] = ()
        self._mounts: frozenset[str] = frozenset()
        self._publish, self._read, self._sealed = (Verb(verb) for verb in settings.WHAT)
        # Of the same verb: what may come to be sealed, either way, ends the same answers.
        self._groups = Groups(settings.SEALED)

    def configure(self, config: Policy) -> Change:
        self._rules = settings.read(config)
        self._mounts = mounts(config)
        links = [rule for rule in self._rules if not rule.sealed_for]
        groups = [rule for rule in self._rules if rule.sealed_for]
        gone = [*self._publish.take(self._rules), *self._read.take(self._rules)]
        return Change([*gone, *self._sealed.take(links), *self._groups.take(groups)])

    # Questions

    def connect(self, ask: Ask) -> Verdict:
        return _CONNECT

    def publish(self, ask: Ask) -> Verdict:
        topic = ask.topic
        if not self._is_plain(topic):
            return deny(rules.PUBLISH_NOT_ALLOWED, "no topic that a rule could name")
        path = topic.split("/")
        grant = self._publish.covering(ask, path)
        if grant is None:
            reason = _but(
                "no rule lets this client publish there", self._publish.unmet(ask.who, path)
            )
            return deny(rules.PUBLISH_NOT_ALLOWED, reason, deps=self._publish.denied(path))
        return Verdict(True, rules.PUBLISH_ALLOWED, f"by {grant[2]}", FOREVER, (grant,))

    def subscribe(self, ask: Ask) -> Verdict:
        try:
            filt = asked_filter(ask.topic, self._mounts)
        except Malformed:
            return deny(rules.SUBSCRIBE_MALFORMED, NO_FILTER)
        if filt.startswith(PUBLIC):
            return _RECORD
        side, path = self._read, levels(filt)
        grant = side.covering(ask, path)
        if grant is not None:
            return _granted(rules.SUBSCRIBE_ALLOWED, grant)
        grant = side.crossing(ask, path)
        if grant is None:
            reason = _but("no rule lets this client read any of it", side.unmet(ask.who, path))
            return deny(rules.SUBSCRIBE_NOT_ALLOWED, reason, deps=side.denied(path))
        if ask.topic.startswith(GROUP):
            reason = "no rule lets this client read all of what the group shares"
            return deny(rules.SUBSCRIBE_SHARED, reason, deps=(grant, *side.denied(path)))
        return _granted(rules.SUBSCRIBE_NARROWED, grant)

    def deliver(self, ask: Ask) -> Verdict:
        topic = ask.topic
        if not self._is_plain(topic):
            if not ask.label and topic.startswith(PUBLIC):
                return _DELIVER_RECORD
            return deny(rules.DELIVER_NOT_ALLOWED, "no topic that a rule could name")
        path = topic.split("/")
        grant = self._read.covering(ask, path)
        deps: tuple[Dep, ...]
        duties: tuple[Duty, ...]
        if grant is not None:
            rule, reason, deps, duties = rules.DELIVER_ALLOWED, f"by {grant[2]}", (grant,), ()
        else:
            some = tuple(self._read.covering_some(ask, path))
            if not some:
                reason = _but(
                    "no rule lets this client read the topic", self._read.unmet(ask.who, path)
                )
                return deny(rules.DELIVER_NOT_ALLOWED, reason, deps=self._read.denied(path))
            rule, reason = rules.DELIVER_FROM, f"some senders' messages, by {some[0][2]}"
            # More rules may come to name more of them.
            deps, duties = (*some, *self._read.denied(path)), (_only_from(some),)
        sealed = self._sealed.covering(ask, path)
        if sealed is not None:
            reason += f", sealed by {sealed[2]}"
            duties += _SEAL
            return Verdict(True, rules.DELIVER_SEALED, reason, FOREVER, (*deps, sealed), duties)
        deps += self._sealed.denied(path)
        group = self._groups.of(ask.who, path)
        if group is None:
            return Verdict(True, rule, reason, FOREVER, deps, duties)
        reason += f", sealed for {group[5]} by {group[2]}"
        duties += (SealToGrant(settings.NAME, group[5]),)
        return Verdict(True, rules.DELIVER_GROUP, reason, FOREVER, (*deps, group), duties)

    def _is_plain(self, topic: str) -> bool:
        """Whether a rule may name it: a topic, and none of the protocol's own."""
        if is_reserved(topic) and not is_mounted(topic, self._mounts):
            return False
        return "+" not in topic and "#" not in topic

    # Words

    def explain(self, ask: Ask, verdict: Verdict) -> Sequence[str]:
        """The rules that are about the client, by their number in the file."""
        if ask.question == "connect":
            return ()
        who, publishing = ask.who, ask.question == "publish"
        verb = "publish on" if publishing else "read"
        lines = []
        for number, rule in enumerate(self._rules, 1):
            patterns = rule.publish if publishing else rule.read
            if patterns and rule.about(who.client, who.label, who.kind):
                always = f" while {rule.when.words}" * bool(rule.when.words)
                by = "" if publishing or not rule.senders else f" from {_some(rule.senders)}"
                lines.append(
                    f"rule {number} lets {_whom(rule)} {verb} {_some(patterns)}{by}{always}"
                )
        more = len(lines) - _SHOWN
        if more > 0:
            lines[_SHOWN:] = [f"and {more} rules more are about {who.client}"]
        lines += _unfit(who)
        return lines or (f"no rule lets {who.client} {verb} anything",)


def _granted(rule: str, grant: Grant) -> Verdict:
    return Verdict(True, rule, f"by {grant[2]}", FOREVER, (grant,), _FOLLOW)


# Verdicts share it: it may name many.
@lru_cache(1024)
def _only_from(grants: tuple[Grant, ...]) -> Duty:
    names = frozenset(name for grant in grants for name in senders(grant))
    reason = "no rule lets this client read what this sender publishes there"
    return OnlyFrom(names, rules.DELIVER_OTHER_SENDER, reason)


def _but(reason: str, condition: str) -> str:
    return f"{reason} now, but while {condition}"[:_LONGEST] if condition else reason


def _whom(rule: Rule) -> str:
    if rule.everybody:
        return "everybody"
    return _some((*rule.clients, *rule.labels, *rule.kinds))


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:_SHOWN]) + ", ..." * (len(names) > _SHOWN)


def _unfit(who: Who) -> list[str]:
    return [
        f"no pattern with {mark} is about it: {name} has a /, + or #"
        for mark, name in ((settings.CLIENT, who.client), (settings.LABEL, who.label))
        if not fits(name)
    ]
