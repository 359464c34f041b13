"""What a client's token lets it do at its home gateway (Chen, Vidalis and Yang, III-A): publish on
topics in F_p, and subscribe to filters f ⊆ f' of F_s. Who has no token does neither.

What comes from other sites is judged before it comes here (exchange.py); here it is one more topic,
@SITE/TOPIC, that a token has or has not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from sealmq.kinds import GATEWAY
from sealmq_spec.errors import Malformed
from sealmq_spec.topics import check_filter, is_reserved, matches

from ..api import (
    FOREVER,
    Ask,
    Change,
    Dep,
    Duties,
    Duty,
    Family,
    Follow,
    Policy,
    Verdict,
    allow,
    deny,
)
from ..filters import covers
from ..shared import PUBLIC, inner
from . import rules, settings
from .settings import LocalToken, Settings

_SHOWN = 5
_NONE = LocalToken()
_FOLLOW: tuple[Duty, ...] = (Follow(),)
_CONNECT = allow(rules.CONNECT, "anybody may connect")
_BROUGHT = allow(rules.PUBLISH_BROUGHT, "it has been judged between sites")
_BRIDGE = allow(rules.SUBSCRIBE_BRIDGE, "what is exported is judged when it leaves")
_PASSED = allow(rules.DELIVER_BRIDGE, "what is exported is judged when it leaves")
_RECORDS = allow(rules.SUBSCRIBE_RECORDS, "public records")
_RECORD = allow(rules.DELIVER_RECORD, "a public record")


class Trust(Family):
    """Tokens of own clients, out of sealmq.toml."""

    name: ClassVar[str] = settings.NAME
    rules: ClassVar[Mapping[str, str]] = rules.RULES
    duties: ClassVar[Duties] = {"subscribe": frozenset({Follow})}

    def __init__(self) -> None:
        self.settings = Settings()

    def configure(self, config: Policy) -> Change:
        before, self.settings = self.settings.tokens, settings.read(config)
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
