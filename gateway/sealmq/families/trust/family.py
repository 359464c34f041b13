"""What a client's token lets it do at its home gateway (Chen, Vidalis and Yang, III-A): publish on
topics in F_p, and subscribe to filters f ⊆ f' of F_s. Who has no token does neither.

What comes from other sites is judged before it comes here (exchange.py); here it is one more topic,
@SITE/TOPIC, that a token has or has not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from sealmq.feedback import Told
from sealmq.kinds import GATEWAY
from sealmq_spec.errors import Malformed
from sealmq_spec.topics import check_filter, is_reserved, matches

from ..api import (
    FOREVER,
    NEWS,
    TOLD,
    Ask,
    Change,
    Dep,
    Duties,
    Duty,
    Family,
    Feedback,
    Follow,
    Policy,
    Proposal,
    Verdict,
    Who,
    allow,
    deny,
)
from ..filters import covers
from ..pace import Pace
from ..shared import PUBLIC, inner
from . import rules, settings
from .settings import LocalToken, Settings

_SHOWN = 5
FEEDBACK, FEEDBACK_MS = 30, 10_000
"""So many words of feedback a client may give at once, and later on one every so many ms."""
_NONE = LocalToken()
_FOLLOW: tuple[Duty, ...] = (Follow(),)
_CONNECT = allow(rules.CONNECT, "anybody may connect")
_BROUGHT = allow(rules.PUBLISH_BROUGHT, "it has been judged between sites")
_BRIDGE = allow(rules.SUBSCRIBE_BRIDGE, "what is exported is judged when it leaves")
_PASSED = allow(rules.DELIVER_BRIDGE, "what is exported is judged when it leaves")
_RATES = frozenset({rules.FEEDBACK_RATE})
_RECORDS = allow(rules.SUBSCRIBE_RECORDS, "public records")
_RECORD = allow(rules.DELIVER_RECORD, "a public record")


class Trust(Family):
    """Tokens of own clients, out of sealmq.toml."""

    name: ClassVar[str] = settings.NAME
    rules: ClassVar[Mapping[str, str]] = rules.RULES
    rate_rules: ClassVar[frozenset[str]] = _RATES
    duties: ClassVar[Duties] = {"subscribe": frozenset({Follow})}

    def __init__(self) -> None:
        self.settings = Settings()
        self._config: Policy | None = None
        self._pace = Pace(FEEDBACK, FEEDBACK_MS)

    def configure(self, config: Policy) -> Change:
        before, self.settings = self.settings.tokens, settings.read(config)
        self._config = config
        now = self.settings.tokens
        changed = [c for c in before.keys() | now.keys() if before.get(c) != now.get(c)]
        return Change([_dep(client) for client in changed])

    # Questions

    def connect(self, ask: Ask) -> Verdict:
        return _CONNECT

    def publish(self, ask: Ask) -> Verdict:
        client, topic = ask.who.client, ask.topic
        if ask.who.kind == GATEWAY:  # labels keep it below its mount
            return _BROUGHT
        deps = (_dep(client),)
        for filt in self._token(client).publish:
            if not is_reserved(topic) and matches(filt, topic):
                return Verdict(True, rules.PUBLISH_TOKEN, f"within {filt}", FOREVER, deps)
        return deny(rules.PUBLISH_OUTSIDE, "the client's token does not have the topic", deps=deps)

    def subscribe(self, ask: Ask) -> Verdict:
        client = ask.who.client
        if ask.who.kind == GATEWAY:
            return _BRIDGE
        try:
            check_filter(ask.topic)
            filt = inner(ask.topic)
        except (Malformed, UnicodeEncodeError):
            return deny(rules.SUBSCRIBE_MALFORMED, "this is no filter")
        if filt.startswith(PUBLIC):
            return _RECORDS
        deps = (_dep(client),)
        for over in self._token(client).subscribe:
            if covers(over, filt):
                reason = f"within {over}"
                return Verdict(True, rules.SUBSCRIBE_TOKEN, reason, FOREVER, deps, _FOLLOW)
        reason = "no filter of the client's token has all of it"
        return deny(rules.SUBSCRIBE_OUTSIDE, reason, deps=deps)

    def deliver(self, ask: Ask) -> Verdict:
        client, topic = ask.who.client, ask.topic
        if not ask.label and topic.startswith(PUBLIC):
            return _RECORD
        if ask.who.kind == GATEWAY:
            return _PASSED
        deps = (_dep(client),)
        for filt in self._token(client).subscribe:
            if matches(filt, topic):
                return Verdict(True, rules.DELIVER_TOKEN, f"within {filt}", FOREVER, deps)
        return deny(rules.DELIVER_OUTSIDE, "the client's token does not have the topic", deps=deps)

    # Feedback

    def feedback(self, who: Who, said: Feedback, now_ms: int) -> Proposal | Verdict:
        """It goes to the bridge, by the clients of labels that this client reads: so it counts for
        nothing of another label. Whether the message came, and whether this client has voted, the
        bridge knows (events.py)."""
        client, topic = who.client, said.topic
        peer = self._peer(topic)
        if peer is None:
            return deny(rules.FEEDBACK_OWN, "it is no message of another site")
        if not any(matches(filt, topic) for filt in self._token(client).subscribe):
            return deny(rules.FEEDBACK_OUTSIDE, "the client's token does not have the topic")
        ways = [label for label in peer.imports if self._reads(who.label, peer.label_in(label))]
        if not ways:
            return deny(rules.FEEDBACK_LABEL, f"the client reads no label of {peer.name}")
        if self._pace.take(client, now_ms):
            return deny(rules.FEEDBACK_RATE, "so much feedback at once is not taken")
        news = Told(client, said, client in self.settings.assessors).pack()
        if len(news) > NEWS:
            return deny(rules.FEEDBACK_LONG, "the topic is too long")
        return Proposal(
            audit={"topic": topic, "detail": "good" if said.good else "bad"},
            tells=tuple((peer.client_in(label), news) for label in ways[:TOLD]),
        )

    def _peer(self, topic: str) -> Any:
        if self._config is None or not topic.startswith("@"):
            return None
        return self._config.peers.get(topic[1:].partition("/")[0])

    def _reads(self, own: str, label: str) -> bool:
        return self._config is not None and self._config.dominates(own, label)

    # Words

    def explain(self, ask: Ask, verdict: Verdict) -> Sequence[str]:
        if ask.question == "connect":
            return ()
        client = ask.who.client
        token = self.settings.tokens.get(client)
        if token is None:
            return (f"{client} has no token: [families.trust.tokens.{client}]",)
        filters = token.publish if ask.question == "publish" else token.subscribe
        which = "F_p" if ask.question == "publish" else "F_s"
        shown = ", ".join(filters[:_SHOWN]) + ", ..." * (len(filters) > _SHOWN)
        return (f"{which} of {client}'s token: {shown or 'nothing'}",)

    def _token(self, client: str) -> LocalToken:
        return self.settings.tokens.get(client, _NONE)


def _dep(client: str) -> Dep:
    return (settings.NAME, "token", client)
