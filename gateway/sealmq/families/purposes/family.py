"""A message is delivered for a purpose only: HivePBAC (Wolf et al.) behind labels and keys.

Whoever is entitled to a topic reserves it: which purposes are allowed (AIP) and which prohibited
(PIP). A subscription names its access purpose (AP). Reservations that match a topic are united;
what none allows or one prohibits is denied. Three modes (V-C) say when a subscription as a whole is
refused; in all of them every message is judged when it is delivered, whatever its age.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar

from sealmq_spec.errors import Malformed

from ..api import (
    FOREVER,
    NEVER,
    Ask,
    Audited,
    Change,
    Dep,
    Duties,
    Duty,
    Family,
    Follow,
    Later,
    Parsed,
    Policy,
    Proposal,
    Question,
    Record,
    Rewrite,
    TopicLabel,
    TopicReset,
    Verdict,
    Who,
    allow,
    deny,
)
from ..shared import GROUP, NO_FILTER, PUBLIC, asked_filter, inner
from . import MANIFEST, commands, rules
from .entitled import fitting, quoted
from .explain import lines
from .share import at_broker
from .state import State, presub_dep
from .store import SETTINGS

_FOLLOW: tuple[Duty, ...] = (Follow(),)
_FOR_RATE = frozenset({rules.TOO_MANY})
Notes = Mapping[str, Mapping[str, Any]]
_CONNECT = allow(rules.CONNECT, "purposes do not matter here")
_PUBLISH = allow(rules.PUBLISH, "purposes do not matter here")
_RECORD = allow(rules.SUBSCRIBE_RECORDS, "public records")
_DELIVER_RECORD = allow(rules.DELIVER_RECORD, "a public record")
_REASONS: Mapping[str, str] = {
    rules.SUBSCRIBE_PROHIBITED: "reservations prohibit the purpose there",
    rules.SUBSCRIBE_NOT_ALLOWED: "no reservation allows the purpose there",
    rules.SUBSCRIBE_PARTLY: "the purpose is not allowed on every topic of the filter",
    rules.DELIVER_PROHIBITED: "reservations of the topic prohibit the purpose",
    rules.DELIVER_NOT_ALLOWED: "no reservation of the topic allows the purpose",
    rules.DELIVER_PAUSED: "the subscription reaches topics that do not allow its purpose",
    rules.DELIVER_NO_PURPOSE: "the subscription names no purpose",
    rules.DELIVER_NO_SUBSCRIPTION: "no subscription of this client reaches the topic",
    rules.UNKNOWN: "the site has no such purpose any more",
}
# What is said when several subscriptions reach a topic, and none may have its message.
_WORST = (
    rules.DELIVER_PROHIBITED,
    rules.DELIVER_NOT_ALLOWED,
    rules.DELIVER_PAUSED,
    rules.UNKNOWN,
    rules.DELIVER_NO_PURPOSE,
)


def _audit(purpose: str, under: str) -> Audited:
    return (("purpose", purpose), ("under", under)) if purpose else ()


class PurposesFamily(Family):
    """The second pillar: a reader needs the key and a purpose."""

    name: ClassVar[str] = "purposes"
    rules: ClassVar[Mapping[str, str]] = rules.RULES
    rate_rules: ClassVar[frozenset[str]] = _FOR_RATE
    parses: ClassVar[frozenset[Question]] = frozenset({"subscribe"})
    duties: ClassVar[Duties] = {"subscribe": frozenset({Follow, Rewrite})}
    audited: ClassVar[frozenset[str]] = frozenset(field.name for field in MANIFEST.audit)
    reads: ClassVar[frozenset[type[Record]]] = frozenset({TopicLabel, TopicReset})

    def __init__(self) -> None:
        self.state = State()

    # State

    def configure(self, config: Policy) -> Change:
        return Change(self.state.configure(config))

    def apply(self, records: Sequence[Record]) -> Iterable[Dep]:
        return self.state.apply(records)

    def noted(self, since: Mapping[str, int]) -> bool:
        return self.state.bearers.noted(since)

    def bearers(
        self, since: Mapping[str, int], rows: Callable[[], Iterable[Record]]
    ) -> Sequence[Record]:
        return self.state.bearers.mended(since, rows)

    def tick(self, now_ms: int) -> Iterable[Dep]:
        return self.state.store.forgotten()

    def parse(self, question: Question, topic: str) -> Parsed | None:
        """`!AP/<filter>{ap}` of a subscription. Malformed."""
        found = self.state.reader.read_access(topic)
        if found is None:
            return None
        return Parsed(found[0], {"ap": found[1], "filter": found[0]})

    # Questions

    def connect(self, ask: Ask) -> Verdict:
        return _CONNECT

    def publish(self, ask: Ask) -> Verdict:
        return _PUBLISH

    def subscribe(self, ask: Ask) -> Verdict:
        state = self.state
        try:
            filt = asked_filter(ask.topic, state.mounts)
        except Malformed:
            return deny(rules.SUBSCRIBE_MALFORMED, NO_FILTER)
        if filt.startswith(PUBLIC):
            return _RECORD
        deps: list[Dep] = [SETTINGS]
        ap = self._purpose(ask.who.client, filt, ask.notes, deps)
        until = FOREVER
        if state.judging.mode != "fop":
            deps.append(state.store.rest_on(filt))
            until = FOREVER if state.store.cached else NEVER
        if ap and not state.purposes.known(ap):
            reason = commands.unknown_reason(state, ap, ask.now_ms)
            return deny(rules.UNKNOWN, reason, until=until, deps=tuple(deps))
        answer = state.judging.subscribe(filt, ap)
        if not answer.allow:
            reason = self._refusal(answer.rule, ask.who, filt, ap)
            return deny(answer.rule, reason, until=until, deps=tuple(deps))
        try:
            duties = self._duties(ask, ap)
        except Malformed as error:
            return deny(rules.SUBSCRIBE_MALFORMED, str(error), deps=tuple(deps))
        return allow(
            answer.rule,
            f"for {ap}" if ap else "no purpose",
            until=until,
            deps=tuple(deps),
            duties=duties,
            audit=_audit(ap, "" if answer.under is None else answer.under.filter),
        )

    def _purpose(self, client: str, filt: str, notes: Notes, deps: list[Dep]) -> str:
        """State.purpose, with what the answer rests on. `filt` as the broker knows it."""
        mine = notes.get(self.name)
        if mine is not None:
            said: str = mine["ap"]
            return said
        filt = inner(filt)
        deps.append(presub_dep(client, filt))
        return self.state.presub(client, filt)

    def _duties(self, ask: Ask, ap: str) -> tuple[Duty, ...]:
        """Follow; of a shared subscription the group's name at the broker as well. Malformed.

        The engine asks again about the filter as it was rewritten: that gets the same answer.
        """
        if not ask.topic.startswith(GROUP):
            return _FOLLOW
        mine = ask.notes.get(self.name)
        original = ask.raw if mine is None else mine["filter"]
        if original.startswith(GROUP) and ask.topic == at_broker(original, ap):
            return (*_FOLLOW, Rewrite(ask.topic))
        return (*_FOLLOW, Rewrite(at_broker(ask.topic, ap)))

    def _refusal(self, rule: str, who: Who, filt: str, ap: str) -> str:
        """What is told to the client: at most 200 bytes, and how an operator would allow it."""
        if rule == rules.SUBSCRIBE_NO_PURPOSE:
            what = "the subscription names no purpose"
            key = quoted(who.client) if "." in who.client else who.client
            toml = f'[families.purposes.presubscribe] {key} = {{ {quoted(filt)} = "PURPOSE" }}'
            return fitting(f"{what}; or: {toml}", what)
        what = _REASONS[rule]
        if rule == rules.SUBSCRIBE_PROHIBITED:
            return what
        toml = f"[families.purposes.reserve] {quoted(filt)} = {{ aip = [{quoted(ap)}] }}"
        alone = fitting(f"{what}; to allow it: {toml}", what)
        if filt.startswith("@"):  # where no client reserves
            return alone
        # Not only the line for sealmq.toml: it would allow what the owner has just withdrawn.
        return fitting(f"{what}; its owner can allow it (sealmq reserve); or: {toml}", alone)

    def deliver(self, ask: Ask) -> Verdict:
        state, topic = self.state, ask.topic
        if not ask.label and topic.startswith(PUBLIC):
            return _DELIVER_RECORD
        store, judging = state.store, state.judging
        deps: list[Dep] = [SETTINGS, store.rest_on(topic)]
        until = FOREVER if store.cached else NEVER
        eip = store.eip(topic)
        if not eip.of:
            return self._unreserved(ask, until, deps)
        # By rule, the first purpose that was denied by it.
        found: dict[str, str] = {}
        client = ask.who.client
        for sub in ask.subs:
            ap = self._purpose(client, sub.filter, sub.notes, deps)
            if not ap:
                found.setdefault(rules.DELIVER_NO_PURPOSE, "")
                continue
            answer = judging.read(eip, ap)
            if answer.allow and judging.mode == "fos":
                filt = inner(sub.filter)
                deps.append(store.rest_on(filt))
                if not judging.whole(filt, ap).allow:
                    found.setdefault(rules.DELIVER_PAUSED, ap)
                    continue
            if answer.allow and answer.under is not None:
                audit = _audit(ap, answer.under.filter)
                return Verdict(True, answer.rule, f"for {ap}", until, tuple(deps), (), audit)
            found.setdefault(answer.rule, ap)
        rule = next((rule for rule in _WORST if rule in found), rules.DELIVER_NO_SUBSCRIPTION)
        audit = _audit(found.get(rule, ""), "")
        return deny(rule, _REASONS[rule], until=until, deps=tuple(deps), audit=audit)

    def _unreserved(self, ask: Ask, until: int, deps: list[Dep]) -> Verdict:
        """A topic that nobody has reserved."""
        client = ask.who.client
        said = [self._purpose(client, sub.filter, sub.notes, deps) for sub in ask.subs]
        audit = _audit(next(filter(None, said), ""), "")
        allowed, rule = not self.state.judging.strict, rules.DELIVER_UNRESERVED
        reason = "nobody has reserved the topic"
        if not allowed:
            rule, reason = rules.DELIVER_NO_RESERVATION, f"{reason} for anything"
        return Verdict(allowed, rule, reason, until, tuple(deps), (), audit)

    def command(self, who: Who, body: bytes, now_ms: int) -> Proposal | Verdict | Later:
        return commands.command(self.state, who, body, now_ms)

    # Words

    def explain(self, ask: Ask, verdict: Verdict) -> Sequence[str]:
        return lines(self.state, ask)
